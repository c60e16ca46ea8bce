"""The options of fine-tuning: a dataclass for each group.

The help of the command reads them, so this file imports neither torch nor transformers.
"""

import argparse
from dataclasses import MISSING, dataclass, field
from pathlib import Path

from ..training.options import TrainingOptions, fixed, option

FAMILIES = ("nextlevelbert", "hate")  # the models over chunk vectors


@dataclass(kw_only=True)
class VectorModelArguments:
    """A model over the chunk vectors of a frozen sentence encoder."""

    _argument_group_name = "model"

    model: str = option(
        MISSING,
        "Model to fine-tune (required): a checkpoint (folder or name on the Hub), or untrained for"
        " a new model around --chunk_encoder; the name of a sentence encoder stands for both. In"
        " classification also tfidf, a baseline of word counts.",
    )
    model_type: str = option(
        "nextlevelbert",
        "Family of a new model. The family of a checkpoint is read from its config.json.",
        choices=[*FAMILIES],
    )
    chunk_encoder: str | None = option(
        None,
        "Sentence encoder (folder or name on the Hub) for --model untrained (default: minilm, which"
        " is all-MiniLM-L6-v2). If a checkpoint was saved without its encoder, the encoder is"
        " loaded from the Hub by its name; if it has none on the Hub, give its folder here.",
    )
    chunk_encoder_name: str | None = option(
        None, "The encoder's name on the Hub, if --chunk_encoder is a folder."
    )
    chunk_size: int | None = option(
        None,
        "Tokens per chunk for --model untrained (default: 256, or as many as the encoder reads).",
    )
    encoder_dtype: str = option(
        "float32",
        "Precision in which texts are encoded.",
        choices=["float32", "bfloat16", "float16"],
    )
    freeze_encoder: bool = option(
        default=False, help="Train only the head, on the model's frozen document vectors."
    )
    cache_dir: str | None = option(
        None,
        "Folder to store the chunk vectors in; several runs can share it (default:"
        " OUTPUT_DIR/vectors).",
    )


@dataclass(kw_only=True)
class TextModelArguments:
    """An encoder that is trained from text."""

    _argument_group_name = "model"

    model: str = option(
        MISSING,
        "Model to train: an encoder such as BERT, or a saved model (folder or name on the Hub).",
    )
    model_type: str = option("chunkbert", "Model to make from the encoder.")
    attn_implementation: str | None = option(
        None, "Attention of the encoder, such as sdpa or eager (default: as in transformers)."
    )


@dataclass(kw_only=True)
class ChunkBertArguments:
    """A ChunkBERT: chunks of tokens through an encoder, and convolutions over them."""

    _argument_group_name = "model"

    chunk_size: int | None = option(
        None, "Tokens per chunk (default: 128, or as saved with the model)."
    )
    max_training_tokens: int | None = option(
        None, "Number of tokens to which training documents are truncated (default: 4096)."
    )
    chunk_batch_size: int = option(
        256, "Number of chunks to encode at a time; fewer take less memory in evaluation."
    )
    # The paper trains with dropout; without it, a step on a CPU takes half the time.
    keep_attention_dropout: bool = option(
        default=False,
        help="Train a new model with its encoder's own attention dropout, as the paper does"
        " (default: none, which halves the time of a step on a CPU). A saved model keeps its own.",
    )


@dataclass(kw_only=True)
class ClassArguments:
    """The options of the classes."""

    _argument_group_name = "classes"

    label_names_file: str | None = option(
        None,
        "JSON file with a list of the classes, or an object with the classes as keys (default: the"
        " classes of the training set). Integer labels are indices of the list, unless a class in"
        " it is an integer: then integer labels are names.",
    )


@dataclass(kw_only=True)
class ColumnArguments:
    """Names of the columns; docs/inputs.md shows a row of each task."""

    _argument_group_name = "columns"

    text_column: str = option("text", "Column of the documents.")
    question_column: str | None = option(
        None, "Column of questions about the documents (default: question, if it exists)."
    )
    label_column: str = option("label", "Column of the labels.")
    id_column: str = option("id", "Column of the ids; rows without an id are numbered.")


@dataclass(kw_only=True)
class DataArguments:
    """Files or splits of a training set, and of sets to validate and to report on."""

    _argument_group_name = "data"

    train_file: str | None = option(
        None,
        "Training set: a table (JSON Lines, JSON, CSV, TSV or Parquet; all but Parquet also as"
        " .gz), a quoted pattern of tables, or a folder of tables.",
    )
    validation_file: str | None = option(
        None, "Validation set, which selects the epoch (default: rows held out from training)."
    )
    test_file: str | None = option(
        None, "Test set, which is only reported on (default: report on the validation set)."
    )
    dataset_name: str | None = option(None, "Data set on the Hub, instead of --train_file.")
    dataset_config_name: str | None = option(None, "Configuration of the data set on the Hub.")
    train_split: str | None = option(
        None, "Split of the data set or folder to train on (default: train)."
    )
    validation_split: str | None = option(
        None, "Split of the data set or folder to validate on, instead of --validation_file."
    )
    test_split: str | None = option(
        None, "Split of the data set or folder to report on, instead of --test_file."
    )
    validation_share: float = option(
        0.15, "Share of the training set to hold out if there is no validation set."
    )

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            file = getattr(self, f"{name}_file")
            if self.dataset_name is not None and file is not None:
                raise ValueError(
                    f"--dataset_name names all sets: use --{name}_split instead of --{name}_file."
                )

            has_splits = self.dataset_name is not None or Path(str(self._source(name))).is_dir()
            if getattr(self, f"{name}_split") and not has_splits:
                raise ValueError(
                    f"--{name}_split is for --dataset_name or a folder; give a file with"
                    f" --{name}_file."
                )

    def _source(self, name: str) -> str | None:
        """Returns the data set, file or folder of a set; None if none was given."""
        for source in (getattr(self, f"{name}_file"), self.dataset_name):
            if source is not None:
                return source
        return self.train_file

    def location(self, name: str) -> tuple[str, str] | None:
        """Returns the source of a set: a file, folder or data set, and the split.

        Args:
            name: ``"train"``, ``"validation"`` or ``"test"``.

        Returns:
            Source and split; None for a set that was not given.
        """
        source = self._source(name)
        split = getattr(self, f"{name}_split")
        has_file = getattr(self, f"{name}_file") is not None
        if split is None and (has_file or name == "train"):
            split = "train"
        if source is None or split is None:
            return None
        return source, split


@dataclass
class FinetuningOptions(TrainingOptions):
    """`TrainingArguments` for small supervised sets.

    Several seeds, the best evaluation is kept, and training stops early.
    """

    seeds: list[int] = field(
        default_factory=lambda: [0],
        metadata={
            "help": "One training per seed; the best model by the validation score is kept in"
            " --output_dir.",
            "nargs": "+",
        },
    )
    learning_rate: float | None = option(  # type: ignore[assignment]
        None,
        "Peak learning rate (default: 5e-5; 1e-3 with --freeze_encoder; 3e-5"
        " for model families that read tokens).",
    )
    num_train_epochs: float = option(20.0, "Maximum number of epochs.")
    per_device_eval_batch_size: int = option(32, "Batch size per device in evaluation.")
    warmup_steps: float = option(
        0.1, "Number of warm-up steps, or a share of all steps if below 1."
    )
    seed: int = option(42, "Seed for holding out documents; the trainings use --seeds.")
    logging_strategy: str = option("epoch", "When to log: no, steps or epoch.")
    eval_strategy: str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: str = option("epoch", "When to save a checkpoint: no, steps or epoch.")
    save_total_limit: int | None = option(1, "Checkpoints to keep besides the best one.")
    load_best_model_at_end: bool = option(
        default=True, help="Keep the weights of the best evaluation instead of the last ones."
    )
    metric_for_best_model: str | None = option(
        "loss",
        "Validation score that selects the best evaluation: loss, or a score of the table, such as"
        " accuracy or macro_f1, if the task has it.",
    )
    early_stopping_patience: int = option(
        3,
        "Number of evaluations without a better --metric_for_best_model after which training stops"
        " (only with --load_best_model_at_end).",
    )
    # Without this, a resumed run would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = option(default=True, help=argparse.SUPPRESS)

    do_train: bool = fixed(default=True, reason="every run trains")
    # Trainer cannot find them in the signature of a model with adapters.
    label_names: list[str] | None = field(
        init=False,
        default_factory=lambda: ["labels"],
        metadata={"reason": "the labels of a task have one name"},
    )
    prediction_loss_only: bool = fixed(default=False, reason="the table needs predictions")


_DATA = (ColumnArguments, DataArguments, FinetuningOptions)
# The groups that describe a model, by --model_type.
MODELS: dict[str, tuple[type, ...]] = {
    "nextlevelbert": (VectorModelArguments,),
    "hate": (VectorModelArguments,),
    "chunkbert": (TextModelArguments, ChunkBertArguments),
    "truncated": (TextModelArguments,),
}
# The groups of options of each task by --model_type; that of the training is the last.
GROUPS: dict[str, dict[str, tuple[type, ...]]] = {
    "classification": {name: (*groups, ClassArguments, *_DATA) for name, groups in MODELS.items()},
    "multiple_choice": {name: (*MODELS[name], *_DATA) for name in FAMILIES},
}
