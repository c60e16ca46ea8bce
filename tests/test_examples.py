"""The example scripts, each run as a person would, on small documents."""

from __future__ import annotations

import datetime
import json
import re
import runpy
import sys
from pathlib import Path

import datasets
import matplotlib
import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from sklearn.metrics.pairwise import cosine_similarity
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert import (
    CdlmForCrossDocumentCoreference,
    CdlmProcessor,
    ChunkBertForSequenceClassification,
    ChunkBertModel,
    HateModel,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    read_marked,
)

EXAMPLES = Path(__file__).parent.parent / "examples"
SEA = "The whale rose beside the ship and the sailors cried out over the dark waves of the ocean. "
KITCHEN = "She kneaded the dough, put butter and sugar on the table and lit the oven for the cake. "
COURT = "The judge asked the witness whether the contract had been signed before the trial began. "


@pytest.fixture(scope="module")
def toy_model(toy_encoder_path, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("toy_model")
    torch.manual_seed(3)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=32).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def minilm_model(minilm, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("minilm_model")
    NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def run_example(monkeypatch, capsys):
    """Runs a script with arguments, in this process; returns its names and what it printed."""

    def run(name: str, **arguments) -> tuple[dict, str]:
        pairs = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
        monkeypatch.setattr(sys, "argv", [name, *pairs])
        with matplotlib.rc_context():  # a script may set what it likes
            names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return names, capsys.readouterr().out

    return run


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def check_picture(path: Path, width: int, height: int) -> None:
    """The picture has this size and more than a few colours."""
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.int32)
    assert pixels.shape == (height, width, 3)
    assert len(np.unique(pixels @ [1, 256, 65536])) > 20


def test_export_chunks(run_example, toy_model, tmp_path):
    texts = {"naïve “sea”": SEA * 5, "kitchen": KITCHEN, "blank": " "}
    rows = [{"id": name, "text": text, "year": 1851, "tags": ["é"]} for name, text in texts.items()]
    documents = write_rows(tmp_path / "in.jsonl", rows)
    model = NextLevelBertModel.from_pretrained(toy_model)
    given = {"model": toy_model, "documents": documents}
    with pytest.warns(UserWarning, match="no token"):
        _, said = run_example("export_chunks", **given, output=tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert f"Wrote {tmp_path / 'out.jsonl'}: {len(rows)} records with contextual vectors of 32 numbers." in said
    with pytest.warns(UserWarning, match="no token"):
        run_example("export_chunks", **given, output=tmp_path / "out.parquet", vectors="plain")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("vector").type).startswith("fixed_size_list<element: float>[32]")
    plain = table.to_pylist()
    for name, text in list(texts.items())[:2]:
        expected = model.encode(text)
        for found, vectors in ((rows, expected.chunks), (plain, expected.plain)):
            mine = [row for row in found if row["document"] == name]
            assert [row["id"] for row in mine] == [f"{name}#{number}" for number in range(len(vectors))]
            assert [row["text"] for row in mine] == [text[row["start"] : row["end"]] for row in mine]
            assert [[row["start"], row["end"]] for row in mine] == expected.spans.tolist()
            np.testing.assert_array_equal([row["vector"] for row in mine], vectors)
    assert all(row["metadata"] == {"year": 1851, "tags": ["é"]} for row in rows)
    assert all(json.loads(row["metadata"]) == {"year": 1851, "tags": ["é"]} for row in plain)
    assert {row["document"] for row in rows} == {row["document"] for row in plain} == set(texts) - {"blank"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl", "out.parquet"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_export_chunks_writes_dates_as_text(run_example, toy_model, tmp_path, suffix):
    row = {"id": "x", "text": SEA, "printed": datetime.date(1851, 10, 18)}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "in.parquet")
    out = tmp_path / f"out{suffix}"
    run_example("export_chunks", model=toy_model, documents=tmp_path / "in.parquet", output=out)
    if suffix == ".parquet":
        found = [json.loads(row["metadata"]) for row in pyarrow.parquet.read_table(out).to_pylist()]
    else:
        found = [json.loads(line)["metadata"] for line in out.read_text().splitlines()]
    assert found == [{"printed": "1851-10-18"}] * len(found) != []


def test_export_chunks_of_a_model_that_truncates(run_example, toy_encoder_path, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=32, max_chunks=2, long_documents="truncate"
    )
    model.save_pretrained(tmp_path / "model")
    text = SEA * 6
    given = {"model": tmp_path / "model", "documents": write_rows(tmp_path / "in.jsonl", [{"id": "x", "text": text}])}
    for kind, expected in (("contextual", 2), ("plain", model.plan(text).chunks)):
        run_example("export_chunks", **given, vectors=kind, output=tmp_path / "out.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert len(rows) == expected
        assert [row["text"] for row in rows] == [text[a:b] for a, b in model.encode(text).spans[:expected]]
    assert expected > 2


def test_export_chunks_wants_ids_that_differ(run_example, toy_model, tmp_path, capsys):
    documents = write_rows(tmp_path / "in.jsonl", [{"id": "x", "text": text} for text in (SEA, COURT)])
    with pytest.raises(SystemExit):
        run_example("export_chunks", model=toy_model, documents=documents, output=tmp_path / "out.jsonl")
    assert "two documents have the id 'x'" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_export_chunks_wants_a_suffix_it_knows(run_example, toy_model, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_example("export_chunks", model=toy_model, documents=tmp_path, output=tmp_path / "out.csv")
    assert "ends neither in .jsonl nor in .parquet" in capsys.readouterr().err


def test_heat_strip_finds_the_planted_sentence(run_example, minilm_model, tmp_path):
    planted = "The recipe for plum jam asks for three pounds of fruit and as much sugar."
    text = SEA * 6 + planted + " " + SEA * 6
    documents = write_rows(tmp_path / "in.jsonl", [{"id": "x", "text": KITCHEN}, {"id": "ship", "text": text}])
    _, said = run_example(
        "heat_strip",
        model=minilm_model,
        documents=documents,
        id="ship",
        question="How do I make plum jam for $5_{ or $6?",
        output=tmp_path / "strip.png",
    )
    plain, contextual = said.split("Best by contextual chunk vectors:")
    [best, *_] = re.findall(r"1\. cosine (\S+), characters (\d+)-(\d+):", plain)
    start, end = int(best[1]), int(best[2])
    assert start <= text.index("plum jam") < end
    assert text[start:end].split()[:4] == plain.split(f"{start}-{end}:")[1].split()[:4]
    encoder = NextLevelBertModel.from_pretrained(minilm_model)
    book, question = encoder.encode(text), encoder.encode("How do I make plum jam for $5_{ or $6?")
    for printed, vectors, asked in ((plain, book.plain, question.plain), (contextual, book.chunks, question.chunks)):
        cosines = torch.cosine_similarity(vectors, asked).sort(descending=True)
        ranks = re.findall(r"(\d)\. cosine (\S+), characters (\d+)-", printed)
        assert [rank for rank, _, _ in ranks] == ["1", "2", "3"]
        np.testing.assert_allclose([float(value) for _, value, _ in ranks], cosines.values[:3], atol=0.006)
        assert int(ranks[0][2]) == book.spans[cosines.indices[0]][0]
    assert f"{len(book.plain)} chunks of 'ship'" in said
    check_picture(tmp_path / "strip.png", 1430, 494)


def test_heat_strip_names_a_document_that_is_not_there(run_example, toy_model, tmp_path, capsys):
    documents = write_rows(tmp_path / "in.jsonl", [{"id": "x", "text": KITCHEN}])
    with pytest.raises(SystemExit):
        run_example("heat_strip", model=toy_model, documents=documents, id="y", question="?", output="none.png")
    assert "no document 'y'" in capsys.readouterr().err


def test_shelf_map(run_example, toy_model, tmp_path):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name, text in (("sea", SEA), ("kitchen", KITCHEN * 4), ("court", COURT), ("$5_{ and $6", SEA + COURT)):
        (shelf / f"{name}.txt").write_text(text)
    _, said = run_example("shelf_map", model=toy_model, documents=shelf, output=tmp_path / "shelf.png")
    assert "4 documents, 4 with room for their name." in said
    check_picture(tmp_path / "shelf.png", 1300, 910)


def test_shelf_map_wants_three(run_example, toy_model, tmp_path, capsys):
    documents = write_rows(tmp_path / "in.jsonl", [{"id": "x", "text": KITCHEN}])
    with pytest.raises(SystemExit):
        run_example("shelf_map", model=toy_model, documents=documents, output="none.png")
    assert "holds 1 document(s); a map needs at least three" in capsys.readouterr().err


def novel() -> tuple[str, list[dict]]:
    """A dedication and five chapters whose third and fifth, and first and fourth, are about the same."""
    text, chapters = "To my cat.\n\n", []
    for number, sentence in enumerate((SEA, KITCHEN, COURT, SEA, COURT), start=1):
        start = len(text)
        text += f"CHAPTER {number}\n\n{sentence * 4}\n\n"
        chapters.append({"heading": f"CHAPTER {number}", "start": start, "end": len(text)})
    return text, chapters


def test_chapter_map(run_example, minilm_model, tmp_path):
    text, chapters = novel()
    rows = [{"id": "none", "text": KITCHEN, "chapters": []}, {"id": "novel", "text": text, "chapters": chapters}]
    documents = write_rows(tmp_path / "in.jsonl", rows)
    given = {"model": minilm_model, "documents": documents, "output": tmp_path / "map.png"}
    names, said = run_example("chapter_map", **given, id="novel")
    assert f"Wrote {tmp_path / 'map.png'}: 5 chapters of 'novel'" in said
    check_picture(tmp_path / "map.png", 1235, 1365)

    book = NextLevelBertModel.from_pretrained(minilm_model).encode(text)
    vectors = names["chapter_vectors"](book, chapters)
    for vector, chapter in zip(vectors, chapters, strict=True):  # counted character by character
        total = np.zeros(384)
        counted = 0
        for (start, end), chunk in zip(book.spans, book.chunks.numpy(), strict=True):
            inside = len(set(range(start, end)) & set(range(chapter["start"], chapter["end"])))
            total, counted = total + inside * chunk, counted + inside
        np.testing.assert_allclose(vector, total / counted, atol=1e-4)
    figure = names["draw"](vectors, [chapter["heading"] for chapter in chapters], "novel")
    [image] = figure.axes[0].images
    cosines = np.asarray(image.get_array())
    np.testing.assert_allclose(cosines, cosine_similarity(vectors - vectors.mean(axis=0)), atol=1e-5)
    others = cosines - 2 * np.eye(5)
    assert others.argmax(axis=1).tolist()[2::2] == [4, 2]  # the third and the fifth chapter find each other
    assert others[0].argmax() == 3

    with pytest.raises(SystemExit, match=r"'none' has 0 chapter\(s\); a map needs three\. Give a --heading_pattern"):
        run_example("chapter_map", **given)
    with pytest.raises(SystemExit, match="There is no document 'other'"):
        run_example("chapter_map", **given, id="other")


def test_chapter_map_at_headings(run_example, toy_model, tmp_path, capsys):
    text, chapters = novel()
    (tmp_path / "novel.txt").write_text(text)
    given = {"model": toy_model, "documents": tmp_path / "novel.txt", "output": tmp_path / "map.png"}
    names, said = run_example("chapter_map", **given, heading_pattern=r"^CHAPTER \d+")
    assert "6 chapters of 'novel'" in said
    before = {"heading": "(before the first heading)", "start": 0, "end": chapters[0]["start"]}
    assert names["split_at_headings"](text, r"^CHAPTER \d+") == [before, *chapters]
    with pytest.raises(SystemExit, match=r"has 0 chapter\(s\); a map needs three\. Give another --heading_pattern"):
        run_example("chapter_map", **given, heading_pattern="^PART")
    with pytest.raises(SystemExit, match=r"novel\.txt does not say where chapters begin: give a --heading_pattern"):
        run_example("chapter_map", **given)
    with pytest.raises(SystemExit):
        run_example("chapter_map", **given, heading_pattern="^CHAPTER (")
    assert "is no regular expression: missing )" in capsys.readouterr().err


def test_chapter_map_says_what_was_not_read(run_example, toy_model, tmp_path):
    text, chapters = novel()
    chapters.append({"heading": "An empty end", "start": len(text), "end": len(text)})
    documents = write_rows(tmp_path / "in.jsonl", [{"id": "novel", "text": text, "chapters": chapters}])
    with pytest.raises(SystemExit, match="read nothing of An empty end: these chapters are blank"):
        run_example("chapter_map", model=toy_model, documents=documents, output=tmp_path / "map.png")


def test_finetune_classifier(run_example, toy_model, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    seen = set()
    forward = NextLevelBertForSequenceClassification.forward

    def recorded(self, input_ids=None, attention_mask=None, labels=None, **rest):
        seen.update(attention_mask.sum(dim=1).tolist())
        return forward(self, input_ids=input_ids, attention_mask=attention_mask, labels=labels, **rest)

    monkeypatch.setattr(NextLevelBertForSequenceClassification, "forward", recorded)
    kinds = {"sea": SEA, "court": COURT}
    rows = [{"text": text * (2 + number), "label": label} for number in range(4) for label, text in kinds.items()]
    rows[0]["text"] = SEA * 60  # more tokens than the chunk encoder has positions
    files = {
        "documents": write_rows(tmp_path / "train.jsonl", rows),
        "test_documents": write_rows(tmp_path / "test.jsonl", rows[1:6]),
        "output_dir": tmp_path / "classifier",
    }
    _, said = run_example("finetune_classifier", model=toy_model, **files, epochs=2)
    tokenizer = AutoTokenizer.from_pretrained(files["output_dir"])
    assert seen == {len(tokenizer(row["text"], verbose=False)["input_ids"]) for row in rows}
    assert max(seen) > 1000

    classifier = AutoModelForSequenceClassification.from_pretrained(files["output_dir"])
    assert classifier.config.id2label == {0: "court", 1: "sea"}
    correct = 0
    for row in rows[1:6]:
        [guess] = classifier(**tokenizer(row["text"], return_tensors="pt")).logits.argmax(dim=-1).tolist()
        correct += classifier.config.id2label[guess] == row["label"]
    assert f"a classifier into court, sea; accuracy {correct / 5:.3f}." in said
    before = NextLevelBertModel.from_pretrained(toy_model).state_dict()
    after = classifier.base_model.state_dict()
    moved = {name.split(".")[0] for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved == {"special_embeddings", "encoder"}  # and not the chunk encoder

    write_rows(files["test_documents"], [{"text": KITCHEN, "label": "kitchen"}])
    with pytest.raises(ValueError, match="kitchen"):  # no label of the training articles
        run_example("finetune_classifier", model=toy_model, **files)


def test_finetune_classifier_with_a_chunkbert(run_example, toy_encoder_path, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    torch.manual_seed(4)
    before = ChunkBertModel.from_encoder(toy_encoder_path, chunk_size=32, num_averaged_layers=3)
    before.save_pretrained(tmp_path / "model")
    rows = [
        {"text": text * (2 + n), "label": label} for n in range(4) for label, text in (("sea", SEA), ("law", COURT))
    ]
    documents = write_rows(tmp_path / "train.jsonl", rows)
    files = {"documents": documents, "test_documents": documents, "output_dir": tmp_path / "classifier"}
    _, said = run_example("finetune_classifier", model=tmp_path / "model", **files, epochs=3)
    assert "a classifier into law, sea; accuracy" in said
    after = AutoModelForSequenceClassification.from_pretrained(files["output_dir"])
    assert type(after) is ChunkBertForSequenceClassification
    kept = [name for name, value in before.state_dict().items() if torch.equal(value, after.model.state_dict()[name])]
    assert kept == []


@pytest.mark.parametrize("cls", [HateModel, NextLevelBertModel])
def test_sentence_interaction(run_example, toy_encoder_path, tmp_path, cls):
    torch.manual_seed(3)
    model = cls.from_chunk_encoder(toy_encoder_path, chunk_size=32, chunking="sentences", max_chunks=8)
    model.save_pretrained(tmp_path / "model")
    text = SEA + KITCHEN + COURT + SEA
    document = write_rows(tmp_path / "in.jsonl", [{"id": "four", "text": text}, {"id": "long", "text": KITCHEN * 20}])
    given = {"model": tmp_path / "model", "documents": document, "output": tmp_path / "maps.png"}
    names, output = run_example("sentence_interaction", **given)
    layers = names["attention_of_sentences"](
        AutoModel.from_pretrained(tmp_path / "model", attn_implementation="eager").eval(), model.encode(text).plain
    )
    assert len(layers) == model.config.encoder_config.num_hidden_layers
    assert all(layer.shape == (4, 4) for layer in layers)
    assert all((layer.sum(axis=1) < 1).all() for layer in layers)  # the rest goes to the special vectors
    rows = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    np.testing.assert_allclose(names["cosines"](torch.from_numpy(rows)), cosine_similarity(rows), atol=1e-6)
    assert f"{len(layers) + 2} maps" in output
    assert "(evenly it would be 0.250)" in output
    assert Image.open(tmp_path / "maps.png").size[0] > 800
    _, output = run_example("sentence_interaction", **{**given, "id": "long"})
    assert "'long' has 20 chunks; the maps show the first 8." in output


def test_mentions_are_linked(encoder, tmp_path, monkeypatch, capsys):
    """The groups are those of the probabilities that the model gives to each pair by itself."""
    torch.manual_seed(0)
    model = CdlmForCrossDocumentCoreference.from_encoder(encoder, max_length=64, attention_window=16)
    CdlmProcessor.from_model(model)
    model.save_pretrained(tmp_path / "linker")
    texts = ["A <m>storm</m> came. It <m>rained</m>.", "The <m>storm</m> passed.", "No mention."]
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    script = EXAMPLES / "link_mentions.py"

    def lines(threshold: str) -> list[str]:
        arguments = ["--model", str(tmp_path / "linker"), "--threshold", threshold, *map(str, files)]
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    assert lines("0.999") == ["'storm' (0.txt)", "'rained' (0.txt)", "'storm' (1.txt)"]
    assert lines("0.001") == ["'storm' (0.txt); 'rained' (0.txt); 'storm' (1.txt)"]
    names = runpy.run_path(str(script))
    processor = CdlmProcessor.from_model(model)
    found = names["probabilities"](model, processor, [read_marked(text) for text in texts])
    # Mentions 1 and 2 are in different documents, which are read with all of theirs.
    row = processor.mentions(
        ["A storm came. It rained.", "The storm passed."], [(0, 2, 7), (0, 17, 23), (1, 4, 9)], [(1, 2)]
    )
    with torch.no_grad():
        expected = model(**processor.pad([row])).logits.sigmoid()
    assert found[1, 2] == pytest.approx(float(expected), abs=1e-6)
    assert found.shape == (3, 3)
