"""Files of vectors, maps of shelves, and plans."""

from __future__ import annotations

import json
from dataclasses import asdict
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from nextlevelbert import NextLevelBertModel
from nextlevelbert.commands.map import draw_map, place_names

from .conftest import COURT, KITCHEN, SEA

TEXTS = {"far/court.txt": COURT, "kitchen.txt": KITCHEN, "sea.txt": SEA}


@pytest.fixture(scope="module")
def model(toy_checkpoint) -> NextLevelBertModel:
    return NextLevelBertModel.from_pretrained(toy_checkpoint)


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
@pytest.mark.parametrize("which", ["both", "chunks", "documents"])
def test_embed(command, books, model, tmp_path, suffix, which):
    out = tmp_path / f"out{suffix}"
    said = command("embed", books, "-o", out, "--rows", which)
    assert said.status == 0, said.err
    if suffix == ".parquet":
        table = pyarrow.parquet.read_table(out)
        assert table.schema.field("vector").type.list_size == 32
        rows = table.to_pylist()
    else:
        columns = np.load(out)  # without pickles
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert f"Wrote {out}: {len(rows)} rows with vectors of 32 values." in said.out
    expected = []
    for place, text in TEXTS.items():
        found = model.encode(text)
        if which != "chunks":
            expected.append((place, place, "document", -1, 0, len(text), "", found.document.numpy()))
        if which != "documents":
            for k, (start, end) in enumerate(found.spans.tolist()):
                expected.append(
                    (f"{place}#{k}", place, "chunk", k, start, end, text[start:end], found.plain[k].numpy())
                )
    names = ("id", "document", "level", "chunk", "start", "end", "text", "vector")
    assert [tuple(row[name] for name in names[:-1]) for row in rows] == [row[:-1] for row in expected]
    np.testing.assert_allclose([row["vector"] for row in rows], [row[-1] for row in expected], atol=1e-5)
    assert {str(row["metadata"]) for row in rows} == {"{}"}
    assert [path.name for path in tmp_path.glob("out*")] == [out.name]


def test_embed_keeps_metadata(command, tmp_path):
    row = {"id": "x", "text": SEA, "tags": ["é"], "year": 1851}
    (tmp_path / "in.jsonl").write_text(json.dumps(row))
    assert command("embed", tmp_path / "in.jsonl", "-o", tmp_path / "out.parquet", "--json").json["rows"] > 4
    for found in pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist():
        assert json.loads(found["metadata"]) == {"tags": ["é"], "year": 1851}


def test_map(command, books, tmp_path):
    (books / "$5_{ & <6>.txt").write_text(SEA + COURT)
    assert "4 documents, 4 with room for their name." in command("map", books, "-o", tmp_path / "map.png").out
    pixels = np.asarray(Image.open(tmp_path / "map.png").convert("RGB"), dtype=np.int32)
    assert pixels.shape == (910, 1300, 3)
    assert len(np.unique(pixels @ [1, 256, 65536])) > 20
    assert command("map", books, "-o", tmp_path / "map.html", "--json").json["named"] == 4
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert page.count("<use xlink:href=") >= 4  # in HTML, a point with another prefix is not drawn
    picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    svg = "{http://www.w3.org/2000/svg}"
    told = [
        each.findtext(f"{svg}title") for each in picture.iter(f"{svg}g") if each.get("id", "").startswith("document-")
    ]
    assert [each.splitlines()[0].split(" (")[0] for each in told] == [
        "$5_{ & <6>.txt", "far/court.txt", "kitchen.txt", "sea.txt",
    ]  # fmt: skip
    assert all(len(each.splitlines()) == 5 for each in told)  # name, "Nearest:", the three others
    assert "$5_{ & <6>.txt" in {each.text for each in picture.iter(f"{svg}text")}


def test_points_are_principal_components():
    vectors = np.random.default_rng(0).normal(size=(12, 8))
    figure, placed = draw_map([f"d{number}" for number in range(12)], vectors, [3] * 12)
    [axes] = figure.axes
    drawn = np.concatenate([each.get_offsets() for each in axes.collections])
    expected = PCA(2).fit_transform(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    np.testing.assert_allclose(pdist(drawn), pdist(expected), atol=1e-8)
    assert placed == 12


def test_names_do_not_overlap():
    figure = Figure(figsize=(4, 3), layout="constrained")
    axes = figure.subplots()
    points = np.random.default_rng(0).normal(size=(60, 2)) * 1e-3  # no room for 60 names at one spot
    axes.scatter(points[:, 0], points[:, 1])
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    placed = place_names(figure, axes, points, ["a name of some length"] * 60)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(note) for note in axes.texts]
    assert 4 < placed == len(boxes) < 60
    assert all(one.count_overlaps([other for other in boxes if other is not one]) == 0 for one in boxes)
    assert all(axes.bbox.count_contains(box.corners()) == 4 for box in boxes)


def test_a_map_wants_three(command, books, tmp_path):
    said = command("map", books / "far", "-o", tmp_path / "map.png")
    assert said.status == 1
    assert "holds 1 document(s) that can be read; a map needs at least 3" in said.err


def test_plan(command, books, model, encoded):
    found = command("plan", books, "--json").json["documents"]
    assert found == [
        {"place": place, "characters": len(text), **asdict(model.plan(text))} for place, text in TEXTS.items()
    ]
    lines = command("plan", books).out.splitlines()
    assert lines[0].split("\t") == ["document", "characters", "tokens", "chunks", "windows"]
    sums = [sum(row[name] for row in found) for name in ("characters", "tokens", "chunks", "windows")]
    assert lines[-1].split("\t") == ["3 documents", *(f"{number:,}" for number in sums)]
    assert len(command("plan", books / "sea.txt").out.splitlines()) == 2
    assert encoded == []


@pytest.mark.parametrize(
    ("name", "what"), [("embed", "vectors.parquet"), ("embed", "vectors.npz"), ("map", "map.html")]
)
def test_what_is_written_is_whole_or_not_there(command, books, tmp_path, monkeypatch, name, what):
    """On a full disk the old file stays; what killed processes left of this file is removed, and of no other."""
    (books / "bread.txt").write_text("Bread and butter.")
    (tmp_path / what).write_text("old")
    (tmp_path / f"{what}.{'0' * 32}.tmp").write_text("half")
    (tmp_path / "mine.tmp").write_text("mine")

    def full(file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        command("search", books, "whales?")
        patch.setattr("os.fsync", full)
        said = command(name, books, "-o", tmp_path / what)
    assert (said.status, said.err) == (1, "error: [Errno 28] No space left on device\n")
    assert (tmp_path / what).read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"books", "cache", what, "mine.tmp"}
    assert command(name, books, "-o", tmp_path / what).status == 0
    assert (tmp_path / what).stat().st_size > 1_000


def test_nothing_to_embed(command, tmp_path):
    (tmp_path / "empty.txt").write_text("\u200b")
    said = command("search", tmp_path / "empty.txt", "whales?")
    assert "empty.txt contains no token: its vector is zero." in said.err
    for what in ("vectors.parquet", "vectors.npz"):
        said = command("embed", tmp_path / "empty.txt", "-o", tmp_path / what, "--rows", "chunks")
        assert said.status == 1
        assert "there is nothing to write: no document has a chunk" in said.err
        assert not (tmp_path / what).exists()
