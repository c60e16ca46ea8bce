"""Measures how often a masked chunk vector is found without training: controls for masked models.

    python -m benchmarks.studies.masked_controls --data DATA --folder STUDY

Novels are split into windows of 128 chunks of 256 tokens, and 15 % of the chunk vectors are masked.
Vectors are whitened on training novels and have length 1. A row predicts a masked vector from the
visible ones of its window:

========================  =========================================================================
row                       prediction
========================  =========================================================================
two nearest               mean of the nearest visible vectors before and after
.7 ** distance            all visible vectors, weighed by their distance
least squares             nine numbers: a weight for each distance up to 8, and one for the mean of
                          the window; fitted to masked vectors of the stored novels
========================  =========================================================================

A vector is found if its prediction is nearer to it, by cosine, than to all other candidates: 8,191
stored vectors of training novels, or all masked vectors. 40 training novels are measured like the
validation novels; their vectors are not stored. The last columns are the difference to the two
nearest, 95 % over novels.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common.measuring import (
    add_json_option,
    print_table,
    with_interval,
    write_figures,
)
from benchmarks.common.objectives import TargetSpace
from nextlevelbert import (
    ChunkingRule,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
    static_checkpoint,
)

LENGTH = 128  # chunks of a window
SHARE = 0.15  # of the chunks that are masked
MEASURED = 40  # training novels that are measured, and not stored
STORED = 8_191  # candidates beside the right one
REACH = 8  # distances with a weight of their own
SEVERAL = 512  # rows of a product at once
DISTANCE = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()

Predictor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def windows(
    novels: Sequence[torch.Tensor], seed: int
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """Returns windows: number of the novel, vectors ``[128, D]``, and which are visible."""
    generator = np.random.default_rng(seed)
    made = []
    for number, vectors in enumerate(novels):
        for start in range(0, len(vectors) - LENGTH + 1, LENGTH):
            visible = torch.from_numpy(generator.random(LENGTH) >= SHARE)
            made.append((number, vectors[start : start + LENGTH], visible))
    return made


def two_nearest(vectors: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Averages the nearest visible vectors before and after the masked ones, ``[M, D]``."""
    seen = visible.nonzero()[:, 0]
    masked = (~visible).nonzero()[:, 0]
    after = torch.searchsorted(seen, masked)
    before = seen[(after - 1).clamp(min=0)]
    after = seen[after.clamp(max=len(seen) - 1)]
    return (vectors[before] + vectors[after]) / 2


def by_distance(vectors: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Adds the visible vectors, weighed by .7 to the power of their distance, ``[M, D]``."""
    return (0.7 ** DISTANCE[~visible][:, visible]) @ vectors[visible]


def terms(vectors: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Returns the terms that least squares weighs, ``[M, 9, D]``."""
    distance = DISTANCE[~visible][:, visible]
    seen = vectors[visible]
    sums = [(distance == reach).float() @ seen for reach in range(1, REACH + 1)]
    return torch.stack([*sums, seen.mean(dim=0).expand_as(sums[0])], dim=1)


def least_squares(novels: Sequence[torch.Tensor]) -> Predictor:
    """Fits the nine weights to the masked vectors of novels."""
    products = torch.zeros(REACH + 1, REACH + 1)
    right = torch.zeros(REACH + 1)
    for _, vectors, visible in windows(novels, seed=2):
        parts = terms(vectors, visible)
        products += torch.einsum("mad,mbd->ab", parts, parts)
        right += torch.einsum("mad,md->a", parts, vectors[~visible])
    weights = torch.linalg.solve(products, right)
    return lambda vectors, visible: torch.einsum("mad,a->md", terms(vectors, visible), weights)


def hits(predictions: torch.Tensor, targets: torch.Tensor, others: torch.Tensor) -> np.ndarray:
    """Says which targets ``[M, D]`` are found among others of length 1, ``[M]``.

    Vectors in `others` that are equal to the target do not count.
    """
    predictions = F.normalize(predictions, dim=-1)
    right = []
    for rows in torch.arange(len(targets)).split(SEVERAL):
        scores = predictions[rows] @ others.T
        copies = targets[rows] @ others.T > 1 - 1e-4
        best = scores.masked_fill(copies, -2).amax(dim=1)
        right.append((predictions[rows] * targets[rows]).sum(dim=1) > best)
    return torch.cat(right).numpy()


def measure(
    novels: Sequence[torch.Tensor], predictors: dict[str, Predictor], stored: torch.Tensor
) -> dict[str, dict[str, list[float]]]:
    """Returns the shares of masked vectors that each row finds, and differences to the first row.

    Args:
        novels: whitened vectors of each novel, ``[n, D]``.
        predictors: rows of the table.
        stored: vectors of other novels, ``[N, D]``.
    """
    parts = windows(novels, seed=1)
    targets = torch.cat([vectors[~visible] for _, vectors, visible in parts])
    novel = np.concatenate([np.full(int((~seen).sum()), number) for number, _, seen in parts])
    candidates = {f"{STORED + 1:,}": stored, f"all {len(targets):,}": targets}
    first: dict[str, np.ndarray] = {}
    figures: dict[str, dict[str, list[float]]] = {}
    for row, predict in predictors.items():
        predictions = torch.cat([predict(vectors, visible) for _, vectors, visible in parts])
        figures[row] = {}
        for column, others in candidates.items():
            right = hits(predictions, targets, others).astype(float)
            first.setdefault(column, right)
            figures[row][column] = with_interval(right, novel, seed=0)
            difference = with_interval(right - first[column], novel, seed=0)
            figures[row][f"{column}, minus {next(iter(predictors))}"] = difference
    return figures


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/")
    parser.add_argument("--novels", type=Path, required=True, help="folder of hold_out")
    parser.add_argument("--folder", type=Path, required=True, help="for the vectors of the novels")
    parser.add_argument("--encoder", default=static_checkpoint(), help="default: the static one")
    add_json_option(parser)
    args = parser.parse_args()
    source = load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 256)
    files = {
        "train": args.novels / "train.jsonl",
        "validation": args.data / "novels/validation.jsonl.gz",
    }
    for name, path in files.items():
        encode_corpus(read_documents(path), source, rule, args.folder / name)
    space = TargetSpace(source.encoder.hidden_size)
    space.whiten(document.plain for document in VectorCorpus(args.folder / "train"))
    novels = {}
    for name in files:
        corpus = VectorCorpus(args.folder / name)
        novels[name] = [F.normalize(space(document.plain), dim=-1) for document in corpus]

    measured = novels["train"][:MEASURED]
    rest = novels["train"][MEASURED:]
    vectors = torch.cat(rest)
    drawn = np.random.default_rng(1).choice(len(vectors), size=STORED, replace=False)
    predictors: dict[str, Predictor] = {
        "two nearest": two_nearest,
        ".7 ** distance": by_distance,
        "least squares": least_squares(rest),
    }
    figures: dict[str, dict[str, list[float]]] = {row: {} for row in predictors}
    for name, some in (("validation", novels["validation"]), ("training", measured)):
        for row, cells in measure(some, predictors, vectors[drawn]).items():
            figures[row] |= {f"{name}: {column}": value for column, value in cells.items()}
    write_figures(args.json, figures, novels={name: len(part) for name, part in novels.items()})
    columns = [column for column in figures["two nearest"] if "minus" not in column]
    rows = []
    for row, cells in figures.items():
        shares = [cells[column] for column in columns]
        rows.append([row, *("{:.3f} ({:.3f} to {:.3f})".format(*share) for share in shares)])
    print_table(["", *columns], rows)


if __name__ == "__main__":
    main()
