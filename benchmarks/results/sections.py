"""The sections of docs/results.md: the commands that measure them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.results.tables import (
    Parts,
    Table,
    document_table,
    heads_table,
    kinds_table,
    question_table,
    trained_table,
)


@dataclass(frozen=True)
class Section:
    """A part of the results that is measured by one command.

    Attributes:
        name: name of its JSON file and of its markers in the page.
        command: the command, which writes the file ``{json}``. The words in braces are inputs of
            `benchmarks.results`, or ``{folder}``, which is kept between runs.
        needs: time on one core and memory.
        table: makes the cells of the table from the JSON of this section and of those of `also`
            that were measured, by name; None if another section shows the figures.
        prepare: commands that run before, by the path that each of them makes.
        also: further sections with rows or columns in the table.
        about: number of queries, seeds, and what intervals are drawn over.
    """

    name: str
    command: str
    needs: str
    table: Callable[[Parts], Table] | None = None
    prepare: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[str] = ()
    about: str = ""


_HOLD_OUT = {
    "{folder}/novels/train.jsonl": (
        "python -m benchmarks.studies.hold_out --data {data} --output_dir {folder}/novels"
    )
}
_KINDS = {
    "{folder}/kinds/train/rfcs.jsonl": (
        "python -m benchmarks.studies.kinds_of_text --data {data} --packages {manuals}"
        " --output_dir {folder}/kinds"
    )
}
_MINILM = " checkpoints/nextlevelbert-minilm-256 --encoder {encoder} --cache {folder}/minilm"


def _frozen_heads(articles: str, more: str = "") -> str:
    """Returns the command for a set of articles, with further models and options."""
    return (
        f"python -m benchmarks.studies.frozen_heads --train_file {{data}}/{articles}/train.jsonl.gz"
        f" --test_file {{data}}/{articles}/validation.jsonl.gz --model nextlevelbert/static{more}"
        " --json {json}"
    )


_DOCUMENTS = "python -m benchmarks.studies.document_vectors --data {data}"
_FITTED = {
    **_HOLD_OUT,
    "{folder}/fit/model.safetensors": (
        "nextlevelbert fit {folder}/novels/train.jsonl --output {folder}/fit"
    ),
}
_TABLE = "python -m benchmarks.studies.search_table --packages {packages} --shared {data}/.."
_FILES = " --output_dir {folder}/everyday --json {json}"

_VECTORS = "{folder}/trained/next-level-bert/vectors"
_NOVEL_VECTORS = {
    **_HOLD_OUT,
    f"{_VECTORS}/squality.json": (
        "python -m benchmarks.studies.novel_vectors --data {data} --novels {folder}/novels"
        f" --encoder {{encoder}} --bf16 --folder {_VECTORS}"
    ),
}


def _trained(family: str) -> str:
    """Returns the command that trains and measures the models of a family."""
    return (
        f"python -m benchmarks.studies.trained_rows {family} --data {{data}} --encoder {{encoder}}"
        f" --folder {{folder}}/trained/{family} --json {{json}}"
    )


SECTIONS = (
    Section(
        "everyday-questions",
        command=f"{_TABLE} --encoder minilm{_FILES}",
        needs="15 minutes, 1.5 GiB",
        table=question_table,
        also=["book-questions", "novel-questions", "story-questions"],
        about=(
            "11,940 passages of 3,130 documents, 9,946 of 26 books, 14,987 of 22 novels and 2,061"
            " of 75 stories; intervals over questions."
        ),
    ),
    Section(
        "book-questions",
        command=f"{_TABLE} --encoder minilm{_FILES} --kinds books",
        needs="15 minutes, 2 GiB",
    ),
    Section(
        "novel-questions",
        command=f"{_TABLE} --encoder minilm{_FILES} --kinds novels",
        needs="25 minutes, 2 GiB",
    ),
    Section(
        "story-questions",
        command=f"{_TABLE} --encoder minilm{_FILES} --kinds stories",
        needs="10 minutes, 1 GiB",
    ),
    Section(
        "held-out-novels",
        prepare=_FITTED,
        command=(
            f"{_DOCUMENTS} --novels held_out --model nextlevelbert/static {{folder}}/fit"
            " --tasks books neighbours 'books, six chapters' 'books, with names'"
            " 'books, letters only' --json {json}"
        ),
        needs="8 minutes, 2 GiB",
        table=document_table,
        also=[
            "held-out-novels-minilm",
            "held-out-excerpts",
            "document-vectors",
            "document-vectors-minilm",
        ],
        about=(
            "505 chapters of 18 novels, and eight excerpts of 10,000 characters of 20; 761 chapters"
            " of 22 novels, 168 excerpts and 500 answers; intervals over novels; one seed of the"
            " trained models."
        ),
    ),
    Section(
        "held-out-novels-minilm",
        command=(
            f"{_DOCUMENTS} --novels held_out --tasks 'books, six chapters'"
            " --model nextlevelbert/static checkpoints/nextlevelbert-minilm-256"
            " --chunk_encoder {encoder} --cache {folder}/minilm --json {json}"
        ),
        needs="8 minutes, 2 GiB",
    ),
    Section(
        "held-out-excerpts",
        prepare=_FITTED,
        command=(
            f"{_DOCUMENTS} --novels held_out --model nextlevelbert/static {{folder}}/fit"
            " --tasks excerpts 'excerpts, letters only' 'excerpts, with names' --json {json}"
        ),
        needs="2 minutes, 2 GiB",
    ),
    Section(
        "document-vectors",
        prepare=_FITTED,
        command=(
            f"{_DOCUMENTS} --model nextlevelbert/static {{folder}}/fit --tasks books neighbours"
            " excerpts squality 'books, with names' --json {json}"
        ),
        needs="8 minutes, 2 GiB",
    ),
    Section(
        "document-vectors-minilm",
        command=(
            f"{_DOCUMENTS} --model checkpoints/nextlevelbert-minilm-256"
            " --chunk_encoder {encoder} --cache {folder}/minilm --tasks books neighbours squality"
            " --json {json}"
        ),
        needs="40 minutes, 2 GiB",
    ),
    Section(
        "fit-by-kind",
        prepare=_KINDS,
        command="python -m benchmarks.studies.fit_by_kind --kinds {folder}/kinds --json {json}",
        needs="5 minutes, 2 GiB",
        table=kinds_table,
        about="Four excerpts of each held-out document; intervals over documents.",
    ),
    Section(
        "frozen-heads",
        command=_frozen_heads("hyperpartisan"),
        needs="2 minutes, 2 GiB",
        table=heads_table,
        also=["frozen-heads-news", "frozen-heads-minilm", "frozen-heads-news-minilm"],
        about="514 and 1,647 articles to train with; intervals over the test articles.",
    ),
    Section("frozen-heads-news", command=_frozen_heads("bbc_news"), needs="4 minutes, 2 GiB"),
    Section(
        "frozen-heads-minilm",
        command=_frozen_heads("hyperpartisan", _MINILM),
        needs="8 minutes, 2 GiB",
    ),
    Section(
        "frozen-heads-news-minilm",
        command=_frozen_heads("bbc_news", _MINILM),
        needs="15 minutes, 2 GiB",
    ),
    Section(
        "trained-next-level-bert",
        prepare=_NOVEL_VECTORS,
        command=_trained("next-level-bert"),
        needs="40 minutes and an hour to encode, with instructions for bfloat16; 2 GiB",
        table=trained_table,
        also=[
            "trained-hate",
            "trained-chunkbert",
            "trained-bert-al",
            "trained-cdlm",
            "coreference-rules",
        ],
        about=(
            "Two seeds of NextLevelBERT (lowest to highest in brackets), one of the others;"
            " intervals over novels, stories, articles and topics."
        ),
    ),
    Section("trained-hate", command=_trained("hate"), needs="10 minutes, 2 GiB"),
    Section(
        "trained-chunkbert",
        command=_trained("chunkbert"),
        needs="an hour with instructions for bfloat16; 2 GiB",
    ),
    Section("trained-bert-al", command=_trained("bert-al"), needs="an hour and a half, 2 GiB"),
    Section("trained-cdlm", command=_trained("cdlm"), needs="an hour, 3 GiB"),
    Section(
        "coreference-rules",
        command=(
            "python -m benchmarks.studies.coreference_rules"
            " --file {data}/ecbplus/validation.jsonl.gz --json {json}"
        ),
        needs="1 minute, 0.5 GiB",
    ),
)
