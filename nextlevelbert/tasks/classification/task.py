"""Classification of documents, alone or with a question each, and multiple choice about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from ...data.labels import read_label_names
from ...evaluation.scores import majority_scores, predicted, task_scores
from ...finetuning.arguments import FinetuningArguments, TaskOptions
from ...finetuning.task import Row, Sets, Source, Task, mean_and_deviation
from ...training.cards import CardFacts, plain
from ...training.plots import CONFUSION, CURVE, plot_confusion
from . import tokens, vectors, window_classifier
from .baselines import tfidf_logistic_regression
from .data import Columns, TaskData, read_classification, read_multiple_choice
from .options import (
    BertAlClassification,
    ChoiceOptions,
    ChunkBertClassification,
    ClassificationOptions,
    LabelledDataOptions,
    VectorClassification,
    WindowClassification,
)
from .splits import halve_by_document, hold_out_documents, questions_first, with_one_output
from .train import ClassificationResult, Prepared, balanced_class_weights, train_classifier, write_predictions

_PICTURES = {CURVE: "Loss and score over epochs", CONFUSION: "Confusion matrix"}
_TOLD = ("class_weights", "freeze_encoder")  # options that the card mentions
_CURVES = {
    "single_label_classification": "accuracy",
    "multi_label_classification": "micro_f1",
    "regression": "mse",
    "multiple_choice": "accuracy",
}


class Classification(Task[LabelledDataOptions, TaskData]):
    """One class, several classes or a value per document, or per document and question."""

    name = "classification"
    option_classes: ClassVar[tuple[type[TaskOptions], ...]] = (
        VectorClassification, ChunkBertClassification, BertAlClassification, WindowClassification
    )  # fmt: skip
    result = ClassificationResult

    def __init__(self, options: LabelledDataOptions, args: FinetuningArguments) -> None:
        super().__init__(options, args)
        self.prepared = Prepared()
        self.weights: torch.Tensor | None = None
        if options.halve_validation and (options.place("validation") is None or options.place("test") is not None):
            raise ValueError(
                "--halve_validation makes half of the validation set the test set: give a validation set and no test "
                "set."
            )
        if isinstance(options, vectors.TrainedVectorOptions):
            options.check_upload(args.push_to_hub)

    # --- Sets

    def read(self, source: Source, train: TaskData | None) -> TaskData:
        options = self.options
        assert isinstance(options, ClassificationOptions)
        return read_classification(
            source.path,
            Columns(options.text_column, options.question_column, options.label_column, id=options.id_column),
            split=source.split or "train",
            dataset_config=options.dataset_config_name,
            label_names=train.label_names if train else read_label_names(options.label_names_file),
            arrangement=options.arrangement,
            problem_type=options.problem_type or (train.problem_type if train else None),
        )

    def hold_out(self, data: TaskData, share: float, seed: int) -> tuple[TaskData, TaskData]:
        return hold_out_documents(data, share, seed)

    def split(self, sets: Sets[TaskData]) -> Sets[TaskData]:
        if (
            sets.train.problem_type == "single_label_classification"
            and len(names := sets.train.label_names or ()) == 1
        ):
            raise ValueError(
                f"{sets.train.source} has one class only, {names[0]!r}, so there is nothing to tell apart. Give rows "
                "of at least two classes, or name all classes with --label_names_file."
            )
        if self.options.halve_validation:
            sets.validation, sets.test = halve_by_document(sets.validation)
        for wanted, change in (("question_first", questions_first), ("sigmoid", with_one_output)):
            if getattr(self.options, wanted, False):  # after the split, so that no document is on both sides
                test = None if sets.test is None else change(sets.test)
                sets = replace(sets, train=change(sets.train), validation=change(sets.validation), test=test)
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
        elif options.model == "tfidf":
            args.seeds = args.seeds[:1]  # TF-IDF has no random part
        elif isinstance(options, VectorClassification):
            self.prepared = vectors.prepare(options, args, sets)
        return self.prepared.settings

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
        """The result of TF-IDF, which has no training steps."""
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
        trivial = "mean of the labels" if train.problem_type == "regression" else "most frequent label"
        return {trivial: {**chance}, **self.prepared.controls()}

    def details(self, results: Sequence[ClassificationResult]) -> dict[str, object]:
        long = self._long(results)
        return {"long": long} if long else {}

    def _long(self, results: Sequence[ClassificationResult]) -> dict[str, Any]:
        """Scores on the long documents of the reported set; empty if none or all are long."""
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
        if (text := self.prepared.text) is None:
            return None
        sets, args, options = self.sets, self.args, self.options
        kind, adapter = sets.train.problem_type, bool(getattr(options, "lora", False))
        epoch = (
            f"best epoch by validation {args.metric_for_best_model}" if args.load_best_model_at_end else "last epoch"
        )
        chosen = f"This checkpoint is the {epoch} of the seed with the lowest validation loss."
        facts = self.training_facts(best, settings)
        return CardFacts(
            name=name,
            summary=f"A {text.name} fine-tuned on {plain(sets.train.source)}. {text.reads}",
            snippet=_snippet(name, sets.train, options.base_model, text.base_arguments if adapter else None),
            model={"classes": ", ".join(map(plain, sets.train.label_names or ())) or "none", **text.settings},
            training={
                **facts,
                "parameters": f"{facts['parameters']}{text.uncounted}",
                "examples": ", ".join(f"{len(data.examples):,} {part}" for part, data in sets.by_name.items()),
                **{key: settings[key] for key in _TOLD if key in settings},
            },
            pictures={file: title for file, title in _PICTURES.items() if (Path(args.output_dir) / file).exists()},
            measured=f"{table}\n\n{chosen}{self.caveat('checkpoint')}",
            limits=[
                "Small sets have wide margins, and the deviation over seeds does not cover the choice of the set.",
                *text.limits,
            ],
            pipeline_tag="multiple-choice" if kind == "multiple_choice" else "text-classification",
            tags=[*text.tags, "long-documents"],
            adapter=adapter,
            base_model=options.base_model,
            scores={metric: value for metric, value in best.scores[sets.reported].items() if metric != "loss"},
            dataset=sets.scored.source,
            scored_task_name=kind.replace("_", " "),
        )


class MultipleChoice(Classification):
    """Questions about documents, with candidate answers."""

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


def _snippet(name: str, train: TaskData, base: str | None, base_arguments: str | None) -> str:
    """Code that opens the model (an adapter on `base`) and reads a document, with a question or candidates."""
    adapter = base_arguments is not None
    choice, pair = train.problem_type == "multiple_choice", train.examples[0].question is not None
    auto_class = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = ["import nextlevelbert  # registers the architecture"]
    if adapter:
        lines.append("from peft import PeftModel")
    lines += [f"from transformers import {auto_class}, AutoTokenizer", ""]
    if adapter:
        lines.append(f'base = {auto_class}.from_pretrained("{base or "the base checkpoint"}"{base_arguments})')
        lines.append(f'model = PeftModel.from_pretrained(base, "{name}").eval()')
    else:
        lines.append(f'model = {auto_class}.from_pretrained("{name}")')
    lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{name}")')
    if not (choice or pair):
        lines.append('scores = model(**tokenizer("the text of a whole document", return_tensors="pt")).logits')
        return "\n".join(lines)
    lines.append('document = tokenizer("the text of a whole document", return_tensors="pt")')
    texts = '["the question? one answer", "the question? another"]' if choice else '["a question about it"]'
    lines.append(f'pair = tokenizer({texts}, padding=True, return_tensors="pt")')
    ids = ['pair_input_ids=pair["input_ids"]', 'pair_attention_mask=pair["attention_mask"]']
    ids = [f"{part}[None]" for part in ids] if choice else ids
    lines.append(f"scores = model(**document, {', '.join(ids)}).logits")
    return "\n".join(lines)
