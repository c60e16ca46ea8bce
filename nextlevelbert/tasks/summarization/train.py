"""The pieces between `run_finetune.py --task summarization` and the Hugging Face `Trainer`."""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback

from ...evaluation.rouge import greedy_oracle, rouge_scores
from ...finetuning.legacy import FinetuningArguments
from ...finetuning.results import write_whole
from ...finetuning.trainer import run_facts, start_seed
from ...models.bert_al_sentences import select_sentences
from ...training.trainer import CardTrainer
from .data import SummarizationData, SummarizationDataset

logger = logging.getLogger(__name__)

_AVERAGED = 3  # checkpoints, the paper's number


class SummarizationTrainer(CardTrainer):
    """Trains on sentence labels, and keeps the weights of the evaluations with the lowest loss.

    Attributes:
        kept: loss by step of the weights that lie in ``best/step-N.safetensors`` in the output folder.
    """

    def __init__(self, *args: Any, train_dataset: SummarizationDataset, **kwargs: Any) -> None:
        super().__init__(*args, train_dataset=train_dataset, data_collator=train_dataset.collate, **kwargs)
        self._best = Path(str(self.args.output_dir)) / "best"
        index = self._best / "losses.json"
        self.kept: dict[int, float] = {}
        if index.exists():  # of a run that was killed
            self.kept = {int(step): loss for step, loss in json.loads(index.read_text()).items()}

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
        if len(self.kept) > _AVERAGED:
            del self.kept[worst]
            if self.is_world_process_zero():
                self.weights_of(worst).unlink(missing_ok=True)
        if self.is_world_process_zero():
            write_whole(self._best / "losses.json", json.dumps(self.kept))
        return scores

    def weights_of(self, step: int) -> Path:
        return self._best / f"step-{step}.safetensors"

    def logits(self, dataset: SummarizationDataset) -> list[np.ndarray]:
        """Scores ``[S]`` of the sentences of each document, without those past the cut."""
        found = self.predict(dataset, metric_key_prefix="test").predictions  # type: ignore[arg-type]
        padded = found[0] if isinstance(found, tuple) else found  # [documents, S]
        return [row[: len(kept["labels"])] for row, kept in zip(padded, dataset.rows, strict=True)]


def train_summarizer(
    seed: int,
    folder: Path,
    new_model: Callable[[], Any],
    args: FinetuningArguments,
    datasets: dict[str, SummarizationDataset],
    reported: str,
    patience: int,
    sentences: int,
    trigram_blocking: bool,
) -> dict[str, Any]:
    """One run; one that was killed goes on at its last checkpoint.

    Args:
        seed: of the new weights, the order of the documents and dropout.
        folder: where the model goes (its evaluation with the lowest validation loss).
        new_model: makes it.
        args: of the whole fine-tuning.
        datasets: ``"train"``, ``"validation"`` and perhaps ``"test"``.
        reported: which of them the scores are of.
        patience: evaluations without progress after which to stop.
        sentences, trigram_blocking: see `bertsum.select_sentences`.

    Returns:
        Under the name of the reported set the mean ROUGE of the three evaluations with the lowest validation loss (as
        in the paper), each of them under ``"checkpoints"``, and sentence scores of the best under ``"logits"``.
    """
    model, args, (trainable, total), resumed = start_seed(seed, folder, new_model, args)
    logger.info("seed %d: %s of %s parameters are trainable", seed, f"{trainable:,}", f"{total:,}")
    with args.main_process_first(local=False):
        if resumed is None and args.should_save:
            shutil.rmtree(folder / "best", ignore_errors=True)  # of a run that was killed before its first checkpoint
    trainer = SummarizationTrainer(
        model=model,
        args=args,
        train_dataset=datasets["train"],
        eval_dataset=datasets["validation"],  # type: ignore[arg-type]
        callbacks=[EarlyStoppingCallback(patience)] if args.load_best_model_at_end else [],
    )
    trained = trainer.train(resume_from_checkpoint=resumed)
    if not trainer.kept:
        raise ValueError(
            f"Seed {seed} has no evaluation with a finite validation loss; lower the learning rate "
            f"({args.learning_rate}), and leave --eval_strategy as it is."
        )
    trainer.accelerator.wait_for_everyone()  # until the weights are written
    ranked = sorted(trainer.kept, key=lambda step: trainer.kept[step])
    plain = trainer.accelerator.unwrap_model(trainer.model)
    plain.load_state_dict(load_file(trainer.weights_of(ranked[0])))
    trainer.save_model(str(folder))
    found = run_facts(trainer, trained, (trainable, total)) | {"checkpoints": []}
    dataset = datasets[reported]
    for step in ranked:
        plain.load_state_dict(load_file(trainer.weights_of(step)))
        logits = trainer.logits(dataset)
        found.setdefault("logits", [row.tolist() for row in logits])  # of the best
        scores = score_summaries(dataset.data, [select(dataset.data, number, row, sentences, trigram_blocking)
                                                for number, row in enumerate(logits)])  # fmt: skip
        found["checkpoints"].append({"step": step, "loss": trainer.kept[step], **scores})
    names = [name for name in found["checkpoints"][0] if name not in ("step", "loss")]
    found["validation"] = {"loss": trainer.kept[ranked[0]]}
    means = {name: float(np.mean([one[name] for one in found["checkpoints"]])) for name in names}
    found[reported] = {**found.get(reported, {}), **means}
    trainer.accelerator.wait_for_everyone()
    if args.should_save:
        for rest in [*folder.glob("checkpoint-*"), folder / "best"]:
            shutil.rmtree(rest)
    return found


def select(
    data: SummarizationData, number: int, logits: np.ndarray | Sequence[float], sentences: int, trigram_blocking: bool
) -> list[int]:
    """The sentences of a document's summary by their scores."""
    words = data.documents[number].sentences if trigram_blocking else None
    return select_sentences(np.asarray(logits), sentences, words)


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
    """What needs no model: the first sentences, and the best that a greedy search finds with the reference at hand."""
    first = [list(range(min(sentences, len(document.spans)))) for document in data.documents]
    oracle = [greedy_oracle(document.sentences, document.reference, sentences) for document in data.documents]
    return {f"first {sentences} sentences": score_summaries(data, first),
            f"oracle, at most {sentences} sentences": score_summaries(data, oracle)}  # fmt: skip


def write_summaries(
    path: Path, data: SummarizationData, logits: Sequence[Sequence[float]], sentences: int, trigram_blocking: bool
) -> None:
    """One JSON object a line: id, numbers, characters and texts of the chosen sentences, and a score for each of all.

    Args:
        path: of the file.
        data: the documents.
        logits: of their sentences; where a document was cut, of those before the cut.
        sentences, trigram_blocking: see `bertsum.select_sentences`.
    """
    with path.open("w", encoding="utf-8") as file:
        for number, (document, row) in enumerate(zip(data.documents, logits, strict=True)):
            chosen = select(data, number, row, sentences, trigram_blocking)
            record = {
                "id": document.id,
                "indices": chosen,
                "spans": [document.spans[each] for each in chosen],
                "sentences": [document.sentences[each] for each in chosen],
                "scores": [round(score, 6) for score in torch.tensor(row).sigmoid().tolist()],
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
