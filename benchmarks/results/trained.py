"""Tables of trained models, of each paper and of the objectives that were tried."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.results.cells import (
    Cell,
    Measured,
    difference,
    make_table,
    merge,
    score,
    score_with_any_bounds,
    score_with_bounds,
)

_OBJECTIVE_ROWS = {
    "neighbours": "two nearest visible chunks, untrained",
    "weighed": "visible chunks weighed by 0.7 to the power of their distance, untrained",
    "least_squares": "nine numbers by least squares",
    "whitened mean": "whitened mean of the chunk vectors",
    "a": "the paper's: Smooth L1 (a)",
    "b": "Smooth L1 to vectors standardised by dimension (b)",
    "c": "Smooth L1 to whitened vectors (c)",
    "d": "choice of the whitened vector among the batch and 8,192 stored ones (d)",
    "d, second seed": "— second seed",
    "e": "codes: 1,024 classes of whitened vectors and 1,024 of the rest (e)",
    "f": "d, for what the mean of the neighbours leaves; spans of 3 to 8 masked (f)",
}


def objective_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {
        "unseen novels: of 8,192": ("unseen: of 8,192", score),
        "minus the weighed": ("unseen: of 8,192, minus weighed", difference),
        "unseen novels: of all": ("unseen: of all masked", score),
        "training novels: of 8,192": ("training: of 8,192", score),
        "books": ("chapters", score),
        "books, beside": ("chapters, beside", score),
        "beside, minus the whitened mean": ("chapters, beside, minus whitened", difference),
        "SQuALITY, beside": ("squality, beside", score),
    }
    return make_table(part, "found; MAP and MRR", columns, _OBJECTIVE_ROWS)


_NEXT_LEVEL_BERT_ROWS = {
    "mean": "mean of MiniLM's chunk vectors",
    "whitened mean": "whitened mean of MiniLM's chunk vectors",
    "smooth-l1": "the paper's masked modelling: 15 %, Smooth L1",
    "smooth-l1-30": "— 30 % masked, one seed",
    "smooth-l1-40": "— 40 % masked, one seed",
    "choice": "— choice among the batch and 8,192 stored vectors (the default)",
    "contrastive": "two segments of a book, mean of the layers' vectors",
    "whitened": "— whitened, with `--pooling residual`",
    "no-layers": "— the same without any layer",
    "200-steps": "— with layers, 200 steps: the recipe of nextlevelbert-minilm-256",
    "200-steps-no-layers": "— the same without any layer",
}


def next_level_bert_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    columns: dict[str, tuple[str, Cell]] = {
        "books": ("chapters", score_with_any_bounds),
        "books, minus the mean": ("chapters, minus mean", difference),
        "books, minus the whitened mean": ("chapters, minus whitened mean", difference),
        "books, minus no layers, 100 steps": ("chapters, minus no-layers", difference),
        "books, minus no layers, 200 steps": ("chapters, minus 200-steps-no-layers", difference),
        "SQuALITY": ("squality", score_with_any_bounds),
        "SQuALITY, minus the mean": ("squality, minus mean", difference),
    }
    heading = "MAP and MRR; over seeds, the mean (lowest to highest)"
    return make_table(part, heading, columns, _NEXT_LEVEL_BERT_ROWS)


def hate_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {
        "pretrained, before training": "HATE, 64 dimensions, before it is trained to rank",
        "pretrained": "— after",
        "mean of the sentence vectors": "mean of MiniLM's sentence vectors",
        "BM25": "BM25",
    }
    columns: dict[str, tuple[str, Cell]] = {"MRR@10": ("mrr", score_with_any_bounds)}
    return make_table(part, "SQuALITY, 500 answers", columns, names)


def chunkbert_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {
        "chunkbert": "ChunkBERT, chunks of 128",
        "truncated": "BERT, the first 512 tokens (`truncated`)",
        "tfidf": "TF-IDF",
    }
    columns: dict[str, tuple[str, Cell]] = {
        "all (64)": ("all", score_with_bounds),
        "minus TF-IDF": ("all, minus tfidf", difference),
        "long (30, over 512 tokens)": ("long", score_with_bounds),
        "long, minus BERT": ("long, minus truncated", difference),
    }
    return make_table(part, "Hyperpartisan, accuracy", columns, names)


def bert_al_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {
        "residual-16": "BERT-AL, segments of 16, `residual` (the default)",
        "replace-16": "BERT-AL, segments of 16, `replace` (the paper's)",
        "residual-128": "BERT-AL, segments of 128, `residual`",
        "truncated-16": "baseline 1, the first 16 tokens",
        "truncated-128": "baseline 1, the first 128 tokens",
        "first 3 sentences": "lead",
        "TF-IDF centroid": "TF-IDF centroid, no training",
        "oracle, at most 3 sentences": "oracle",
    }
    columns: dict[str, tuple[str, Cell]] = {
        "ROUGE-1": ("rouge1", score),
        "minus the lead": ("rouge1, minus first 3 sentences", difference),
        "minus TF-IDF": ("rouge1, minus TF-IDF centroid", difference),
        "precision": ("precision", score),
        "precision, minus the lead": ("precision, minus first 3 sentences", difference),
    }
    return make_table(part, "BBC News, three sentences", columns, names)


def cdlm_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    names = {
        "start-linked": "start: MiniLM, as a Longformer",
        "cdlm-linked": "CDLM, 60 steps",
        "local-linked": "Local",
        "prefix-linked": "Prefix",
        "rand-linked": "Rand",
        "same stem of the head": "same stem of the head, without training",
    }
    columns: dict[str, tuple[str, Cell]] = {
        "CoNLL F1, events": ("conll_f1", score_with_bounds),
        "minus start": ("conll_f1, minus start", difference),
        "p by permutation": ("p", score),
    }
    head, *rows = make_table(merge(measured), "ECB+, sentences", columns, names)
    # A high p is no merit.
    return [head, *([*cells, p.replace("*", "")] for *cells, p in rows)]


def tasks_table(measured: Mapping[str, Measured]) -> list[list[str]]:
    [part] = measured.values()
    names = {
        "cosines": "cosines of neighbouring chunks, untrained",
        "linear, five neighbours": "linear layer over five neighbouring vectors",
        "MLP, five neighbours": "MLP over five neighbouring vectors",
        "layers, random": "one layer over all chunks, random",
        "layers, j-0-300000-128": "— pretrained on masked vectors (j)",
    }
    columns: dict[str, tuple[str, Cell]] = {}
    for task in ("chapters", "intruder", "order"):
        columns[task] = (task, score)
        columns[f"{task}, minus the best control"] = (f"{task}, minus best", difference)
    return make_table(part, "windows of 64 chunks", columns, names)
