"""What the golden files were made from: classes, and one set of documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nextlevelbert import (
    BertAlForExtractiveSummarization,
    BertAlForSequenceClassification,
    BertAlModel,
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
    ChunkBertForSequenceClassification,
    ChunkBertModel,
    Document,
    HateForMaskedSentencePrediction,
    HateForSequenceClassification,
    HateModel,
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)

from .outputs import STORIES

FOLDER = Path(__file__).parent
CLASSES: dict[str, type[Any]] = {
    "nextlevelbert": NextLevelBertModel,
    "nextlevelbert-masked": NextLevelBertForMaskedVectorModeling,
    "nextlevelbert-contrastive": NextLevelBertForContrastiveLearning,
    "nextlevelbert-classification": NextLevelBertForSequenceClassification,
    "nextlevelbert-choice": NextLevelBertForMultipleChoice,
    "hate": HateModel,
    "hate-masked": HateForMaskedSentencePrediction,
    "hate-classification": HateForSequenceClassification,
    "chunkbert": ChunkBertModel,
    "chunkbert-classification": ChunkBertForSequenceClassification,
    "bert-al": BertAlModel,
    "bert-al-summarization": BertAlForExtractiveSummarization,
    "bert-al-classification": BertAlForSequenceClassification,
    "cdlm": CdlmModel,
    "cdlm-masked": CdlmForMaskedLM,
    "cdlm-matching": CdlmForDocumentMatching,
    "cdlm-coreference": CdlmForCrossDocumentCoreference,
    "cdlm-questions": CdlmForMultiHopQuestionAnswering,
}

DOCUMENTS = [Document(f"story-{number}", text) for number, text in enumerate(STORIES)]
