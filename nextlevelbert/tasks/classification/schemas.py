"""Two published layouts of rows: QuALITY's articles with their questions, MuLD's character archetypes."""

from __future__ import annotations

from ...data.rows import Rows, short

MULD_CLASSES = ("Villain/Antagonist", "Hero")  # 0 and 1, as in the original code, so that F1 is the hero's
_LONGEST_FIRST_LINE = 200  # characters of a line that can be a character's name, or a question about one
_LONGEST_NAME = 6  # words


def quality_questions(rows: Rows) -> Rows:
    """A row for every question, of rows that hold an article with its questions."""
    for place, values in rows:
        questions = values.get("questions")
        if not isinstance(questions, list) or not questions or not all(isinstance(each, dict) for each in questions):
            raise place.error("questions", f"must be a list of questions, got {short(questions)}.")
        for number, question in enumerate(questions):
            inner = place._replace(row=f"{place.row}, question {number}")
            yield inner, {**question, "article": values.get("article")}


def first_line(text: str) -> tuple[str, str] | None:
    """A first line short enough to be a name or a question, and the rest; None where there is none."""
    line, end, rest = text.partition("\n")
    return (line.strip(), rest) if end and line.strip() and len(line) <= _LONGEST_FIRST_LINE else None


def muld_rows(rows: Rows, with_question: bool) -> Rows:
    """Rows of MuLD with the question apart from the document, and the one label out of its list.

    The first line of ``input``, if it has at most 200 characters, is the question and the rest the document; a bare
    name (no "?", at most 6 words) becomes the question of the NextLevelBERT paper: "Is the character <NAME> behaving
    like a hero or a villain?". This is a rule of ours, as nothing in the data marks that line; the paper's original
    code takes the first line for the name, too, but leaves it in the document. Where no row has such a line, the whole
    input is the document, without a question. ``metadata`` is not read.
    """
    for place, values in rows:
        text = place.checked(values.get("input"), "input")
        line, rest = first_line(text) or (None, text)
        if (line is not None) != with_question:
            here, there = ("no ", "a ") if with_question else ("a ", "no ")
            raise place.error(
                "input", f"has {here}short first line that names the character, but row 0 has {there}one."
            )
        if line is not None and "?" not in line and len(line.split()) <= _LONGEST_NAME:
            line = f"Is the character {line} behaving like a hero or a villain?"
        output = values.get("output")
        if isinstance(output, list):
            if len(output) != 1:
                raise place.error("output", f"must hold one label, got {short(output)}.")
            output = output[0]
        yield place, {**values, "input": rest, "question": line, "output": output}
