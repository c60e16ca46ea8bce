"""Zero-shot document retrieval: trained models against the mean of the same chunk vectors, and against word counts.

Tasks, all on the validation split of the data folder: chapters of novels find the other chapters of their book
(MAP) and the two beside them (recall among the first ten); excerpts of 1,500 to 48,000 words find those of the same
book; human answers about a short story (SQuALITY; question 1 asks for the plot) find their story among all. Each also
with names deleted: words that are mostly written with a capital, with which a lexical match is easy.

Chunk vectors are computed once, in chunks of 256 tokens; every row reads the same ones. Prints a Markdown table and
writes it to ``table.md``, all scores to ``scores.json``, and the MRR over story length to ``mrr_by_length.png``.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import bm25s  # noqa: F401  (missed now, not after an hour of encoding: pip install nextlevelbert[retrieval])
import measuring
import torch
from tqdm import tqdm

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.tasks.retrieval import bm25_scores, plot_by_length, scores_by_length, tfidf_scores

CHUNK_SIZE = 256
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
TEXTS_PER_PASS = 32

Scores = dict[str, Any]
# Task name (without "names masked") → columns: heading, metric, grades that count (None: all).
COLUMNS: dict[str, list[tuple[str, str, set[int] | None]]] = {
    "chapters": [("MAP", "map", None), ("adjacent recall@10", "recall@10", {2})],
    "excerpts": [("MAP", "map", None)],
    "squality plot": [("MRR", "mrr", None), ("HR@10", "hit_rate@10", None)],
    "squality": [("MRR", "mrr", None), ("HR@10", "hit_rate@10", None)],
}
MASKED = ", names masked"
PLOTTED = "squality" + MASKED
STORY_WORDS = range(3_500, 7_000, 500)


def rows_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def word_key(word: str) -> str:
    return word.lower().replace("’", "'")


def mostly_capitalised(texts: Iterable[str]) -> set[str]:
    """Words with a capital in more than 60 % of their uses, in lower case."""
    uses: Counter[str] = Counter()
    capitals: Counter[str] = Counter()
    for text in texts:
        for word in WORD.findall(text):
            uses[word_key(word)] += 1
            capitals[word_key(word)] += word[0].isupper()
    return {word for word, count in uses.items() if capitals[word] > 0.6 * count}


def without(text: str, words: set[str]) -> str:
    """The text with those words deleted and nothing else changed."""
    return WORD.sub(lambda match: "" if word_key(match.group()) in words else match.group(), text)


def masked(task: RetrievalTask, words: set[str]) -> RetrievalTask:
    return RetrievalTask(
        task.name + MASKED,
        {key: without(text, words) for key, text in task.queries.items()},
        {key: without(text, words) for key, text in task.documents.items()},
        task.relevant,
    )


def load_tasks(data: Path) -> list[RetrievalTask]:
    """The tasks of the data folder, each with all words and with names masked."""
    books = {row["id"]: row["text"] for row in rows_of(data / "novels/validation.jsonl.gz")}
    with gzip.open(data / "retrieval/capitalised.validation.txt.gz", "rt", encoding="utf-8") as file:
        names = set(file.read().split())
    chapters = {
        row["doc_id"]: books[row["book"]][row["body_start"] : row["end"]]
        for row in rows_of(data / "retrieval/chapters.validation.jsonl.gz")
    }
    grades: dict[str, dict[str, int]] = {}
    with gzip.open(data / "retrieval/chapters.validation.qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            query, document, grade = line.split()
            grades.setdefault(query, {})[document] = int(grade)
    parts = rows_of(data / "retrieval/excerpts.validation.jsonl.gz")
    excerpts = {row["doc_id"]: books[row["book"]][row["start"] : row["end"]] for row in parts}
    same_book = {
        one["doc_id"]: {other["doc_id"]: 1 for other in parts if other["book"] == one["book"] and other is not one}
        for one in parts
    }
    tasks = [
        RetrievalTask("chapters", chapters, chapters, grades),
        RetrievalTask("excerpts", excerpts, excerpts, same_book),
    ]
    stories = squality_tasks(data / "squality")
    story_names = mostly_capitalised(stories[0].documents.values())
    pairs = [(task, masked(task, names)) for task in tasks] + [(task, masked(task, story_names)) for task in stories]
    return [task for pair in pairs for task in pair]


def squality_tasks(folder: Path) -> list[RetrievalTask]:
    """Answer to story: answers to the question for the plot, and all answers."""
    stories = {row["id"]: row for row in rows_of(folder / "validation.jsonl.gz")}
    answers, relevant, plots = {}, {}, set()
    for row in rows_of(folder / "retrieval.validation.jsonl.gz"):
        [question] = [q for q in stories[row["target"]]["questions"] if q["number"] == row["question_number"]]
        answers[row["qid"]] = question["responses"][int(row["qid"].rsplit("-", 1)[1]) - 1]
        relevant[row["qid"]] = {row["target"]: 1}
        if row["question_number"] == 1:
            plots.add(row["qid"])
    texts = {key: row["text"] for key, row in stories.items()}
    return [
        RetrievalTask("squality plot", only(answers, plots), texts, only(relevant, plots)),
        RetrievalTask("squality", answers, texts, relevant),
    ]


def only(values: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in keys}


def chunk_vectors(model: Any, texts: Sequence[str], cache_dir: str | None) -> list[torch.Tensor]:
    """Plain chunk vectors ``[n, D]`` of each text, in bfloat16."""
    found: list[torch.Tensor] = []
    for start in tqdm(range(0, len(texts), TEXTS_PER_PASS), desc="encoding", unit=f" x {TEXTS_PER_PASS} texts"):
        part = list(texts[start : start + TEXTS_PER_PASS])
        found += [book.plain for book in model.encode(part, dtype=torch.bfloat16, cache_dir=cache_dir)]
    return found


def contextual(model: Any, name: str) -> Callable[[list[torch.Tensor]], torch.Tensor]:
    """Document vectors ``[B, D]`` of a model over stored chunk vectors."""

    def run(chunks: list[torch.Tensor]) -> torch.Tensor:
        vectors = []
        with torch.inference_mode():
            for start in tqdm(range(0, len(chunks), TEXTS_PER_PASS), desc=name, unit=f" x {TEXTS_PER_PASS} texts"):
                vectors.append(model.contextualize(chunks[start : start + TEXTS_PER_PASS])[1].float())
        return torch.cat(vectors)

    return run


def mean_of_chunks(chunks: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([vectors.sum(dim=0) / max(len(vectors), 1) for vectors in chunks])


def first_chunk(chunks: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([vectors[:1].sum(dim=0) for vectors in chunks])


def trained(path: str, base: Any) -> Any:
    """A checkpoint that reads the same chunk vectors as the model they were made with.

    Raises:
        ValueError: if it was trained on other chunks or vectors.
    """
    model = NextLevelBertModel.from_pretrained(path).eval()
    for field in ("chunk_encoder_fingerprint", "chunk_size", "chunking"):
        theirs, ours = getattr(model.config, field), getattr(base.config, field)
        if theirs != ours:
            raise ValueError(f"{path} has {field} = {theirs!r}, but these chunk vectors were made with {ours!r}.")
    return model


def evaluate(task: RetrievalTask, rank: Callable[..., dict]) -> tuple[Scores, list[dict[str, float]]]:
    """All scores of a task, by grades, and those by story length where the task is the plotted one."""
    scores: Scores = {}
    for _, _, grades in COLUMNS[task.name.removesuffix(MASKED)]:
        scores["all grades" if grades is None else f"grades {sorted(grades)}"] = retrieval_scores(rank(task, grades))
    lengths = scores_by_length(task, rank(task, None), STORY_WORDS) if task.name == PLOTTED else []
    return scores, lengths


def rankings(
    tasks: list[RetrievalTask], documents: Mapping[str, torch.Tensor], centre: bool
) -> Iterator[tuple[RetrievalTask, Callable]]:
    """For each task a function that ranks by these document vectors, which are found by their text."""
    for task in tasks:
        queries = torch.stack([documents[text] for text in task.queries.values()])  # [Q, D]
        pool = torch.stack([documents[text] for text in task.documents.values()])  # [N, D]
        mean = pool.mean(dim=0) if centre else torch.zeros_like(pool[0])

        def rank(task, grades, queries=queries - mean, pool=pool - mean):
            return rank_documents(task, queries, pool, grades)

        yield task, rank


def lexical_rankings(tasks: list[RetrievalTask], scorer: Callable) -> Iterator[tuple[RetrievalTask, Callable]]:
    for task in tqdm(tasks, desc=scorer.__name__, unit="task"):
        scores = scorer(list(task.queries.values()), list(task.documents.values()))
        yield task, lambda task, grades, scores=scores: rank_by_scores(task, scores, grades)


def cells(scores: Mapping[str, Scores], tasks: Iterable[RetrievalTask]) -> list[str]:
    return [
        f"{scores[task.name]['all grades' if grades is None else f'grades {sorted(grades)}'][metric]:.3f}"
        for task in tasks
        for _, metric, grades in COLUMNS[task.name.removesuffix(MASKED)]
    ]


def write_results(
    folder: Path, tasks: list[RetrievalTask], results: Mapping[str, dict[str, Scores]], lengths: dict, facts: dict
) -> None:
    """Prints the table and writes table, scores and plot."""
    head = [""] + [f"{t.name}: {label}" for t in tasks for label, _, _ in COLUMNS[t.name.removesuffix(MASKED)]]
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
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    shared = os.environ.get("NEXTLEVELBERT_SHARED")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(shared) / "data" if shared else None,
        required=shared is None,
        help="folder with novels/, retrieval/ and squality/; by default data/ in the folder NEXTLEVELBERT_SHARED",
    )
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH", help="a checkpoint; repeatable")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument(
        "--centre",
        action="store_true",
        help="a second row a model, with the pool's mean vector taken from all vectors",
    )
    args = parser.parse_args()
    for folder in ("novels", "retrieval", "squality"):
        if not (args.data / folder).is_dir():
            parser.error(f"--data {args.data} holds no folder {folder}/.")
    if wrong := [pair for pair in args.model if not all(pair.partition("="))]:
        parser.error(f"--model takes NAME=PATH, got {wrong[0]!r}.")
    return args


def main() -> None:
    args = parse_arguments()
    tasks = load_tasks(args.data)
    torch.manual_seed(0)  # [CLS] and [SEP] of the untrained model
    base = NextLevelBertModel.from_chunk_encoder(args.encoder, chunk_size=CHUNK_SIZE)
    models = {name: trained(path, base) for name, _, path in (pair.partition("=") for pair in args.model)}
    texts = list(dict.fromkeys(text for task in tasks for text in (*task.queries.values(), *task.documents.values())))
    chunks = chunk_vectors(base, texts, args.cache_dir)
    encoders = {name: contextual(model, name) for name, model in {**models, "untrained": base}.items()}
    encoders |= {"avg_sbert": mean_of_chunks, "sbert": first_chunk}

    sources: dict[str, Iterator[tuple[RetrievalTask, Callable]]] = {}
    for name, encode in encoders.items():
        documents = dict(zip(texts, encode(chunks), strict=True))
        for centre in (False, True) if args.centre else (False,):
            sources[f"{name}, centred" if centre else name] = rankings(tasks, documents, centre)
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
