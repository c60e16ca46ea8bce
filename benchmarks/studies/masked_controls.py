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

from benchmarks.common.controls import (
    MaskedBatch,
    hits,
    least_squares,
    neighbour_means,
    neighbour_terms,
    weighed_neighbours,
)
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
from nextlevelbert.models.configuration_nextlevelbert import NOT_SPECIAL

LENGTH = 128  # chunks of a window
SHARE = 0.15  # of the chunks that are masked
MEASURED = 40  # training novels that are measured, and not stored
STORED = 8_191  # candidates beside the right one

Predictor = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def windows(novels: Sequence[torch.Tensor], seed: int) -> list[tuple[int, MaskedBatch]]:
    """Returns the number of the novel and the masked vectors of each window."""
    generator = np.random.default_rng(seed)
    special_ids = torch.full((1, LENGTH), NOT_SPECIAL)
    made = []
    for number, vectors in enumerate(novels):
        for start in range(0, len(vectors) - LENGTH + 1, LENGTH):
            masked = torch.from_numpy(generator.random((1, LENGTH)) < SHARE)
            made.append((number, (vectors[None, start : start + LENGTH], special_ids, masked)))
    return made


def by_least_squares(novels: Sequence[torch.Tensor]) -> Predictor:
    """Fits the nine weights to masked vectors of novels."""
    weights = least_squares(batch for _, batch in windows(novels, seed=2))

    def predict(
        vectors: torch.Tensor, special_ids: torch.Tensor, mask_positions: torch.Tensor
    ) -> torch.Tensor:
        terms = neighbour_terms(vectors, special_ids, mask_positions)
        return torch.einsum("mad,a->md", terms, weights)

    return predict


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
    targets = torch.cat([vectors[masked] for _, (vectors, _, masked) in parts])
    novel = np.concatenate([np.full(int(masked.sum()), number) for number, (_, _, masked) in parts])
    candidates = {f"{STORED + 1:,}": stored, f"all {len(targets):,}": targets}
    first: dict[str, np.ndarray] = {}
    figures: dict[str, dict[str, list[float]]] = {}
    for row, predict in predictors.items():
        predictions = torch.cat([predict(*batch) for _, batch in parts])
        figures[row] = {}
        for column, others in candidates.items():
            right = hits(predictions, targets, others).double().numpy()
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
        "two nearest": neighbour_means,
        ".7 ** distance": weighed_neighbours,
        "least squares": by_least_squares(rest),
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
