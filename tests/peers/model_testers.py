"""transformers' common model tests over tiny models of this package.

`test_transformers_common.py` copies this file beside those tests, whose archive has no place for
it otherwise; by itself it cannot be imported.
"""

import copy
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import BertConfig

import nextlevelbert as nlb

from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin

WORDS = 50
ROWS = 3
PAD, CLS, SEP, MASK = range(4)
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "vocab_size": WORDS,
    "max_position_embeddings": 48,
}


def over_chunks(config_class: type, **fields: Any) -> Any:
    """A configuration over chunks of eight tokens, two of them special."""
    return config_class(
        encoder_config=BertConfig(**{**SIZES, "vocab_size": 1}),
        chunk_encoder_config=BertConfig(**SIZES),
        chunk_size=8,
        chunk_prefix_ids=[CLS],
        chunk_suffix_ids=[SEP],
        classifier_hidden_size=16,
        num_labels=3,
        **fields,
    )


def over_pieces(config_class: type, **fields: Any) -> Any:
    return config_class(
        encoder_config=BertConfig(**SIZES), cls_token_id=CLS, num_labels=3, **fields
    )


def cdlm() -> nlb.CdlmConfig:
    return nlb.CdlmConfig(
        **SIZES,
        attention_window=4,
        pad_token_id=PAD,
        mask_token_id=MASK,
        pair_scorer_hidden_size=16,
        num_labels=3,
    )


def random_tokens(length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(MASK + 1, WORDS, (ROWS, length))
    ids[:, 0] = CLS
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def random_vectors(*shape: int) -> torch.Tensor:
    vectors = torch.randn(*shape, SIZES["hidden_size"])
    return torch.nn.functional.normalize(vectors, dim=-1)


def masked_sequences() -> dict[str, torch.Tensor]:
    special_ids = torch.full((ROWS, 9), -1)
    special_ids[:, 0] = CLS
    special_ids[:, 4] = MASK
    special_ids[:, 6] = MASK
    special_ids[:, -1] = SEP
    return {
        "inputs_embeds": random_vectors(ROWS, 9),
        "special_ids": special_ids,
        "mask_positions": special_ids == MASK,
    }


def pairs_of_segments() -> dict[str, torch.Tensor]:
    special_ids = torch.full((ROWS, 2, 6), -1)
    special_ids[..., 0] = CLS
    special_ids[..., -1] = SEP
    return {
        "inputs_embeds": random_vectors(ROWS, 2, 6),
        "special_ids": special_ids,
        "document_ids": torch.arange(ROWS),
    }


def two_sentences() -> dict[str, torch.Tensor]:
    batch = random_tokens(29)
    batch["input_ids"][:, 14] = CLS
    return batch


def wide_tokens() -> dict[str, torch.Tensor]:
    batch = random_tokens(12)
    wide = torch.zeros_like(batch["input_ids"])
    wide[:, 0] = 1
    return {**batch, "global_attention_mask": wide}


def two_mentions() -> dict[str, torch.Tensor]:
    spans = torch.tensor([[[1, 3], [5, 6]]]).expand(ROWS, 2, 2)
    return {
        **wide_tokens(),
        "mention_spans": spans,
        "mention_pairs": torch.zeros_like(spans[:, :1]),
    }


def question_with_paragraphs() -> dict[str, torch.Tensor]:
    ones = torch.ones(ROWS, 1, dtype=torch.long)
    return {**wide_tokens(), "sentence_index": 4 * ones, "paragraph_index": 2 * ones}


def labels_of_question() -> dict[str, torch.Tensor]:
    ones = torch.ones(ROWS, 1, dtype=torch.long)
    return {
        "start_positions": ones,
        "end_positions": ones,
        "type_labels": torch.arange(ROWS),
        "sentence_labels": ones,
        "paragraph_labels": ones,
    }


def class_labels() -> dict[str, torch.Tensor]:
    return {"labels": torch.arange(ROWS)}


@dataclass
class Case:
    """A model class and its inputs.

    `is_alone` is false if the main input does not suffice: transformers' comparisons of attention
    implementations make inputs from the main one.
    """

    model_class: type
    config: Callable[[], Any]
    inputs: Callable[[], dict[str, torch.Tensor]]
    length: int
    labels: Callable[[], dict[str, torch.Tensor]] | None = None
    is_alone: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)


DOCUMENT = 29  # four chunks of at most six tokens between two special ones, and a fifth
OVER_CHUNKS = {"_is_composite": True, "test_resize_embeddings": False}
OVER_PIECES = {"_is_composite": True, "has_attentions": False}

CASES = {
    "NextLevelBert": Case(
        nlb.NextLevelBertModel,
        lambda: over_chunks(nlb.NextLevelBertConfig),
        lambda: random_tokens(DOCUMENT),
        length=7,
        attributes=OVER_CHUNKS,
    ),
    "NextLevelBertResidual": Case(
        nlb.NextLevelBertForSequenceClassification,
        lambda: over_chunks(nlb.NextLevelBertConfig, pooling="residual", whiten_chunks=True),
        lambda: random_tokens(DOCUMENT),
        length=7,
        labels=class_labels,
        attributes=OVER_CHUNKS,
    ),
    "NextLevelBertMasked": Case(
        nlb.NextLevelBertForMaskedVectorModeling,
        lambda: over_chunks(nlb.NextLevelBertConfig),
        masked_sequences,
        length=9,
        labels=lambda: {"labels": torch.ones(ROWS, 9, SIZES["hidden_size"])},
        is_alone=False,
        attributes=OVER_CHUNKS,
    ),
    "NextLevelBertContrastive": Case(
        nlb.NextLevelBertForContrastiveLearning,
        lambda: over_chunks(nlb.NextLevelBertConfig),
        pairs_of_segments,
        length=6,
        is_alone=False,
        attributes=OVER_CHUNKS,
    ),
    "Hate": Case(
        nlb.HateForSequenceClassification,
        lambda: over_chunks(nlb.HateConfig),
        lambda: random_tokens(DOCUMENT),
        length=6,
        labels=class_labels,
        attributes=OVER_CHUNKS,
    ),
    "ChunkBert": Case(
        nlb.ChunkBertForSequenceClassification,
        lambda: over_pieces(
            nlb.ChunkBertConfig, chunk_size=8, num_averaged_layers=2, num_filters=5
        ),
        lambda: random_tokens(DOCUMENT),
        length=DOCUMENT,
        labels=class_labels,
        attributes=OVER_PIECES,
    ),
    "BertAl": Case(
        nlb.BertAlForExtractiveSummarization,
        lambda: over_pieces(nlb.BertAlConfig, segment_length=8),
        two_sentences,
        length=DOCUMENT,
        labels=lambda: {"labels": torch.tensor([[0, 1]] * ROWS)},
        attributes=OVER_PIECES,
    ),
    "CdlmMaskedLM": Case(
        nlb.CdlmForMaskedLM,
        cdlm,
        wide_tokens,
        length=12,
        labels=lambda: {"labels": torch.ones(ROWS, 12, dtype=torch.long)},
    ),
    "CdlmCoreference": Case(
        nlb.CdlmForCrossDocumentCoreference,
        cdlm,
        two_mentions,
        length=12,
        labels=lambda: {"labels": torch.ones(ROWS, 1)},
        is_alone=False,
    ),
    "CdlmQuestions": Case(
        nlb.CdlmForMultiHopQuestionAnswering,
        cdlm,
        question_with_paragraphs,
        length=12,
        labels=labels_of_question,
        is_alone=False,
    ),
}


class ModelTester:
    """The sizes, the configuration and the inputs that the common tests ask for."""

    __test__ = False

    def __init__(self, case: Case) -> None:
        self.case = case
        self.batch_size = ROWS
        self.seq_length = case.length
        self.encoder_seq_length = case.length
        # Longformer's attention has a column for each key of the window and each global token.
        self.key_length = case.length
        if case.config is cdlm:
            self.key_length = 4 + 2
        self.hidden_size = SIZES["hidden_size"]
        self.num_hidden_layers = SIZES["num_hidden_layers"]
        self.num_attention_heads = SIZES["num_attention_heads"]
        self.num_labels = 3
        self.is_training = case.labels is not None

    def get_config(self) -> Any:
        return self.case.config()

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, torch.Tensor]]:
        return self.get_config(), self.case.inputs()


class CommonTests(ModelTesterMixin):
    case: Case

    def setUp(self) -> None:
        torch.manual_seed(0)
        self.model_tester = ModelTester(self.case)
        from_main_input = ("test_eager_matches_sdpa", "test_sdpa_can_dispatch_on_flash")
        if not self.case.is_alone and self._testMethodName.startswith(from_main_input):
            self.skipTest("the test makes its inputs from the main input alone")

    def _prepare_for_class(
        self, inputs_dict: dict[str, Any], model_class: type, return_labels: bool = False
    ) -> dict[str, Any]:
        inputs = copy.deepcopy(inputs_dict)
        if return_labels and self.case.labels is not None:
            inputs |= self.case.labels()
        return inputs

    def test_config(self) -> None:
        tester = ConfigTester(
            self,
            config_class=type(self.case.config()),
            has_text_modality=False,
            common_properties=["hidden_size"],
        )
        tester.run_common_tests()


for name, case in CASES.items():
    attributes = {**case.attributes, "case": case, "all_model_classes": (case.model_class,)}
    globals()[name] = type(name, (CommonTests, unittest.TestCase), attributes)
del name, case
