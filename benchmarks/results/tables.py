"""The tables of docs/results.md: which figures they show, and what their rows are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results.cells import (
    Cell,
    Measured,
    bold,
    difference,
    group,
    make_table,
    mean_of,
    merge,
    score,
    score_with_any_bounds,
    score_with_bounds,
    score_with_short_bounds,
    text,
)

Parts = Mapping[str, Measured]  # JSON of sections by name
Table = list[list[str]]

# --- Search

_SEARCH_ROWS = {
    "search --rerank minilm": "**`search`** with `minilm`",
    "search": "**`search`** without `minilm`",
    "— without late interaction": "without late interaction",
    "bm25s": "bm25s",
    "TF-IDF (scikit-learn)": "TF-IDF",
    "minilm alone": "MiniLM alone, all passages",
    "search --model minilm": "`search --model minilm`",
}

_SEARCH_COLUMNS: dict[str, tuple[str, Cell]] = {
    "MRR (95 %)": ("mrr", score_with_short_bounds),
    "won / lost": ("won / lost", text),
    "p": ("sign test", text),
    "without `minilm` minus this": ("search minus", difference),
    "with `minilm` minus this": ("search --rerank minilm minus", difference),
}


# Heading of the rows by section.
_QUESTIONS = {
    "everyday-questions": "50 everyday questions",
    "book-questions": "50 about 26 books",
    "novel-questions": "24 without names, about six of 22 novels",
    "story-questions": "300 of SQuALITY about 75 stories",
}


def question_table(measured: Parts) -> Table:
    """Makes a group of rows for each set of questions."""
    table = [["questions", *_SEARCH_COLUMNS]]
    for section, part in measured.items():
        rows = make_table(part, "", _SEARCH_COLUMNS, _SEARCH_ROWS)
        table += group(_QUESTIONS[section], rows)
    return table


# --- Document vectors

_MINILM = "nextlevelbert-minilm-256"
_DOCUMENT_ROWS = {
    "static": "nextlevelbert-static",
    "static + TF-IDF": "— with TF-IDF's cosine added, 0.2 to 0.8",
    "static: their whitened mean": "whitened mean of static chunk vectors",
    "static: mean of its chunk vectors": "mean of static chunk vectors",
    "fit": "`fit`, to the 198 other novels",
    _MINILM: _MINILM,
    f"{_MINILM}: their whitened mean": "whitened mean of MiniLM's chunk vectors",
    f"{_MINILM}: mean of its chunk vectors": "mean of MiniLM's chunk vectors (Avg. SBERT)",
    f"{_MINILM}: first chunk": "first chunk (SBERT, 256 tokens)",
    "TF-IDF": "TF-IDF",
    "BM25": "BM25",
}


def document_table(measured: Parts) -> Table:
    """Makes a group of rows for each set of novels.

    nextlevelbert-minilm-256 was trained on the first set, and has no row there.
    """
    columns: dict[str, tuple[str, Cell]] = {
        "chapters": ("books", score_with_bounds),
        "difference (95 %)": ("books, minus the first", difference),
        "six chapters": ("books, six chapters", score),
        "their difference": ("books, six chapters, minus the first", difference),
        "letters only": ("books, letters only", score),
        "with names": ("books, with names", score),
        "neighbours": ("neighbours", score),
        "excerpts": ("excerpts", score),
        "SQuALITY": ("squality", score),
    }
    others = {
        **columns,
        "chapters": ("books", score),
        "difference (95 %)": ("books, minus TF-IDF", difference),
    }
    held_out = {name: part for name, part in measured.items() if name.startswith("held-out")}
    chosen = {name: part for name, part in measured.items() if name not in held_out}
    untrained = {row: name for row, name in _DOCUMENT_ROWS.items() if row != _MINILM}
    minus = "minus nextlevelbert-static"
    return [
        ["names masked", *columns],
        *group(
            "18 novels by which no setting was chosen",
            make_table(merge(held_out), "", columns, untrained),
            {"difference (95 %)": minus, "their difference": minus},
        ),
        *group(
            "22 novels by which recipes were chosen",
            make_table(merge(chosen), "", others, _DOCUMENT_ROWS),
            {"difference (95 %)": "minus TF-IDF"},
        ),
    ]


def kinds_table(measured: Parts) -> Table:
    """Makes a row for each kind of text, with the best score of a row in bold."""
    [part] = measured.values()
    methods = {
        "fit": "`fit`",
        "static": "nextlevelbert-static",
        "TF-IDF": "TF-IDF",
        "BM25": "BM25",
    }
    table = [["kind of text", "excerpts", *methods.values(), "TF-IDF minus `fit`"]]
    for kind, figures in part["rows"].items():
        best = max(mean_of(figures[method]) for method in methods)
        cells = [bold(figures[method], score, best) for method in methods]
        gain = difference(figures["TF-IDF, minus fit"])
        table.append([kind.replace("_", " "), f"{figures['n']:,}", *cells, gain])
    return table


# --- Classification

_HEAD_ROWS = {
    "static": "nextlevelbert-static",
    "static: their whitened mean": "whitened mean of static chunk vectors",
    "static: mean of its chunk vectors": "mean of static chunk vectors",
    "fit, to the training documents": "`fit`, to the training documents",
    "nextlevelbert-minilm-256": "nextlevelbert-minilm-256",
    "nextlevelbert-minilm-256: mean of its chunk vectors": "mean of MiniLM's chunk vectors",
    "the first tokens": "MiniLM, the first 256 tokens",
    "TF-IDF": "TF-IDF",
}


def heads_table(measured: Parts) -> Table:
    rows: dict[str, dict[str, Any]] = {}
    columns = {}
    for section, part in measured.items():
        articles = "Hyperpartisan"
        if "news" in section:
            articles = "BBC News"
        columns[f"{articles} ({part['test']:,})"] = (articles, score_with_bounds)
        for row, cells in part["rows"].items():
            rows.setdefault(row, {})[articles] = cells["accuracy"]
    return make_table({"rows": rows}, "accuracy", columns, _HEAD_ROWS)


# --- Trained models


@dataclass(frozen=True)
class Family:
    """A part of the table of trained models.

    Attributes:
        sections: sections that measured its rows.
        heading: the model, the task and the metric.
        score: column of the score.
        minus: column of a difference, and the row that is subtracted.
        names: names of the rows in the page, by their names in the JSON.
    """

    sections: Sequence[str]
    heading: str
    score: str
    minus: tuple[str, str]
    names: Mapping[str, str]

    def rows(self, measured: Parts) -> Table:
        """Makes a heading and the rows."""
        part = merge({section: measured[section] for section in self.sections})
        column, control = self.minus
        columns: dict[str, tuple[str, Cell]] = {
            "score": (self.score, score_with_any_bounds),
            "difference (95 %)": (column, difference),
        }
        rows = make_table(part, "", columns, self.names)
        return group(self.heading, rows, {"difference (95 %)": f"minus {control}"})


_CHUNKBERT_ROWS = {
    "chunkbert": "ChunkBERT, chunks of 128",
    "truncated": "BERT, the first 512 tokens (`truncated`)",
    "tfidf": "TF-IDF",
}
_FAMILIES = (
    Family(
        sections=["trained-next-level-bert"],
        heading="NextLevelBERT: chapters of 22 novels, MAP",
        score="chapters",
        minus=("chapters, minus whitened mean", "the whitened mean"),
        names={
            "mean": "mean of MiniLM's chunk vectors",
            "whitened mean": "whitened mean of MiniLM's chunk vectors",
            "smooth-l1": "masked vectors, the paper's loss",
            "choice": "masked vectors, the default loss",
            "contrastive": "two segments of a book",
            "200-steps": "— whitened, `--pooling residual`: nextlevelbert-minilm-256's recipe",
            "200-steps-no-layers": "— the same without any layer",
        },
    ),
    Family(
        sections=["trained-hate"],
        heading="HATE: 25 stories for 500 answers of SQuALITY, MRR@10",
        score="mrr",
        minus=("none", "nothing"),
        names={
            "pretrained": "HATE, 64 dimensions, trained to rank",
            "mean of the sentence vectors": "mean of MiniLM's sentence vectors",
            "BM25": "BM25",
        },
    ),
    Family(
        sections=["trained-chunkbert"],
        heading="ChunkBERT: 64 articles of Hyperpartisan, accuracy",
        score="all",
        minus=("all, minus tfidf", "TF-IDF"),
        names=_CHUNKBERT_ROWS,
    ),
    Family(
        sections=["trained-chunkbert"],
        heading="ChunkBERT: the 30 of them with over 512 tokens",
        score="long",
        minus=("long, minus truncated", "BERT"),
        names=_CHUNKBERT_ROWS,
    ),
    Family(
        sections=["trained-bert-al"],
        heading="BERT-AL: three sentences of BBC News, ROUGE-1",
        score="rouge1",
        minus=("rouge1, minus first 3 sentences", "the lead"),
        names={
            "residual-16": "BERT-AL, segments of 16, `residual` (the default)",
            "replace-16": "BERT-AL, segments of 16, `replace` (the paper's)",
            "residual-128": "BERT-AL, segments of 128, `residual`",
            "first 3 sentences": "lead",
            "TF-IDF centroid": "TF-IDF centroid, no training",
        },
    ),
    Family(
        sections=["trained-cdlm", "coreference-rules"],
        heading="CDLM: events of ECB+, CoNLL F1",
        score="conll_f1",
        minus=("conll_f1, minus start", "the start"),
        names={
            "start-linked": "start: MiniLM, as a Longformer",
            "cdlm-linked": "CDLM, 60 steps",
            "local-linked": "Local",
            "prefix-linked": "Prefix",
            "rand-linked": "Rand",
            "same stem of the head": "same stem of the head, without training",
        },
    ),
)


def trained_table(measured: Parts) -> Table:
    table = [["trained here", "score", "difference (95 %)"]]
    for family in _FAMILIES:
        if all(section in measured for section in family.sections):
            table += family.rows(measured)
    return table
