"""From documents to sequences and masked batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from nextlevelbert import ChunkingRule, DataCollatorForVectorMasking, Document, PackedVectorDataset, encode_corpus
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP

LENGTHS = {"a": 300, "b": 1, "c": 40, "d": 120}  # words, so many tokens


@pytest.fixture(scope="module")
def corpus(minilm, tmp_path_factory):
    documents = [Document(name, f"{name} " * words) for name, words in LENGTHS.items()]
    rule = ChunkingRule.from_tokenizer(minilm.tokenizer, 12)
    return encode_corpus(
        documents, minilm, rule, tmp_path_factory.mktemp("corpus"), characters_per_part=600, progress=False
    )


@settings(deadline=None, max_examples=30)
@given(length=st.integers(3, 80))
def test_packing_keeps_every_chunk_and_closes_every_document(corpus, length):
    dataset = PackedVectorDataset(corpus, length)
    rows = [dataset[i] for i in range(len(dataset))]
    assert all(len(row["special_ids"]) == length for row in rows[:-1])
    assert all(row["special_ids"][0] == CLS for row in rows)
    specials = torch.cat([row["special_ids"][1:] for row in rows])
    vectors = torch.cat([row["inputs_embeds"][1:] for row in rows])
    assert (specials == SEP).sum() == len(corpus)
    assert set(specials.tolist()) == {NOT_SPECIAL, SEP}
    assert torch.equal(vectors[specials == NOT_SPECIAL], corpus.vectors(0, corpus.num_chunks))
    assert (vectors[specials == SEP] == 0).all()
    ends = torch.nonzero(specials == SEP).flatten() + 1 - torch.arange(1, len(corpus) + 1)
    assert ends.tolist() == corpus.document_offsets[1:].tolist()  # each [SEP] directly after its document


def test_a_choice_of_documents(corpus):
    dataset = PackedVectorDataset(corpus, 16, documents=[1, 3])
    rows = [dataset[i] for i in range(len(dataset))]
    vectors = torch.cat([row["inputs_embeds"][row["special_ids"] == NOT_SPECIAL] for row in rows])
    assert torch.equal(vectors, torch.cat([corpus["b"].vectors, corpus["d"].vectors]))
    with pytest.raises(IndexError, match="is not among"):
        dataset[len(dataset)]
    with pytest.raises(ValueError, match="at least 3"):
        PackedVectorDataset(corpus, 2)
    for wrong in ([-1], [4], np.array([True, False, True, False])):
        with pytest.raises(ValueError, match="numbers from 0 to 3"):
            PackedVectorDataset(corpus, 16, documents=wrong)


def test_the_collator_s_batch(corpus):
    dataset = PackedVectorDataset(corpus, 16)
    rows = [dataset[i] for i in range(len(dataset))]
    batch = DataCollatorForVectorMasking(probability=0.5, mask_share=0.5, random_share=0.3)(rows)
    before = pad_sequence([row["special_ids"] for row in rows], batch_first=True, padding_value=PAD)
    real = before == NOT_SPECIAL
    selected = batch["mask_positions"]
    assert batch["labels"].dtype == batch["inputs_embeds"].dtype == torch.float16
    assert torch.equal(batch["labels"][real], corpus.vectors(0, corpus.num_chunks))
    assert not (selected & ~real).any()
    masked = batch["special_ids"] == MASK
    assert not (masked & ~selected).any()
    assert torch.equal(batch["special_ids"][~masked], before[~masked])
    changed = (batch["inputs_embeds"] != batch["labels"]).any(dim=-1)
    assert not (changed & ~(selected & ~masked)).any()
    assert 0 < changed.sum() < (selected & ~masked).sum()  # some replaced, some kept
    for row, column in changed.nonzero().tolist():
        others = batch["labels"][torch.arange(len(rows)) != row][real[torch.arange(len(rows)) != row]]
        assert (others == batch["inputs_embeds"][row, column]).all(dim=-1).any()


def test_in_a_batch_of_one_no_vector_replaces_itself():
    special_ids = torch.tensor([CLS, NOT_SPECIAL, NOT_SPECIAL, SEP, NOT_SPECIAL])
    vectors = torch.arange(5.0).half()[:, None]
    replace_all = DataCollatorForVectorMasking(probability=1, mask_share=0, random_share=1)
    for epoch in range(20):
        batch = replace_all([{"inputs_embeds": vectors, "special_ids": special_ids, "mask_key": (42, epoch, 0)}])
        assert batch["mask_positions"][0].tolist() == [False, True, True, False, True]
        drawn = batch["inputs_embeds"][0, [1, 2, 4], 0]
        assert not (drawn == torch.tensor([1, 2, 4])).any()
        assert set(drawn.tolist()) <= {1, 2, 4}


def test_replacements_are_vectors_of_other_sequences_as_they_were():
    """A vector that was itself replaced is no source: it may come from the sequence that it would go to."""
    specials = torch.tensor([CLS] + [NOT_SPECIAL] * 20)
    rows = [
        {"inputs_embeds": torch.full((21, 2), float(row)), "special_ids": specials, "mask_key": (0, 0, row)}
        for row in range(3)
    ]
    batch = DataCollatorForVectorMasking(probability=1.0, mask_share=0.0, random_share=1.0)(rows)
    for row, vectors in enumerate(batch["inputs_embeds"][:, 1:, 0].tolist()):
        assert row not in vectors


def test_masks_follow_the_epoch_and_nothing_else(corpus):
    dataset = PackedVectorDataset(corpus, 32, seed=9)
    collate = DataCollatorForVectorMasking()

    def positions():
        return collate([dataset[i] for i in range(len(dataset))])["mask_positions"]

    first = positions()
    torch.manual_seed(1)
    np.random.seed(1)
    assert torch.equal(positions(), first)
    dataset.epoch = 1
    assert not torch.equal(positions(), first)
    dataset.epoch = 0
    assert torch.equal(positions(), first)


@pytest.mark.parametrize(
    "values",
    [{"probability": 0}, {"probability": 1.5}, {"mask_share": 0.95}, {"random_share": -0.1}, {"mask_share": math.nan}],
)
def test_shares_that_cannot_be(values):
    with pytest.raises(ValueError, match=r"probability|share"):
        DataCollatorForVectorMasking(**values)
