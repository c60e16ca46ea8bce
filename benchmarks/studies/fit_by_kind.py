"""Compares ``nextlevelbert fit`` with the installed model and with word counts, by kind of text.

    python -m benchmarks.studies.fit_by_kind --kinds KINDS

``KINDS`` is the folder that `kinds_of_text` makes. A model is fitted to the training documents of
each kind. Four excerpts of each held-out document are queries for one another; an excerpt is a
sixth of its document, of at most 4,000 characters. Differences have intervals of 95 % over
documents.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.measuring import add_json_option, write_figures
from benchmarks.studies.document_vectors import DocumentVectors, same_novel_task, score_task
from nextlevelbert import NextLevelBertModel, read_documents, static_checkpoint
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.search import fit

PARTS = 4  # excerpts of a document
LONGEST = 4_000  # characters of an excerpt
ROWS = ("fit", "static", "TF-IDF", "BM25")


def excerpts_task(path: Path) -> RetrievalTask:
    """Makes the task of a kind of text; documents are known by their numbers."""
    texts = {}
    for index, document in enumerate(read_documents(path)):
        length = min(len(document.text) // 6, LONGEST)
        for part in range(PARTS):
            start = part * len(document.text) // (PARTS + 1)
            texts[f"{index}#{part}"] = document.text[start : start + length]
    return same_novel_task(path.stem, texts)


def figures_of_kind(train: Path, held_out: Path, static: DocumentVectors) -> dict[str, Any]:
    """Scores a model that is fitted to one file on another, beside its controls."""
    task = excerpts_task(held_out)
    with tempfile.TemporaryDirectory() as folder:
        fit.run(str(train), Path(folder, "fit"))
        fitted = NextLevelBertModel.from_pretrained(f"{folder}/fit").eval()
        scores = score_task(task, [DocumentVectors("fit", fitted), static])
    figures: dict[str, Any] = {"n": len(task.queries)}
    for row in ROWS:
        figures[row] = scores[row][task.name]
        figures[f"{row}, minus fit"] = scores[row][f"{task.name}, minus the first"]
    return figures


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=Path, required=True, help="folder of kinds_of_text")
    add_json_option(parser)
    args = parser.parse_args()

    static = DocumentVectors(
        "static", NextLevelBertModel.from_pretrained(static_checkpoint()).eval()
    )
    kinds = {}
    for held_out in sorted((args.kinds / "held_out").glob("*.jsonl")):
        train = args.kinds / "train" / held_out.name
        kinds[held_out.stem] = figures_of_kind(train, held_out, static)
    write_figures(args.json, kinds)


if __name__ == "__main__":
    main()
