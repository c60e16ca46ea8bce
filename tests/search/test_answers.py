"""What `nextlevelbert search` prints, for a reader and as JSON."""

import re

from .conftest import SEA


def test_json(command, books):
    answer = command("search", books, SEA[:60], "--documents", 2, "--passages", 3, "--json").json

    assert answer["question"] == SEA[:60]
    assert (len(answer["documents"]), len(answer["passages"])) == (2, 3)

    facts = {"place", "also_in", "score", "characters", "chunks", "metadata"}

    assert answer["documents"][0].keys() == facts

    facts = {"place", "also_in", "score", "cosine", "bm25", "start", "end", "page", "pages", "text"}

    assert answer["passages"][0].keys() == facts | {"share"}


def test_a_heading_has_rows(command, books):
    documents = command("search", books, SEA[:60], "--documents", 1, "--passages", 0).out
    passages = command("search", books, SEA[:60], "--documents", 0, "--passages", 1).out

    assert documents.startswith("Nearest documents")
    assert "Nearest passages" not in documents
    assert passages.startswith("Nearest passages")
    assert "Nearest documents" not in passages


def test_copies_are_shown_once(command, tmp_path):
    (tmp_path / "docs").mkdir()
    for name, end in (("one", ""), ("two", "\n"), ("three", " \n\n")):
        text = f"The bilge pump of the ferry is inspected.{end}"
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
    (tmp_path / "docs" / "zero.txt").write_text("In March the engineer opens the sea cock.")
    words = ("search", tmp_path / "docs", "Who inspects the bilge pump?")
    answer = command(*words, "--json").json
    for rows in (answer["documents"], answer["passages"]):
        copies = {row["place"]: row["also_in"] for row in rows}
        assert copies == {"one.txt": ["three.txt", "two.txt"], "zero.txt": []}

    assert "also in: three.txt, two.txt\n" in command(*words).out


def test_what_a_terminal_would_obey_is_shown_and_not_sent(command, tmp_path):
    """A text may clear the screen, set the title, write the clipboard, or turn the line around."""
    text = "The observatory \x1b[2J\x1b]0;owned\x07 opened\x9b1m its dome \u202e, عربي \u202b."
    (tmp_path / "a.txt").write_text(text)
    words = ("search", tmp_path, "observatory dome")

    shown = command(*words).out

    assert (
        "The observatory \\x1b[2J\\x1b]0;owned\\x07 opened\\x9b1m its dome \\u202e, عربي \u202b."
        in shown
    )
    said = command(*words, "--json")
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said.out) is None
    assert said.json["passages"][0]["text"] == text
    (tmp_path / "b\x1b[2J.txt").write_bytes(b"caf\xe9")
    assert "\x1b" not in command("search", tmp_path / "b\x1b[2J.txt", "café").err
