"""What document matching, coreference and multi-hop question answering with CDLM share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoTokenizer

from ..data.rows import fingerprint
from ..finetuning.adapters import copy_adapter, with_lora
from ..finetuning.arguments import LoraOptions, OwnLossArguments, TaskOptions
from ..finetuning.task import Row, Scores, SeedResult, Sets, Task, TaskSet
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import MARKERS, CdlmProcessor
from ..pretraining.cdlm import CdlmModelArguments
from ..training.cards import CardFacts, plain
from ..training.plots import CURVE
from ..training.resuming import write_whole
from ..training.trainer import CardTrainer

_SUMMARY = """\
A [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related documents in one sequence, with
global attention on what it has to predict."""
_LIMITS = (
    "Sets that are longer than a sequence are cut, the longest documents first; the processor says how much is lost.",
    "The language and domain are those of the encoder and of the training documents.",
)


class CdlmData(TaskSet, Protocol):
    """A set, and where it is from (without folders)."""

    @property
    def source(self) -> str: ...


DataT = TypeVar("DataT", bound=CdlmData)
OptionsT = TypeVar("OptionsT", bound="CdlmOptions")
RowsT = TypeVar("RowsT", bound=Dataset[Any])
Logits = tuple[np.ndarray, ...]
"""Of all sequences of a set, each kind padded to the longest sequence."""


@dataclass(kw_only=True)
class CdlmOptions(CdlmModelArguments, LoraOptions, TaskOptions):
    """What the tasks of CDLM share."""

    _argument_group_name = "model"
    arguments = OwnLossArguments
    whole_model_rate = 3e-5  # as in pretraining

    model_type: Literal["cdlm"] = field(default="cdlm", metadata={"help": "cdlm."})
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["query", "value", "query_global", "value_global"],
        metadata={"help": "Names of the linear layers that get an adapter, or all-linear; default query value "
                          "query_global value_global."},
    )  # fmt: skip


@dataclass(frozen=True)
class Predicted:
    """What a model predicts for a set.

    Attributes:
        scores: by their names.
        records: a JSON object for each row, in the order of the set.
    """

    scores: Scores
    records: list[dict[str, Any]]


class CdlmTask(Task[OptionsT, DataT], Generic[OptionsT, DataT, RowsT]):
    """A task of CDLM; the seed with the lowest validation loss is kept.

    Attributes:
        model_class: the model with the task's head.
        labels: what of a row is only there to be predicted.
        score: of the scores, the one that the card's metadata tells.
        pipeline_tag, tag: the Hub's name of the task, and ours.
        widget: inputs that the Hub's page offers to try.
        snippet: code that opens and uses the model ``{name}``.
        told: options that the card tells.
        processor: lays out sequences; set by `prepare`.
        datasets: sequences by name of the set; set by `prepare`.
        chosen: see `choose`; set by `train`.
    """

    model_class: ClassVar[Any]
    labels: ClassVar[tuple[str, ...]] = ("labels",)
    score: ClassVar[str]
    pipeline_tag: ClassVar[str]
    tag: ClassVar[str]
    widget: ClassVar[Sequence[Mapping[str, object]]] = ()
    snippet: ClassVar[str]
    told: ClassVar[tuple[str, ...]] = ()
    processor: CdlmProcessor
    datasets: dict[str, RowsT]
    chosen: Scores

    @abstractmethod
    def unlabelled(self, data: DataT) -> int:
        """How many rows have no label."""

    @abstractmethod
    def sequences(self, data: DataT, training: bool) -> RowsT:
        """What the model reads of a set, shortest first."""

    @abstractmethod
    def predictions(self, name: str, logits: Logits) -> Predicted:
        """Of the set `name`, whose sequences are ``self.datasets[name]``."""

    @abstractmethod
    def trivial_scores(self, data: DataT) -> dict[str, Scores]:
        """Scores of what needs no training, by a name for the table."""

    def choose(self, logits: Logits) -> Scores:
        """Fields of the model's configuration, chosen on the predictions for the validation set."""
        return {}

    def split(self, sets: Sets[DataT]) -> Sets[DataT]:
        """Checks the sets, each alone and against the training set."""
        learned = fingerprint(sets.train.content())
        for name, data in sets.by_name.items():
            if count := self.unlabelled(data):
                raise ValueError(
                    f"{count} rows of the {name} set {data.source} have no label; give only labelled rows."
                )
            if name != "train" and fingerprint(data.content()) == learned:
                raise ValueError(f"The {name} set is the training set ({data.source}); give another one.")
        return sets

    def prepare(self) -> dict[str, object]:
        self._trivial = self.trivial_scores(self.sets.scored)  # first, as it may lack a package
        if self.options.lora:
            check_adaptable(self.options)
        reader, self.processor = self.options.load(self.model_class)
        self.datasets = {name: self.sequences(data, name == "train") for name, data in self.sets.by_name.items()}
        return {"weights": weights_fingerprint(reader.base_model)}

    def _new_model(self) -> Any:
        model, _ = self.options.load(self.model_class)
        return with_lora(model, self.options) if self.options.lora else model

    def train(self, seed: int, folder: Path) -> SeedResult:
        model, args, resumed = self.start(seed, folder, self._new_model)
        args.label_names = list(self.labels)
        trainer = CardTrainer(
            model=model,
            args=args,
            train_dataset=self.datasets["train"],
            eval_dataset=self.datasets["validation"],
            data_collator=lambda batch: dict(self.processor.pad(batch)),
            callbacks=self.stopping(),
        )
        trained = trainer.train(resume_from_checkpoint=resumed)
        trainer.save_model(str(folder))
        reported = self.sets.reported
        found: Any = {
            name: trainer.predict(self.datasets[name], metric_key_prefix="test")
            for name in dict.fromkeys(("validation", reported))
        }
        logits = {
            name: each.predictions if isinstance(each.predictions, tuple) else (each.predictions,)
            for name, each in found.items()
        }
        if not all(np.isfinite(part).all() for parts in logits.values() for part in parts):
            raise ValueError(f"Seed {seed} ended with scores that are not finite; lower --learning_rate.")
        self.chosen = self.choose(logits["validation"])
        predicted = {name: self.predictions(name, parts) for name, parts in logits.items()}
        scores = {name: each.scores for name, each in predicted.items()}
        scores["validation"]["loss"] = found["validation"].metrics["test_loss"]
        if args.should_save:
            lines = [json.dumps(record, ensure_ascii=False) for record in predicted[reported].records]
            write_whole(folder / f"{reported}_predictions.jsonl", "\n".join(lines))
        return SeedResult.of(trainer, trained, scores, config=self.chosen)

    def baselines(self, results: Sequence[SeedResult]) -> dict[str, Row]:
        return {name: {**scores} for name, scores in self._trivial.items()}

    def publish(self, best: SeedResult, folder: Path, output: Path) -> None:
        if self.options.lora:
            copy_adapter(folder, output, self.processor.tokenizer, self.options.local)
        else:
            model = self.model_class.from_pretrained(folder)
            for name, value in best.config.items():
                setattr(model.config, name, value)
            model.save_pretrained(output)
        self.processor.save_pretrained(output)

    def card(self, name: str, best: SeedResult, table: str, settings: dict[str, object]) -> CardFacts:
        options, source = self.options, self.sets.scored.source
        snippet = self.snippet.replace("{name}", options.base_model or "the base checkpoint" if options.lora else name)
        if options.lora:
            opened = f'model = PeftModel.from_pretrained(model, "{name}").eval()\n'
            snippet = "from peft import PeftModel\n" + snippet.replace("processor = ", f"{opened}processor = ", 1)
            snippet = snippet.replace(".from_model(model)", ".from_model(model.base_model.model)")
        chosen = [*(["epoch"] if self.args.load_best_model_at_end else []), *best.config]
        return CardFacts(
            name=name,
            summary=_SUMMARY,
            snippet=snippet,
            training={
                **self.training_facts(best, settings),
                **{key: settings[key] for key in self.told},
                **best.config,
            },
            pictures={CURVE: "Learning curve"},
            measured=f"{plain(source)}. Rows without a seed need no training.{self.caveat(*chosen)}\n\n{table}",
            limits=_LIMITS,
            pipeline_tag=self.pipeline_tag,
            tags=["cdlm", "longformer", "multi-document", self.tag],
            adapter=options.lora,
            base_model=options.base_model,
            scores={self.score: best.scores[self.sets.reported][self.score]},
            dataset=source,
            widget=self.widget,
        )


def check_adaptable(options: CdlmOptions) -> None:
    """An adapter fits only what is the same wherever it is opened: markers have to be in the model already.

    Raises:
        ValueError: for an encoder that would be turned into a CDLM here, or one without the markers.
    """
    known: set[str] = set()
    if AutoConfig.from_pretrained(options.model).model_type == "cdlm":
        known = set(AutoTokenizer.from_pretrained(options.model).get_vocab())
    if missing := [marker for marker in MARKERS if marker not in known]:
        raise ValueError(
            f"--lora adapts a saved CDLM whose tokenizer knows the markers; {options.public_name} lacks "
            f"{', '.join(missing[:4])}. Make one first: model = CdlmModel.from_encoder(name), then "
            "CdlmProcessor.from_model(model) adds them, then model.save_pretrained(folder)."
        )
