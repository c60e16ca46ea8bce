"""The judge of studies/passages.py: questions that look for the chunk they belong to, as token ids."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import retrieval_tasks as retrieval
from nextlevelbert import NextLevelBertForContrastiveLearning, read_documents
from nextlevelbert.commands.search import scaled
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.sentences import sentence_token_ids
from nextlevelbert.pretraining.passages import DataCollatorForPassages, PassageLearner
from nextlevelbert.pretraining.trained_tokens import NO_TOKEN
from nextlevelbert.tasks.retrieval import bm25_scores

Encode = Callable[[list[torch.Tensor]], list[torch.Tensor]]  # chunk vectors [n, D] of documents -> as compared


@dataclass
class Task:
    """Questions and passages as token ids.

    Attributes:
        passages: chunks ``[n, C]`` of each document, -1 where there is no token.
        questions: chunks ``[q, Q]`` of each question.
        right: the document of each question.
        places: its chunk in the document; None where any chunk of the document is right.
        names: of the documents, which intervals are over.
        columns: what its scores are called.
    """

    passages: list[torch.Tensor]
    questions: list[torch.Tensor]
    right: list[int]
    places: list[int] | None
    names: list[str]
    columns: tuple[str, ...]

    def kept(self, ids: torch.Tensor) -> Task:
        """The same with the tokens ``[V]`` bool alone, which are letters."""

        def only(sides: list[torch.Tensor]) -> list[torch.Tensor]:
            return [chunks.where((chunks >= 0) & ids[chunks.clamp(min=0)], NO_TOKEN) for chunks in sides]

        return Task(only(self.passages), only(self.questions), self.right, self.places, self.names,
                    tuple(f"{column}, letters only" for column in self.columns))  # fmt: skip

    def groups(self) -> np.ndarray:
        return np.array([self.names[document] for document in self.right])

    def values(self, scores: torch.Tensor) -> list[list[float]]:
        """Reciprocal ranks ``[Q]`` by scores ``[Q, N]``, for each column; of equal scores none is above the other."""
        lengths = torch.tensor([len(chunks) for chunks in self.passages])
        owners, starts = torch.arange(len(lengths)).repeat_interleave(lengths), lengths.cumsum(0) - lengths  # [N]
        own = owners == torch.tensor(self.right)[:, None]  # [Q, N]
        if self.places is None:
            best = scores.masked_fill(~own, -torch.inf).amax(dim=1, keepdim=True)
            return [(1 / (1 + (scores > best).sum(dim=1))).tolist()]
        target = scores.gather(1, (starts[self.right] + torch.tensor(self.places))[:, None])
        above = scores > target
        return [(1 / (1 + counted.sum(dim=1))).tolist() for counted in (above, above & own)]


def removed_sentences(file: str, source: LoadedChunkEncoder, size: int, every: int = 1) -> Task:
    """Novels with a sentence taken out of every chunk, the same ones each time; one in `every` is a question."""
    corpus = TokenCorpus(read_documents(file), source.tokenizer)
    collate = DataCollatorForPassages(size, sentence_token_ids(source.tokenizer))
    passages, questions, places = [], [], []
    right: list[int] = []
    for number in range(len(corpus)):
        batch = collate([{"input_ids": corpus[number].numpy(), "document": number, "key": (0, number)}])
        passages.append(batch["passage_ids"][0])
        questions += [row[None] for row in batch["question_ids"][::every]]
        places += batch["question_chunks"][::every].tolist()
        right += [number] * (len(places) - len(right))
    return Task(passages, questions, right, places, corpus.document_ids, ("all novels", "own novel"))


def answers(data: Path, source: LoadedChunkEncoder, size: int) -> Task:
    """SQuALITY with names deleted: answers look for their story."""
    _, all_answers = retrieval.squality_tasks(data / "squality")
    task: RetrievalTask = retrieval.masked(all_answers, retrieval.mostly_capitalised(all_answers.documents.values()))

    def chunks(text: str) -> torch.Tensor:
        ids = torch.from_numpy(tokenize_document(source.tokenizer, text).input_ids.astype(np.int64))
        return F.pad(ids, (0, -len(ids) % size), value=NO_TOKEN).reshape(-1, size)

    names = list(task.documents)
    right = [names.index(next(iter(task.relevant[query]))) for query in task.queries]
    return Task(
        [*map(chunks, task.documents.values())],
        [*map(chunks, task.queries.values())],
        right,
        None,
        names,
        ("SQuALITY",),
    )


def letters(source: LoadedChunkEncoder) -> torch.Tensor:
    """Which token ids are letters, ``[V]`` bool."""
    found = torch.zeros(source.encoder.model.config.vocab_size, dtype=torch.bool)
    for token, number in source.tokenizer.get_vocab().items():
        found[number] = token.removeprefix("##").isalpha()
    return found


class PassageJudge:
    """Scores of a row on all tasks, from plain chunk vectors that are made once."""

    def __init__(self, tasks: list[Task], source: LoadedChunkEncoder, size: int) -> None:
        base = NextLevelBertForContrastiveLearning.from_chunk_encoder(source, size, neighbours=0, pooling="mean")
        learner = PassageLearner(base, source, 0.0).eval()
        self.tasks, self._source = tasks, source
        with torch.no_grad():
            self._vectors = [
                [[learner.chunk_vectors(chunks) for chunks in side] for side in (task.passages, task.questions)]
                for task in tasks
            ]

    def with_vectors(self, vectors: list[list[list[torch.Tensor]]]) -> PassageJudge:
        """The same for other vectors: by task those of passages and of questions, ``[n, D]`` each."""
        other = copy.copy(self)
        other._vectors = vectors
        return other

    @torch.no_grad()
    def vectors(self, encode: Encode) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """By column the reciprocal rank of every question, by cosine; a question is the mean of its chunks.

        Returns:
            Those of the vectors, and those of their scores and BM25's, both scaled to 0 to 1 and added.
        """
        alone: dict[str, list[float]] = {}
        both: dict[str, list[float]] = {}
        for number, (passages, questions) in enumerate(self._vectors):
            task = self.tasks[number]
            pool = F.normalize(torch.cat(encode(passages)), dim=1)
            asked = F.normalize(torch.stack([chunks.mean(dim=0) for chunks in encode(questions)]), dim=1)
            scores = asked @ pool.T
            alone |= dict(zip(task.columns, task.values(scores), strict=True))
            both |= dict(zip(task.columns, task.values(scaled(scores) + scaled(self._bm25[number])), strict=True))
        return alone, both

    def words(self, count: Callable[[list[str], list[str]], np.ndarray]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for task in self.tasks:
            found |= dict(zip(task.columns, task.values(self._counted(task, count)), strict=True))
        return found

    def bm25(self, neighbours: float = 0.0) -> dict[str, list[float]]:
        """BM25's; the scores of both neighbours of a chunk are added with a weight."""
        found: dict[str, list[float]] = {}
        for task, scores in zip(self.tasks, self._bm25, strict=True):
            lengths = [len(chunks) for chunks in task.passages]
            padded = [F.pad(part, (1, 1)) for part in scores.split(lengths, dim=1)]
            near = [part[:, 1:-1] + neighbours * (part[:, :-2] + part[:, 2:]) for part in padded]
            found |= dict(zip(task.columns, task.values(torch.cat(near, dim=1)), strict=True))
        return found

    @cached_property
    def _bm25(self) -> list[torch.Tensor]:
        return [self._counted(task, bm25_scores) for task in self.tasks]

    def _counted(self, task: Task, count: Callable[[list[str], list[str]], np.ndarray]) -> torch.Tensor:
        pool = self._texts([chunk for chunks in task.passages for chunk in chunks])
        return torch.from_numpy(count(self._texts([chunks.flatten() for chunks in task.questions]), pool)).float()

    def _texts(self, rows: list[torch.Tensor]) -> list[str]:
        return self._source.tokenizer.batch_decode([row[row >= 0].tolist() for row in rows])
