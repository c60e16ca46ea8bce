"""Parts of tables: of bounded size, each encoded once, also after an interruption."""

from pathlib import Path

import numpy as np
import pytest

from nextlevelbert.search import part_writer
from nextlevelbert.search.part_writer import metadata_json

from ..toys.finetuning import write

ROWS = 12
ROWS_OF_A_PART = 3


@pytest.fixture
def table(tmp_path, monkeypatch) -> Path:
    """A table of which three rows fill a part."""
    texts = [f"Note {index:02} about the sea. " * 4 for index in range(ROWS)]
    rows = []
    for index, text in enumerate(texts):
        rows.append({"id": f"note {index % 10}", "text": text})
    monkeypatch.setattr(part_writer, "_CHARACTERS_WITH_LAYERS", 250)
    (tmp_path / "docs").mkdir()
    return Path(write(tmp_path / "docs" / "notes.jsonl", rows))


def test_a_table_has_several_parts(toy, table, open_library, encoded, tmp_path):
    library = open_library(toy, table.parent)

    parts = sorted((tmp_path / "cache").rglob("*.parquet"))
    assert len(parts) == ROWS / ROWS_OF_A_PART
    assert ["-last-" in path.name for path in parts] == [False, False, False, True]
    assert library.names[:2] == ["notes.jsonl#note 0", "notes.jsonl#note 1"]
    assert library.names[10:] == ["notes.jsonl#note 0 (2)", "notes.jsonl#note 1 (2)"]
    for index in range(ROWS):
        assert library.document(index).text == encoded[index]
        assert f"Note {index:02}" in encoded[index]


def test_an_interrupted_table_is_continued(toy, table, open_library, encoded, monkeypatch):
    """The parts that were written are not encoded again, and the answers are the same."""
    right = open_library(toy, table.parent).ask("sea").score
    elsewhere = table.parent.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes.jsonl").write_bytes(table.read_bytes())
    write_part = part_writer.write_part
    written = []

    def interrupt(path, rows):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_part(path, rows)

    monkeypatch.setattr(part_writer, "write_part", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_library(toy, elsewhere)
    monkeypatch.setattr(part_writer, "write_part", write_part)
    encoded.clear()

    library = open_library(toy, elsewhere)

    assert len(encoded) == ROWS - 2 * ROWS_OF_A_PART
    assert "Note 06" in encoded[0]
    np.testing.assert_allclose(library.ask("sea").score, right, atol=1e-6)


def test_of_a_damaged_table_only_one_part_is_made_again(
    toy, table, open_library, encoded, tmp_path
):
    library = open_library(toy, table.parent)
    second = sorted((tmp_path / "cache").rglob("*.parquet"))[1]
    second.write_bytes(second.read_bytes()[:-1])
    [index] = (tmp_path / "cache").rglob("index-*")
    index.unlink()
    encoded.clear()

    again = open_library(toy, table.parent)

    assert [text[:7] for text in encoded] == ["Note 03", "Note 04", "Note 05"]
    assert again.names == library.names
    np.testing.assert_array_equal(again.vectors, library.vectors)


def test_notes_count_the_rows_of_all_parts(command, table):
    rows = [{"text": "\u200b"}, *({"text": "The sea. " * 30} for _ in range(4)), {"text": "\u200b"}]
    write(table, rows)

    said = command("search", table.parent, "sea")

    note = "holds no word that the model can read, in 2 of 6 rows, '0' first."
    assert said.err.count("notes.jsonl") == 1
    assert note in said.err


def test_metadata_can_be_read_by_any_json_reader():
    metadata = {"a": float("nan"), "b": "\ud83d", "c": ["é"]}

    assert metadata_json(metadata) == '{"a": null, "b": "?", "c": ["é"]}'
