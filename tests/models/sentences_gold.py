"""Sentences of contracts, reports and papers with their true borders, and how well a splitter finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

Spans = list[tuple[int, int]]
_BREAKS = {"¶": "\n\n", "↵": "\n", "⏎": "\n"}


def gold_documents(half: str) -> Iterator[tuple[str, Spans]]:
    """Text and sentences of the documents of one half, ``"look"`` or ``"held"``, of sentences_gold.txt.

    A line of the file is a sentence. It begins with ¶ after a blank line, ↵ after a line break, and otherwise comes
    after a space; ⏎ is a line break within the sentence of the line before.
    """
    content = Path(__file__).with_name("sentences_gold.txt").read_text(encoding="utf-8")
    for block in ("\n" + content).split("\n=== ")[1:]:
        head, *lines = block.split("\n")
        if head.split()[1] != half:
            continue
        text = ""
        spans: Spans = []
        for line in filter(None, map(str.rstrip, lines)):
            body = line.lstrip("".join(_BREAKS))
            text += _BREAKS.get(line[0], " ") if text else ""
            if line[0] == "⏎":
                spans[-1] = (spans[-1][0], len(text) + len(body))
            else:
                spans.append((len(text), len(text) + len(body)))
            text += body
        yield text, spans


def borders(text: str, spans: Spans) -> set[int]:
    """Where sentences end, in characters that are no white space; the end of the text is left out."""
    solid = np.cumsum([not character.isspace() for character in text])
    return {int(solid[end - 1]) for _, end in spans} - {0, int(solid[-1])}


def border_f1(documents: list[tuple[str, Spans]], predicted: list[Spans]) -> float:
    """F1 of the borders within documents, over all of them."""
    right = wrong = 0
    for (text, gold), spans in zip(documents, predicted, strict=True):
        right += len(borders(text, spans) & borders(text, gold))
        wrong += len(borders(text, spans) ^ borders(text, gold))
    return 2 * right / (2 * right + wrong)
