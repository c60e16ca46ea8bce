"""The options of fine-tuning: a dataclass for each group."""

import argparse
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Self

from ..training.arguments import BaseTrainingArguments
from ..training.options import fixed, option

FAMILIES = ("nextlevelbert", "hate")  # the models over chunk vectors


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets.

    Several seeds, the best evaluation is kept, and training stops early.
    """

    seeds: list[int] = field(
        default_factory=lambda: [0],
        metadata={
            "help": "One training per seed; the best model by the validation score is kept in"
            " --output_dir."
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
    do_eval: bool = fixed(default=True, reason="every set that is given is evaluated")
    do_predict: bool = fixed(default=True, reason="every set that is given is evaluated")
    # Trainer cannot find them in the signature of a model with adapters.
    label_names: list[str] | None = field(
        init=False,
        default_factory=lambda: ["labels"],
        metadata={"reason": "the labels of a task have one name"},
    )
    prediction_loss_only: bool = fixed(default=False, reason="the table needs predictions")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")
        if self.n_gpu > 1:
            raise ValueError(
                f"Start a process for each of the {self.n_gpu} GPUs: torchrun --nproc_per_node"
                " N ..."
            )

    def for_seed(self, seed: int, folder: Path) -> Self:
        """Returns the arguments of one training, which does not publish its model."""
        args = self.without_upload()
        args.output_dir = str(folder)
        args.seed = seed
        args.data_seed = seed
        return args


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
