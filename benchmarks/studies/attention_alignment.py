"""Does global attention of a pretrained CDLM find coreferent mentions, without fine-tuning (section 3.5, table 6)?

Pairs of mentions in two documents of ECB+: coreferent ones, and others of the same topic. The tokens of one mention,
the source, get global attention; the score of a token is the last layer's attention between it and them, in both
directions, summed over heads. The mean percentile rank (MPR) says where the other mention, the target, stands among
the tokens of its document; 50 % is chance. The control is a source of random tokens of the same document: it shows how
far a mention stands out by itself.

    python -m benchmarks.studies.attention_alignment --model cdlm local-cdlm --file validation.jsonl.gz \\
        --output mpr.json
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common.measuring import print_header, print_table, with_interval
from nextlevelbert import CdlmModel, CdlmProcessor
from nextlevelbert.models.processing_cdlm import Piece
from nextlevelbert.tasks.coreference.data import CoreferenceData, read_ecbplus


class Pair(NamedTuple):
    """Two mentions: texts of their documents (the source's first), characters, topic, and whether they corefer."""

    texts: tuple[str, str]
    source: tuple[int, int]
    target: tuple[int, int]
    topic: int
    positive: bool


def draw_pairs(data: CoreferenceData, count: int, seed: int) -> list[Pair]:
    """As many coreferent pairs as others, each in two documents of one topic; fewer where there are no more."""
    rng = np.random.default_rng(seed)
    found: dict[bool, list[Pair]] = {True: [], False: []}
    for one, other in itertools.combinations(data.documents, 2):
        if one.topic != other.topic:
            continue
        for first, second in itertools.product(one.mentions, other.mentions):
            sides = [(one, first), (other, second)]
            if rng.integers(2):
                sides.reverse()
            (source, here), (target, there) = sides
            pair = Pair(
                (source.text, target.text), (here.start, here.end), (there.start, there.end), one.topic,
                first.cluster == second.cluster,
            )  # fmt: skip
            found[pair.positive].append(pair)
    drawn = []
    for pairs in found.values():
        drawn += [pairs[number] for number in rng.permutation(len(pairs))[:count]]
    return drawn


def scores_of(attentions: torch.Tensor, global_attentions: torch.Tensor) -> torch.Tensor:
    """Attention between each token and the global ones, both ways, summed over heads and global tokens.

    Args:
        attentions: ``[1, heads, L, G + window + 1]`` of transformers' Longformer; the first G columns are a token's
            attention to the G global tokens.
        global_attentions: ``[1, heads, L, G]``, that of the global tokens to each token.

    Returns:
        ``[L]``; the exponential and the normalisation of the paper do not change ranks.
    """
    count = global_attentions.shape[-1]
    return (attentions[0, :, :, :count] + global_attentions[0]).sum(dim=(0, 2))


def percentile_rank(scores: np.ndarray, inside: np.ndarray, target: np.ndarray) -> float:
    """Share, in percent, of the other tokens of the document that are below the target's mean; ties count half."""
    own, others = scores[target].mean(), scores[inside & ~target]
    return float(100 * (np.mean(others < own) + np.mean(others == own) / 2))


@torch.no_grad()
def rank(model: Any, processor: CdlmProcessor, pair: Pair, source: np.ndarray | None = None) -> float | None:
    """The percentile rank of the target; None for documents that do not fit into a sequence.

    Args:
        model, processor: a CDLM.
        pair: of mentions.
        source: tokens of the first document in place of the source's.
    """
    pieces = [Piece.from_text(text, processor.tokenizer) for text in pair.texts]
    row = processor.cluster(pieces)
    if any(row["lost_tokens"]):
        return None
    length, starts = len(row["input_ids"]), (2, 2 + len(pieces[0].ids) + 2)  # [CLS] <doc-s> … </doc-s> <doc-s> …
    places = [
        np.arange(*piece.tokens_of(*span, "a mention"))
        for piece, span in zip(pieces, (pair.source, pair.target), strict=True)
    ]
    wide = np.zeros(length, dtype=int)
    wide[(places[0] if source is None else source) + starts[0]] = 1
    output = model(
        torch.tensor([row["input_ids"]], device=model.device),
        global_attention_mask=torch.tensor(wide[None], device=model.device),
        output_attentions=True,
    )
    both = [each[-1][:, :, :length] for each in (output.attentions, output.global_attentions)]  # without padding
    scores = scores_of(*both).float().cpu().numpy()
    inside, target = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
    inside[starts[1] : starts[1] + len(pieces[1].ids)] = True
    target[places[1] + starts[1]] = True
    return percentile_rank(scores, inside, target)


def random_source(pair: Pair, processor: CdlmProcessor, rng: np.random.Generator) -> np.ndarray:
    """As many tokens in a row as the source has, anywhere in its document."""
    piece = Piece.from_text(pair.texts[0], processor.tokenizer)
    first, end = piece.tokens_of(*pair.source, "a mention")
    return np.arange(end - first) + int(rng.integers(len(piece.ids) - (end - first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", required=True, help="saved CDLMs with their processors")
    parser.add_argument("--file", required=True, help="ECB+: its folder, or a .jsonl (also .gz)")
    parser.add_argument("--kinds", nargs="+", default=["event", "entity"], choices=["event", "entity"])
    parser.add_argument("--pairs", type=int, default=1000, help="of each sort; default 1000, as in the paper")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    args = parser.parse_args()
    results, rows = [], []
    for name, kind in itertools.product(args.model, args.kinds):
        model, processor = CdlmModel.from_pretrained(name).eval(), CdlmProcessor.from_pretrained(name)
        pairs = draw_pairs(read_ecbplus(args.file, kind), args.pairs, args.seed)
        rng = np.random.default_rng(args.seed)
        found = []
        for pair in tqdm(pairs, unit="pair", desc=f"{Path(name).name}, {kind}"):
            chance = random_source(pair, processor, rng)
            ranks = rank(model, processor, pair), rank(model, processor, pair, chance)
            found.append((pair, *ranks))
        kept = [each for each in found if each[1] is not None]
        figures: dict[str, Any] = {"model": Path(name).name, "kind": kind, "left out": len(found) - len(kept)}
        for label, positive, column in (("coreferent", True, 1), ("not coreferent", False, 1), ("random", True, 2)):
            chosen = [each for each in kept if each[0].positive == positive]
            values, topics = np.array([each[column] for each in chosen]), np.array([each[0].topic for each in chosen])
            figures |= {
                f"{label}, pairs": len(chosen),
                f"{label}, MPR": "{:.1f} ({:.1f} to {:.1f})".format(*with_interval(values, topics, args.seed)),
            }
        results.append(figures)
        rows.append(list(figures.values()))
    print_header("float32", f"{Path(args.file).name}; intervals of 95 %, over topics")
    print_table(list(results[0]), rows)
    args.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
