"""Cosines of document vectors and of exact TF-IDF, added: how much should the vectors count, and what does it bring?

    python -m benchmarks.studies.beside_tfidf --data DATA --hybrid checkpoints/nextlevelbert-hybrid \\
        --static checkpoints/nextlevelbert-static --train_file novels/development.jsonl --output_dir sums

The hybrid's word counts are hashed, and their logarithm is taken chunk by chunk. TF-IDF takes it in the whole
document, and keeps every word apart: this first shows on training texts what each of the two costs (the hybrid's own
tokens and weights, counted in whole documents, hashed and not). Then the weight of each kind of vectors beside TF-IDF
is chosen on the same texts: stories of SQuALITY, and segments of training novels; names masked and not. Unseen
novels and stories judge, as in hybrid_vectors.py; the sum with the hybrid minus each other row, 95 % over books or
stories. Prints Markdown tables and writes ``scores.json``.
"""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.studies import study_parser
from benchmarks.studies.hybrid_vectors import Values, by_scores, document_vectors, print_rows
from benchmarks.studies.third_part import cosines, gaps, means, sum_of, tfidf, training_tasks
from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.tasks.retrieval import bm25_scores

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)  # of the vectors

Vectors = dict[str, dict[str, torch.Tensor]]  # by name of the row, by text


def whole_counts(model: Any, texts: list[str]) -> sparse.csr_matrix:
    """The hybrid's word counts in whole documents, ``[B, V]``: 1 + ln n times the token's weight."""
    words, tokenizer = model.get_chunk_encoder().model.parts[1].model, model.tokenizer
    found = [np.unique(tokenize_document(tokenizer, text).input_ids, return_counts=True) for text in texts]
    ends = np.cumsum([0, *(len(tokens) for tokens, _ in found)])
    tokens, counts = (np.concatenate(side) for side in zip(*found, strict=True))
    values = (1 + np.log(counts)) * words.weight.detach().numpy()[tokens]
    return sparse.csr_matrix((values, tokens, ends), shape=(len(texts), len(words.weight)))


def hashed(model: Any, counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same ``[B, V]`` with the tokens of a place added up, ``[B, D]``."""
    words = model.get_chunk_encoder().model.parts[1].model
    size = words.config.hidden_size
    places = sparse.csr_matrix(
        (np.ones(len(words.places)), (np.arange(len(words.places)), words.places.numpy())),
        shape=(len(words.places), size),
    )
    return counts @ places


def sparse_cosines(task: RetrievalTask, rows: sparse.csr_matrix, numbers: dict[str, int]) -> np.ndarray:
    """``[Q, N]`` of rows that are looked up by text."""
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    units = (sparse.diags(1 / np.maximum(lengths, 1e-12)) @ rows).tocsr()
    sides = [units[[numbers[text] for text in side.values()]] for side in (task.queries, task.documents)]
    return np.round((sides[0] @ sides[1].T).toarray(), 7)


def all_texts(tasks: list[RetrievalTask]) -> list[str]:
    return list(dict.fromkeys(text for task in tasks for text in (*task.queries.values(), *task.documents.values())))


def vectors_of(hybrid: Any, static: Any, name: str, texts: list[str]) -> Vectors:
    """Document vectors of the hybrid, its parts, and the other checkpoint."""
    found = document_vectors(hybrid, texts, parts=True)
    rows = {"hybrid": found[""], "whitened static mean": found[", part 1"], "its word counts": found[", part 2"]}
    rows[name] = document_vectors(static, texts)[""]
    return {row: dict(zip(texts, vectors, strict=True)) for row, vectors in rows.items()}


def chosen_shares(tasks: list[RetrievalTask], vectors: Vectors, facts: dict[str, Any]) -> dict[str, float]:
    """For each kind of vectors the share with the highest mean over all columns; the rows go to `facts`."""
    best = {}
    words = {task.name: tfidf(task) for task in tasks}
    for name in [row for row in vectors if row != "its word counts"]:
        rows: dict[str, Values] = {}
        for share in SHARES:
            rows[f"{name} {share:g} + TF-IDF"] = {
                column: scores
                for task in tasks
                for column, scores in by_scores(
                    task, sum_of(share, cosines(task, vectors[name]), words[task.name])
                ).items()
            }
        print_rows(rows, list(next(iter(rows.values()))))
        facts["choice"] |= means(rows)
        totals = [sum(float(np.nanmean(scores)) for scores in row.values()) for row in rows.values()]
        best[name] = SHARES[int(np.argmax(totals))]
    return best


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--hybrid", type=Path, required=True)
    parser.add_argument("--static", type=Path, required=True, help="another checkpoint to put beside TF-IDF")
    parser.add_argument("--train_file", type=Path, required=True, help="training novels, to choose the weight")
    parser.add_argument("--novels", type=int, default=20, help="of them that are read")
    parser.add_argument("--segments", type=int, default=15, help="of each of these")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    hybrid, static = (NextLevelBertModel.from_pretrained(path).eval() for path in (args.hybrid, args.static))
    facts: dict[str, Any] = {"machine": measuring.processor(), "choice": {}, "rows": {}, "sum minus": {}}
    shares = choose(args, hybrid, static, facts)
    tasks = [task for task in retrieval.load_tasks(args.data, True) if not task.name.startswith("squality plot")]
    for task in tasks:  # one at a time: chapters and excerpts are the same books twice
        vectors = vectors_of(hybrid, static, args.static.name, all_texts([task]))
        words = tfidf(task)
        rows = {name: by_scores(task, cosines(task, found)) for name, found in vectors.items()}
        sums = {f"{name} {share:g} + TF-IDF": sum_of(share, cosines(task, vectors[name]), words)
                for name, share in shares.items()}  # fmt: skip
        rows |= {name: by_scores(task, scores) for name, scores in sums.items()}
        rows["TF-IDF"] = by_scores(task, words)
        rows["BM25"] = by_scores(task, np.asarray(bm25_scores([*task.queries.values()], [*task.documents.values()])))
        print_rows(rows, list(rows["hybrid"]))
        found = gaps(task, rows, f"hybrid {shares['hybrid']:g} + TF-IDF")
        for name, row in means(rows).items():
            facts["rows"].setdefault(name, {}).update(row)
            facts["sum minus"].setdefault(name, {}).update(found.get(name, {}))
        (args.output_dir / "scores.json").write_text(json.dumps(facts, indent=1) + "\n")


def choose(args: Namespace, hybrid: Any, static: Any, facts: dict[str, Any]) -> dict[str, float]:
    """The shares chosen on training texts; before that, what hashing and logarithms chunk by chunk cost there."""
    tasks = training_tasks(args)
    texts = all_texts(tasks)
    vectors = vectors_of(hybrid, static, args.static.name, texts)
    numbers = {text: number for number, text in enumerate(texts)}
    counts = whole_counts(hybrid, texts)
    kinds = {"whole documents, not hashed": counts, "whole documents, hashed": hashed(hybrid, counts)}
    rows: dict[str, Values] = {}
    for task in tasks:
        found = {f"words, {name}": sparse_cosines(task, matrix, numbers) for name, matrix in kinds.items()}
        found |= {name: cosines(task, rows_) for name, rows_ in vectors.items()}
        found["TF-IDF"] = tfidf(task)
        for name, scores in found.items():
            rows.setdefault(name, {}).update(by_scores(task, scores))
    print_rows(rows, list(rows["hybrid"]))
    facts["choice"] |= means(rows)
    shares = chosen_shares(tasks, vectors, facts)
    facts["shares"] = shares
    return shares


if __name__ == "__main__":
    main()
