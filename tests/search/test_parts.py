"""The parts of a file: complete from the first to the last."""

from pathlib import Path

from nextlevelbert.search.file_states import State
from nextlevelbert.search.parts import FileContent, part_name, parts_of, written_parts
from nextlevelbert.search.reading import SourceFile

CONTENT = "0123456789abcdef" * 2
SOURCE = FileContent(
    SourceFile(Path("notes.jsonl"), "notes.jsonl", is_table=True), CONTENT, State([], False)
)


def write_parts(folder: Path, names: list[str]) -> dict[int, Path]:
    for name in names:
        (folder / f"{name}-00000000.parquet").write_bytes(b"")
    return written_parts(folder).get(CONTENT, {})


def test_the_parts_of_a_file_are_in_order(tmp_path):
    names = [
        part_name(CONTENT, 0, is_last=False),
        part_name(CONTENT, 1, is_last=False),
        part_name(CONTENT, 2, is_last=True),
    ]

    first, second, last = parts_of(SOURCE, write_parts(tmp_path, names[::-1]))

    assert first.path.stem == f"{names[0]}-00000000"
    assert second.path.stem == f"{names[1]}-00000000"
    assert last.path.stem == f"{names[2]}-00000000"
    assert (first.is_last, second.is_last, last.is_last) == (False, False, True)


def test_a_file_without_its_last_part_or_another_has_none(tmp_path):
    first = part_name(CONTENT, 0, is_last=False)
    last = part_name(CONTENT, 2, is_last=True)

    assert parts_of(SOURCE, write_parts(tmp_path, [first])) == []
    assert parts_of(SOURCE, write_parts(tmp_path, [first, last])) == []
    assert parts_of(SOURCE, {}) == []
