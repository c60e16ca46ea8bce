"""Classification of documents, alone or with a question each, and multiple choice about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ...evaluation.scores import majority_scores, predicted, task_scores
from ...finetuning.arguments import FinetuningArguments, TaskOptions
from ...finetuning.task import Row, Sets, Source, Task, mean_and_deviation
from ...finetuning.text_models import BertAlOptions, ChunkBertOptions
from ...training.cards import CardFacts
from ...training.plots import CONFUSION, plot_confusion
from . import tokens, vectors, window_classifier
from .baselines import tfidf_logistic_regression
from .card import classification_card
from .data import Columns, TaskData, halve_by_document, hold_out_documents, read_classification, read_multiple_choice
from .train import ClassificationResult, Prepared, balanced_class_weights, train_classifier, write_predictions

_CURVES = {
    "single_label_classification": "accuracy",
    "multi_label_classification": "micro_f1",
    "regression": "mse",
    "multiple_choice": "accuracy",
}


@dataclass(kw_only=True)
class LabelledDataOptions(TaskOptions):
    """Where documents and labels stand."""

    _argument_group_name = "data"

    text_column: str = field(default="text", metadata={"help": "Column of the documents; default text."})
    label_column: str = field(default="label", metadata={"help": "Column of the labels; default label."})
    id_column: str = field(default="id", metadata={"help": "Column of row ids; default id."})
    halve_validation: bool = field(
        default=False,
        metadata={"help": "Validate on half of the validation documents and report on the others, as the paper does "
                          "with QuALITY."},
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.halve_validation and (self.place("validation") is None or self.place("test") is not None):
            raise ValueError(
                "--halve_validation makes half of the validation set the test set: give a validation set and no test "
                "set."
            )


@dataclass(kw_only=True)
class ClassificationOptions(LabelledDataOptions):
    """What there is to tell apart."""

    _argument_group_name = "classes"

    problem_type: Any = field(
        default=None,
        metadata={"help": "By default, inferred from the labels.",
                  "choices": [None, "single_label_classification", "multi_label_classification", "regression"]},
    )  # fmt: skip
    class_weights: bool = field(default=False, metadata={"help": "Weight classes by inverse frequency."})


@dataclass(kw_only=True)
class VectorClassification(vectors.TrainedVectorOptions, ClassificationOptions):
    """A model over chunk vectors."""

    _argument_group_name = "data"
    baselines = ("avg_sbert", "sbert", "tfidf")

    question_column: str | None = field(default=None, metadata={"help": "Column of questions about the documents."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights and self.model == "tfidf":
            raise ValueError("--class_weights has no effect on --model tfidf; leave it out.")


@dataclass(kw_only=True)
class ChunkBertClassification(ChunkBertOptions, ClassificationOptions):
    """A ChunkBERT."""


@dataclass(kw_only=True)
class BertAlClassification(BertAlOptions, ClassificationOptions):
    """A BERT-AL."""

    model_type: Literal["bert-al"] = field(
        default="bert-al", metadata={"help": "Its encoder is trained on whole documents."}
    )


@dataclass(kw_only=True)
class WindowClassification(window_classifier.WindowOptions, ClassificationOptions):
    """A baseline over windows."""


@dataclass(kw_only=True)
class ChoiceOptions(vectors.TrainedVectorOptions, LabelledDataOptions):
    """A model over chunk vectors that chooses among candidates."""

    _argument_group_name = "data"
    baselines = ("avg_sbert", "sbert")

    model_type: Literal["nextlevelbert"] = field(default="nextlevelbert", metadata={"help": "Only nextlevelbert."})
    question_column: str | None = field(default=None, metadata={"help": "Column of questions about the documents."})
    candidates_column: str | None = field(default=None, metadata={"help": "Column of lists of candidate answers."})


class Classification(Task[LabelledDataOptions, TaskData]):
    """Classes, several classes or a value for each document, perhaps with a question beside it."""

    name = "classification"
    option_classes: ClassVar[tuple[type[TaskOptions], ...]] = (
        VectorClassification, ChunkBertClassification, BertAlClassification, WindowClassification
    )  # fmt: skip
    result = ClassificationResult

    def __init__(self, options: LabelledDataOptions, args: FinetuningArguments) -> None:
        super().__init__(options, args)
        self.prepared = Prepared()
        self.weights: torch.Tensor | None = None
        if isinstance(options, vectors.TrainedVectorOptions) and options.model in options.baselines:
            if args.push_to_hub:
                raise ValueError(
                    f"--model {options.model} is a baseline, which is not published; leave out --push_to_hub."
                )

    # --- Sets

    def read(self, source: Source, train: TaskData | None) -> TaskData:
        options = self.options
        assert isinstance(options, ClassificationOptions)
        question = options.question_column if isinstance(options, VectorClassification) else None
        return read_classification(
            source.path,
            Columns(options.text_column, question, options.label_column, id=options.id_column),
            split=source.split or "train",
            dataset_config=options.dataset_config_name,
            label_names=train.label_names if train else None,
            problem_type=options.problem_type or (train.problem_type if train else None),
        )

    def hold_out(self, data: TaskData, share: float, seed: int) -> tuple[TaskData, TaskData]:
        return hold_out_documents(data, share, seed)

    def split(self, sets: Sets[TaskData]) -> Sets[TaskData]:
        if self.options.halve_validation:
            sets.validation, sets.test = halve_by_document(sets.validation)
        return sets

    def labelled(self, data: TaskData) -> bool:
        return data.labelled

    def texts(self, data: TaskData) -> set[str]:
        return set(data.documents)

    def describe(self, data: TaskData) -> str:
        return f"{len(data.examples)} examples, {len(data.documents)} documents ({data.source})"

    # --- Runs

    def prepare(self) -> dict[str, object]:
        options, args, sets = self.options, self.args, self.sets
        assert isinstance(options, ClassificationOptions)
        self.weights = balanced_class_weights(sets.train) if options.class_weights else None
        if isinstance(options, WindowClassification):
            self.prepared = window_classifier.prepare(options, args, sets)
        elif isinstance(options, (ChunkBertClassification, BertAlClassification)):
            self.prepared = tokens.prepare(options, args, sets)
        elif isinstance(options, VectorClassification) and options.model != "tfidf":
            self.prepared = vectors.prepare(options, args, sets)
        return self.prepared.settings

    @property
    def seeds(self) -> Sequence[int]:
        return self.options.seeds if self.prepared.new_model else self.options.seeds[:1]  # TF-IDF draws nothing

    def train(self, seed: int, folder: Path) -> ClassificationResult:
        if self.prepared.new_model is None:
            result = self._count_words(seed)
        else:
            result = train_classifier(self, seed, folder, self.prepared, self.weights)
        sets = self.sets.by_name
        if (long := self.prepared.long) is not None:
            result.long = {
                name: task_scores(data.problem_type, result.logits[name][long[name]], data.labels()[long[name]])
                for name, data in sets.items()
                if name in result.scores and 0 < long[name].sum() < len(long[name])
            }
        if self.args.should_save:
            for name, logits in result.logits.items():
                write_predictions(folder / f"{name}_predictions.jsonl", sets[name], logits)
        return result

    def _count_words(self, seed: int) -> ClassificationResult:
        """The result of TF-IDF, which is not trained by gradients."""
        evaluated = {name: data for name, data in self.sets.by_name.items() if name != "train"}
        logits = dict(zip(evaluated, tfidf_logistic_regression(self.sets.train, [*evaluated.values()]), strict=True))
        scores = {
            name: task_scores(data.problem_type, logits[name], data.labels())
            for name, data in evaluated.items()
            if data.labelled
        }
        return ClassificationResult(seed=seed, scores=scores, logits=logits)

    # --- Results

    def rows(self, name: str, results: Sequence[ClassificationResult]) -> dict[str, Row]:
        long = self._long(results)
        counted = "{documents} of {of} documents over {over_tokens} tokens".format(**long) if long else ""
        return {f"{name}, long ({counted})": long["mean_and_deviation"]} if long else {}

    def baselines(self, results: Sequence[ClassificationResult]) -> dict[str, Row]:
        train, scored = self.sets.train, self.sets.scored
        classes = results[0].logits[self.sets.reported].shape[-1]
        chance = majority_scores(train.problem_type, train.labels(), scored.labels(), classes)
        return {"mean of the labels" if train.problem_type == "regression" else "most frequent label": {**chance}}

    def details(self, results: Sequence[ClassificationResult]) -> dict[str, object]:
        long = self._long(results)
        return {"long": long} if long else {}

    def _long(self, results: Sequence[ClassificationResult]) -> dict[str, Any]:
        """Scores on the long documents of the reported set; empty where none or all are long."""
        reported = self.sets.reported
        if self.prepared.long is None or reported not in results[0].long:
            return {}
        return {
            "documents": int(self.prepared.long[reported].sum()),
            "of": len(self.prepared.long[reported]),
            "over_tokens": self.prepared.window,
            "mean_and_deviation": mean_and_deviation([result.long[reported] for result in results]),
            "seeds": {result.seed: result.long[reported] for result in results},
        }

    def draw(self, results: Sequence[ClassificationResult], output: Path) -> None:
        scored = self.sets.scored
        self.curve_metric = _CURVES[scored.problem_type]
        super().draw(results, output)
        if scored.problem_type == "single_label_classification":
            logits = [result.logits[self.sets.reported] for result in results]
            found = np.concatenate([predicted(scored.problem_type, each) for each in logits])
            plot_confusion(np.tile(scored.labels(), len(results)), found, scored.label_names or (), output / CONFUSION)

    def publish(self, best: ClassificationResult, folder: Path, output: Path) -> None:
        if self.prepared.publish is None:
            super().publish(best, folder, output)
        else:
            self.prepared.publish(folder, output)

    def card(self, name: str, best: ClassificationResult, table: str, settings: dict[str, object]) -> CardFacts | None:
        text = self.prepared.text
        return None if text is None else classification_card(self, text, name, best, table, settings)


class MultipleChoice(Classification):
    """Questions about documents, each with candidate answers."""

    name = "multiple_choice"
    option_classes = (ChoiceOptions,)

    def read(self, source: Source, train: TaskData | None) -> TaskData:
        options = self.options
        assert isinstance(options, ChoiceOptions)
        columns = Columns(
            options.text_column,
            options.question_column,
            options.label_column,
            options.candidates_column,
            options.id_column,
        )
        return read_multiple_choice(
            source.path, columns, split=source.split or "train", dataset_config=options.dataset_config_name
        )

    def prepare(self) -> dict[str, object]:
        assert isinstance(self.options, ChoiceOptions)
        self.prepared = vectors.prepare(self.options, self.args, self.sets)
        return self.prepared.settings
