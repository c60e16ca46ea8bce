"""``nextlevelbert plan``: counts what encoding documents would take."""

import json
from dataclasses import asdict

from ..models.modeling_nextlevelbert import NextLevelBertModel
from .shelf import open_splitter, read_files


def run(
    source: str,
    model: NextLevelBertModel,
    *,
    as_json: bool,
    text_column: str,
    splitter: str | None,
) -> None:
    """Prints the characters, tokens, chunks and windows of each document.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        as_json: if true, prints JSON.
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.

    Raises:
        ValueError: if no file can be read.
    """
    find_sentences = open_splitter(model, splitter)
    rows = {}
    for name, document in read_files(source, text_column, model.tokenizer):
        plan = model.plan(document.text, find_sentences)
        rows[name] = {"characters": len(document.text), **asdict(plan)}
    if not rows:
        raise ValueError(f"No file of {source!r} can be read.")

    if as_json:
        print(json.dumps(rows))
        return
    columns = ("characters", "tokens", "chunks", "windows")
    print(*columns, "document", sep="\t")
    for name, row in rows.items():
        print(*(row[column] for column in columns), name, sep="\t")
