"""Every option of `run_finetune.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..training.trainer import BaseTrainingArguments

BASELINES = ("avg_sbert", "sbert", "tfidf", "bm25")
VECTOR_MODELS = ("nextlevelbert", "hate")  # learn from stored chunk vectors
WINDOW_BASELINES = ("truncated", "random", "textrank")
SUMMARIZERS = ("bert-al", "truncated", "extended")

# Training arguments that decide what comes out; a run is only continued with the same ones.
_DECIDING = (
    "learning_rate", "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "lr_scheduler_type",
    "lr_scheduler_kwargs", "optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm",
    "label_smoothing_factor", "bf16", "fp16", "neftune_noise_alpha", "eval_strategy", "eval_steps", "save_strategy",
    "save_steps", "dataloader_drop_last", "train_sampling_strategy", "tf32", "optim_target_modules",
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "full_determinism",
)  # fmt: skip
OF_VECTOR_MODELS = ("chunk_encoder", "chunk_encoder_name", "chunk_size", "encoder_dtype", "freeze_encoder")
OF_BERT_AL = ("segment_length", "recurrence")
_OF_TEXT_MODELS = ("model_type", "chunk_batch_size", "max_training_tokens", "attn_implementation")


@dataclass
class ModelArguments:
    """Which model."""

    model: str = field(
        metadata={"help": "A checkpoint (folder or name on the Hub), or one of untrained (a new model around "
                          "--chunk_encoder), avg_sbert, sbert, tfidf, bm25 (retrieval only). With another "
                          "--model_type: the encoder to train."}
    )  # fmt: skip
    model_type: str = field(
        default="nextlevelbert",
        metadata={"help": "nextlevelbert and hate learn from stored chunk vectors; a checkpoint tells which it is, "
                          "untrained and the baselines over vectors have to be told. The others train an encoder from "
                          "text. For classification: chunkbert and bert-al on whole documents; truncated on the first "
                          "window only, random on one drawn at random beside it, textrank on one of key sentences. "
                          "For summarization: bert-al, or its baselines truncated (the first segment only) and "
                          "extended (a longer table of positions, random behind the first segment).",
                  "choices": [*VECTOR_MODELS, "chunkbert", *WINDOW_BASELINES, "bert-al", "extended"]},
    )  # fmt: skip
    chunk_encoder: str = field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        metadata={
            "help": "Sentence encoder of untrained, avg_sbert, sbert and of checkpoints without one: name or folder."
        },
    )
    chunk_encoder_name: str | None = field(
        default=None, metadata={"help": "The encoder's name on the Hub, where --chunk_encoder is a folder."}
    )
    chunk_size: int | None = field(
        default=None,
        metadata={"help": "Most tokens in a chunk of untrained, avg_sbert, sbert (default 256), chunkbert (128, or "
                          "what it was saved with)."},
    )  # fmt: skip
    chunk_batch_size: int = field(
        default=256,
        metadata={"help": "Chunks that chunkbert encodes at once; fewer take less memory in evaluation (in training "
                          "--activation_checkpointing does)."},
    )  # fmt: skip
    max_training_tokens: int | None = field(
        default=None,
        metadata={"help": "Where chunkbert cuts training documents (default 4096, or what it was saved with), and "
                          "bert-al (default nowhere)."},
    )  # fmt: skip
    segment_length: int | None = field(
        default=None,
        metadata={"help": "Tokens in a segment of bert-al, and what its baselines have learnt positions for (default "
                          "128, or what it was saved with)."},
    )  # fmt: skip
    recurrence: str | None = field(
        default=None,
        metadata={"help": "How the segments of bert-al hear of those before: replace (the paper's), residual (the "
                          "default) or none.",
                  "choices": [None, "replace", "residual", "none"]},
    )  # fmt: skip
    attn_implementation: str | None = field(
        default=None,
        metadata={"help": "Of an encoder that is trained from text, as in transformers. On a CPU eager trains a fifth "
                          "faster with chunks of 128."},
    )  # fmt: skip
    encoder_dtype: str = field(
        default="float32",
        metadata={"help": "Of the chunk encoder while encoding. bfloat16 is faster where the hardware has it.",
                  "choices": ["float32", "bfloat16", "float16"]},
    )  # fmt: skip
    freeze_encoder: bool = field(
        default=False,
        metadata={"help": "Train the head only, on the document vectors of a NextLevelBERT or HATE as they are."},
    )  # fmt: skip
    lora: bool = field(default=False, metadata={"help": "Train low-rank adapters and the head only."})
    lora_r: int = field(default=8, metadata={"help": "Rank of the adapters."})
    lora_alpha: int = field(default=16, metadata={"help": "Scale of the adapters, before division by the rank."})
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["query", "value"],
        metadata={"help": "Names of the linear layers that get an adapter, or all-linear."},
    )

    def __post_init__(self) -> None:
        if self.chunk_size is None and not self.from_text:
            self.chunk_size = 256

    @property
    def from_text(self) -> bool:
        """Whether the model is trained from text, encoder and all."""
        return self.model_type not in VECTOR_MODELS

    @property
    def head_only(self) -> bool:
        """Whether no weight of an encoder learns."""
        return self.freeze_encoder or self.model in BASELINES

    baselines = BASELINES

    @property
    def new(self) -> bool:
        return self.model in ("untrained", *BASELINES)

    @property
    def local(self) -> bool:
        """Whether the model is a folder here."""
        return self.model not in ("untrained", *BASELINES) and Path(self.model).exists()

    @property
    def public_name(self) -> str:
        """The model's name in tables and cards: never a path of this machine."""
        return Path(self.model).resolve().name if self.local else self.model

    def deciding(self) -> dict[str, Any]:
        """What decides the weights that come out."""
        values = {**vars(self), "model": self.public_name, "chunk_encoder": Path(self.chunk_encoder).name}
        # How many chunks go through the encoder at once changes no result.
        ignored = (*OF_VECTOR_MODELS, "chunk_batch_size") if self.from_text else _OF_TEXT_MODELS
        told = {"model_type": self.model_type} if self.model_type == "hate" else {}
        ignored = ignored if self.model_type == "bert-al" else (*ignored, *OF_BERT_AL)
        return {name: value for name, value in values.items() if name not in ignored} | told


@dataclass
class TaskArguments:
    """Which task."""

    task: str = field(
        metadata={"help": "What to do; retrieval trains nothing, ranking learns from queries and their documents.",
                  "choices": ["classification", "multiple_choice", "retrieval", "ranking", "summarization"]}
    )  # fmt: skip
    train_file: str | None = field(
        default=None,
        metadata={"help": "Training set: a .jsonl or .parquet (also .gz), QuALITY's official file, or for ranking a "
                          "folder of MS MARCO's or BEIR's files."},
    )  # fmt: skip
    validation_file: str | None = field(
        default=None, metadata={"help": "Set that chooses the epoch; by default some training documents are held out."}
    )
    test_file: str | None = field(
        default=None,
        metadata={"help": "Set to report on; by default the validation set. For retrieval and ranking a table of "
                          "pairs, or a folder laid out as BEIR's or MS MARCO's."},
    )  # fmt: skip
    validation_candidates: str | None = field(
        default=None,
        metadata={"help": "Documents to rank for each validation query (ranking): a run in TREC's format. By default "
                          "the whole collection, or MS MARCO's top100 where it lies beside it."},
    )  # fmt: skip
    test_candidates: str | None = field(default=None, metadata={"help": "The same for the test set."})
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, in place of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    train_split: str = field(default="train", metadata={"help": "Split of the dataset to train on."})
    validation_split: str | None = field(default=None, metadata={"help": "Split of the dataset to validate on."})
    test_split: str | None = field(default=None, metadata={"help": "Split of the dataset to report on."})
    text_column: str = field(default="text", metadata={"help": "Column of the documents."})
    question_column: str | None = field(default=None, metadata={"help": "Column of questions about the documents."})
    candidates_column: str | None = field(default=None, metadata={"help": "Column of lists of candidate answers."})
    label_column: str = field(default="label", metadata={"help": "Column of the labels."})
    summary_column: str = field(
        default="summary", metadata={"help": "Column of reference summaries (summarization), texts or lists."}
    )
    id_column: str = field(default="id", metadata={"help": "Column of names of rows."})
    query_column: str | None = field(default=None, metadata={"help": "Column of queries (retrieval, ranking)."})
    document_column: str | None = field(
        default=None, metadata={"help": "Column of their documents (retrieval, ranking)."}
    )
    problem_type: str | None = field(
        default=None,
        metadata={"help": "Guessed from the labels by default.",
                  "choices": [None, "single_label_classification", "multi_label_classification", "regression"]},
    )  # fmt: skip
    class_weights: bool = field(default=False, metadata={"help": "Weigh classes by the inverse of their frequency."})
    validation_share: float = field(
        default=0.15,
        metadata={"help": "Share of the training documents to hold out where no validation set is given."},
    )
    halve_validation: bool = field(
        default=False,
        metadata={"help": "Validate on half of the validation documents and report on the others, as the paper does "
                          "with QuALITY."},
    )  # fmt: skip
    early_stopping_patience: int = field(
        default=3, metadata={"help": "Evaluations without progress before training stops."}
    )
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "One run each; the mean is reported."})
    cache_dir: str | None = field(
        default=None,
        metadata={"help": "Folder of chunk vectors, or for summarization of the oracle's labels, which runs that are "
                          "given the same one share. Default: OUTPUT_DIR-vectors, OUTPUT_DIR-oracle."},
    )  # fmt: skip
    summary_sentences: int = field(default=3, metadata={"help": "Sentences of a summary."})
    trigram_blocking: bool = field(
        default=False,
        metadata={"help": "Leave out sentences that repeat three words in a row of a better one (summarization)."},
    )
    k: int = field(default=10, metadata={"help": "Where hit rate and recall cut the ranking (retrieval)."})


@dataclass
class FinetuningArguments(BaseTrainingArguments):
    """`TrainingArguments` for small supervised sets: the paper's learning rate, the best epoch kept (section 4.1)."""

    learning_rate: float | None = field(  # type: ignore[assignment]
        default=None,
        metadata={"help": "By default 5e-5 for a whole model (3e-5 for one trained from text, 2e-5 for summaries), "
                          "1e-3 where only a head or adapters learn."},
    )  # fmt: skip
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps, or below 1 a share of all; default 0.1."})
    num_train_epochs: float = field(default=20.0, metadata={"help": "At most; default 20."})
    per_device_eval_batch_size: int = field(default=32, metadata={"help": "Examples; default 32."})
    seed: int = field(
        default=42, metadata={"help": "Draws the documents that are held out; the runs themselves have --seeds."}
    )
    logging_strategy: str = field(default="epoch", metadata={"help": "Default epoch."})
    eval_strategy: str = field(default="epoch", metadata={"help": "Default epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "Default epoch."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints beside the best; default 1."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the best evaluation's weights."})
    metric_for_best_model: str | None = field(default="loss", metadata={"help": "Default loss."})
    # Without this a run that is killed would forget how long it has made no progress.
    restore_callback_states_from_checkpoint: bool = field(default=True, metadata={"help": "Default true."})
    label_names: list[str] | None = field(  # said outright, because an adapter hides the model's own
        default_factory=lambda: ["labels"], metadata={"help": "Default labels."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_gpu > 1:
            raise ValueError(
                f"One process with {self.n_gpu} GPUs would tear documents from their questions; start one process a "
                "GPU: torchrun --nproc_per_node N run_finetune.py ..."
            )

    def deciding(self) -> dict[str, Any]:
        """What decides the weights that come out, beside the model and the data."""
        batch = self.train_batch_size * self.gradient_accumulation_steps * self.world_size
        values = {name: getattr(self, name) for name in _DECIDING}
        return {**{name: getattr(value, "value", value) for name, value in values.items()}, "batch_size": batch}
