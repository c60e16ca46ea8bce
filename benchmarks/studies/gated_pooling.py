"""Does a document vector gain from weighting its chunks, by what they say or by what stands around them?

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.gated_pooling --data DATA --train_file novels/train.jsonl \\
        --encoder checkpoints/nextlevelbert-static --output_dir gated --seeds 0 1 2

A document vector is a linear map of the weighted mean of whitened static chunk vectors. The weights are all equal, or
softplus of a linear function of the chunk alone, or of the chunk after two pre-norm layers that see the segment. They
begin nearly equal. Rows are trained side by side on the same pairs, as nextlevelbert-static is: 300 steps of 64.
Judged by unseen novels and stories; intervals of 95 % are over novels, of the mean over seeds. Finished seeds are
kept. Writes ``study.json``. (docs/study.md)
"""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import get_cosine_schedule_with_warmup

from benchmarks.common import measuring
from benchmarks.common.judge import JUDGED, Judge, average, interval, vectors_of
from benchmarks.common.studies import study_parser
from benchmarks.studies.passages import layers_over
from nextlevelbert import VectorCorpus, encode_corpus, load_chunk_encoder, read_documents
from nextlevelbert.models.chunking import ChunkingRule
from nextlevelbert.models.losses import comparable_segments, pair_loss
from nextlevelbert.models.pooling import ChunkWhitening, fit_whitening
from nextlevelbert.pretraining.segment_pairs import DataCollatorForSegmentPairs, SegmentPairDataset

STORIES, EXCERPTS = "squality, names masked", "excerpts, names masked"
COLUMNS = {
    "chapters MAP": f"{JUDGED}: MAP",
    "adjacent": f"{JUDGED}: adjacent recall@10",
    "excerpts MAP": f"{EXCERPTS}: MAP",
    "SQuALITY MRR": f"{STORIES}: MRR",
}
WHITENED, EQUAL, CHUNK, CONTEXT = "whitened mean", "linear map", "weights from the chunk", "weights from its context"
ROWS = (EQUAL, CHUNK, CONTEXT)
PAIRS, RATE, TEMPERATURE = 64, 3e-4, 0.05
WINDOW = 512  # chunks that layers see at once


class GatedPooling(nn.Module):
    """``[B, S, D]`` chunk vectors and which are real ``[B, S]`` -> document vectors ``[B, D]``.

    Args:
        whitening: of the chunk vectors.
        gate: one of `ROWS`.
    """

    def __init__(self, whitening: ChunkWhitening, gate: str) -> None:
        super().__init__()
        size = len(whitening.mean)
        self.whitening, self.gate = whitening, gate
        self.layers = layers_over(size, "full_attention") if gate == CONTEXT else None
        self.score = nn.Linear(size, 1)
        self.out = nn.Linear(size, size, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))
        nn.init.normal_(self.score.weight, std=1e-3)
        nn.init.eye_(self.out.weight)

    def forward(self, vectors: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        white = F.normalize(self.whitening(vectors), dim=-1)
        weights = self.weights(white, real) * real  # [B, S]
        mean = (weights.unsqueeze(-1) * white).sum(dim=1) / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        return F.normalize(self.out(mean), dim=-1)

    def weights(self, white: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        if self.gate == EQUAL:
            return torch.ones(real.shape)
        seen = white * white.shape[-1] ** 0.5
        if self.layers is not None:
            seen = self.layers(inputs_embeds=seen, attention_mask=real.long()).last_hidden_state
        return F.softplus(self.score(seen)).squeeze(-1)

    @torch.inference_mode()
    def encode(self, documents: list[torch.Tensor]) -> torch.Tensor:
        """Vectors of whole documents; layers see windows of `WINDOW` chunks, whose vectors are added by length."""
        found = []
        for chunks in tqdm(documents, desc=self.gate, unit="text"):
            parts = chunks.float().split(WINDOW)
            vectors = [self(part[None], torch.ones(1, len(part), dtype=torch.bool))[0] * len(part) for part in parts]
            found.append(F.normalize(torch.stack(vectors).sum(dim=0), dim=-1))
        return torch.stack(found)


def train(corpus: VectorCorpus, whitening: ChunkWhitening, seed: int, steps: int) -> dict[str, GatedPooling]:
    """All rows of a seed, on the same pairs."""
    models = {}
    for gate in ROWS:
        torch.manual_seed(seed)
        models[gate] = GatedPooling(whitening, gate)
    tools = {}
    for gate, model in models.items():
        optimiser = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], RATE)
        tools[gate] = optimiser, get_cosine_schedule_with_warmup(optimiser, steps // 20, steps)
    pairs, collator = SegmentPairDataset(corpus, seed=seed), DataCollatorForSegmentPairs()
    loader = DataLoader(pairs, PAIRS, shuffle=True, collate_fn=collator, drop_last=True)
    bar, done = tqdm(total=steps, desc=f"seed {seed}", unit="step"), 0
    while done < steps:
        for batch in loader:
            vectors, real = batch["inputs_embeds"].float(), batch["special_ids"] < 0  # [N, 2, S, D], [N, 2, S]
            allowed = comparable_segments(batch["document_ids"], batch.get("spans"))
            for gate, model in models.items():
                first, second = model(vectors.flatten(0, 1), real.flatten(0, 1)).unflatten(0, (-1, 2)).unbind(dim=1)
                loss, _ = pair_loss(first, second, allowed, model.logit_scale.exp())
                optimiser, schedule = tools[gate]
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
            bar.update()
            done += 1
            if done == steps:
                break
        pairs.epoch += 1
    bar.close()
    return {gate: model.eval() for gate, model in models.items()}


def judged(args: Namespace) -> dict[str, list[dict[str, Any]]]:
    """Row -> the scores of each seed; one of the row without training."""
    encoder = load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(encoder.tokenizer, args.chunk_size)
    corpus = encode_corpus(read_documents(args.train_file), encoder, rule, args.output_dir / "corpus")
    mean, weight = fit_whitening(vectors_of(corpus))
    whitening = ChunkWhitening(len(mean)).requires_grad_(False)
    whitening.load_state_dict({"mean": mean, "weight": weight})
    judge = Judge(args)
    rows: dict[str, list[dict[str, Any]]] = {
        WHITENED: [judge.scores(GatedPooling(whitening, EQUAL).encode)],
        **{gate: [] for gate in ROWS},
    }
    for seed in args.seeds:
        path = args.output_dir / f"seed-{seed}.json"
        if not path.exists():
            found = {
                gate: judge.scores(model.encode) for gate, model in train(corpus, whitening, seed, args.steps).items()
            }
            path.write_text(json.dumps(found) + "\n")
        for gate, scores in json.loads(path.read_text()).items():
            rows[gate].append(scores)
    return rows


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    args.letters_only, args.tasks, args.cache_dir = False, [JUDGED, EXCERPTS, STORIES], args.output_dir / "vectors"
    args.chunk_size, args.chunking = 256, "fixed"
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows = judged(args)
    means = {name: average(found) for name, found in rows.items()}
    gaps = {name: interval(found, means[EQUAL]) for name, found in means.items() if name != EQUAL}
    measuring.print_header("float32", f"mean of seeds {args.seeds}, in brackets the lowest and highest; names masked")
    measuring.print_table(["", *COLUMNS, "chapters minus linear map, 95 %"], [
        [name, *(span([scores[column] for scores in found]) for column in COLUMNS.values()),
         "" if name == EQUAL else "{:+.3f} to {:+.3f}".format(*gaps[name])]
        for name, found in rows.items()
    ])  # fmt: skip
    facts = {"steps": args.steps, "seeds": args.seeds, "minus linear map": gaps, "rows": {
        name: [{column: round(scores[key], 4) for column, key in COLUMNS.items()} for scores in found]
        for name, found in rows.items()
    }}  # fmt: skip
    (args.output_dir / "study.json").write_text(json.dumps(facts, indent=1) + "\n")


def span(values: list[float]) -> str:
    mean = f"{sum(values) / len(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f}, {max(values):.3f})"


if __name__ == "__main__":
    main()
