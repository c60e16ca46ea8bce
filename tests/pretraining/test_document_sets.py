"""Sets of documents: how they are sampled and masked."""

import re

import numpy as np
import pytest
import torch

from nextlevelbert import (
    CdlmModel,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.pretraining.document_sets import TokenSequence

SUBJECTS = ["rain", "bread", "stars", "trains", "whales", "music", "sugar", "glass"]
NUMBERS = "one two three four five six seven eight nine ten".split()


@pytest.fixture(scope="module")
def processor(toy_encoder_path):
    return CdlmProcessor.from_model(CdlmModel.from_encoder(toy_encoder_path, max_length=512))


def sets(words=4, documents=8):
    """Eight sets; every document has the word of its set, a number of its own, and more words that
    count up."""
    made = []
    for subject in SUBJECTS:
        counts = [" ".join((NUMBERS * 9)[n : n + words - 1]) for n in range(documents)]
        made.append([f"{subject} {count}".strip() for count in counts])
    return made


def documents_of(row, processor):
    """The documents of a sequence; the layout around them is looked at."""
    names = processor.tokenizer.convert_ids_to_tokens(row.input_ids.tolist())
    text = " ".join(names)
    assert re.fullmatch(r"\[CLS\]( <doc-s>( [a-z]+)+ </doc-s>)+ \[SEP\]", text)
    assert row.maskable.tolist() == list(map(str.isalpha, names))
    return re.findall(r"<doc-s> (.*?) </doc-s>", text)


@pytest.mark.parametrize(
    ("max_length", "words"), [(14, 40), (15, 1), (28, 4), (29, 40), (30, 4), (60, 4), (60, 40)]
)
def test_at_least_three_related_documents_and_never_too_long(processor, max_length, words):
    data = sets(words)
    dataset = ClusterDataset(data, processor, max_length)

    assert len(dataset) == 8

    share = (max_length - 2) // 3 - 2  # most that one document gives
    for originals, row in zip(data, dataset, strict=True):
        documents = documents_of(row, processor)
        assert 3 <= len(documents) <= 8
        lengths = [len(document.split()) for document in documents]
        length = 2 + sum(lengths) + 2 * len(lengths)
        assert length == len(row.input_ids) <= max_length
        if length < max_length - 2:  # room is left for no other document only where there is none
            assert len(documents) == 8
        assert set(lengths[:-1]) == {min(words, share)}
        assert lengths[-1] <= min(words, share)
        for document in documents:
            assert f" {document} " in f" {' ; '.join(originals)} "  # a stretch of the set


@pytest.mark.parametrize(("share", "length"), [(1 / 3, 8), (0.5, 13), (1.0, 28)])
def test_a_long_document_gives_a_stretch_of_its_share_drawn_anew(processor, share, length):
    """A share is taken of 30 tokens, and two tokens of it are separators."""
    data = [[" ".join(NUMBERS * 4)] * 4]
    starts = set()
    for row in ClusterDataset(data * 60, processor, 32, document_share=share):
        words = documents_of(row, processor)[0].split()
        assert len(words) == length
        starts.add(words[0])

    assert starts == set(NUMBERS)


@pytest.mark.parametrize("share", [0.05, 1.1])
def test_shares_of_a_document_that_cannot_be(processor, share):
    with pytest.raises(ValueError, match="share"):
        ClusterDataset(sets(), processor, 32, document_share=share)


def test_unrelated_documents_come_from_different_sets(processor):
    dataset = ClusterDataset(sets(), processor, 60, related=False)
    orders = set()
    for row in dataset:
        # One of every set, and 8 * 6 + 2 are 50 tokens, in an order of their own.
        subjects = [document.split()[0] for document in documents_of(row, processor)]
        assert sorted(subjects) == sorted(SUBJECTS)
        orders.add(tuple(subjects))

    assert len(orders) == len(dataset) == 8


def test_sets_that_are_too_small_are_counted(processor):
    data = [["one"] * 3, ["two"] * 2, [], ["three"] * 4]
    dataset = ClusterDataset(data, processor, 32)
    seen = [documents_of(row, processor)[0] for row in dataset]

    assert sorted(seen) == ["one", "three"]

    with pytest.raises(ValueError, match="at least 3 are needed"):
        ClusterDataset(data, processor, 32, related=False)
    with pytest.raises(ValueError, match="13 tokens"):
        ClusterDataset(data, processor, 13)


def long_sequence(count=100_000, key=(1, 2, 3)):
    """Ids of BERT's ordinary words, every tenth position not to be masked."""
    ids = np.random.default_rng(0).integers(2000, 30000, count)
    return TokenSequence(ids, np.arange(count) % 10 > 0, key)


def test_the_shares_of_the_paper(processor):
    sequence = long_sequence()
    before = sequence.input_ids.copy()
    batch = DataCollatorForCrossDocumentMasking(processor)([sequence])

    assert (sequence.input_ids == before).all()

    ids = batch["input_ids"][0].numpy()
    labels = batch["labels"][0].numpy()
    selected = labels != -100
    masked = ids == processor.tokenizer.mask_token_id

    assert not (selected & ~sequence.maskable).any()
    assert (labels[selected] == before[selected]).all()
    assert (ids[~selected] == before[~selected]).all()

    random = ids[selected & ~masked & (ids != before)]
    shares = selected.sum() / 90_000, masked.sum() / selected.sum(), len(random) / selected.sum()

    assert shares == pytest.approx((0.15, 0.8, 0.1), abs=0.014)  # four standard deviations

    # Random words are words, of the whole vocabulary.
    special = processor.tokenizer.convert_tokens_to_ids(
        ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", "<doc-s>"]
    )

    assert not np.isin(random, special).any()
    assert np.unique(random).size > 1_100


@pytest.mark.parametrize(
    ("pattern", "first"), [("masked", None), ("prefix", [6, 5]), ("none", [0, 0])]
)
def test_who_has_global_attention(processor, pattern, first):
    rows = [long_sequence(40), long_sequence(31, key=(4, 5, 6))]  # 15 % are 6 and 4.65
    batch = DataCollatorForCrossDocumentMasking(processor, pattern)(rows)

    assert batch["attention_mask"].sum(dim=1).tolist() == [40, 31]
    assert (batch["input_ids"][1, 31:] == processor.tokenizer.pad_token_id).all()

    wide = batch["global_attention_mask"]
    selected = batch["labels"] != -100

    assert selected.any(dim=1).all()

    if pattern == "masked":
        assert torch.equal(wide, selected.long())
    else:
        assert torch.equal(wide, (torch.arange(40) < torch.tensor(first)[:, None]).long())


def test_masks_follow_their_key_alone(processor):
    collator = DataCollatorForCrossDocumentMasking(processor)
    alone = collator([long_sequence(200)])
    np.random.seed(1)
    together = collator([long_sequence(300, key=(7, 7, 7)), long_sequence(200)])
    for name in alone:
        assert torch.equal(together[name][1, :200], alone[name][0])

    assert not torch.equal(collator([long_sequence(200, key=(1, 3, 3))])["labels"], alone["labels"])


def test_a_mask_token_of_a_document_is_not_to_be_predicted(processor):
    documents = ["the [MASK] cat", "a dog", "he ran"]
    mask_token_id = processor.tokenizer.mask_token_id

    row = ClusterDataset([documents], processor)[0]

    is_mask = row.input_ids == mask_token_id
    assert is_mask.sum() == 1
    assert not row.maskable[is_mask].any()
