"""Which documents are encoded, and where their vectors are kept: options of pretraining on chunk vectors."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class CorpusArguments:
    """Which documents, and where their vectors are kept."""

    _argument_group_name = "documents"

    train_file: str | None = field(
        default=None,
        metadata={"help": "A .txt, .md, .html, .jsonl, .json, .csv or .parquet (also .gz), a folder or a quoted "
                          "pattern of these, a folder of save_to_disk, or python-manual."},
    )  # fmt: skip
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, instead of a file."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    dataset_split: str = field(default="train", metadata={"help": "Split of that dataset; default train."})
    text_column: str = field(default="text", metadata={"help": "Column of the documents; default text."})
    id_column: str = field(
        default="id", metadata={"help": "Column of document ids; without it, documents are numbered. Default id."}
    )
    clean_text: bool = field(
        default=False,
        metadata={"help": "Clean texts as the NextLevelBERT authors do: without line ends, addresses, and most "
                          "characters that are neither letters nor punctuation."},
    )  # fmt: skip
    corpus_dir: str | None = field(
        default=None,
        metadata={"help": "Folder of the encoded documents, read or written. Default OUTPUT_DIR-corpus."},
    )
    validation_corpus_dir: str | None = field(
        default=None, metadata={"help": "Encoded documents to evaluate on, instead of held-out ones."}
    )
    validation_share: float = field(
        default=0.05,
        metadata={"help": "Share of the documents that is held out, at least one document; 0 for none. Default 0.05."},
    )
