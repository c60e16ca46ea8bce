"""Sets of documents: how they are read, sampled and masked."""

from __future__ import annotations

import gzip
import json
import math
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
from nextlevelbert.pretraining.document_sets import DocumentClusters, hold_out_clusters, read_document_clusters

SUBJECTS = ["rain", "bread", "stars", "trains", "whales", "music", "sugar", "glass"]
NUMBERS = "one two three four five six seven eight nine ten".split()


@pytest.fixture(scope="module")
def processor(toy_encoder_path):
    return CdlmProcessor.from_model(CdlmModel.from_encoder(toy_encoder_path, max_length=512))


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


# Reading.


def test_rows_of_one_document_are_put_together(tmp_path):
    rows = [
        {"topic": "b", "text": " First. ", "id": 1},
        {"topic": "a", "text": "Other."},
        {"topic": "b", "text": "Second."},
        {"topic": "b", "text": "  "},
        {"topic": 7, "text": "Third."},
    ]
    data = read_document_clusters(write(tmp_path / "news.jsonl", rows), "topic")
    assert data == DocumentClusters([["First.", "Second."], ["Other."], ["Third."]], ["b", "a", "7"], "news.jsonl")
    renamed = [{"body" if name == "text" else name: value for name, value in row.items()} for row in rows]
    again = read_document_clusters(write(tmp_path / "other.jsonl", renamed), "topic", "body")
    assert again.clusters == data.clusters


def test_rows_of_a_set_are_lists_or_have_the_separator_of_multi_news(tmp_path):
    rows = [{"document": "One.\n|||||Two.|||||  "}, {"document": ["One.", " ", "|||||"]}]
    assert read_document_clusters(write(tmp_path / "sets.jsonl", rows)).clusters == [
        ["One.", "Two."],
        ["One.", "|||||"],
    ]
    (tmp_path / "sets.jsonl.gz").write_bytes(gzip.compress((tmp_path / "sets.jsonl").read_bytes()))
    zipped = read_document_clusters(tmp_path / "sets.jsonl.gz")
    assert (zipped.names, zipped.source) == (["0", "1"], "sets.jsonl.gz")
    named = write(tmp_path / "named.jsonl", [{"articles": ["One.", "Two."]}])
    assert read_document_clusters(named, text_column="articles").clusters == [["One.", "Two."]]


@pytest.mark.parametrize(
    ("row", "cluster_column", "message"),
    [
        ({"document": 7}, None, "must be text, or a list of texts, got 7 (int)"),
        ({"document": ["One.", None]}, None, "must be text, or a list of texts, got ['One.', None] (list)"),
        ({"text": ["One."]}, None, "has no column 'document'; it has text. Name the right one with --text_column"),
        ({"topic": "a"}, "topic", "has no column 'text'"),
        ({"text": "One."}, "topic", "has no column 'topic'; it has text. Name the right one with --cluster_column"),
        ({"topic": None, "text": "One."}, "topic", "must name the set of the document, got None"),
        ({"topic": "a", "text": None}, "topic", "must be text, or a list of texts, got None"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, row, cluster_column, message):
    good = {"document": ["One.", "Two."], "topic": "a", "text": "One."}
    path = write(tmp_path / "news.jsonl", [good, row])
    with pytest.raises(ValueError, match=rf"^news\.jsonl, row 1 \(counted from 0\).*{re.escape(message)}"):
        read_document_clusters(path, cluster_column)


def test_nothing_to_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"blank\.jsonl has no text in column 'document'"):
        read_document_clusters(write(tmp_path / "blank.jsonl", [{"document": ["", " "]}]))
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_document_clusters(tmp_path / "absent.jsonl")


# Holding out.


def numbered(count):
    texts = [[f"text {n}", "and", "more"] for n in range(count)]
    return DocumentClusters(texts, [f"set {n}" for n in range(count)], "news")


@pytest.mark.parametrize(("count", "share", "held"), [(20, 0.1, 2), (20, 0.01, 1), (10, 0.26, 3), (2, 0.5, 1)])
def test_a_share_of_the_sets_is_put_aside(count, share, held):
    rest, aside = hold_out_clusters(numbered(count), share, seed=3)
    assert len(aside.clusters) == len(aside.names) == held
    assert sorted([*rest.names, *aside.names]) == sorted(numbered(count).names)
    for part in (rest, aside):
        assert [name.replace("set", "text") for name in part.names] == [texts[0] for texts in part.clusters]
        assert part.source == "news"
    assert hold_out_clusters(numbered(count), share, seed=3) == (rest, aside)


def test_another_seed_holds_out_others():
    assert len({tuple(hold_out_clusters(numbered(50), 0.1, seed)[1].names) for seed in range(5)}) == 5


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_sets_to_share_out(count):
    with pytest.raises(ValueError, match=rf"one each of the sets of news with 3 documents or more, .* only {count}\."):
        hold_out_clusters(numbered(count), 0.9, seed=0)
    assert [len(part.clusters) for part in hold_out_clusters(numbered(2), 0.9, seed=0)] == [1, 1]


def test_sets_that_are_too_small_are_not_held_out():
    data = numbered(20)
    for number in range(10):
        del data.clusters[number][1:]
    for seed in range(20):
        rest, aside = hold_out_clusters(data, 0.05, seed)
        assert [len(texts) for texts in aside.clusters] == [3]
        assert sum(len(texts) == 1 for texts in rest.clusters) == 10


def test_a_set_of_one_is_small_but_texts_alone_are_no_sets(tmp_path):
    some = write(tmp_path / "some.jsonl", [{"document": "One.|||||Two."}, {"document": "Alone."}, {"document": ""}])
    assert read_document_clusters(some).clusters == [["One.", "Two."], ["Alone."], []]
    alone = write(tmp_path / "alone.jsonl", [{"document": "One."}, {"document": "Two."}])
    with pytest.raises(
        ValueError, match=r"alone\.jsonl, row 0 .* is one text without \|{5}, like all others: .*--cluster_col"
    ):
        read_document_clusters(alone)


# Sampling.


def sets(words=4, documents=8):
    """Eight sets; every document has the word of its set, a number of its own, and more words that count up."""
    clusters = [
        [" ".join([subject, *(NUMBERS * 9)[number : number + words - 1]]) for number in range(documents)]
        for subject in SUBJECTS
    ]
    return DocumentClusters(clusters, SUBJECTS, "news")


def documents_of(dataset, processor, index):
    """The words of each document of a sequence; the layout around them is looked at."""
    row = dataset[index]
    names = processor.tokenizer.convert_ids_to_tokens(row["input_ids"].tolist())
    text = " ".join(names)
    assert re.fullmatch(r"\[CLS\]( <doc-s>( [a-z]+)+ </doc-s>)+ \[SEP\]", text)
    assert row["maskable"].tolist() == [name not in ("[CLS]", "[SEP]", "<doc-s>", "</doc-s>") for name in names]
    return [part.split() for part in re.findall(r"<doc-s> (.*?) </doc-s>", text)]


@pytest.mark.parametrize("max_length", [14, 15, 28, 29, 60])
@pytest.mark.parametrize("words", [1, 4, 40])
def test_at_least_three_related_documents_and_never_too_long(processor, max_length, words):
    data = sets(words)
    dataset = ClusterDataset(data, processor, max_length, samples_per_cluster=3)
    assert len(dataset) == 24
    share = (max_length - 2) // 3 - 2  # most that one document gives
    for index in range(len(dataset)):
        documents = documents_of(dataset, processor, index)
        length = len(dataset[index]["input_ids"])
        assert length == 2 + sum(len(document) + 2 for document in documents) <= max_length
        assert 3 <= len(documents) <= 8
        originals = data.clusters[index // 3]
        taken = set()
        for number, document in enumerate(documents):
            found = {place for place, text in enumerate(originals) if f" {' '.join(document)} " in f" {text} "}
            assert found  # a stretch of a document of the set
            taken |= found
            whole = min(words, share)
            assert len(document) == whole or (number == len(documents) - 1 and len(document) < whole)
        assert len(taken) >= len(documents) or words == 1
        if length < max_length - 2:  # room is left for no other document only where there is none
            assert len(documents) == 8


def test_a_long_document_gives_another_stretch_every_time(processor):
    data = DocumentClusters([[" ".join(NUMBERS * 4), " ".join(NUMBERS), " ".join(NUMBERS)]], ["x"], "news")
    dataset = ClusterDataset(data, processor, 32, samples_per_cluster=60)
    starts = [document[0] for index in range(60) for document in documents_of(dataset, processor, index)]
    assert set(starts) == set(NUMBERS)
    just_longer = DocumentClusters([[" ".join(NUMBERS[:9])] * 3], ["x"], "news")  # 8 tokens are taken
    dataset = ClusterDataset(just_longer, processor, 32, samples_per_cluster=60)
    starts = [document[0] for index in range(60) for document in documents_of(dataset, processor, index)]
    assert set(starts) == set(NUMBERS[:2])


def test_unrelated_documents_come_from_different_sets(processor):
    dataset = ClusterDataset(sets(), processor, 60, related=False, samples_per_cluster=5)
    together = set()
    for index in range(len(dataset)):
        subjects = [document[0] for document in documents_of(dataset, processor, index)]
        assert len(set(subjects)) == len(subjects) == 8  # one of every set, and 8 * 6 + 2 are 50 tokens
        together.add(tuple(subjects))
    assert len(together) > 35  # in an order of their own
    assert {SUBJECTS.index(subjects[0]) for subjects in together} == set(range(8))


def test_the_seed_and_the_epoch_say_what_is_drawn(processor):
    def drawn(**values):
        dataset = ClusterDataset(sets(), processor, 32, seed=values.get("seed", 5))
        dataset.epoch = values.get("epoch", 0)
        np.random.seed(values.get("elsewhere", 0))
        rows = [dataset[index] for index in range(len(dataset))]
        assert [row["mask_key"] for row in rows] == [(dataset.seed, dataset.epoch, n) for n in range(8)]
        return [row["input_ids"].tolist() for row in rows]

    assert drawn() == drawn(elsewhere=1)
    for other in ({"seed": 6}, {"epoch": 1}):
        assert sum(one != another for one, another in zip(drawn(), drawn(**other), strict=True)) >= 7


def test_sets_that_are_too_small_are_counted(processor):
    data = DocumentClusters([["one"] * 3, ["two"] * 2, [], ["three"] * 4], list("abcd"), "news")
    dataset = ClusterDataset(data, processor, 32)
    assert (len(dataset), dataset.left_out) == (2, 2)
    seen = {document[0] for index in range(2) for document in documents_of(dataset, processor, index)}
    assert seen == {"one", "three"}
    for index in (-1, 2):
        with pytest.raises(IndexError, match=f"Sequence {index} is not among the 2"):
            dataset[index]
    with pytest.raises(ValueError, match=r"news has 2 sets .* \(and 2 smaller ones\); at least three are needed"):
        ClusterDataset(data, processor, 32, related=False)
    small = DocumentClusters([["two"] * 2], ["b"], "news")
    with pytest.raises(
        ValueError, match=r"news has 0 sets of at least 3 documents \(and 1 smaller ones\); at least one is"
    ):
        ClusterDataset(small, processor, 32)
    with pytest.raises(ValueError, match="A sequence of 13 tokens has no room for 3 documents"):
        ClusterDataset(data, processor, 13)


# Masking.


def long_sequence(count=100_000, key=(1, 2, 3)):
    """Ids of BERT's ordinary words, every tenth position not to be masked."""
    ids = np.random.default_rng(0).integers(2000, 30000, count)
    maskable = np.ones(count, dtype=bool)
    maskable[::10] = False
    return {"input_ids": ids, "maskable": maskable, "mask_key": key}


def test_the_shares_of_the_paper(processor):
    sequence = long_sequence()
    before = sequence["input_ids"].copy()
    batch = DataCollatorForCrossDocumentMasking(processor)([sequence])
    assert (sequence["input_ids"] == before).all()
    ids, labels = batch["input_ids"][0].numpy(), batch["labels"][0].numpy()
    selected = labels != -100
    assert not (selected & ~sequence["maskable"]).any()
    assert (labels[selected] == before[selected]).all()
    assert (ids[~selected] == before[~selected]).all()
    masked = ids == processor.tokenizer.mask_token_id
    kept = ids[selected] == before[selected]
    chosen = selected.sum()
    # Four standard deviations of a binomial.
    for found, total, share in (
        (chosen, 90_000, 0.15),
        (masked.sum(), chosen, 0.8),
        (kept.sum(), chosen, 0.1),
        (chosen - masked.sum() - kept.sum(), chosen, 0.1),
    ):
        assert abs(found - share * total) < 4 * math.sqrt(total * share * (1 - share))
    assert not (masked & ~selected).any()


def test_random_words_are_words(processor):
    collator = DataCollatorForCrossDocumentMasking(
        processor, mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=1.0
    )
    batch = collator([long_sequence(300_000)])
    words = batch["input_ids"][batch["labels"] != -100]
    special = processor.tokenizer.convert_tokens_to_ids(
        ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", "<doc-s>", "</doc-s>", "<m>", "</m>", "[q]", "<t>", "</s>"]
    )
    assert not torch.isin(words, torch.tensor(special)).any()  # each would be there nine times
    assert len(words.unique()) > 30_000
    assert int(words.max()) < 30_522


def test_separators_are_never_masked(processor):
    dataset = ClusterDataset(sets(40), processor, 60, samples_per_cluster=4)
    rows = [dataset[index] for index in range(len(dataset))]
    batch = DataCollatorForCrossDocumentMasking(processor, mlm_probability=1.0)(rows)
    markers = processor.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "<doc-s>", "</doc-s>", "[PAD]"])
    for row, ids, labels in zip(rows, batch["input_ids"], batch["labels"], strict=True):
        length = len(row["input_ids"])
        separators = torch.isin(torch.as_tensor(row["input_ids"]), torch.tensor(markers))
        assert separators.sum() >= 2 + 2 * 3
        assert torch.equal(ids[:length][separators], torch.as_tensor(row["input_ids"])[separators])
        assert (labels[:length] == -100).tolist() == separators.tolist()  # and all else is to be predicted
        assert (labels[length:] == -100).all()


@pytest.mark.parametrize(("pattern", "first"), [("masked", None), ("prefix", [6, 5]), ("none", [0, 0])])
def test_who_has_global_attention(processor, pattern, first):
    rows = [long_sequence(40), long_sequence(31, key=(4, 5, 6))]  # 15 % are 6 and 4.65
    batch = DataCollatorForCrossDocumentMasking(processor, pattern)(rows)
    assert batch["attention_mask"].sum(dim=1).tolist() == [40, 31]
    assert (batch["input_ids"][1, 31:] == processor.tokenizer.pad_token_id).all()
    wide = batch["global_attention_mask"]
    if pattern == "masked":
        assert torch.equal(wide, (batch["labels"] != -100).long())
        assert wide.any(dim=1).all()
    else:
        assert wide.tolist() == [[1] * count + [0] * (40 - count) for count in first]
    assert (batch["labels"] != -100).any()


def test_masks_follow_their_key_alone(processor):
    collator = DataCollatorForCrossDocumentMasking(processor)
    alone = collator([long_sequence(200)])
    torch.manual_seed(1)
    np.random.seed(1)
    together = collator([long_sequence(300, key=(7, 7, 7)), long_sequence(200)])
    for name in alone:
        assert torch.equal(together[name][1, :200], alone[name][0])
    other = collator([long_sequence(200, key=(1, 3, 3))])
    assert not torch.equal(other["labels"], alone["labels"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pattern": "all"}, "pattern must be one of masked, prefix, none, got 'all'"),
        ({"mlm_probability": 0.0}, "mlm_probability must be above 0"),
        ({"mlm_probability": 1.1}, "at most 1"),
        ({"mask_replace_prob": -0.1}, "shares from 0 to 1"),
        ({"random_replace_prob": float("nan")}, "shares from 0 to 1"),
        ({"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, "must not exceed 1 in total"),
    ],
)
def test_masking_that_is_refused(processor, values, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForCrossDocumentMasking(processor, **values)


def test_a_batch_without_a_masked_word_is_refused(processor):
    collator = DataCollatorForCrossDocumentMasking(processor, mlm_probability=1e-9)
    with pytest.raises(ValueError, match=r"No position is masked in a batch of sequences of \[20, 30\] tokens"):
        collator([long_sequence(20), long_sequence(30)])


def test_multi_news_as_its_authors_give_it(tmp_path):
    path = tmp_path / "train.src.cleaned"
    path.write_text("One. NEWLINE_CHAR Two. ||||| Three.\nFour. ||||| Five. ||||| Six.\n")
    data = read_document_clusters(path)
    assert data.clusters == [["One. \n Two.", "Three."], ["Four.", "Five.", "Six."]]
    assert data.source == "train.src.cleaned"
