"""Encoding: what is written is what one run would write, however it was divided, killed and resumed."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from nextlevelbert import (
    ChunkingRule,
    Document,
    NextLevelBertModel,
    VectorCorpus,
    encode_corpus,
    repair_corpus,
    text_sentences,
)
from nextlevelbert.corpus.layout import MANIFEST
from nextlevelbert.corpus.writer import finish_corpus, write_shards
from nextlevelbert.models.chunk_encoder import ChunkEncoder

from ..golden import inputs
from .conftest import DOCUMENTS, contents, write_unfinished

WORKER = """
import sys
from nextlevelbert import ChunkingRule, Document, encode_corpus, load_chunk_encoder
source = load_chunk_encoder(sys.argv[1])
rule = ChunkingRule.from_tokenizer(source.tokenizer, 32, max_chunk_size=512)
documents = (Document(f"d{i}", f"Document {i} tells of the sea, the ship and the whale. " * 40) for i in range(24))
print("ready", flush=True)
encode_corpus(documents, source, rule, sys.argv[2], characters_per_shard=4_000, progress=False)
"""


@pytest.mark.parametrize("kept", [0, 1])
def test_going_on_from_any_shard_gives_the_same_bytes(corpus, minilm, rule, tmp_path, kept):
    straight = contents(corpus.path)
    write_unfinished(tmp_path, corpus.manifest)
    if kept:
        shutil.copy(corpus.path / "shard-00000.safetensors", tmp_path)
    (tmp_path / "shard-00001.safetensors.tmp").write_bytes(b"half a shard")
    encode_corpus(DOCUMENTS, minilm, rule, tmp_path, characters_per_shard=380, progress=False)
    assert contents(tmp_path) == straight


@pytest.mark.faults  # tests/faults kills at every file operation, at once
def test_kill_9_and_go_on(minilm_path, tmp_path):
    arguments = [sys.executable, "-c", WORKER, minilm_path]
    subprocess.run([*arguments, str(tmp_path / "straight")], check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*arguments, str(tmp_path / "killed")], stdout=subprocess.DEVNULL)
    while len(list((tmp_path / "killed").glob("shard-*.safetensors"))) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(ValueError, match="is incomplete; run the same encoding"):
        VectorCorpus(tmp_path / "killed")
    subprocess.run([*arguments, str(tmp_path / "killed")], check=True, stdout=subprocess.DEVNULL)
    assert contents(tmp_path / "killed") == contents(tmp_path / "straight")


def write_share(documents, minilm, rule, folder, process_index, num_processes, **options):
    return write_shards(
        documents, minilm, rule, folder, characters_per_shard=380, progress=False,
        process_index=process_index, num_processes=num_processes, **options,
    )  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_processes_write_what_one_writes(corpus, minilm, rule, tmp_path, order):
    for process_index in order:
        shards = write_share(iter(DOCUMENTS), minilm, rule, tmp_path, process_index, 2)
        assert shards == 3
        with pytest.raises(ValueError, match="is incomplete; run the same encoding"):
            VectorCorpus(tmp_path)
    finish_corpus(tmp_path, shards)
    assert contents(tmp_path) == contents(corpus.path)


def test_any_number_of_processes_and_workers_can_go_on_with_what_another_left(corpus, minilm, rule, tmp_path):
    write_share(DOCUMENTS, minilm, rule, tmp_path, 2, 3)
    assert [file.name for file in tmp_path.glob("shard-*")] == ["shard-00002.safetensors"]
    with pytest.raises(ValueError, match=r"lacks 2 of 3 shards, the first shard-00000.safetensors"):
        finish_corpus(tmp_path, 3)
    assert write_share(iter(DOCUMENTS), minilm, rule, tmp_path, 0, 1, num_workers=2) == 3
    finish_corpus(tmp_path, 3)
    assert contents(tmp_path) == contents(corpus.path)


def test_processes_with_different_documents_are_found_out(minilm, rule, tmp_path):
    other = [DOCUMENTS[1], DOCUMENTS[0], *DOCUMENTS[2:]]
    write_share(DOCUMENTS, minilm, rule, tmp_path / "order", 0, 2)
    shards = write_share(other, minilm, rule, tmp_path / "order", 1, 2)
    with pytest.raises(
        ValueError, match=r"shard-00001.safetensors was written by a process that was given different documents"
    ):
        finish_corpus(tmp_path / "order", shards)
    # As many characters, and the same ids: only the text tells them apart.
    other = [DOCUMENTS[0], Document("short", "Two line."), *DOCUMENTS[2:]]
    write_share(DOCUMENTS, minilm, rule, tmp_path / "text", 0, 2)
    shards = write_share(other, minilm, rule, tmp_path / "text", 1, 2)
    with pytest.raises(
        ValueError, match=r"shard-00001.safetensors was written by a process that was given different documents"
    ):
        finish_corpus(tmp_path / "text", shards)
    shards = write_share(DOCUMENTS[:2], minilm, rule, tmp_path / "more", 0, 2)
    write_share(DOCUMENTS, minilm, rule, tmp_path / "more", 1, 2)
    with pytest.raises(ValueError, match=r"shard-00001.safetensors is left over after the last of 1"):
        finish_corpus(tmp_path / "more", shards)


def test_a_shard_of_another_recipe_is_found_out(minilm, rule, tmp_path):
    other = ChunkingRule.from_tokenizer(minilm.tokenizer, 32, max_chunk_size=512)
    write_share(DOCUMENTS, minilm, other, tmp_path / "other", 0, 1)
    shards = write_share(DOCUMENTS, minilm, rule, tmp_path / "here", 0, 1)
    shutil.copy(tmp_path / "other" / "shard-00000.safetensors", tmp_path / "here")
    with pytest.raises(ValueError, match=r"shard-00000.safetensors was written .* or it is the shard of another corp"):
        finish_corpus(tmp_path / "here", shards)


@pytest.fixture(scope="module")
def by_sentences(minilm):
    return ChunkingRule.from_tokenizer(minilm.tokenizer, 16, "sentences", max_chunk_size=512)


def in_halves(text):
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def shouting(text):
    return [text.upper()]


class Whole:
    def __call__(self, text):
        return [text]

    def segment(self, text):
        return in_halves(text)


def in_thirds(text):
    third = len(text) // 3
    return [(0, third), (third, len(text))]


def same_name(text):
    return in_thirds(text)


def other_of_that_name(text):
    return in_halves(text)


other_of_that_name.__qualname__ = "same_name"


def test_a_splitter_cuts_a_corpus_as_encode_does(minilm, by_sentences, tmp_path):
    options = {"characters_per_shard": 380, "progress": False}
    model = NextLevelBertModel.from_chunk_encoder(minilm, 16, chunking="sentences", num_hidden_layers=0)
    names = {text_sentences: "nextlevelbert.models.sentences.text_sentences", in_halves: f"{__name__}.in_halves",
             Whole().segment: f"{__name__}.Whole.segment", Whole(): f"{__name__}.Whole"}  # fmt: skip
    for number, (splitter, name) in enumerate(names.items()):
        corpus = encode_corpus(DOCUMENTS, minilm, by_sentences, tmp_path / str(number), splitter=splitter, **options)
        assert corpus.splitter == name
        for document, stored in zip(DOCUMENTS, corpus, strict=True):
            encoded = model.encode(document.text, splitter=splitter)
            assert stored.spans.tolist() == encoded.spans.tolist()
            torch.testing.assert_close(stored.vectors.float(), encoded.plain, atol=1e-3, rtol=1e-2)
        corpus.check_model(model.config, splitter)
        with pytest.raises(ValueError, match=rf"chunking.splitter: '{name}', None"):
            corpus.check_model(model.config)
    assert encode_corpus(DOCUMENTS, minilm, by_sentences, tmp_path / "rule", **options).splitter is None


def test_a_corpus_goes_on_with_its_splitter_only(minilm, by_sentences, tmp_path):
    options = {"characters_per_shard": 380, "progress": False}
    straight = encode_corpus(DOCUMENTS, minilm, by_sentences, tmp_path / "straight", splitter=same_name, **options)
    folder = tmp_path / "killed"
    write_unfinished(folder, straight.manifest)
    shutil.copy(straight.path / "shard-00000.safetensors", folder)
    before = contents(folder)
    for splitter, message in (
        (None, r"chunking.splitter: '.*test_writer.same_name', None"),
        (in_halves, "chunking.splitter: .*same_name', '.*in_halves'"),
        (other_of_that_name, "in shard-00000.safetensors, document 'whale' was cut by another splitter of the same n"),
    ):
        for path in (folder, straight.path):
            with pytest.raises(ValueError, match=message):
                encode_corpus(DOCUMENTS, minilm, by_sentences, path, splitter=splitter, **options)
    assert contents(folder) == before
    encode_corpus(DOCUMENTS, minilm, by_sentences, folder, splitter=same_name, num_workers=1, **options)
    assert contents(folder) == contents(straight.path)
    (folder / "shard-00001.safetensors").write_bytes(b"torn")
    repair_corpus(DOCUMENTS, minilm, by_sentences, folder, splitter=same_name, progress=False)
    assert contents(folder) == contents(straight.path)


@pytest.mark.parametrize(
    ("splitter", "message"),
    [
        (lambda text: [text], "splitter is a lambda. A corpus notes"),
        (functools.partial(in_halves), "splitter is a partial function"),
        (shouting, "Document 'whale': splitter: sentence 0, 'CALL.*', is not in the text after character 0"),
    ],
)
def test_a_splitter_that_a_corpus_cannot_take(minilm, by_sentences, rule, tmp_path, splitter, message):
    with pytest.raises(ValueError, match=message):
        encode_corpus(DOCUMENTS, minilm, by_sentences, tmp_path / "new", splitter=splitter, progress=False)
    with pytest.raises(ValueError, match="splitter needs a rule with mode='sentences' or 'packed_sentences'"):
        encode_corpus(DOCUMENTS, minilm, rule, tmp_path / "fixed", splitter=splitter, progress=False)
    assert not (tmp_path / "fixed" / MANIFEST).exists()


def test_encoding_leaves_the_random_state_alone(minilm, rule, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    encode_corpus(DOCUMENTS, minilm, rule, tmp_path, num_workers=1, progress=False)
    assert torch.rand(1) == expected


def test_a_process_that_does_not_exist(minilm, rule, tmp_path):
    with pytest.raises(ValueError, match="from 0 to num_processes - 1 = 1: 2"):
        write_share(DOCUMENTS, minilm, rule, tmp_path, 2, 2)


def test_a_finished_corpus_is_checked_not_written_again(corpus, minilm, rule):
    before = {file: file.stat().st_mtime_ns for file in corpus.path.iterdir()}
    encode_corpus(DOCUMENTS, minilm, rule, corpus.path, characters_per_shard=380, progress=False)
    assert {file: file.stat().st_mtime_ns for file in corpus.path.iterdir()} == before


def test_a_corpus_made_otherwise_is_refused_by_field(corpus, minilm):
    other = ChunkingRule.from_tokenizer(minilm.tokenizer, 32, max_chunk_size=512)
    with pytest.raises(ValueError, match=r"chunking.chunk_size: 16, 32"):
        encode_corpus(DOCUMENTS, minilm, other, corpus.path, characters_per_shard=380, progress=False)
    same = ChunkingRule.from_tokenizer(minilm.tokenizer, 16, max_chunk_size=512)
    with pytest.raises(ValueError, match=r"here\): characters_per_shard: 380, 381\."):
        encode_corpus(DOCUMENTS, minilm, same, corpus.path, characters_per_shard=381, progress=False)


def test_bad_documents(minilm, rule, tmp_path):
    with pytest.raises(ValueError, match="No document was given"):
        encode_corpus([], minilm, rule, tmp_path / "none", progress=False)
    with pytest.raises(ValueError, match="Two documents have the id 'whale'"):
        encode_corpus([DOCUMENTS[0], DOCUMENTS[0]], minilm, rule, tmp_path / "twice", progress=False)
    with pytest.raises(TypeError, match=r"'empty'.*NoneType"):
        encode_corpus([Document("empty", None)], minilm, rule, tmp_path / "none", progress=False)
    with pytest.warns(UserWarning, match="'blank'"):
        corpus = encode_corpus(
            [Document("blank", "  \n"), DOCUMENTS[1]], minilm, rule, tmp_path / "blank", progress=False
        )
    assert len(corpus["blank"].vectors) == 0
    assert len(corpus["short"].vectors) == 1
    assert corpus.to_dataset()[0]["vectors"] == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])  # the last is infinite in float16
@pytest.mark.parametrize(("row", "document"), [(0, "whale"), (-1, "family")])
def test_a_single_number_that_is_not_finite(minilm, rule, tmp_path, monkeypatch, value, row, document):
    encode = ChunkEncoder.encode

    def broken(*args, **kwargs):
        vectors = encode(*args, **kwargs)
        vectors[row, 5] = value
        return vectors

    monkeypatch.setattr(ChunkEncoder, "encode", broken)
    with pytest.raises(ValueError, match=f"gave 1 vectors that are not finite, the first in document '{document}'"):
        encode_corpus(DOCUMENTS, minilm, rule, tmp_path, progress=False)
    assert not list(tmp_path.glob("shard-*"))


def test_version_2_is_read_when_finished_and_not_gone_on_with(golden_encoder, tmp_path):
    source, rule = golden_encoder
    folder = shutil.copytree(inputs.FOLDER / "corpus", tmp_path / "corpus")
    before = contents(folder)
    encode_corpus(inputs.DOCUMENTS, source, rule, folder, characters_per_shard=1_500, progress=False)
    assert contents(folder) == before
    manifest = json.loads(before[MANIFEST])
    (folder / MANIFEST).write_text(json.dumps({**manifest, "complete": False}))
    with pytest.raises(ValueError, match=r"begun by an earlier version of this package \(format_version 2"):
        encode_corpus(inputs.DOCUMENTS, source, rule, folder, characters_per_shard=1_500, progress=False)


def test_shards_of_another_recipe_are_not_gone_on_with(corpus, minilm, rule, tmp_path):
    """The manifest is lost, and the same documents are encoded in another precision."""
    folder = shutil.copytree(corpus.path, tmp_path / "corpus")
    (folder / MANIFEST).unlink()
    options = {"characters_per_shard": 380, "progress": False}
    with pytest.raises(ValueError, match="or with another encoder or chunking"):
        encode_corpus(DOCUMENTS, minilm, rule, folder, dtype=torch.bfloat16, **options)
    (folder / MANIFEST).unlink()
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    encode_corpus(DOCUMENTS, minilm, rule, folder, **options)
    assert contents(folder) == contents(corpus.path)
    assert {file: file.stat().st_mtime_ns for file in before} == before
