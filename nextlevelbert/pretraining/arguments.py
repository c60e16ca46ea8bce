"""The options of pretraining on chunk vectors, plain dataclasses side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..training.trainer import BaseTrainingArguments


def option(default: Any, text: str) -> Any:
    """A field with its line in the help, which adds the default."""
    return field(default=default, metadata={"help": text})


@dataclass
class VectorModelArguments:
    """What every model over chunk vectors has; what is left out has the value of the model's
    configuration."""

    _argument_group_name = "model"

    model_type: Literal["nextlevelbert", "hate", "cdlm"] = option(
        "nextlevelbert", "What is pretrained; a cdlm has other options than these."
    )
    chunk_encoder: str | None = option(
        None,
        "The sentence-transformers model that encodes chunks, name or folder, or a checkpoint that"
        " holds one; without it, that of --model, or sentence-transformers/all-MiniLM-L6-v2.",
    )
    chunk_encoder_name: str | None = option(
        None, "The encoder's name on the Hub, if --chunk_encoder is a folder."
    )
    encoder_dtype: Literal["float32", "bfloat16", "float16"] = option(
        "float32", "Precision of encoding."
    )
    include_chunk_encoder: bool = option(
        True, "Save the chunk encoder, too; without it, the model loads it by name."
    )
    chunking: Literal["fixed", "sentences", "packed_sentences"] | None = option(
        None,
        "A chunk is chunk_size tokens (fixed), a sentence, or as many sentences as fit"
        " (packed_sentences).",
    )
    chunk_size: int | None = option(
        None, "Maximum tokens in a chunk, special ones included; by default 256."
    )
    num_hidden_layers: int | None = option(
        None,
        "Layers over the chunk vectors; usually all of --chunk_encoder's, 2 over a static one, 6 in"
        " HATE.",
    )
    temperature: float | None = option(
        None,
        "Temperature of cross_entropy, and initial temperature of contrastive training (default:"
        " 0.05).",
    )


@dataclass
class NextLevelBertArguments:
    """What only a NextLevelBERT has."""

    _argument_group_name = "NextLevelBERT"

    model: str | None = option(
        None,
        "A pretrained NextLevelBERT to continue from, with its chunking and whitening, in place of"
        " a new one.",
    )
    pooling: Literal["mean", "max", "cls", "residual"] | None = option(
        None,
        "How the document vector is made; usually the mean, and residual over a static"
        " --chunk_encoder.",
    )
    loss: Literal["smooth_l1", "l1", "l2", "cosine", "cross_entropy"] | None = option(
        None, "Usually smooth_l1."
    )
    random_layers: bool = option(
        False, "Start from random layers, not from those of --chunk_encoder."
    )
    attention_dropout: float = option(
        0.0,
        "Dropout on the attention of the chunk-level layers. The paper uses 0.1, which halves the"
        " speed on a CPU.",
    )
    whiten_chunks: bool = option(
        False, "Whiten chunk vectors within documents, fitted to the training documents."
    )
    loss_mean: Literal["vectors", "sequences"] | None = option(
        None,
        "The loss is a mean over all masked vectors of a batch (usual), or over its sequences (the"
        " authors').",
    )
    objective: Literal["masked", "contrastive"] = option(
        "masked",
        "Predict masked chunk vectors, or tell two segments of one document from those of others.",
    )
    min_segment: int = option(4, "Fewest chunks in a segment of contrastive training.")
    max_segment: int = option(
        48, "Most chunks in a segment; each batch draws a log-uniform length."
    )


@dataclass
class HateArguments:
    """What only a HATE has."""

    _argument_group_name = "HATE"

    sentence_pooling: Literal["own", "cls", "mean", "max"] = option(
        "own",
        "A sentence's vector: as --chunk_encoder makes it (own), or that of its first token (cls,"
        " the paper's).",
    )
    hidden_size: int | None = option(
        None,
        "Size of the document model, without it that of the chunk encoder; a smaller one adds a"
        " bottleneck.",
    )
    pooling: Literal["mean", "sum", "cls"] | None = option(
        None, "How the document vector is made, usually the mean."
    )
    loss: Literal["p_norm", "cross_entropy"] | None = option(
        None, "Loss on masked sentences, usually p_norm."
    )
    norm_order: float | None = option(None, "The p of p_norm, usually 2.")


@dataclass
class MaskingArguments:
    """How sequences are made and masked."""

    _argument_group_name = "masked vectors"

    sequence_length: int = option(512, "Positions in a training sequence.")
    masking_probability: float = option(0.15, "Share of the chunk vectors to predict.")
    mask_share: float = option(0.8, "Share of those that become [MASK].")
    random_share: float = option(0.1, "Share of those that become another vector.")


@dataclass
class CorpusArguments:
    """Which documents, and where their vectors are kept."""

    _argument_group_name = "documents"

    train_file: str | None = option(
        None,
        "A .txt, .md, .html, .jsonl, .json, .csv or .parquet (also .gz), a folder or a quoted"
        " pattern of these, a folder of save_to_disk, or python-manual (Python's own).",
    )
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of a file.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    dataset_split: str = option("train", "Split of that dataset.")
    text_column: str = option("text", "Column of the documents.")
    id_column: str = option("id", "Column of their ids; without it, documents are numbered.")
    corpus_dir: str | None = option(
        None, "Folder of the encoded documents; without it, OUTPUT_DIR-corpus."
    )
    characters_per_part: int = option(
        4_000_000, "Size of a corpus part; smaller ones suit more processes."
    )
    validation_file: str | None = option(
        None,
        "Documents to evaluate on, as --train_file; without it, some of those are held out. Their"
        " vectors are kept in CORPUS_DIR-validation.",
    )
    validation_share: float = option(
        0.05,
        "Share of the documents to hold out without --validation_file, at least one; 0 for none.",
    )


@dataclass
class PretrainingArguments(BaseTrainingArguments):
    """`TrainingArguments` with optimiser, schedule and epochs of the paper as defaults (section
    3.1).

    AdamW (0.9, 0.999), weight decay 0.01 but none on biases and LayerNorm, peak 1e-4, cosine decay
    after 5 % warm-up, 20 epochs. A batch has 8 sequences: small corpora have fewer than the paper's
    512; see ``--recipe paper``.
    """

    do_train: bool = option(
        False, "Train; without it documents are only encoded, and a CDLM is only evaluated."
    )
    learning_rate: float = option(1e-4, "Peak learning rate.")
    lr_scheduler_type: str = option("cosine", "Schedule of the learning rate.")
    warmup_steps: float = option(0.05, "Number of steps, or a share of them if below 1.")
    num_train_epochs: float = option(20.0, "Epochs.")
    logging_steps: float = option(10, "Steps between losses in the log.")
    eval_strategy: str = option("epoch", "no, steps or epoch.")
    eval_on_start: bool = option(True, "Evaluate before the first step, too.")
    save_strategy: str = option("epoch", "no, steps or epoch.")
    save_total_limit: int | None = option(2, "Checkpoints to keep.")
