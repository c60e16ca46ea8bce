"""Long-document encoders for Hugging Face Transformers: half a million tokens as one sequence of chunk vectors.

Importing this package registers its models with `AutoConfig`, `AutoModel` and the `AutoModelFor…` classes, so
that `AutoModel.from_pretrained` and `SentenceTransformer` open its checkpoints without a flag.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoProcessor,
)

__version__ = "0.1.0"

from .corpus import ChunkVectors, DataCollatorForLabelledVectors, VectorCorpus, encode_corpus
from .data.documents import Document, read_documents
from .encoders import load_chunk_encoder
from .evaluation.chunk_scores import chunk_similarity
from .fitting import combine_chunk_encoders, fit_tfidf_encoder, fit_whitening
from .models.bert_al_sentences import ExtractiveSummary
from .models.chunking import ChunkingRule
from .models.configuration_bert_al import BertAlConfig
from .models.configuration_cdlm import CdlmConfig
from .models.configuration_chunkbert import ChunkBertConfig
from .models.configuration_hate import HateConfig
from .models.configuration_nextlevelbert import NextLevelBertConfig
from .models.modeling_bert_al import BertAlForExtractiveSummarization, BertAlForSequenceClassification, BertAlModel
from .models.modeling_cdlm import (
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
)
from .models.modeling_chunkbert import ChunkBertForSequenceClassification, ChunkBertModel
from .models.modeling_hate import HateForMaskedSentencePrediction, HateForSequenceClassification, HateModel
from .models.modeling_nextlevelbert import (
    DocumentEmbedding,
    DocumentPlan,
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from .models.processing_cdlm import CdlmProcessor, read_marked
from .models.sentences import text_sentences
from .pretraining.document_sets import ClusterDataset, DataCollatorForCrossDocumentMasking
from .pretraining.segment_pairs import DataCollatorForSegmentPairs, SegmentPairDataset
from .pretraining.sequences import DataCollatorForVectorMasking, DocumentVectorDataset, PackedVectorDataset
from .static_checkpoint import static_checkpoint
from .vector_cache import CachedEncoder, VectorCache

AutoConfig.register("nextlevelbert", NextLevelBertConfig, exist_ok=True)
AutoModel.register(NextLevelBertConfig, NextLevelBertModel, exist_ok=True)
AutoModelForPreTraining.register(NextLevelBertConfig, NextLevelBertForMaskedVectorModeling, exist_ok=True)
AutoModelForSequenceClassification.register(NextLevelBertConfig, NextLevelBertForSequenceClassification, exist_ok=True)
AutoModelForMultipleChoice.register(NextLevelBertConfig, NextLevelBertForMultipleChoice, exist_ok=True)

AutoConfig.register("chunkbert", ChunkBertConfig, exist_ok=True)
AutoModel.register(ChunkBertConfig, ChunkBertModel, exist_ok=True)
AutoModelForSequenceClassification.register(ChunkBertConfig, ChunkBertForSequenceClassification, exist_ok=True)

AutoConfig.register("hate", HateConfig, exist_ok=True)
AutoModel.register(HateConfig, HateModel, exist_ok=True)
AutoModelForPreTraining.register(HateConfig, HateForMaskedSentencePrediction, exist_ok=True)
AutoModelForSequenceClassification.register(HateConfig, HateForSequenceClassification, exist_ok=True)

AutoConfig.register("bert-al", BertAlConfig, exist_ok=True)
AutoModel.register(BertAlConfig, BertAlModel, exist_ok=True)
AutoModelForTokenClassification.register(BertAlConfig, BertAlForExtractiveSummarization, exist_ok=True)
AutoModelForSequenceClassification.register(BertAlConfig, BertAlForSequenceClassification, exist_ok=True)

AutoConfig.register("cdlm", CdlmConfig, exist_ok=True)
AutoModel.register(CdlmConfig, CdlmModel, exist_ok=True)
AutoModelForMaskedLM.register(CdlmConfig, CdlmForMaskedLM, exist_ok=True)
AutoModelForPreTraining.register(CdlmConfig, CdlmForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(CdlmConfig, CdlmForDocumentMatching, exist_ok=True)
AutoModelForQuestionAnswering.register(CdlmConfig, CdlmForMultiHopQuestionAnswering, exist_ok=True)
AutoProcessor.register(CdlmConfig, CdlmProcessor, exist_ok=True)

__all__ = [
    "BertAlConfig",
    "BertAlForExtractiveSummarization",
    "BertAlForSequenceClassification",
    "BertAlModel",
    "CdlmConfig",
    "CdlmForCrossDocumentCoreference",
    "CdlmForDocumentMatching",
    "CdlmForMaskedLM",
    "CdlmForMultiHopQuestionAnswering",
    "CdlmModel",
    "CdlmProcessor",
    "ChunkBertConfig",
    "ChunkBertForSequenceClassification",
    "ChunkBertModel",
    "ChunkVectors",
    "ChunkingRule",
    "ClusterDataset",
    "DataCollatorForCrossDocumentMasking",
    "DataCollatorForLabelledVectors",
    "DataCollatorForSegmentPairs",
    "DataCollatorForVectorMasking",
    "Document",
    "DocumentEmbedding",
    "DocumentPlan",
    "DocumentVectorDataset",
    "ExtractiveSummary",
    "HateConfig",
    "HateForMaskedSentencePrediction",
    "HateForSequenceClassification",
    "HateModel",
    "NextLevelBertConfig",
    "NextLevelBertForContrastiveLearning",
    "NextLevelBertForMaskedVectorModeling",
    "NextLevelBertForMultipleChoice",
    "NextLevelBertForSequenceClassification",
    "NextLevelBertModel",
    "PackedVectorDataset",
    "SegmentPairDataset",
    "VectorCache",
    "CachedEncoder",
    "VectorCorpus",
    "chunk_similarity",
    "combine_chunk_encoders",
    "fit_tfidf_encoder",
    "fit_whitening",
    "encode_corpus",
    "load_chunk_encoder",
    "read_documents",
    "read_marked",
    "static_checkpoint",
    "text_sentences",
]
