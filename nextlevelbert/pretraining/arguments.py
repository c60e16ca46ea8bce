"""Every option of `run_pretraining.py` beside those of `TrainingArguments`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..models.modeling_hate import HateForMaskedSentencePrediction
from ..models.modeling_nextlevelbert import NextLevelBertForContrastiveLearning, NextLevelBertForMaskedVectorModeling
from .segment_pairs import DataCollatorForSegmentPairs, Positives
from .sequences import DataCollatorForVectorMasking

MODELS: dict[str, Any] = {
    "nextlevelbert": NextLevelBertForMaskedVectorModeling,
    "hate": HateForMaskedSentencePrediction,
}

CHOICES = {
    "nextlevelbert": {
        "loss": ("smooth_l1", "l1", "l2", "cosine", "cross_entropy"),
        "pooling": ("mean", "max", "cls", "residual"),
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
    model: str | None = field(
        default=None,
        metadata={"help": "A pretrained NextLevelBERT to go on from (a second stage), in place of the chunk encoder's "
                          "layers. It brings its chunking and whitening; --chunk_encoder has to be the one it had."},
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
    chunk_size: int | None = field(
        default=None, metadata={"help": "Most tokens in a chunk, its special tokens counted; 256, or --model's own."}
    )
    loss: str | None = field(
        default=None,
        metadata={"help": "smooth_l1 (default), l1, l2, cosine, cross_entropy; for hate p_norm (default), "
                          "cross_entropy.",
                  "choices": [None, "smooth_l1", "l1", "l2", "cosine", "p_norm", "cross_entropy"]},
    )  # fmt: skip
    temperature: float | None = field(
        default=None, metadata={"help": "Of cross_entropy and, as its start, of the contrastive objective; 0.05."}
    )
    pooling: str | None = field(
        default=None,
        metadata={"help": "What makes the document vector: mean (default) or cls; max or residual, or for hate sum.",
                  "choices": [None, "mean", "max", "sum", "cls", "residual"]},
    )  # fmt: skip
    residual_start: float | None = field(
        default=None,
        metadata={"help": "With --pooling residual: 0 (default) starts at the mean of the chunk vectors, 1 at the "
                          "sum of it and the mean of the contextual ones."},
    )  # fmt: skip
    whiten_chunks: bool = field(
        default=False,
        metadata={"help": "Centre chunk vectors and divide them by their spread within documents, fitted to the "
                          "training documents before training."},
    )  # fmt: skip
    hidden_size: int | None = field(
        default=None,
        metadata={"help": "Of hate's document model; below the sentence vectors' it adds a bottleneck."},
    )
    num_hidden_layers: int | None = field(default=None, metadata={"help": "Of hate's document model; default 6."})

    include_chunk_encoder: bool = field(
        default=True,
        metadata={"help": "Save the frozen chunk encoder with the model. Without it text is encoded by the encoder of "
                          "that name."},
    )  # fmt: skip
    save_dtype: str = field(
        default="float32",
        metadata={"help": "Of the final weights on disk; read back, they are float32 whatever it is.",
                  "choices": ["float32", "float16", "bfloat16"]},
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.model_type != "hate" and (self.hidden_size, self.num_hidden_layers) != (None, None):
            raise ValueError(
                "--hidden_size and --num_hidden_layers are for --model_type hate; a NextLevelBERT has the layers of "
                "its chunk encoder."
            )
        if self.model_type != "nextlevelbert" and (
            self.model or self.whiten_chunks or self.residual_start is not None
        ):
            raise ValueError("--model, --whiten_chunks and --residual_start are for --model_type nextlevelbert.")
        if self.residual_start is not None and self.pooling != "residual":
            raise ValueError("--residual_start is for --pooling residual; add that, or leave it off.")
        if self.model and self.whiten_chunks:
            raise ValueError(
                "--whiten_chunks is for new models: one that was trained keeps the vectors it was trained on. "
                "Leave it off, or leave --model off."
            )
        for name, allowed in CHOICES[self.model_type].items():
            if (value := getattr(self, name)) is not None and value not in allowed:
                raise ValueError(
                    f"--{name} {value} is not for --model_type {self.model_type}; choose from {', '.join(allowed)}."
                )
        if self.model:
            return  # chunks are cut as the checkpoint was trained
        if self.chunk_size is None:
            self.chunk_size = 256
        if self.chunking is None:
            self.chunking = "sentences" if self.model_type == "hate" else "fixed"

    def fields(self) -> dict[str, Any]:
        """What of these goes to `from_chunk_encoder`, where it was given."""
        names = ("loss", "temperature", "pooling", "residual_start", "hidden_size", "num_hidden_layers")
        values = {name: getattr(self, name) for name in names} | {"whiten_chunks": self.whiten_chunks or None}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class ObjectiveArguments:
    """What is learned."""

    objective: str = field(
        default="masked",
        metadata={"help": "masked: predict masked chunk vectors. contrastive: tell two segments of a document from "
                          "those of others. both: their sum, on segments with masks.",
                  "choices": ["masked", "contrastive", "both"]},
    )  # fmt: skip
    positives: Positives = field(
        default="document",
        metadata={"help": "Contrastive pairs are two segments from anywhere in a document, or neighbours (segments "
                          "further off are then negatives).",
                  "choices": ["document", "neighbours"]},
    )  # fmt: skip
    pairs_per_document: int = field(
        default=1, metadata={"help": "Pairs of an item of the batch; several give negatives of the same document."}
    )
    min_segment: int = field(default=4, metadata={"help": "Fewest chunks of a segment."})
    max_segment: int = field(
        default=48, metadata={"help": "Most chunks of a segment; each batch draws a length in between, log-uniform."}
    )

    def model_class(self, model_type: str) -> Any:
        """The class that learns this.

        Raises:
            ValueError: for an objective that the model does not have.
        """
        if self.objective == "masked":
            return MODELS[model_type]
        if model_type != "nextlevelbert":
            raise ValueError(f"--objective {self.objective} is for --model_type nextlevelbert, got {model_type}.")
        return NextLevelBertForContrastiveLearning

    def segments(self) -> dict[str, Any]:
        """Arguments of `SegmentPairDataset`."""
        names = ("min_segment", "max_segment", "positives", "pairs_per_document")
        return {name: getattr(self, name) for name in names}

    def collator(self, masking: DataCollatorForVectorMasking) -> DataCollatorForSegmentPairs:
        """What makes batches of segments; masked for ``both``."""
        used = masking if self.objective == "both" else None
        return DataCollatorForSegmentPairs(self.min_segment, self.max_segment, self.positives, used)

    def facts(self, masked: str, items: int) -> dict[str, Any]:
        """What the card tells of a contrastive objective."""
        kind = "neighbouring segments" if self.positives == "neighbours" else "segments of one document"
        return {
            "objective": f"contrastive, {kind}" + (f", and {masked}" if self.objective == "both" else ""),
            "segments": f"{items} x {self.pairs_per_document} pairs an epoch, of {self.min_segment} to "
                        f"{self.max_segment} chunks",
        }  # fmt: skip


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
