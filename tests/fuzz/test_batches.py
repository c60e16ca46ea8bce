"""Numbers of any kind: in configurations, collators and `forward`."""

from __future__ import annotations

import functools

import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given
from hypothesis import strategies as st

from nextlevelbert import (
    BertAlConfig,
    CdlmConfig,
    CdlmProcessor,
    ChunkBertConfig,
    ChunkingRule,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    HateConfig,
    NextLevelBertConfig,
    PackedVectorDataset,
    SegmentPairDataset,
    VectorCorpus,
)

from ..golden.inputs import CLASSES, FOLDER
from ..golden.outputs import STORIES
from .cases import NUMBERS, cases, only_our_errors

SIZES = st.integers(-2, 14) | st.sampled_from([10**6, 2**31, 2**63, -(10**20)])
SHARES = NUMBERS | st.floats(0, 1)


@functools.cache
def model_of(name):
    return CLASSES[name].from_pretrained(FOLDER / name).eval()


@functools.cache
def corpus():
    return VectorCorpus(FOLDER / "corpus")


def finite(output):
    for name, value in output.items():
        if torch.is_tensor(value) and value.is_floating_point():
            assert torch.isfinite(value).all() or (name == "scores" and not value.isnan().any()), name


@cases(0.03)
@given(
    st.sampled_from([PackedVectorDataset, DocumentVectorDataset]), SIZES, SHARES, SHARES, SHARES,
    st.lists(st.integers(-2, 7), max_size=4) | st.none(), st.integers(0, 2**32), st.integers(1, 3),
)  # fmt: skip
@torch.no_grad()
def test_sequences_and_their_masks(kind, length, probability, masked, drawn, documents, seed, rows):
    with only_our_errors():
        dataset = kind(corpus(), length, documents, seed=seed)
        chunks = sum(int((dataset[index]["special_ids"] == -1).sum()) for index in range(len(dataset)))
        chosen = range(len(corpus())) if documents is None else documents
        assert chunks == sum(len(corpus()[document].vectors) for document in chosen)  # nothing is dropped
        collator = DataCollatorForVectorMasking(probability, masked, drawn)
        batch = collator([dataset[seed % len(dataset)]] * rows)
        name = "hate-masked" if kind is DocumentVectorDataset else "nextlevelbert-masked"
        finite(model_of(name)(**batch))


@cases(0.03)
@given(
    SIZES, SIZES, st.sampled_from(["document", "neighbours", "others"]), SIZES, st.integers(0, 2**32),
    st.none() | SHARES, st.integers(1, 4),
)  # fmt: skip
@torch.no_grad()
def test_pairs_of_segments(shortest, longest, positives, pairs, seed, probability, rows):
    with only_our_errors():
        masking = None if probability is None else DataCollatorForVectorMasking(probability)
        collator = DataCollatorForSegmentPairs(shortest, longest, positives, masking)
        if pairs > 100:
            return  # as many as are asked for are drawn
        dataset = SegmentPairDataset(corpus(), shortest, longest, positives, pairs, seed=seed)
        finite(model_of("nextlevelbert-contrastive")(**collator([dataset[i % len(dataset)] for i in range(rows)])))


@functools.cache
def processor():
    return CdlmProcessor.from_pretrained(FOLDER / "cdlm-masked")


@cases(0.02)
@given(
    st.lists(st.lists(st.sampled_from(STORIES), max_size=4), max_size=4), st.none() | st.integers(-1, 60),
    st.booleans(), st.sampled_from(["masked", "prefix", "none", "other"]), SHARES,
)  # fmt: skip
@torch.no_grad()
def test_sets_of_documents_and_their_masks(sets, length, related, pattern, probability):
    with only_our_errors():
        collator = DataCollatorForCrossDocumentMasking(processor(), pattern, probability)
        dataset = ClusterDataset(sets, processor(), length, related)
        finite(model_of("cdlm-masked")(**collator([dataset[index] for index in range(len(dataset))])))


FIELDS = {
    "chunk_size": SIZES, "max_chunks": SIZES | st.none(), "window_overlap": SIZES | st.none(), "temperature": NUMBERS,
    "classifier_hidden_size": SIZES, "chunking": st.sampled_from(["fixed", "sentences", "x"]),
    "chunk_prefix_ids": st.lists(SIZES, max_size=3), "chunk_suffix_ids": st.lists(SIZES, max_size=9),
    "long_documents": st.sampled_from(["window", "truncate", "error", 1]),
    "pooling": st.sampled_from(["mean", "x", None]),
    "vector_scale": NUMBERS | st.none(), "loss": st.sampled_from(["p_norm", "l1"]), "residual_start": NUMBERS,
    "segment_length": SIZES, "tokens_at_once": SIZES | st.none(), "max_training_tokens": SIZES | st.none(),
    "chunk_batch_size": SIZES | st.none(), "num_averaged_layers": SIZES, "num_filters": SIZES,
    "filter_sizes": st.lists(SIZES, max_size=4), "attention_window": SIZES | st.lists(SIZES, max_size=13),
    "max_position_embeddings": SIZES, "pair_scorer_hidden_size": SIZES, "num_hidden_layers": SIZES,
    "pad_token_id": SIZES | st.none(), "classifier_dropout": NUMBERS | st.none(), "sentence_token_ids": st.none(),
}  # fmt: skip
CONFIGS = (NextLevelBertConfig, HateConfig, ChunkBertConfig, BertAlConfig, CdlmConfig)


@cases(0.04)
@given(st.sampled_from(CONFIGS), st.data())
def test_configurations(kind, data):
    own = sorted(FIELDS.keys() & kind.__dataclass_fields__.keys())
    values = {name: data.draw(FIELDS[name], name) for name in data.draw(st.sets(st.sampled_from(own), max_size=4))}
    with only_our_errors():
        try:
            config = kind(**values)
        except StrictDataclassError as error:  # names the field, what was given and what is wanted
            if "field" not in str(error):
                raise
            return
        assert kind.from_dict(config.to_dict()).to_dict() == config.to_dict()
        if hasattr(config, "windows_of"):
            for chunks in (0, 1, 700):
                covered = {place for start, end in config.windows_of(chunks) for place in range(start, end)}
                assert covered == set(range(chunks))


@cases(0.01)
@given(SIZES, st.sampled_from(["fixed", "sentences", "x"]), st.lists(SIZES, max_size=3), SIZES | st.none())
def test_rules_for_chunks(size, mode, prefix, limit):
    with only_our_errors():
        rule = ChunkingRule(size, mode, tuple(prefix), (3,), max_chunk_size=limit)
        assert rule.boundaries(torch.arange(100).numpy())[-1] == 100


SHAPES = st.tuples(st.integers(0, 3), st.integers(0, 5)) | st.tuples(st.integers(0, 3))
IDS = st.sampled_from([torch.long, torch.int32, torch.float32, torch.bool])


def drawn_tensor(data, shape, name):
    dtype = data.draw(IDS, name)
    if dtype.is_floating_point:
        numbers = data.draw(st.lists(NUMBERS, min_size=1, max_size=4), name)
    else:
        numbers = data.draw(
            st.lists(st.integers(0, 89) | st.sampled_from([-100, -1, 90, 10**6]), min_size=1, max_size=4)
        )
    flat = torch.tensor(numbers).repeat(torch.Size(shape).numel())[: torch.Size(shape).numel()]
    return flat.reshape(shape).to(dtype)


FORWARDS = ("nextlevelbert", "hate", "chunkbert", "bert-al", "cdlm")
HEADS = tuple(
    name for name in CLASSES if name.endswith(("classification", "matching", "summarization", "cdlm-masked"))
)


@cases(0.06)
@given(st.sampled_from([*FORWARDS, *HEADS]), SHAPES, st.booleans(), st.booleans(), st.data())
@torch.no_grad()
def test_ids_and_masks_of_any_kind(name, shape, masked, types, data):
    inputs = {"input_ids": drawn_tensor(data, shape, "ids")}
    if masked:
        inputs["attention_mask"] = drawn_tensor(data, data.draw(st.just(shape) | SHAPES), "mask")
    if types:
        inputs["token_type_ids"] = drawn_tensor(data, data.draw(st.just(shape) | SHAPES), "types")
    if name in HEADS:
        inputs["labels"] = drawn_tensor(data, data.draw(st.just(shape[:1]) | SHAPES), "labels")
    with only_our_errors():
        finite(model_of(name)(**inputs))


@cases(0.06)
@given(
    st.sampled_from(["nextlevelbert", "hate", "nextlevelbert-classification", "nextlevelbert-choice"]),
    st.integers(0, 3), st.integers(0, 30), st.booleans(), st.lists(NUMBERS, min_size=1, max_size=3), st.data(),
)  # fmt: skip
@torch.no_grad()
def test_vectors_of_any_kind(name, documents, chunks, masked, numbers, data):
    vectors = torch.randn(documents, chunks, data.draw(st.sampled_from([16, 16, 16, 3])), dtype=torch.float32)
    for number, value in enumerate(numbers):
        if vectors.numel():
            vectors.view(-1)[(number * 37) % vectors.numel()] = value
    inputs = {"inputs_embeds": vectors.to(data.draw(st.sampled_from([torch.float32, torch.float16, torch.float64])))}
    if masked:
        inputs["attention_mask"] = drawn_tensor(data, (documents, chunks), "mask")
    if name.endswith(("choice", "classification")):
        shape = data.draw(st.sampled_from([(documents, 2, 16), (documents, 16), (1, 16)]))
        inputs["pair_embeds"] = torch.full(shape, data.draw(NUMBERS))
        inputs["labels"] = drawn_tensor(data, (documents,), "labels")
    with only_our_errors():
        finite(model_of(name)(**inputs))
