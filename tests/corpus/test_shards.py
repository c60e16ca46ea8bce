"""Where shards begin and end, the comparison with those on disk, and tokenising in workers."""

from __future__ import annotations

import json

import pytest
from datasets import load_dataset

from nextlevelbert import (
    Document,
    encode_corpus,
)
from nextlevelbert.corpus.shards import ShardPlan
from nextlevelbert.data.documents import documents_from_rows, read_documents

from .conftest import DOCUMENTS, contents, write_unfinished


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_tokenise_in_order_and_report_what_is_wrong(corpus, minilm, rule, tmp_path, workers):
    arguments = {"characters_per_shard": 380, "num_workers": workers, "progress": False}
    encode_corpus(iter(DOCUMENTS), minilm, rule, tmp_path / "good", **arguments)
    assert contents(tmp_path / "good") == contents(corpus.path)
    with pytest.raises(TypeError, match=r"'empty'.*NoneType"):
        encode_corpus([*DOCUMENTS, Document("empty", None)], minilm, rule, tmp_path / "bad", **arguments)


def test_workers_share_files_and_datasets_without_losing_a_document(corpus, minilm, rule, tmp_path):
    """`datasets` splits its files among the workers of a DataLoader by itself; a file that is open is shared."""
    rows = [json.dumps({"id": document.id, "text": document.text}) for document in DOCUMENTS]
    (tmp_path / "a.jsonl").write_text("\n".join(rows[:2]))
    (tmp_path / "b.jsonl").write_text("\n".join(rows[2:]))
    (tmp_path / "all.jsonl").write_text("\n".join(rows))
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    arguments = {"characters_per_shard": 380, "num_workers": 2, "progress": False}
    sources = {
        "file": read_documents(tmp_path / "all.jsonl"),
        "dataset": documents_from_rows(
            load_dataset("json", data_files=files, split="train", streaming=True), "text", "id"
        ),
        "open": (Document(**json.loads(line)) for line in (tmp_path / "all.jsonl").open()),
    }
    for name, documents in sources.items():
        encode_corpus(documents, minilm, rule, tmp_path / name, **arguments)
        assert contents(tmp_path / name) == contents(corpus.path)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([DOCUMENTS[0], Document("other", "One line."), *DOCUMENTS[2:]], "has 'short' where 'other' is given"),
        ([DOCUMENTS[0], Document("short", "Another line."), *DOCUMENTS[2:]], "text of document 'short' has changed"),
        ([*DOCUMENTS, Document("more", "more")], "shard-00002.safetensors holds 1 documents, but 2 are given"),
        (DOCUMENTS[:2], "holds 4 documents, but 2 are given"),
        (DOCUMENTS[:1], "shard-00000.safetensors holds 2 documents, but 1 are given"),
    ],
)
def test_other_documents_than_those_in_the_corpus(corpus, minilm, rule, documents, message):
    with pytest.raises(ValueError, match=message):
        encode_corpus(documents, minilm, rule, corpus.path, characters_per_shard=380, progress=False)


def test_more_documents_than_a_finished_corpus_has_shards_for(minilm, rule, tmp_path):
    encode_corpus(DOCUMENTS[:3], minilm, rule, tmp_path, characters_per_shard=380, progress=False)
    with pytest.raises(ValueError, match=r"finished corpus.*the first 'family' in shard-00002.safetensors"):
        encode_corpus(DOCUMENTS, minilm, rule, tmp_path, characters_per_shard=380, progress=False)


def planned(corpus, lengths, limit, folder, process_index=0, num_processes=1) -> list[list[str]]:
    """Ids of the documents in each shard, for documents of so many characters."""
    write_unfinished(folder, corpus.manifest)
    documents = (Document(f"d{number}", "x" * length) for number, length in enumerate(lengths))
    plan = ShardPlan(documents, folder, limit, process_index, num_processes)
    shards = list(plan)
    assert plan.documents == len(lengths)
    assert [shard.number for shard in shards] == list(range(plan.shards))[process_index::num_processes]
    return [[document.id for document in shard.documents] for shard in shards]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([4, 6, 5], [["d0", "d1"], ["d2"]]),  # 10 characters are reached exactly
        ([4, 5, 1, 9], [["d0", "d1", "d2"], ["d3"]]),
        ([9, 9, 9], [["d0", "d1"], ["d2"]]),
        ([10, 11, 1], [["d0"], ["d1"], ["d2"]]),
        ([10], [["d0"]]),
        ([], []),
    ],
)
def test_a_shard_ends_with_the_document_that_reaches_its_size(corpus, lengths, expected, tmp_path):
    assert planned(corpus, lengths, 10, tmp_path) == expected


def test_processes_take_turns(corpus, tmp_path):
    assert planned(corpus, [10] * 5, 10, tmp_path, 1, 2) == [["d1"], ["d3"]]
