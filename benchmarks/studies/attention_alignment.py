"""Does global attention of a pretrained CDLM find coreferent mentions, without fine-tuning (section
3.5, table 6)?

Pairs of mentions in two documents of ECB+: coreferent ones, and others of the same topic. The
tokens of one mention, the source, get global attention; the score of a token is the last layer's
attention between it and them, in both directions, summed over heads. The mean percentile rank (MPR)
says where the other mention, the target, stands among the tokens of its document; 50 % is chance.
The control is a source of random tokens of the same document.

    python -m benchmarks.studies.attention_alignment --model cdlm local-cdlm \
        --file ecbplus/validation.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from benchmarks.common.measuring import print_header, print_table, with_interval
from nextlevelbert import CdlmModel, CdlmProcessor

ECBPLUS = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "cdlm" / "ecbplus.py"))


class Pair(NamedTuple):
    """Two mentions: texts (the source's first), characters, topic, and whether they corefer."""

    texts: tuple[str, str]
    source: tuple[int, int]
    target: tuple[int, int]
    topic: int
    positive: bool


def draw_pairs(documents: list[Any], count: int, seed: int) -> list[Pair]:
    """Draws as many coreferent pairs as others, each in two documents of one topic.

    There are fewer pairs if the documents, `CoreferenceDocument`s of the example, have no more.
    """
    rng = np.random.default_rng(seed)
    pairs: dict[bool, list[Pair]] = {True: [], False: []}
    for one, other in itertools.combinations(documents, 2):
        if one.topic != other.topic:
            continue
        for mentions in itertools.product(one.mentions, other.mentions):
            sides = list(zip((one, other), mentions, strict=True))
            if not rng.integers(2):
                sides.reverse()
            (first, source), (second, target) = sides
            positive = source.cluster == target.cluster
            pair = Pair(
                texts=(first.text, second.text),
                source=(source.start, source.end),
                target=(target.start, target.end),
                topic=one.topic,
                positive=positive,
            )
            pairs[positive].append(pair)
    drawn = []
    for rows in pairs.values():
        drawn += [rows[number] for number in rng.permutation(len(rows))[:count]]
    return drawn


def scores_of(attentions: torch.Tensor, global_attentions: torch.Tensor) -> torch.Tensor:
    """Sums attention between each token and the global tokens, both ways, over heads: ``[L]``.

    Args:
        attentions: attentions of transformers' Longformer, ``[1, heads, L, G + window + 1]``; the
            first G columns are a token's attention to the G global tokens.
        global_attentions: attention of the global tokens to each token, ``[1, heads, L, G]``.
    """
    count = global_attentions.shape[-1]
    return (attentions[0, :, :, :count] + global_attentions[0]).sum(dim=(0, 2))


def percentile_rank(scores: np.ndarray, inside: np.ndarray, target: np.ndarray) -> float:
    """Ranks the target among the other tokens of its document (section 3.5).

    A token's score is the exponential of its attention; the score of the target is the mean over
    its tokens.

    Args:
        scores: summed attention from `scores_of`, ``[L]``.
        inside: bool mask ``[L]``, true at the tokens of the target's document.
        target: bool mask ``[L]``, true at the tokens of the target.

    Returns:
        The share of the other tokens with a lower score, in percent; ties count half.
    """
    # Divided by the largest score, which changes no rank and cannot overflow.
    exponentials = np.exp(scores.astype(np.float64) - scores.max())
    target_score = exponentials[target].mean()
    rest = exponentials[inside & ~target]
    return float(100 * (np.mean(rest < target_score) + np.mean(rest == target_score) / 2))


@torch.no_grad()
def rank(
    model: Any, processor: CdlmProcessor, pair: Pair, rng: np.random.Generator | None = None
) -> float | None:
    """Returns the percentile rank of the target; None if the documents do not fit into a sequence.

    With a generator, random tokens in a row replace the source: as many as the source has, from the
    same document.
    """
    first, second = map(processor.tokenize, pair.texts)
    row = processor.cluster([first, second])
    if any(row["lost_tokens"]):
        return None
    source = np.arange(*first.tokens_of(*pair.source, "a mention"))
    if rng is not None:
        source = np.arange(len(source)) + int(rng.integers(len(first.ids) - len(source) + 1))
    target = np.arange(*second.tokens_of(*pair.target, "a mention"))
    start = 2  # [CLS] <doc-s> … </doc-s> <doc-s> …
    second_start = start + len(first.ids) + 2
    length = len(row["input_ids"])
    is_global = marked(length, source + start)
    outputs = model(
        torch.tensor([row["input_ids"]], device=model.device),
        global_attention_mask=torch.tensor(is_global[None].astype(int), device=model.device),
        output_attentions=True,
    )
    scores = scores_of(
        outputs.attentions[-1][:, :, :length], outputs.global_attentions[-1][:, :, :length]
    )
    return percentile_rank(
        scores.float().cpu().numpy(),
        inside=marked(length, np.arange(len(second.ids)) + second_start),
        target=marked(length, target + second_start),
    )


def marked(length: int, places: np.ndarray) -> np.ndarray:
    """Makes a bool mask that is true at some places."""
    mask = np.zeros(length, dtype=bool)
    mask[places] = True
    return mask


Ranked = tuple[Pair, float | None, float | None]  # ranks by the source, and by a random one


def rank_pairs(name: str, pairs: list[Pair], seed: int) -> list[Ranked]:
    """Ranks the targets of pairs by a model."""
    model = CdlmModel.from_pretrained(name).eval()
    processor = CdlmProcessor.from_pretrained(name)
    rng = np.random.default_rng(seed)
    return [
        (pair, rank(model, processor, pair), rank(model, processor, pair, rng))
        for pair in tqdm(pairs, unit="pair", desc=name)
    ]


def cells_of(ranked: list[Ranked], seed: int) -> list[object]:
    """Makes the cells of a row: mean ranks, and the pairs that were ranked and left out."""
    kept = [row for row in ranked if row[1] is not None]
    cells: list[object] = []
    for positive, column in ((True, 1), (False, 1), (True, 2)):
        chosen = [row for row in kept if row[0].positive == positive]
        values = np.array([row[column] for row in chosen])
        topics = np.array([row[0].topic for row in chosen])
        cells.append("{:.1f} ({:.1f} to {:.1f})".format(*with_interval(values, topics, seed)))
    return [*cells, len(kept), len(ranked) - len(kept)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", nargs="+", required=True, help="saved CDLMs with their processors"
    )
    parser.add_argument("--file", required=True, help="ECB+, as examples/cdlm/ecbplus.py writes it")
    parser.add_argument(
        "--kinds", nargs="+", default=["event", "entity"], choices=["event", "entity"]
    )
    parser.add_argument(
        "--pairs", type=int, default=1000, help="of each sort; default 1000, as in the paper"
    )
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    rows = []
    for name, kind in itertools.product(args.model, args.kinds):
        documents = ECBPLUS["read_documents"](args.file, kind)
        ranked = rank_pairs(name, draw_pairs(documents, args.pairs, args.seed), args.seed)
        rows.append([f"{name}, {kind}", *cells_of(ranked, args.seed)])
    print_header("float32", "MPR with 95 %, over topics")
    head = ["model, mentions", "coreferent", "not coreferent", "coreferent, random source"]
    print_table([*head, "pairs", "left out"], rows)


if __name__ == "__main__":
    main()
