"""How well do the sentence rules cut, and how fast, next to libraries that are made for it? (docs/evaluation.md)

    pip install pysbd syntok nupunkt
    python -m benchmarks.studies.sentence_splitting --data DATA --output_dir splitting

Gold borders: contracts, annual reports and papers written for the tests, in two halves, of which the rules were made
on one; ECB+ and the articles of the BBC, whose sentences are joined by spaces so that line breaks give nothing away.
Novels have no gold: there the splitters are compared with each other. F1 is that of the borders within documents, with
95 % intervals by a bootstrap over documents. Prints Markdown tables and writes ``splitting.json``.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import measuring
from benchmarks.common.studies import ROOT, study_parser
from nextlevelbert import load_chunk_encoder, text_sentences
from nextlevelbert.data.rows import file_rows
from nextlevelbert.models.chunking import Splitter, chunk_spans, splitter_sentences, tokenize_document
from nextlevelbert.models.sentences import sentence_boundaries, sentence_token_ids

GOLD = ROOT / "tests/models/sentences_gold.txt"
_BREAKS = {"¶": "\n\n", "↵": "\n", "⏎": "\n"}
_LINES_AND_BULLETS = "contracts, reports and papers"
_SAMPLES = 2_000
_TINY = 3  # characters
Spans = list[tuple[int, int]]


def gold_documents(half: str, path: Path = GOLD) -> Iterator[tuple[str, Spans]]:
    """Text and sentences of the documents of one half, ``"look"`` or ``"held"``, of the file.

    A line of the file is a sentence. It begins with ¶ after a blank line, ↵ after a line break, and otherwise comes
    after a space; ⏎ is a line break within the sentence of the line before.
    """
    for block in ("\n" + path.read_text(encoding="utf-8")).split("\n=== ")[1:]:
        head, *lines = block.split("\n")
        if head.split()[1] != half:
            continue
        text = ""
        spans: list[tuple[int, int]] = []
        for line in filter(None, map(str.rstrip, lines)):
            body = line.lstrip("".join(_BREAKS))
            text += _BREAKS.get(line[0], " ") if text else ""
            if line[0] == "⏎":
                spans[-1] = (spans[-1][0], len(text) + len(body))
            else:
                spans.append((len(text), len(text) + len(body)))
            text += body
        yield text, spans


def joined(sentences: Iterable[str]) -> tuple[str, Spans]:
    """A text of sentences with spaces between them, and where they are."""
    text, spans = "", []
    for sentence in map(str.strip, sentences):
        text += " " if text else ""
        spans.append((len(text), len(text) + len(sentence)))
        text += sentence
    return text, spans


def borders(text: str, spans: Spans) -> list[int]:
    """Where sentences end, in characters that are no white space; the end of the text is left out."""
    solid = np.cumsum([not character.isspace() for character in text])
    return sorted({int(solid[end - 1]) for _, end in spans} - {0, int(solid[-1])})


def libraries() -> dict[str, Splitter]:
    """The libraries, each by the line that docs/inputs.md gives for it."""
    import nupunkt
    import pysbd
    from syntok import segmenter

    return {
        "pySBD": pysbd.Segmenter(language="en", clean=False).segment,
        "syntok": lambda text: [
            (sentence[0].offset, sentence[-1].offset + len(sentence[-1].value))
            for paragraph in segmenter.analyze(text)
            for sentence in paragraph
        ],
        "nupunkt": nupunkt.sent_tokenize,
    }


class Timed:
    """A splitter with the CPU-seconds that it took, and the texts of which it lost something."""

    def __init__(self, prepare: Callable[[str], Any], split: Callable[[str, Any], Spans]) -> None:
        self._prepare, self._split = prepare, split
        self.seconds, self.characters, self.refused = 0.0, 0, 0

    def __call__(self, text: str) -> Spans:
        prepared = self._prepare(text)
        start = time.process_time()
        try:
            found = self._split(text, prepared)
        except ValueError:
            self.refused += 1
            found = [(0, len(text))]
        self.seconds += time.process_time() - start
        self.characters += len(text)
        return found


def _split_by(splitter: Splitter, text: str, _: Any) -> Spans:
    return splitter_sentences(text, splitter)


def splitters(tokenizer: Any) -> dict[str, Timed]:
    """The two rules for ids (tokenising is not timed), the rule for texts, and the libraries."""
    found: dict[str, Timed] = {}
    for rule in (1, 2):
        classes = sentence_token_ids(tokenizer, rule)

        def by_ids(text: str, document: Any, rule: int = rule, classes: dict[str, list[int]] = classes) -> Spans:
            return chunk_spans(document, sentence_boundaries(document.input_ids, classes, rule)).tolist()

        found[f"rule {rule} for ids"] = Timed(lambda text: tokenize_document(tokenizer, text), by_ids)
    for name, function in {"`text_sentences`": text_sentences, **libraries()}.items():
        found[name] = Timed(lambda text: None, partial(_split_by, function))
    return found


def counts(gold: Spans, found: Spans, text: str) -> tuple[int, int, int, int, int]:
    """Borders in both, only found, only in gold; gold sentences found exactly; gold sentences."""
    ours, theirs = borders(text, found), borders(text, gold)
    right = len(set(ours) & set(theirs))
    exact = set(zip([0, *ours], [*ours, -1], strict=True)) & set(zip([0, *theirs], [*theirs, -1], strict=True))
    return right, len(ours) - right, len(theirs) - right, len(exact), len(theirs) + 1


def f1(table: np.ndarray) -> np.ndarray:
    """F1 of ``[..., documents, 5]`` counts, summed over documents."""
    right, only_found, only_gold = np.moveaxis(table[..., :3].sum(axis=-2), -1, 0)
    return 2 * right / np.maximum(2 * right + only_found + only_gold, 1)


def with_gold(documents: list[tuple[str, Spans]], split: Timed) -> dict[str, Any]:
    """F1 with its interval, precision, recall and the share of sentences that are found exactly."""
    table = np.array([counts(gold, split(text), text) for text, gold in documents])  # [d, 5]
    samples = np.random.default_rng(0).integers(len(table), size=(_SAMPLES, len(table)))
    right, only_found, only_gold, exact, sentences = table.sum(axis=0)
    low, high = np.quantile(f1(table[samples]), [0.025, 0.975])
    values = {"F1": f1(table), "low": low, "high": high, "precision": right / max(right + only_found, 1),
              "recall": right / max(right + only_gold, 1), "exact": exact / sentences}  # fmt: skip
    return {key: round(float(value), 4) for key, value in values.items()}


def without_gold(texts: list[str], every: dict[str, Timed]) -> dict[str, dict[str, Any]]:
    """Of each splitter: sentences, those under three characters, and F1 with every other one."""
    found = {name: [borders(text, split(text)) for text in texts] for name, split in every.items()}
    rows: dict[str, dict[str, Any]] = {}
    for name, ours in found.items():
        tiny = sum(int((np.diff([0, *cuts]) < _TINY).sum()) for cuts in ours)
        row: dict[str, Any] = {"sentences": sum(len(cuts) + 1 for cuts in ours), "tiny": tiny}
        for other, theirs in found.items():
            right = sum(len(set(one) & set(two)) for one, two in zip(ours, theirs, strict=True))
            row[other] = round(2 * right / max(sum(map(len, ours)) + sum(map(len, theirs)), 1), 4)
        rows[name] = row
    return rows


def parse_arguments() -> Namespace:
    parser: ArgumentParser = study_parser(__doc__)
    parser.add_argument("--novels", type=int, default=8)
    parser.add_argument("--characters", type=int, default=100_000, help="of each novel")
    parser.add_argument("--held_out", action="store_true", help="also the half that the rules were not made on")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = load_chunk_encoder(args.encoder, args.encoder_name).tokenizer
    ecb = file_rows(args.data / "ecbplus/validation.jsonl.gz")
    bbc = file_rows(args.data / "bbc_extractive_summaries/validation.jsonl.gz")
    sets = {
        f"{_LINES_AND_BULLETS}, seen": list(gold_documents("look")),
        **({f"{_LINES_AND_BULLETS}, held out": list(gold_documents("held"))} if args.held_out else {}),
        "ECB+": [joined(row["text"][start:end] for start, end in row["sentences"]) for row in ecb],
        "BBC": [joined(row["sentences"]) for row in bbc],
    }
    rows = islice(file_rows(args.data / "novels/validation.jsonl.gz"), args.novels)
    novels = [row["text"][: args.characters] for row in rows]
    facts: dict[str, Any] = {"machine": measuring.processor(), "documents": {k: len(v) for k, v in sets.items()}}
    for name, documents in sets.items():
        facts[name] = {each: with_gold(documents, split) for each, split in splitters(tokenizer).items()}
        print(f"\n{name}: {len(documents)} documents, {sum(len(gold) for _, gold in documents)} sentences\n")
        measuring.print_table(
            ["", "F1", "95 %", "precision", "recall", "exact"],
            [
                [each, *(f"{value:.3f}" for value in (row["F1"],)), f"{row['low']:.3f} to {row['high']:.3f}",
                 *(f"{row[key]:.3f}" for key in ("precision", "recall", "exact"))]
                for each, row in facts[name].items()
            ],
        )  # fmt: skip
    every = splitters(tokenizer)
    facts["novels"] = without_gold(novels, every)
    for name, split in every.items():
        facts["novels"][name] |= {"CPU-seconds": round(split.seconds, 3), "refused": split.refused,
                                  "characters/CPU-s": round(split.characters / split.seconds)}  # fmt: skip
    print(f"\nnovels: {sum(map(len, novels)):,} characters; F1 with each other\n")
    columns = ["sentences", "tiny", *every, "refused", "CPU-seconds", "characters/CPU-s"]
    cells = [[name, *(str(row[column]) for column in columns)] for name, row in facts["novels"].items()]
    measuring.print_table(["", *columns], cells)
    (args.output_dir / "splitting.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
