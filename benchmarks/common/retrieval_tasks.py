"""Retrieval tasks over novels and short stories, and document vectors from stored chunk vectors to judge by them."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from tqdm import tqdm

from nextlevelbert import NextLevelBertModel, chunk_similarity
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents
from nextlevelbert.evaluation.chunk_scores import ChunkScore
from nextlevelbert.evaluation.retrieval import Ranks

Encode = Callable[[list[torch.Tensor]], torch.Tensor]  # chunk vectors of each document -> document vectors [B, D]
Rank = Callable[[RetrievalTask, set[int] | None], Ranks]  # task, grades that count -> ranks of each query

CHUNK_SIZE = 256
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
TEXTS_PER_PASS = 32

# Task name (without what was left out of its texts) → columns: heading, metric, grades that count (None: all).
COLUMNS: dict[str, list[tuple[str, str, set[int] | None]]] = {
    "chapters": [("MAP", "map", None), ("adjacent recall@10", "recall@10", {2})],
    "excerpts": [("MAP", "map", None)],
    "squality plot": [("MRR", "mrr", None), ("HR@10", "hit_rate@10", None)],
    "squality": [("MRR", "mrr", None), ("HR@10", "hit_rate@10", None)],
}
MASKED, LETTERS = ", names masked", ", letters only"


def columns(task: RetrievalTask) -> list[tuple[str, str, set[int] | None]]:
    return COLUMNS[task.name.partition(",")[0]]


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


def letters_only(task: RetrievalTask) -> RetrievalTask:
    """The same without digits and punctuation, which give editions away."""
    queries, documents = (
        {key: re.sub(r"[^A-Za-z]+", " ", text) for key, text in texts.items()}
        for texts in (task.queries, task.documents)
    )
    return RetrievalTask(task.name + LETTERS, queries, documents, task.relevant)


def load_tasks(data: Path, letters: bool = False) -> list[RetrievalTask]:
    """The tasks of the data folder, with all words and with names masked; on request also those in letters only."""
    books = {row["id"]: row["text"] for row in file_rows(data / "novels/validation.jsonl.gz")}
    with gzip.open(data / "retrieval/capitalised.validation.txt.gz", "rt", encoding="utf-8") as file:
        names = set(file.read().split())
    chapters = {
        row["doc_id"]: books[row["book"]][row["body_start"] : row["end"]]
        for row in file_rows(data / "retrieval/chapters.validation.jsonl.gz")
    }
    grades: dict[str, dict[str, int]] = {}
    with gzip.open(data / "retrieval/chapters.validation.qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            query, document, grade = line.split()
            grades.setdefault(query, {})[document] = int(grade)
    parts = list(file_rows(data / "retrieval/excerpts.validation.jsonl.gz"))
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
    found = [task for pair in pairs for task in pair]
    return found + [letters_only(task) for task in found if letters and task.name.endswith(MASKED)]


def squality_tasks(folder: Path) -> list[RetrievalTask]:
    """Answer to story: answers to the question for the plot, and all answers."""
    stories = {row["id"]: row for row in file_rows(folder / "validation.jsonl.gz")}
    answers, relevant, plots = {}, {}, set()
    for row in file_rows(folder / "retrieval.validation.jsonl.gz"):
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
        found += [book.plain for book in model.encode(part, cache_dir=cache_dir)]
    return found


def contextual(model: Any, name: str) -> Encode:
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


def whitened_mean(mean: torch.Tensor, weight: torch.Tensor) -> Encode:
    """The mean of chunk vectors that are whitened (see `fit_whitening`) and normalised."""
    return lambda chunks: mean_of_chunks(whitened(mean, weight, chunks))


def whitened(mean: torch.Tensor, weight: torch.Tensor, chunks: list[torch.Tensor]) -> list[torch.Tensor]:
    """Whitened chunk vectors of length 1 of each text."""
    return [F.normalize((vectors.float() - mean) @ weight.T, dim=-1) for vectors in chunks]


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


def ranking_by(scores: np.ndarray) -> Rank:
    """Ranks by ready scores ``[Q, N]``."""
    return lambda task, grades: rank_by_scores(task, scores, grades)


def rankings(
    tasks: list[RetrievalTask], documents: Mapping[str, torch.Tensor], centre: bool
) -> Iterator[tuple[RetrievalTask, Rank]]:
    """For each task a function that ranks by these document vectors, which are looked up by text."""

    def ranking(queries: torch.Tensor, pool: torch.Tensor) -> Rank:
        return lambda task, grades: rank_documents(task, queries, pool, grades)

    for task in tasks:
        queries = torch.stack([documents[text] for text in task.queries.values()])  # [Q, D]
        pool = torch.stack([documents[text] for text in task.documents.values()])  # [N, D]
        mean = pool.mean(dim=0) if centre else torch.zeros_like(pool[0])
        yield task, ranking(queries - mean, pool - mean)


def filled(chunks: torch.Tensor) -> torch.Tensor:
    """Chunk vectors of a text, and where it has none a zero vector, which is like nothing."""
    return chunks if len(chunks) else torch.zeros(1, chunks.shape[1])


def chunk_scores(
    task: RetrievalTask, chunks: Mapping[str, torch.Tensor], score: ChunkScore = "nearest"
) -> tuple[np.ndarray, np.ndarray]:
    """Scores ``[Q, N]`` by chunks, which are looked up by text, and the same plus the cosine of their means."""
    queries, pool = ([filled(chunks[text]) for text in texts.values()] for texts in (task.queries, task.documents))
    alone = chunk_similarity(queries, pool, score)
    means = [F.normalize(mean_of_chunks(side), dim=1) for side in (queries, pool)]
    return alone.numpy(), (alone + means[0] @ means[1].T).round(decimals=6).numpy()


def rankings_by_chunks(
    tasks: list[RetrievalTask], chunks: Mapping[str, torch.Tensor]
) -> dict[str, list[tuple[RetrievalTask, Rank]]]:
    """By name of the row, for each task a function that ranks by the chunks of texts, alone and with their mean."""
    found: dict[str, list[tuple[RetrievalTask, Rank]]] = {}
    names: dict[str, ChunkScore] = {"3 nearest chunks": "nearest", "MaxSim of chunks": "maxsim"}
    for name, score in names.items():
        for task in tqdm(tasks, desc=name, unit="task"):
            for row, scores in zip((name, f"{name} + mean"), chunk_scores(task, chunks, score), strict=True):
                found.setdefault(row, []).append((task, ranking_by(scores)))
    return found
