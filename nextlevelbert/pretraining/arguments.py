"""The options of pretraining on chunk vectors, grouped as in its help, except those of the objective."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from transformers import AutoConfig

from ..training.trainer import BaseTrainingArguments
from .sequences import DocumentVectorDataset, PackedVectorDataset, VectorSequenceDataset

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"

ModelType = Literal["nextlevelbert", "hate", "cdlm"]


@dataclass
class ChunkEncoderArguments:
    """The frozen encoder of chunks."""

    _argument_group_name = "chunk encoder"

    chunk_encoder: str | None = field(
        default=None,
        metadata={"help": "The sentence-transformers model that encodes chunks, name or folder; a new NextLevelBERT "
                          "starts from its layers. Also a checkpoint, for the encoder that it holds. Default: that "
                          "of --model, or sentence-transformers/all-MiniLM-L6-v2."},
    )  # fmt: skip
    chunk_encoder_name: str | None = field(
        default=None, metadata={"help": "The encoder's name on the Hub, if --chunk_encoder is a folder."}
    )
    encoder_dtype: Literal["float32", "bfloat16", "float16", "int8"] = field(
        default="float32",
        metadata={"help": "Precision of encoding. bfloat16 is faster on hardware that supports it, int8 on CPUs "
                          "with VNNI (it is calibrated on the first documents). Default float32."},
    )  # fmt: skip
    compile_encoder: bool = field(
        default=False, metadata={"help": "Compile the chunk encoder: a minute to start, then faster encoding."}
    )
    include_chunk_encoder: bool = field(
        default=True,
        metadata={"help": "Save the chunk encoder with the model (default). Otherwise the model loads it by name."},
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "Attention of both encoders: sdpa, eager, or flash_attention_2, which skips padding on a GPU."
        },
    )


@dataclass
class VectorModelArguments(ChunkEncoderArguments):
    """What both models over chunk vectors have."""

    _argument_group_name = "model"
    sequences: ClassVar[type[VectorSequenceDataset]]

    model_type: ModelType = field(default="nextlevelbert", metadata={"help": "The model to pretrain."})
    chunk_size: int | None = field(
        default=None, metadata={"help": "Maximum tokens per chunk, including special tokens; default 256."}
    )
    temperature: float | None = field(
        default=None,
        metadata={"help": "Temperature of cross_entropy, and where the learned temperature of contrastive training "
                          "starts. Default 0.05."},
    )  # fmt: skip
    save_dtype: Literal["float32", "float16", "bfloat16"] = field(
        default="float32", metadata={"help": "Precision of the final weights on disk; they are read as float32."}
    )

    @property
    def encoder_source(self) -> str:
        """Name or folder of the chunk encoder: as given, that within the model to continue from, or MiniLM."""
        model = getattr(self, "model", None)
        if self.chunk_encoder is None and model and AutoConfig.from_pretrained(model).include_chunk_encoder:
            return model
        return self.chunk_encoder or _MINILM

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these options that were given."""
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass
class NextLevelBertArguments(VectorModelArguments):
    """A NextLevelBERT."""

    _argument_group_name = "model"
    sequences: ClassVar[type[VectorSequenceDataset]] = PackedVectorDataset

    model: str | None = field(
        default=None,
        metadata={"help": "A pretrained NextLevelBERT to continue from, instead of the chunk encoder's layers. It "
                          "keeps its chunking and whitening and needs the --chunk_encoder that it was trained with."},
    )  # fmt: skip
    chunking: Literal["fixed", "sentences", "packed_sentences"] | None = field(
        default=None,
        metadata={"help": "What a chunk is: chunk_size tokens (fixed, the default), a sentence (sentences), or as "
                          "many sentences as fit (packed_sentences)."},
    )  # fmt: skip
    loss: Literal["smooth_l1", "l1", "l2", "cosine", "cross_entropy"] | None = field(
        default=None, metadata={"help": "Loss on masked vectors; default smooth_l1."}
    )
    loss_mean: Literal["vectors", "sequences"] | None = field(
        default=None,
        metadata={"help": "The loss is a mean over all masked vectors of a batch (vectors, the default), or over its "
                          "sequences (as in the authors' code)."},
    )  # fmt: skip
    num_hidden_layers: int | None = field(
        default=None,
        metadata={"help": "Layers over the chunk vectors: the first of --chunk_encoder's, by default all; over a "
                          "static one new layers, by default 2. With 0, nothing passes between chunks."},
    )  # fmt: skip
    random_layers: bool = field(
        default=False, metadata={"help": "Start from random layers, not from those of --chunk_encoder."}
    )
    attention_dropout: float = field(
        default=0.0,
        metadata={"help": "Attention dropout of the layers over chunks. The paper's 0.1 makes a step on a CPU more "
                          "than twice as slow; default 0."},
    )  # fmt: skip
    pooling: Literal["mean", "max", "cls", "residual"] | None = field(
        default=None,
        metadata={
            "help": "How the document vector is made; default mean, and over a static --chunk_encoder residual, "
            "which --objective masked does not train."
        },
    )
    neighbours: int | None = field(
        default=None,
        metadata={"help": "In place of layers: chunks on either side that a convolution adds to a chunk vector, "
                          "beside the mean of all. With 0 a linear map. Default: the layers, or 2 for --objective "
                          "passages."},
    )  # fmt: skip
    residual_start: float | None = field(
        default=None,
        metadata={"help": "With --pooling residual: 0 (default) starts at the mean of the chunk vectors, 1 at its sum "
                          "with the mean of the contextual ones."},
    )  # fmt: skip
    whiten_chunks: bool = field(
        default=False,
        metadata={"help": "Centre and whiten chunk vectors within documents, fitted to the training documents."},
    )
    train_chunk_encoder: bool = field(
        default=False,
        metadata={"help": "Train the token vectors of a static --chunk_encoder, too, on text: no vectors are stored, "
                          "and chunk borders are new in every epoch."},
    )  # fmt: skip
    token_dropout: float = field(
        default=0.0,
        metadata={"help": "With --train_chunk_encoder or --objective passages: share of the tokens left out; "
                          "default 0."},
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 0 <= self.token_dropout < 1:
            raise ValueError(f"--token_dropout must be from 0 to below 1, got {self.token_dropout}.")
        if self.residual_start is not None and self.pooling != "residual":
            raise ValueError("--residual_start needs --pooling residual; add it, or leave out --residual_start.")
        new = {
            "--num_hidden_layers": self.num_hidden_layers is not None, "--random_layers": self.random_layers,
            "--attention_dropout": self.attention_dropout > 0, "--neighbours": self.neighbours is not None,
        }  # fmt: skip
        if self.model and (given := [option for option, used in new.items() if used]):
            raise ValueError(f"{' and '.join(given)} are for new models; leave them out, or leave out --model.")
        if self.model and self.whiten_chunks:
            raise ValueError(
                "--whiten_chunks is for new models: a trained one keeps the vectors that it was trained on. Leave out "
                "--whiten_chunks or --model."
            )


@dataclass
class HateArguments(VectorModelArguments):
    """A HATE."""

    _argument_group_name = "model"
    sequences: ClassVar[type[VectorSequenceDataset]] = DocumentVectorDataset
    whiten_chunks: ClassVar[bool] = False

    model_type: ModelType = field(default="hate", metadata={"help": "The model to pretrain."})
    sentence_pooling: Literal["own", "cls", "mean", "max"] = field(
        default="own",
        metadata={"help": "A sentence's vector: as --chunk_encoder makes it (own, the default), or the first of "
                          "its token vectors (cls, the paper's), their mean or their maximum."},
    )  # fmt: skip
    hidden_size: int | None = field(
        default=None,
        metadata={"help": "Size of the document model; one below the chunk encoder's adds a bottleneck."},
    )
    num_hidden_layers: int | None = field(default=None, metadata={"help": "Layers of the document model; default 6."})
    chunking: Literal["sentences", "fixed", "packed_sentences"] | None = field(
        default=None,
        metadata={"help": "What a chunk is: a sentence (sentences, the default), chunk_size tokens (fixed), or as "
                          "many sentences as fit (packed_sentences)."},
    )  # fmt: skip
    loss: Literal["p_norm", "cross_entropy"] | None = field(
        default=None, metadata={"help": "Loss on masked sentences; default p_norm."}
    )
    norm_order: float | None = field(default=None, metadata={"help": "The p of p_norm; default 2."})
    pooling: Literal["mean", "sum", "cls"] | None = field(
        default=None, metadata={"help": "How the document vector is made; default mean."}
    )


@dataclass
class PretrainingArguments(BaseTrainingArguments):
    """`TrainingArguments` with optimiser, schedule and epochs of the paper as defaults (section 3.1).

    AdamW (0.9, 0.999), weight decay 0.01 but none on biases and LayerNorm, peak 1e-4, cosine decay after 5 % warm-up,
    20 epochs. A batch has 8 sequences: small corpora have fewer than the paper's 512; see ``--recipe paper``.
    """

    _argument_group_name = "training"

    do_train: bool = field(default=False, metadata={"help": "Train; without it the documents are only encoded."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate; default 1e-4."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "Default cosine."})
    warmup_steps: float = field(
        default=0.05, metadata={"help": "Number of steps, or a share of them if below 1; default 0.05."}
    )
    num_train_epochs: float = field(default=20.0, metadata={"help": "Default 20."})
    logging_steps: float = field(default=10, metadata={"help": "Default 10."})
    eval_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch (default)."})
    eval_on_start: bool = field(default=True, metadata={"help": "Evaluate before the first step, too (default)."})
    save_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch (default)."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints to keep; default 2."})
