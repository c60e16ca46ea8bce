"""Zero-shot document retrieval: trained models against the mean of the same chunk vectors, and against word counts.

Tasks, all on the validation split of the data folder: chapters of novels find the other chapters of their book
(MAP) and the two beside them (recall among the first ten); excerpts of 1,500 to 48,000 words find those of the same
book; human answers about a short story (SQuALITY; question 1 asks for the plot) find their story among all. Each also
with names deleted: words that are mostly written with a capital, with which a lexical match is easy.

Chunk vectors are computed once, in chunks of 256 tokens; every row reads the same ones. Rows of chunks compare them
pair by pair, where all others have one vector for a document (see `chunk_similarity`). Prints a Markdown table and
writes it to ``table.md``, all scores to ``scores.json``, and the MRR over story length to ``mrr_by_length.png``.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import bm25s  # noqa: F401  (fails now, not after an hour of encoding: pip install nextlevelbert[retrieval])
import torch
from tqdm import tqdm

from benchmarks.common import measuring
from benchmarks.common.retrieval_tasks import (
    CHUNK_SIZE,
    MASKED,
    Rank,
    chunk_vectors,
    columns,
    contextual,
    first_chunk,
    load_tasks,
    mean_of_chunks,
    ranking_by,
    rankings,
    rankings_by_chunks,
    trained,
)
from benchmarks.common.studies import add_letters_option, study_parser
from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.evaluation import RetrievalTask, retrieval_scores
from nextlevelbert.tasks.retrieval import bm25_scores, plot_by_length, scores_by_length, tfidf_scores

PLOTTED = "squality" + MASKED
STORY_WORDS = range(3_500, 7_000, 500)

Scores = dict[str, Any]


def evaluate(task: RetrievalTask, rank: Rank) -> tuple[Scores, list[dict[str, float]]]:
    """All scores of a task, by grades, and those by story length where the task is the plotted one."""
    scores: Scores = {}
    for _, _, grades in columns(task):
        scores["all grades" if grades is None else f"grades {sorted(grades)}"] = retrieval_scores(rank(task, grades))
    lengths = scores_by_length(task, rank(task, None), STORY_WORDS) if task.name == PLOTTED else []
    return scores, lengths


def lexical_rankings(
    tasks: list[RetrievalTask], scorer: Callable[[list[str], list[str]], Any]
) -> Iterator[tuple[RetrievalTask, Rank]]:
    for task in tqdm(tasks, desc=scorer.__name__, unit="task"):
        scores = scorer(list(task.queries.values()), list(task.documents.values()))
        yield task, ranking_by(scores)


def cells(scores: Mapping[str, Scores], tasks: Iterable[RetrievalTask]) -> list[str]:
    return [
        f"{scores[task.name]['all grades' if grades is None else f'grades {sorted(grades)}'][metric]:.3f}"
        for task in tasks
        for _, metric, grades in columns(task)
    ]


def write_results(
    folder: Path, tasks: list[RetrievalTask], results: Mapping[str, dict[str, Scores]], lengths: dict, facts: dict
) -> None:
    """Prints the table and writes table, scores and plot."""
    head = [""] + [f"{t.name}: {label}" for t in tasks for label, _, _ in columns(t)]
    text = StringIO()
    with redirect_stdout(text):
        measuring.print_table(head, [[name, *cells(scores, tasks)] for name, scores in results.items()])
    print(text.getvalue())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(text.getvalue())
    record = {**facts, "scores": results, f"{PLOTTED}, by words of the story": lengths}
    (folder / "scores.json").write_text(json.dumps(record, indent=1) + "\n")
    plot_by_length(lengths, folder / "mrr_by_length.png", title=f"{PLOTTED}: answer to story")


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    add_letters_option(parser)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH", help="a checkpoint; repeatable")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument(
        "--centre",
        action="store_true",
        help="a second row for each model, with the pool's mean vector subtracted from all vectors",
    )
    args = parser.parse_args()
    if wrong := [pair for pair in args.model if not all(pair.partition("="))]:
        parser.error(f"--model takes NAME=PATH, got {wrong[0]!r}.")
    return args


def main() -> None:
    args = parse_arguments()
    tasks = load_tasks(args.data, args.letters_only)
    torch.manual_seed(0)  # [CLS] and [SEP] of the untrained model
    encoder = load_chunk_encoder(args.encoder, args.encoder_name)
    base = NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=CHUNK_SIZE)
    models = {name: trained(path, base) for name, _, path in (pair.partition("=") for pair in args.model)}
    texts = list(dict.fromkeys(text for task in tasks for text in (*task.queries.values(), *task.documents.values())))
    chunks = chunk_vectors(base, texts, args.cache_dir)
    encoders = {name: contextual(model, name) for name, model in {**models, "untrained": base}.items()}
    encoders |= {"avg_sbert": mean_of_chunks, "sbert": first_chunk}

    sources: dict[str, Iterator[tuple[RetrievalTask, Rank]]] = {}
    for name, encode in encoders.items():
        documents = dict(zip(texts, encode(chunks), strict=True))
        for centre in (False, True) if args.centre else (False,):
            sources[f"{name}, centred" if centre else name] = rankings(tasks, documents, centre)
    by_chunks = rankings_by_chunks(tasks, dict(zip(texts, chunks, strict=True)))
    sources |= {name: iter(source) for name, source in by_chunks.items()}
    sources |= {"tfidf": lexical_rankings(tasks, tfidf_scores), "bm25": lexical_rankings(tasks, bm25_scores)}

    results: dict[str, dict[str, Scores]] = {}
    lengths: dict[str, list[dict[str, float]]] = {}
    for name, source in sources.items():
        results[name] = {}
        for task, rank in source:
            results[name][task.name], buckets = evaluate(task, rank)
            if buckets and not name.endswith("centred"):
                lengths[name] = buckets
    facts = {
        "encoder": base.config.chunk_encoder_name,
        "encoder_fingerprint": base.config.chunk_encoder_fingerprint,
        "chunk_size": CHUNK_SIZE,
        "chunk_vectors": sum(map(len, chunks)),
        "tasks": {task.name: {"queries": len(task.queries), "documents": len(task.documents)} for task in tasks},
    }
    write_results(args.output_dir, tasks, results, lengths, facts)


if __name__ == "__main__":
    main()
