"""The task ``summarization``: BERT-AL learns which sentences of a document make up its summary."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from ...data.rows import hold_out
from ...finetuning.adapters import copy_adapter, with_lora
from ...finetuning.arguments import FinetuningArguments
from ...finetuning.task import Row, Scores, SeedResult, Source, Task
from ...finetuning.text_models import is_saved_model
from ...models.chunk_encoder import weights_fingerprint
from ...models.modeling_bert_al import BertAlForExtractiveSummarization
from ...models.pretrained import load_tokenizer
from ...training.cards import SUMMARY_WIDGET, CardFacts, plain
from ...training.plots import CURVE
from ...training.trainer import open_checkpoint
from .baselines import with_extended_positions
from .card import LIMITS, MEASURES, ROUGE, snippet
from .data import SummarizationData, SummarizationDataset, SummaryColumns, read_summarization
from .options import (
    Options,
    SentenceVectorOptions,
    SummarizerOptions,
    SummaryBaselineOptions,
)
from .sentence_vectors import SentenceVectorClassifier, SentenceVectorDataset, encode_sets
from .train import SummarizationTrainer, SummaryRule, lost_evaluation, trivial_summaries, write_summaries

logger = logging.getLogger(__name__)

_SEGMENT_LENGTH = 128  # where --segment_length is left out


@dataclass(kw_only=True)
class SummarizationResult(SeedResult):
    """What a run gives; `checkpoints` holds step, loss and scores of each of its best evaluations, the best first."""

    checkpoints: list[Scores] = field(default_factory=list)


class Summarization(Task[Options, SummarizationData]):
    """Extractive summaries; reported is the mean of the three evaluations with the lowest loss, as in the paper."""

    name = "summarization"
    option_classes = (SummarizerOptions, SummaryBaselineOptions, SentenceVectorOptions)
    result = SummarizationResult

    def __init__(self, options: Options, args: FinetuningArguments) -> None:
        super().__init__(options, args)
        self._saved = not isinstance(options, SentenceVectorOptions) and is_saved_model(options)
        self._tokenizer = load_tokenizer(options.model)
        self._rule = SummaryRule(options.summary_sentences, options.trigram_blocking)

    def read(self, source: Source, train: SummarizationData | None) -> SummarizationData:
        options = self.options
        columns = SummaryColumns(options.text_column, options.summary_column, options.label_column, options.id_column)
        cache = options.cache_dir or f"{self.args.output_dir}-oracle"
        split = source.split or "train"
        return read_summarization(source.path, self._tokenizer, columns, split, options.dataset_config_name, cache)

    def hold_out(
        self, data: SummarizationData, share: float, seed: int
    ) -> tuple[SummarizationData, SummarizationData]:
        return hold_out(data, "documents", share, seed)

    def texts(self, data: SummarizationData) -> set[str]:
        return {document.text for document in data.documents}

    def describe(self, data: SummarizationData) -> str:
        sentences = sum(len(document.spans) for document in data.documents)
        labels = "given" if data.labelled else "by the greedy oracle"
        return f"{len(data.documents)} documents, {sentences} sentences, labels {labels} ({data.source})"

    def prepare(self) -> dict[str, object]:
        options, sets = self.options, self.sets.by_name
        self._datasets: Mapping[str, SummarizationDataset | SentenceVectorDataset]
        if isinstance(options, SentenceVectorOptions):
            encoder, self._datasets = encode_sets(options.model, sets, self.args.device)
            self._size = encoder.hidden_size
            return {"weights": weights_fingerprint(encoder.model)}
        learnt = _SEGMENT_LENGTH if options.segment_length is None else options.segment_length
        limits: dict[str, int | None] = dict.fromkeys(sets)
        if isinstance(options, SummarizerOptions):
            limits["train"] = options.max_training_tokens
            if self._saved and limits["train"] is None:
                limits["train"] = AutoConfig.from_pretrained(options.model).max_training_tokens
        elif options.model_type == "truncated":
            limits = dict.fromkeys(sets, learnt)
        datasets = {name: SummarizationDataset(data, self._tokenizer, limits[name]) for name, data in sets.items()}
        self._datasets = datasets
        for name, dataset in datasets.items():
            if lost := sum(dataset.lost):
                logger.warning(
                    "%s: %d of %d documents lose %s tokens to truncation.",
                    name, sum(map(bool, dataset.lost)), len(dataset), f"{lost:,}",
                )  # fmt: skip
        self._longest = max(len(row["input_ids"]) for dataset in datasets.values() for row in dataset.rows)
        reader = self._new_model()
        self._config = reader.config
        settings = {"segment_length": self._config.segment_length, "recurrence": self._config.recurrence}
        if options.model_type == "extended":  # its new positions are drawn at random
            reader = BertAlForExtractiveSummarization.from_encoder(
                options.model, recurrence="none", segment_length=learnt
            )
            settings["learnt_positions"] = learnt
        return {**settings, "weights": weights_fingerprint(reader if self._saved else reader.base_model.encoder)}

    def _new_model(self) -> Any:
        """The model at the start of a run; it cuts nothing, because the data is cut before."""
        options = self.options
        if isinstance(options, SentenceVectorOptions):
            return SentenceVectorClassifier(self._size)
        length = _SEGMENT_LENGTH if options.segment_length is None else options.segment_length
        model: Any
        if options.model_type == "extended":
            model = with_extended_positions(options.model, length, self._longest)
        elif self._saved:
            fields = {} if options.segment_length is None else {"segment_length": length}
            model = open_checkpoint(BertAlForExtractiveSummarization, options.model, dtype=torch.float32, **fields)
        else:
            recurrence = options.recurrence or "residual" if isinstance(options, SummarizerOptions) else "none"
            model = BertAlForExtractiveSummarization.from_encoder(
                options.model, segment_length=length, recurrence=recurrence
            )
        model.config.max_training_tokens = None
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return model

    def _new_trainee(self) -> Any:
        options, model = self.options, self._new_model()
        return with_lora(model, options) if isinstance(options, SummarizerOptions) and options.lora else model

    def train(self, seed: int, folder: Path) -> SummarizationResult:
        model, args, resumed = self.start(seed, folder, self._new_trainee)
        if resumed and (reason := lost_evaluation(folder / "best", resumed)):
            logger.warning("%s is not whole: %s. Training starts anew.", folder / "best", reason)
            resumed = None
        with args.main_process_first(local=False):
            if resumed is None and args.should_save:
                shutil.rmtree(folder / "best", ignore_errors=True)  # of a run killed before its first checkpoint
        trainer = SummarizationTrainer(
            model=model,
            args=args,
            train_dataset=self._datasets["train"],
            eval_dataset=self._datasets["validation"],
            callbacks=self.stopping(),
        )
        trained = trainer.train(resume_from_checkpoint=resumed)
        reported = self.sets.reported
        checkpoints: list[Scores] = []
        for evaluation in trainer.load_kept():
            if not checkpoints:  # the best; before it is evaluated, which may cast the weights
                trainer.save_model(str(folder))
            logits = trainer.logits(self._datasets[reported])
            if not checkpoints and args.should_save:
                predictions = folder / f"{reported}_predictions.jsonl"
                write_summaries(predictions, self.sets.scored, logits, self._rule)
            scores = self._rule.score(self.sets.scored, logits)
            checkpoints.append({**evaluation, **scores})
        means = {name: float(np.mean([one[name] for one in checkpoints])) for name in scores}
        found: dict[str, Scores] = {"validation": {"loss": checkpoints[0]["loss"]}}
        found[reported] = found.get(reported, {}) | means
        return SummarizationResult.of(trainer, trained, found, checkpoints=checkpoints)

    def baselines(self, results: Sequence[SummarizationResult]) -> dict[str, Row]:
        found = trivial_summaries(self.sets.scored, self.options.summary_sentences)
        return {name: {**scores} for name, scores in found.items()}

    def details(self, results: Sequence[SummarizationResult]) -> dict[str, object]:
        return {"checkpoints": {result.seed: result.checkpoints for result in results}}

    def publish(self, best: SummarizationResult, folder: Path, output: Path) -> None:
        options = self.options
        if not isinstance(options, SummarizerOptions):
            return  # a baseline is not published
        if options.lora:
            copy_adapter(folder, output, self._tokenizer, options.local)
        else:
            BertAlForExtractiveSummarization.from_pretrained(folder).save_pretrained(output)

    def card(self, name: str, best: SummarizationResult, table: str, settings: dict[str, object]) -> CardFacts | None:
        options, scores = self.options, best.checkpoints[0]
        if not isinstance(options, SummarizerOptions):
            return None
        averaged = len(best.checkpoints)
        evaluations = f"the {averaged} evaluations" if averaged > 1 else "the evaluation"
        own = ", ".join(f"{metric} {scores[metric]:.3f}" for metric in ROUGE)
        labels = "came with the data" if self.sets.train.labelled else "are the greedy ROUGE oracle's"
        counts = ", ".join(f"{len(data.documents):,} documents ({part})" for part, data in self.sets.by_name.items())
        return CardFacts(
            name=name,
            summary="A BERT-AL that picks the sentences of a document which make up its summary. Documents may have "
            "any length.",
            snippet=snippet(name, options.base_model, options.lora, self._rule),
            training={
                **self.training_facts(best, settings),
                "recurrence": self._config.recurrence,
                "segment length": self._config.segment_length,
                "trigram blocking": options.trigram_blocking,
            },
            training_note=f"Sentence labels {labels}: {counts}.",
            pictures={CURVE: "Loss over epochs"},
            measured=f"Summaries of {plain(self.sets.scored.source)} by `summarize(..., {self._rule.arguments})`: "
            f"{MEASURES} The first row is the mean of {evaluations} with the lowest validation loss; this checkpoint "
            f"is the lowest of them ({own}).{self.caveat('evaluation')}\n\n{table}",
            limits=LIMITS,
            pipeline_tag="summarization",
            tags=["bert-al", "long-documents", "extractive-summarization"],
            adapter=options.lora,
            base_model=options.base_model,
            scores={metric: scores[metric] for metric in ROUGE},
            dataset=self.sets.scored.source,
            widget=SUMMARY_WIDGET,
        )
