"""All public names of the package; importing them loads torch and transformers."""

from .bundled import example_books
from .corpus.encode import ChunkVectors, encode_corpus
from .corpus.store import VectorCorpus
from .data.documents import Document
from .data.reading import read_documents
from .finetuning.collators import DataCollatorForDocumentChoice, DataCollatorForLabelledVectors
from .fitting import static_checkpoint
from .models.bert_al_sentences import ExtractiveSummary
from .models.chunking import ChunkingRule
from .models.configuration_bert_al import BertAlConfig
from .models.configuration_cdlm import CdlmConfig
from .models.configuration_chunkbert import ChunkBertConfig
from .models.configuration_hate import HateConfig
from .models.configuration_nextlevelbert import NextLevelBertConfig
from .models.document_encoding import DocumentEmbedding, DocumentPlan
from .models.from_encoder import load_chunk_encoder
from .models.model_names import model_path
from .models.modeling_bert_al import (
    BertAlForExtractiveSummarization,
    BertAlForSequenceClassification,
    BertAlModel,
)
from .models.modeling_cdlm import (
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
)
from .models.modeling_chunkbert import ChunkBertForSequenceClassification, ChunkBertModel
from .models.modeling_hate import (
    HateForMaskedSentencePrediction,
    HateForSequenceClassification,
    HateModel,
)
from .models.modeling_nextlevelbert import (
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from .models.processing_cdlm import CdlmProcessor, read_marked
from .models.registration import register_models
from .models.text_sentences import text_sentences
from .pretraining.collators import DataCollatorForSegmentPairs, DataCollatorForVectorMasking
from .pretraining.datasets import DocumentVectorDataset, PackedVectorDataset, SegmentPairDataset
from .pretraining.document_sets import ClusterDataset, DataCollatorForCrossDocumentMasking
from .pretraining.scores import MaskedVectorMetrics
from .spans import merge_spans, whole_sentences
from .vector_cache import CachedEncoder, VectorCache

register_models()

__all__ = [
    "BertAlConfig",
    "BertAlForExtractiveSummarization",
    "BertAlForSequenceClassification",
    "BertAlModel",
    "CachedEncoder",
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
    "DataCollatorForDocumentChoice",
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
    "MaskedVectorMetrics",
    "NextLevelBertConfig",
    "NextLevelBertForContrastiveLearning",
    "NextLevelBertForMaskedVectorModeling",
    "NextLevelBertForMultipleChoice",
    "NextLevelBertForSequenceClassification",
    "NextLevelBertModel",
    "PackedVectorDataset",
    "SegmentPairDataset",
    "VectorCache",
    "VectorCorpus",
    "encode_corpus",
    "example_books",
    "load_chunk_encoder",
    "merge_spans",
    "model_path",
    "read_documents",
    "read_marked",
    "static_checkpoint",
    "text_sentences",
    "whole_sentences",
]
