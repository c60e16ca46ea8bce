"""Every option of `run_pretraining.py` beside those of `TrainingArguments`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .modeling_hate import HateForMaskedSentencePrediction
from .modeling_nextlevelbert import NextLevelBertForMaskedVectorModeling

MODELS: dict[str, Any] = {
    "nextlevelbert": NextLevelBertForMaskedVectorModeling,
    "hate": HateForMaskedSentencePrediction,
}

CHOICES = {
    "nextlevelbert": {
        "loss": ("smooth_l1", "l1", "l2", "cosine", "cross_entropy"),
        "pooling": ("mean", "max", "cls"),
    },
    "hate": {"loss": ("p_norm", "cross_entropy"), "pooling": ("mean", "sum", "cls")},
}


@dataclass
class ModelArguments:
    """Which model."""

    model_type: str = field(
        default="nextlevelbert",
        metadata={"help": "nextlevelbert, or hate: sentences, sinusoidal positions and a document model of its own.",
                  "choices": ["nextlevelbert", "hate"]},
    )  # fmt: skip
    chunk_encoder: str = field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        metadata={
            "help": "Name or folder of the sentence-transformers model that encodes chunks and gives the start."
        },
    )
    chunk_encoder_name: str | None = field(
        default=None, metadata={"help": "The encoder's name on the Hub, where --chunk_encoder is a folder."}
    )
    encoder_dtype: str = field(
        default="float32",
        metadata={"help": "Of the chunk encoder while encoding. bfloat16 is faster where the hardware has it, int8 on "
                          "CPUs with VNNI (it is calibrated on the first documents).",
                  "choices": ["float32", "bfloat16", "float16", "int8"]},
    )  # fmt: skip
    attn_implementation: str | None = field(
        default=None,
        metadata={"help": "Of both encoders: sdpa, eager, or flash_attention_2, which leaves padding out on a GPU."},
    )
    compile_encoder: bool = field(
        default=False, metadata={"help": "Compile the chunk encoder for encoding: a minute to start, then faster."}
    )
    chunking: str | None = field(
        default=None,
        metadata={"help": "fixed: chunk_size tokens each; sentences: one a chunk; packed_sentences: several a chunk. "
                          "Default: fixed, for hate sentences.",
                  "choices": [None, "fixed", "sentences", "packed_sentences"]},
    )  # fmt: skip
    chunk_size: int = field(default=256, metadata={"help": "Most tokens in a chunk, its special tokens counted."})
    loss: str | None = field(
        default=None,
        metadata={"help": "smooth_l1 (default), l1, l2, cosine, cross_entropy; for hate p_norm (default), "
                          "cross_entropy.",
                  "choices": [None, "smooth_l1", "l1", "l2", "cosine", "p_norm", "cross_entropy"]},
    )  # fmt: skip
    temperature: float = field(default=0.05, metadata={"help": "Of the cross_entropy loss."})
    pooling: str | None = field(
        default=None,
        metadata={"help": "What makes the document vector: mean (default) or cls; max, or for hate sum.",
                  "choices": [None, "mean", "max", "sum", "cls"]},
    )  # fmt: skip
    hidden_size: int | None = field(
        default=None,
        metadata={"help": "Of hate's document model; below the sentence vectors' it adds a bottleneck."},
    )
    num_hidden_layers: int | None = field(default=None, metadata={"help": "Of hate's document model; default 6."})

    def __post_init__(self) -> None:
        if self.model_type != "hate" and (self.hidden_size, self.num_hidden_layers) != (None, None):
            raise ValueError(
                "--hidden_size and --num_hidden_layers are for --model_type hate; a NextLevelBERT has the layers of "
                "its chunk encoder."
            )
        for name, allowed in CHOICES[self.model_type].items():
            if (value := getattr(self, name)) is not None and value not in allowed:
                raise ValueError(
                    f"--{name} {value} is not for --model_type {self.model_type}; choose from {', '.join(allowed)}."
                )
        if self.chunking is None:
            self.chunking = "sentences" if self.model_type == "hate" else "fixed"

    def fields(self) -> dict[str, Any]:
        """What of these goes to `from_chunk_encoder`, where it was given."""
        values = {name: getattr(self, name) for name in ("loss", "pooling", "hidden_size", "num_hidden_layers")}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class DataArguments:
    """Which documents, and how they are masked."""

    train_file: str | None = field(
        default=None,
        metadata={"help": "A .txt, a folder of .txt, a .jsonl, a .parquet (also .gz), or python-manual."},
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, in place of a file."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    dataset_split: str = field(default="train", metadata={"help": "Its split."})
    text_column: str = field(default="text", metadata={"help": "The column that holds the document."})
    id_column: str = field(default="id", metadata={"help": "The column that names it; numbered where there is none."})
    corpus_dir: str | None = field(
        default=None,
        metadata={"help": "The encoded corpus: read if finished, else written. Default: OUTPUT_DIR-corpus."},
    )
    characters_per_shard: int = field(
        default=4_000_000, metadata={"help": "Of the corpus: smaller ones let more processes share few documents."}
    )
    cache_dir: str | None = field(
        default=None,
        metadata={"help": "A folder of chunk vectors on a local disk: text seen before is not encoded again."},
    )
    validation_corpus_dir: str | None = field(
        default=None, metadata={"help": "An encoded corpus to evaluate on, in place of a share of the documents."}
    )
    validation_share: float = field(
        default=0.05, metadata={"help": "Share of the documents held out for evaluation (at least one); 0 for none."}
    )
    sequence_length: int = field(default=512, metadata={"help": "Positions in a packed sequence."})
    masking_probability: float = field(default=0.15, metadata={"help": "Share of the chunk vectors to predict."})
    mask_share: float = field(default=0.8, metadata={"help": "Of those, the share that becomes [MASK]."})
    random_share: float = field(default=0.1, metadata={"help": "Of those, the share that becomes another vector."})
