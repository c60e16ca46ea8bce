"""A training step waits for a GPU a few times at most: counted on a CPU, by what would wait."""

from collections import Counter

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from nextlevelbert import (
    BertAlConfig,
    BertAlForExtractiveSummarization,
    BertAlForSequenceClassification,
    ChunkBertConfig,
    ChunkBertForSequenceClassification,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForSequenceClassification,
)
from nextlevelbert.models.modeling_cdlm import (
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMultiHopQuestionAnswering,
)
from nextlevelbert.models.windows import pad_vectors

from ..toys import cdlm, tokens
from ..toys.vectors import packed_batch, toy_config

WAITING = {
    "aten._local_scalar_dense",
    "aten.nonzero",
    "aten.masked_select",
    "aten.bincount",
    "aten._unique2",
    "aten.unique_dim",
    "aten.unique_consecutive",
    "aten.equal",
}


class Operators(TorchDispatchMode):
    """Counts operators that wait for a GPU, also in the backward pass."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function.overloadpacket)
        is_index = name in (
            "aten.index",
            "aten.index_put",
            "aten.index_put_",
            "aten._index_put_impl_",
        )
        if is_index and any(index is not None and index.dtype == torch.bool for index in args[1]):
            self.counts[f"{name} by a mask"] += 1
        if name in WAITING:
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))


class Methods(TorchFunctionMode):
    """Counts copies to the CPU, which no operator shows on a CPU."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.tolist, torch.Tensor.cpu):
            self.counts[function.__name__] += 1
        return function(*args, **(kwargs or {}))


def waits(model, batch):
    """Returns what a training step waits for."""
    counts = Counter()
    model.train()
    with Methods(counts), Operators(counts):
        model(**batch).loss.backward()
    return dict(counts)


@pytest.mark.parametrize("loss_mean", ["sequences", "vectors"])
@pytest.mark.parametrize("loss", ["smooth_l1", "cross_entropy"])
def test_a_step_of_pretraining_waits_once(loss, loss_mean):
    config = toy_config(loss=loss, loss_mean=loss_mean, num_candidates=6)
    model = NextLevelBertForMaskedVectorModeling(config)
    if loss == "cross_entropy":
        model.candidates = torch.randn(6, 32)

    assert waits(model, packed_batch()) == {"tolist": 1}


def test_a_step_over_stored_vectors_waits_once():
    """Documents of one window and of several, and one that is short."""
    model = NextLevelBertForSequenceClassification(toy_config(num_labels=2))
    batch = pad_vectors([torch.randn(length, 32) for length in (30, 8, 3)])

    assert waits(model, {**batch, "labels": torch.tensor([0, 1, -100])}) == {"tolist": 1}


TOKEN_MODELS = {
    ChunkBertForSequenceClassification: ChunkBertConfig,
    BertAlForSequenceClassification: BertAlConfig,
    BertAlForExtractiveSummarization: BertAlConfig,
}


@pytest.mark.parametrize("model_class", TOKEN_MODELS)
def test_a_step_from_tokens_waits_three_times_at_most(model_class):
    sizes = {"chunk_size": 8}
    if TOKEN_MODELS[model_class] is BertAlConfig:
        sizes = {"segment_length": 8, "tokens_at_once": 64, "cls_token_id": tokens.CLS}
    encoder = tokens.ENCODERS["bert"].to_dict()
    model = model_class(TOKEN_MODELS[model_class](encoder_config=encoder, num_labels=2, **sizes))
    _, ids, mask = tokens.batch()
    labels = torch.tensor([0, 1, 1, 0])
    if model_class is BertAlForExtractiveSummarization:
        labels = (ids == tokens.CLS).long()

    counts = waits(model, {"input_ids": ids, "attention_mask": mask, "labels": labels})

    assert sum(counts.values()) <= 3, counts


@pytest.mark.parametrize("window", [4, 24])
def test_a_step_of_cdlm_waits_three_times_at_most(window):
    ids, mask = cdlm.batch()
    rows = {"input_ids": ids[:3], "attention_mask": mask[:3]}
    batches = {
        CdlmForDocumentMatching: {**rows, "labels": torch.tensor([0, 1, 1])},
        CdlmForCrossDocumentCoreference: {
            **rows,
            "mention_spans": cdlm.SPANS,
            "mention_pairs": cdlm.PAIRS,
            "labels": torch.ones(3, 2),
        },
        CdlmForMultiHopQuestionAnswering: {**cdlm.question_batch(), **cdlm.ANSWERS},
    }
    for model_class, batch in batches.items():
        counts = waits(cdlm.tiny(model_class, attention_window=window), batch)

        assert sum(counts.values()) <= 3, (model_class, counts)
