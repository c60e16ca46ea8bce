"""Several processes write one corpus: each reads its share, and one that has died is named."""

import json
import multiprocessing
import os
import re
import signal
import time

import fsspec
import pytest
import torch

from nextlevelbert import VectorCorpus, encode_corpus, read_documents
from nextlevelbert.corpus.folder import CorpusFolder
from nextlevelbert.corpus.sharing import SharedWork

from ..toys.corpora import parts

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def books(tmp_path):
    """Eight texts, two tables without ids, and a blank text at the end."""
    folder = tmp_path / "books"
    folder.mkdir()
    for index in range(8):
        (folder / f"book-{index}.txt").write_text(f"Call me Ishmael, the {index}th. " * 9)
    for index in range(2):
        rows = [json.dumps({"text": f"A row of table {index}. " * 6}) for _ in range(3)]
        (folder / f"rows-{index}.jsonl").write_text("\n".join(rows))
    (folder / "zero.txt").write_text(" \n")
    return folder


@pytest.fixture
def straight(books, source, rule, tmp_path):
    folder = tmp_path / "straight"
    encode_corpus(
        read_documents(books), source, rule, folder, characters_per_part=500, progress=False
    )
    return parts(folder)


def encode_as(rank, books, source, rule, folder, read=None, processes=3, stop=None, full=None):
    """One process of several, which notes the files that it reads, and may end early."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(processes), TOKENIZERS_PARALLELISM="false")
    torch.set_num_threads(1)  # the parent's threads did not come along
    documents = read_documents(books)
    read_files = type(documents).read
    write = CorpusFolder.write

    def read_and_note(self, files):
        for file in files:
            with (read / f"rank-{rank}").open("a") as log:
                log.write(f"{file[0].name}\n")
            yield from read_files(self, [file])

    def write_or_die(self, name, content):
        if name.startswith("part") and rank == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        if name.startswith("part") and rank == full:
            raise OSError("no space left")
        write(self, name, content)

    if read is not None:
        type(documents).read = read_and_note
    CorpusFolder.write = write_or_die
    encode_corpus(documents, source, rule, folder, characters_per_part=500, progress=False)


def run(ranks, *arguments, pause=0, **options):
    processes = [
        FORK.Process(target=encode_as, args=(rank, *arguments), kwargs=options) for rank in ranks
    ]
    for process in processes:
        process.start()
        time.sleep(pause)
    for process in processes:
        process.join(timeout=100)
    return [process.exitcode for process in processes]


def test_each_process_reads_its_share_and_all_write_what_one_writes(
    books, straight, source, rule, tmp_path
):
    folder = tmp_path / "shared"
    log = tmp_path / "log"
    log.mkdir()

    codes = run(range(3), books, source, rule, folder, read=log)

    assert codes == [0, 0, 0]
    assert parts(folder) == straight
    files = [{*path.read_text().split()} for path in log.iterdir()]
    assert len(files) == 3
    assert sum(map(len, files)) == len({*files[0], *files[1], *files[2]}) == 11


def test_a_table_that_is_most_of_the_files_is_read_by_all(source, rule, tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.txt").write_text("A short one. " * 50)
    rows = [json.dumps({"text": f"Row {index} of the table. " * 9}) for index in range(30)]
    (books / "b.jsonl").write_text("\n".join(rows))

    codes = run(range(3), books, source, rule, tmp_path / "both")

    assert codes == [0, 0, 0]
    made = parts(tmp_path / "both")
    assert not [*(tmp_path / "both").glob(".count-*")]
    assert [*VectorCorpus(tmp_path / "both").document_ids] == ["a", *map(str, range(30))]
    run(range(1), books, source, rule, tmp_path / "one", processes=1)
    assert made == parts(tmp_path / "one")


@pytest.mark.parametrize(("end", "code"), [("stop", -signal.SIGKILL), ("full", 1)])
def test_a_process_that_has_died_is_named_and_the_next_run_does_its_share(
    books, straight, source, rule, tmp_path, capfd, end, code
):
    folder = tmp_path / "shared"

    codes = run(range(3), books, source, rule, folder, **{end: 1})

    assert codes == [1, code, 1]
    message = "OSError: Process 1 of 3 was to write part-000001 in .*, but has ended"
    assert len([*re.finditer(message, capfd.readouterr().err)]) == 2
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert before
    assert run(range(1), books, source, rule, folder, processes=1) == [0]
    assert parts(folder) == straight
    assert not [*folder.glob(".holder-*"), *folder.glob(".lock-*")]
    for name, written in before.items():
        assert (folder / name).stat().st_mtime_ns == written


def test_a_process_that_died_in_an_earlier_run_may_begin_last(
    books, straight, source, rule, tmp_path
):
    folder = tmp_path / "shared"
    run(range(3), books, source, rule, folder, stop=1)
    assert (folder / ".holder-1").exists()

    codes = run([0, 2, 1], books, source, rule, folder, pause=1)

    assert codes == [0, 0, 0]
    assert parts(folder) == straight
    assert not [*folder.glob(".holder-*")]


def test_a_process_at_an_address_that_writes_nothing_is_named(source, rule, books, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("nextlevelbert.corpus.sharing._LONGEST_WAIT", 0.5)

    with pytest.raises(TimeoutError, match=r"Process 1 of 2 was to write \.count-\w+ in memory://"):
        encode_corpus(
            read_documents(books), source, rule, "memory://shared", characters_per_part=500
        )

    fsspec.filesystem("memory").rm("/shared", recursive=True)


def test_documents_that_were_taken_before_are_not_encoded(books, source, rule, tmp_path):
    documents = read_documents(books)
    next(documents)

    corpus = encode_corpus(documents, source, rule, tmp_path / "rest", progress=False)

    assert corpus.document_ids[:2] == ["book-1", "book-2"]


def test_one_process_counts_nothing(straight, tmp_path):
    assert [path.name for path in (tmp_path / "straight").glob(".*")] == []


def test_a_damaged_count_is_not_called_unreachable(source, rule, books, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def damage(work, names):
        for name, rank in names.items():
            if rank == 1:
                work.folder.write(name, b"{")

    monkeypatch.setattr(SharedWork, "wait_for", damage)

    with pytest.raises(json.JSONDecodeError):
        encode_corpus(
            read_documents(books), source, rule, "memory://damaged", characters_per_part=500
        )
