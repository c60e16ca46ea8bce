"""The options of classification and multiple choice, one class for each group of models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...finetuning.arguments import TaskOptions
from ...finetuning.text_models import BertAlOptions, ChunkBertOptions
from .schemas import Arrangement
from .vectors import TrainedVectorOptions
from .window_classifier import WindowOptions


@dataclass(kw_only=True)
class LabelledDataOptions(TaskOptions):
    """Columns of documents and labels."""

    _argument_group_name = "data"

    text_column: str = field(default="text", metadata={"help": "Column of the documents; default text."})
    label_column: str = field(default="label", metadata={"help": "Column of the labels; default label."})
    id_column: str = field(default="id", metadata={"help": "Column of row ids; default id."})
    halve_validation: bool = field(
        default=False,
        metadata={"help": "Validate on half of the validation documents and report on the others, as the paper does "
                          "with QuALITY."},
    )  # fmt: skip


@dataclass(kw_only=True)
class ClassificationOptions(LabelledDataOptions):
    """The kind of labels."""

    _argument_group_name = "classes"

    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = field(
        default=None,
        metadata={"help": "By default, inferred from the labels."},
    )
    label_names_file: str | None = field(
        default=None,
        metadata={"help": "JSON list of the classes, or object with them as keys (as EURLEX-57K has it). By default, "
                          "those of the training set, and others are an error."},
    )  # fmt: skip
    arrangement: Arrangement | None = field(
        default=None,
        metadata={"help": "inverted: EURLEX-57K with header and recitals after the main body. paired: every two rows "
                          "joined, with the labels of both (Paired Book Summary)."},
    )  # fmt: skip
    class_weights: bool = field(default=False, metadata={"help": "Weight classes by inverse frequency."})
    sigmoid: bool = field(
        default=False,
        metadata={"help": "Tell two classes apart by one output and a sigmoid, with a threshold of 0.5, as the "
                          "NextLevelBERT paper does on MuLD; by default, by a softmax over both."},
    )  # fmt: skip
    question_column: str | None = field(default=None, metadata={"help": "Column of questions about the documents."})
    question_first: bool = field(
        default=False,
        metadata={"help": "Put each question before its document, as text. By default, a model over chunk vectors "
                          "encodes it apart and joins the two vectors; models trained from text read no questions."},
    )  # fmt: skip


@dataclass(kw_only=True)
class VectorClassification(TrainedVectorOptions, ClassificationOptions):
    """A model over chunk vectors."""

    _argument_group_name = "data"
    baselines = ("avg_sbert", "sbert", "tobert", "tfidf")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("class_weights", "sigmoid"):
            if getattr(self, name) and self.model == "tfidf":
                raise ValueError(f"--{name} has no effect on --model tfidf; leave it out.")


@dataclass(kw_only=True)
class ChunkBertClassification(ChunkBertOptions, ClassificationOptions):
    """A ChunkBERT."""


@dataclass(kw_only=True)
class BertAlClassification(BertAlOptions, ClassificationOptions):
    """A BERT-AL."""

    model_type: Literal["bert-al"] = field(
        default="bert-al", metadata={"help": "The encoder is trained on whole documents."}
    )


@dataclass(kw_only=True)
class WindowClassification(WindowOptions, ClassificationOptions):
    """A baseline over windows."""


@dataclass(kw_only=True)
class ChoiceOptions(TrainedVectorOptions, LabelledDataOptions):
    """A model over chunk vectors that chooses among candidates."""

    _argument_group_name = "data"
    baselines = ("avg_sbert", "sbert")

    model_type: Literal["nextlevelbert"] = field(default="nextlevelbert", metadata={"help": "Only nextlevelbert."})
    question_column: str | None = field(default=None, metadata={"help": "Column of questions about the documents."})
    candidates_column: str | None = field(default=None, metadata={"help": "Column of lists of candidate answers."})
