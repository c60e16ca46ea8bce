"""The options of the task ``summarization``, for each kind of model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...finetuning.arguments import NotUploaded, OwnLossArguments, TaskOptions
from ...finetuning.text_models import BertAlOptions, TextModelOptions


@dataclass(kw_only=True)
class SummarizationDataOptions(TaskOptions):
    """Documents with reference summaries."""

    _argument_group_name = "data"

    text_column: str = field(default="text", metadata={"help": "Column of the documents; default text."})
    summary_column: str = field(
        default="summary", metadata={"help": "Column of the reference summaries, texts or lists; default summary."}
    )
    label_column: str | None = field(
        default=None,
        metadata={"help": "Column of lists of 0 and 1, one for each sentence. By default, the column label if it "
                          "holds lists; otherwise, labels from a greedy search by ROUGE."},
    )  # fmt: skip
    id_column: str = field(default="id", metadata={"help": "Column of row ids; default id."})
    cache_dir: str | None = field(
        default=None,
        metadata={"help": "Folder of the labels found by search, which several runs can share; default "
                          "OUTPUT_DIR-oracle."},
    )  # fmt: skip


@dataclass(kw_only=True)
class SummaryOptions(TextModelOptions, SummarizationDataOptions):
    """What every model has that learns to summarise."""

    _argument_group_name = "summaries"
    arguments = OwnLossArguments
    whole_model_rate = 2e-5

    summary_sentences: int = field(default=3, metadata={"help": "Sentences per summary; default 3."})
    trigram_blocking: bool = field(
        default=False, metadata={"help": "Skip sentences that share a trigram with a better one."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.summary_sentences < 1:
            raise ValueError(f"--summary_sentences must be 1 or more, got {self.summary_sentences}.")


@dataclass(kw_only=True)
class SummarizerOptions(BertAlOptions, SummaryOptions):
    """Every option of a BERT-AL beside those of training."""

    model_type: Literal["bert-al"] = field(default="bert-al", metadata={"help": "bert-al, truncated or extended."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora and self.segment_length is not None:
            raise ValueError(
                "--lora keeps the segment length of the BERT-AL that it adapts; leave out --segment_length."
            )


@dataclass
class SummaryBaselineArguments(NotUploaded, OwnLossArguments):
    """Training arguments of the baselines."""


@dataclass(kw_only=True)
class SummaryBaselineOptions(SummaryOptions):
    """Every option of the baselines, which read a document at once, beside those of training."""

    _argument_group_name = "model"
    arguments = SummaryBaselineArguments

    model_type: Literal["truncated", "extended"] = field(
        metadata={"help": "truncated reads only the first segment; extended has a longer position table, which is "
                          "random after the first segment."}
    )  # fmt: skip
    segment_length: int | None = field(default=None, metadata={"help": "Tokens in the first segment; default 128."})


@dataclass(kw_only=True)
class SentenceVectorOptions(SummaryOptions):
    """Every option of frozen sentence vectors beside those of training."""

    _argument_group_name = "model"
    arguments = SummaryBaselineArguments
    whole_model_rate = 1e-3  # only a head is trained

    model: str = field(
        metadata={"help": "Any encoder that sentence-transformers opens, folder or name on the Hub; it gives a vector "
                          "for each sentence and stays frozen."}
    )  # fmt: skip
    model_type: Literal["sentence-vectors"] = field(
        metadata={"help": "sentence-vectors: every sentence is read alone, and a linear head scores its vector."}
    )
    attn_implementation: str | None = field(init=False, default=None)


Options = SummarizerOptions | SummaryBaselineOptions | SentenceVectorOptions
