"""Training on sentence labels, and what summaries are chosen, scored and stored."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from ...evaluation.rouge import greedy_oracle, rouge_scores
from ...models.bert_al_sentences import select_sentences
from ...training.resuming import read_whole, unreadable, write_whole
from ...training.trainer import CardTrainer
from .data import SummarizationData, SummarizationDataset, SummarizedDocument
from .sentence_vectors import SentenceVectorDataset

_AVERAGED = 3  # checkpoints, the paper's number
_LOSSES = "losses.json"


class SummarizationTrainer(CardTrainer):
    """Trains on sentence labels, and keeps the weights of the evaluations with the lowest loss.

    Attributes:
        kept: loss by step of the weights that lie in ``best/step-N.safetensors`` in the output folder.
    """

    def __init__(self, *args: Any, train_dataset: SummarizationDataset | SentenceVectorDataset, **kwargs: Any) -> None:
        super().__init__(*args, train_dataset=train_dataset, data_collator=train_dataset.collate, **kwargs)
        self._best = Path(str(self.args.output_dir)) / "best"
        stored = read_whole(self._best / _LOSSES) or {}  # of a run that was killed
        self.kept: dict[int, float] = {int(step): loss for step, loss in stored.items()}

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        scores = super().evaluate(*args, **kwargs)
        step, loss = self.state.global_step, scores["eval_loss"]
        if not math.isfinite(loss):
            return scores
        worst = max(self.kept, key=lambda each: self.kept[each], default=step)
        if len(self.kept) >= _AVERAGED and loss >= self.kept[worst]:
            return scores
        self.kept[step] = loss
        if self.is_world_process_zero():
            self._best.mkdir(parents=True, exist_ok=True)
            weights = self.accelerator.unwrap_model(self.model).state_dict()
            save_file({name: weight.contiguous() for name, weight in weights.items()}, self.weights_of(step))
        dropped = [worst] if len(self.kept) > _AVERAGED else []
        for each in dropped:
            del self.kept[each]
        if self.is_world_process_zero():
            write_whole(self._best / _LOSSES, json.dumps(self.kept))
            for each in dropped:
                self.weights_of(each).unlink(missing_ok=True)
        return scores

    def weights_of(self, step: int) -> Path:
        return self._best / f"step-{step}.safetensors"

    def load_kept(self) -> Iterator[dict[str, float]]:
        """Loads the kept weights into the model, those with the lowest loss first; yields step and loss of each.

        Raises:
            ValueError: where no evaluation had a finite loss.
        """
        if not self.kept:
            raise ValueError(
                f"Seed {self.args.seed} has no evaluation with a finite validation loss; lower the learning rate "
                f"({self.args.learning_rate}), and keep the default --eval_strategy."
            )
        self.accelerator.wait_for_everyone()  # until the weights are written
        plain = self.accelerator.unwrap_model(self.model)
        for step in sorted(self.kept, key=lambda step: self.kept[step]):
            plain.load_state_dict(load_file(self.weights_of(step)))
            yield {"step": step, "loss": self.kept[step]}

    def logits(self, dataset: SummarizationDataset | SentenceVectorDataset) -> list[np.ndarray]:
        """Scores ``[S]`` of the sentences of each document, without those past the cut."""
        found = self.predict(dataset, metric_key_prefix="test").predictions
        padded = found[0] if isinstance(found, tuple) else found  # [documents, S]
        return [row[: len(kept["labels"])] for row, kept in zip(padded, dataset.rows, strict=True)]


def lost_evaluation(best: Path, checkpoint: str) -> str | None:
    """What is missing of the weights in ``best/`` that were kept until a checkpoint; None if nothing is."""
    history = json.loads((Path(checkpoint) / "trainer_state.json").read_text())["log_history"]
    kept = read_whole(best / _LOSSES)
    if kept is None:
        evaluated = any(math.isfinite(entry["eval_loss"]) for entry in history if "eval_loss" in entry)
        return f"{_LOSSES} is missing" if evaluated else None
    for file in (best / f"step-{step}.safetensors" for step in kept):
        if reason := unreadable(file):
            return reason
    return None


@dataclass(frozen=True)
class SummaryRule:
    """How the sentences of a summary are chosen by their scores; see `select_sentences`."""

    sentences: int
    trigram_blocking: bool

    @property
    def arguments(self) -> str:
        """As arguments of `BertAlForExtractiveSummarization.summarize`."""
        return f"sentences={self.sentences}" + ", trigram_blocking=True" * self.trigram_blocking

    def select(self, document: SummarizedDocument, logits: np.ndarray | Sequence[float]) -> list[int]:
        """The numbers of the chosen sentences, in order."""
        return select_sentences(
            np.asarray(logits), self.sentences, document.sentences if self.trigram_blocking else None
        )

    def score(self, data: SummarizationData, logits: Sequence[np.ndarray]) -> dict[str, float]:
        """Scores of the summaries that the sentence scores of each document lead to."""
        return score_summaries(data, list(map(self.select, data.documents, logits)))


def score_summaries(data: SummarizationData, chosen: Sequence[Sequence[int]]) -> dict[str, float]:
    """ROUGE of extractive summaries, and the share of their sentences that are labelled as part of one.

    Args:
        data: the documents.
        chosen: numbers of the sentences of each summary.
    """
    texts = [
        [document.sentences[number] for number in numbers]
        for document, numbers in zip(data.documents, chosen, strict=True)
    ]
    labels = [
        document.labels[number] for document, numbers in zip(data.documents, chosen, strict=True) for number in numbers
    ]
    scores = rouge_scores(texts, [document.reference for document in data.documents])
    return {**scores, "precision": float(np.mean(labels)) if labels else 0.0}


def trivial_summaries(data: SummarizationData, sentences: int) -> dict[str, dict[str, float]]:
    """What needs no model: the first sentences, and what a greedy search finds that knows the reference."""
    first = [list(range(min(sentences, len(document.spans)))) for document in data.documents]
    oracle = [greedy_oracle(document.sentences, document.reference, sentences) for document in data.documents]
    return {
        f"first {sentences} sentences": score_summaries(data, first),
        f"oracle, at most {sentences} sentences": score_summaries(data, oracle),
    }


def write_summaries(path: Path, data: SummarizationData, logits: Sequence[np.ndarray], rule: SummaryRule) -> None:
    """One JSON object per line: id, numbers, spans and texts of the chosen sentences, and a score for every sentence.

    Args:
        path: of the file.
        data: the documents.
        logits: of their sentences; where a document was cut, of those before the cut.
        rule: chooses the sentences.
    """
    lines = []
    for document, row in zip(data.documents, logits, strict=True):
        chosen = rule.select(document, row)
        record = {
            "id": document.id,
            "indices": chosen,
            "spans": [document.spans[each] for each in chosen],
            "sentences": [document.sentences[each] for each in chosen],
            "scores": [round(score, 6) for score in torch.tensor(row).sigmoid().tolist()],
        }
        lines.append(json.dumps(record, ensure_ascii=False))
    write_whole(path, "\n".join(lines))
