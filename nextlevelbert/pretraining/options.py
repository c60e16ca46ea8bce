"""The options of pretraining on chunk vectors: a dataclass for each group.

The help of the command reads them, so this file imports neither torch nor transformers.
"""

from dataclasses import dataclass, field

from ..training.options import TrainingOptions, option


@dataclass
class NewModelArguments:
    """Describes the model over chunk vectors, of any family.

    Options that are left out get the values of the model's configuration.
    """

    _argument_group_name = "model"

    model_type: str = option(
        "nextlevelbert", "Model family to pretrain.", choices=["nextlevelbert", "hate"]
    )
    chunk_encoder: str | None = option(
        None,
        "Name or folder of the sentence-transformers model that encodes chunks, or of a"
        " checkpoint that contains a chunk encoder. Default: the encoder of --model, or minilm"
        " (all-MiniLM-L6-v2). The installed checkpoint is nextlevelbert-static.",
    )
    chunk_encoder_name: str | None = option(
        None, "Name of the encoder on the Hub, if --chunk_encoder is a folder."
    )
    encoder_dtype: str = option(
        "float32",
        "Precision in which chunks are encoded.",
        choices=["float32", "bfloat16", "float16"],
    )
    include_chunk_encoder: bool = option(
        default=True,
        help="Save the chunk encoder with the model; otherwise the model loads it by its name.",
    )
    chunking: str | None = option(
        None,
        "A chunk is --chunk_size tokens (fixed, the default), one sentence (sentences), or as"
        " many whole sentences as fit into --chunk_size tokens (packed_sentences).",
        choices=["fixed", "sentences", "packed_sentences"],
    )
    chunk_size: int | None = option(
        None, "Maximum tokens in a chunk, including special tokens (default: 256)."
    )
    num_hidden_layers: int | None = option(
        None,
        "Number of layers over the chunk vectors. Default: as many as --chunk_encoder has, 2"
        " over a static --chunk_encoder, 6 in HATE.",
    )
    temperature: float | None = option(
        None,
        "Temperature of the loss cross_entropy, and initial temperature of contrastive training"
        " (default: 0.05).",
    )


@dataclass
class NextLevelBertArguments:
    """Describes a NextLevelBERT and its objective."""

    _argument_group_name = "NextLevelBERT"

    model: str | None = option(
        None,
        "Pretrained NextLevelBERT to continue from, with its chunking and whitening. Default: a"
        " new model.",
    )
    pooling: str | None = option(
        None,
        "How the document vector is made. Default: mean, or residual over a static"
        " --chunk_encoder.",
        choices=["mean", "max", "cls", "residual"],
    )
    loss: str | None = option(
        None,
        "Loss on masked chunk vectors. With cross_entropy, the model learns to choose the"
        " whitened vector among the chunks of the batch and 8,192 stored ones; smooth_l1 is the"
        " paper's loss, averaged within each sequence first as in the authors' code. Default:"
        " cross_entropy, or the loss of --model.",
        choices=["smooth_l1", "cross_entropy"],
    )
    attention_dropout: float = option(
        0.0,
        "Dropout on the attention of the chunk-level layers. The paper uses 0.1, which halves"
        " the speed on a CPU.",
    )
    whiten_chunks: bool = option(
        default=False,
        help="Whiten chunk vectors within documents, fitted to the training documents.",
    )
    objective: str = option(
        "masked",
        "Predict masked chunk vectors, or match two segments of the same document among those"
        " of other documents.",
        choices=["masked", "contrastive"],
    )
    min_segment: int = option(4, "Fewest chunks in a segment of contrastive training.")
    max_segment: int = option(
        48, "Most chunks in a segment. The length is drawn anew for each batch."
    )


@dataclass
class HateArguments:
    """Describes a HATE and its objective."""

    _argument_group_name = "HATE"

    model: None = field(init=False, default=None)  # every training starts anew
    # HATE is defined by [CLS]; an encoder without modules.json opens only if its pooling is named.
    sentence_pooling: str = option(
        "own",
        "Vector of a sentence: pooled as --chunk_encoder does it (own), the vector of the first"
        " token (cls, as in the paper), or the mean or maximum over the tokens.",
        choices=["own", "cls", "mean", "max"],
    )
    hidden_size: int | None = option(
        None,
        "Size of the document model and of its vectors; a size below the chunk encoder's adds a"
        " bottleneck (default: the chunk encoder's size).",
    )
    pooling: str | None = option(
        None,
        "How the document vector is made (default: mean).",
        choices=["mean", "sum", "cls"],
    )
    loss: str | None = option(
        None,
        "Loss on masked sentences (default: p_norm).",
        choices=["p_norm", "cross_entropy"],
    )


@dataclass
class MaskingArguments:
    """Sets the length of sequences and the masking."""

    _argument_group_name = "masked vectors"

    sequence_length: int = option(512, "Positions in a training sequence.")
    masking_probability: float = option(0.15, "Share of the chunk vectors to predict.")


@dataclass
class DocumentArguments:
    """Names the documents to train on and to evaluate on."""

    _argument_group_name = "documents"

    train_file: str | None = option(
        None,
        "Documents to train on: a file (text, Markdown, HTML, EPUB, PDF or DOCX; or a table: JSON"
        " Lines, JSON, CSV, TSV or Parquet; all but Parquet also as .gz), a folder or a quoted"
        " pattern of such files, a folder that save_to_disk has written,"
        " python-manual for the manual that comes with Python, or example-books for the first pages"
        " of six novels.",
    )
    dataset_name: str | None = option(None, "Data set on the Hub, instead of --train_file.")
    dataset_config_name: str | None = option(None, "Configuration of the data set on the Hub.")
    dataset_split: str = option("train", "Split of the data set on the Hub.")
    validation_file: str | None = option(
        None,
        "Documents to evaluate on, in the formats of --train_file; their vectors are stored in"
        " CORPUS_DIR-validation (default: a share of the training documents is held out).",
    )
    text_column: str = option("text", "Column of the texts in tables.")
    id_column: str = option(
        "id", "Column of the ids in tables; documents without an id are numbered."
    )


@dataclass
class CorpusArguments:
    """Names the folder of the vectors, and says which documents to hold out."""

    _argument_group_name = "corpus"

    corpus_dir: str | None = option(
        None,
        "Folder, or address such as s3://bucket/corpus, to store the chunk vectors in, or to read"
        " them from (default: OUTPUT_DIR-corpus).",
    )
    characters_per_part: int = option(
        4_000_000,
        "Characters in a part of the corpus, which one process writes; give fewer if there are"
        " many processes.",
    )
    validation_share: float = option(
        0.05,
        "Share of the documents to hold out, at least one document, if there is no"
        " --validation_file; 0 holds out none.",
    )


@dataclass
class PretrainingOptions(TrainingOptions):
    """Sets the paper's optimiser, schedule and epochs as defaults (section 3.1).

    AdamW (0.9, 0.999), weight decay 0.01 but none on biases and LayerNorm, peak 1e-4, cosine decay
    after 5 % warm-up, 20 epochs. A batch has 8 sequences: small corpora have fewer than the paper's
    512; see ``--recipe paper``.
    """

    do_train: bool = option(
        default=False,
        help="Train; without it documents are only encoded.",
    )
    learning_rate: float = option(1e-4, "Peak learning rate.")
    lr_scheduler_type: str = option("cosine", "Schedule of the learning rate.")
    warmup_steps: float = option(
        0.05, "Number of warm-up steps, or a share of all steps if below 1."
    )
    num_train_epochs: float = option(20.0, "Number of epochs.")
    logging_steps: float = option(10, "Number of steps between losses in the log.")
    eval_strategy: str = option("epoch", "When to evaluate: no, steps or epoch.")
    eval_on_start: bool = option(default=True, help="Also evaluate before the first step.")
    save_strategy: str = option("epoch", "When to save a checkpoint: no, steps or epoch.")
    save_total_limit: int | None = option(2, "Checkpoints to keep.")


FAMILIES = {"nextlevelbert": NextLevelBertArguments, "hate": HateArguments}
# The groups of options of each --model_type; that of the training is the last.
GROUPS: dict[str, tuple[type, ...]] = {
    name: (
        NewModelArguments,
        family,
        MaskingArguments,
        DocumentArguments,
        CorpusArguments,
        PretrainingOptions,
    )
    for name, family in FAMILIES.items()
}
