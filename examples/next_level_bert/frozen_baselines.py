"""Scores NextLevelBERT's baselines: a classifier over one vector of each text (section 3.2).

The vector of a text is the mean of the vectors of its chunks (``avg_sbert``), the vector of its
first chunk (``sbert``), or what any other encoder, such as Longformer, makes of the tokens that it
reads at once (``other``). The encoder stays frozen. The rows are those of `nextlevelbert finetune`:
columns ``text`` and ``label``, perhaps a ``question``, and for multiple choice ``choices``.

    python examples/next_level_bert/frozen_baselines.py avg_sbert --train_file train.jsonl \\
        --validation_file validation.jsonl --test_file test.jsonl --output_dir TABLE
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn import functional as F

from nextlevelbert import ChunkingRule, encode_corpus, load_chunk_encoder, model_path
from nextlevelbert.command import run_command
from nextlevelbert.data import open_rows

logger = logging.getLogger(__name__)

BATCH_SIZE = 8
HIDDEN_SIZE = 768

Encode = Callable[[Sequence[str]], Tensor]
Row = dict[str, object]


# --- The vector of a text


def chunk_vectors(args: argparse.Namespace) -> Encode:
    """Returns a function that encodes texts ``[N, D]`` by the vectors of their chunks."""
    source = load_chunk_encoder(args.encoder)
    limit = source.max_chunk_size or args.chunk_size
    size = min(args.chunk_size, limit, source.tokenizer.model_max_length)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, size, max_chunk_size=limit)

    def encode(texts: Sequence[str]) -> Tensor:
        named = [(str(index), text) for index, text in enumerate(texts)]
        prompt = source.prompts.text()
        corpus = encode_corpus(named, source, rule, Path(args.output_dir, "vectors"), prompt=prompt)
        vectors = []
        for name, text in named:
            chunks = corpus[name].plain.float()
            if len(chunks) == 0:
                raise ValueError(f"A text contains no token: {text[:50]!r}. Leave its row out.")
            if args.baseline == "sbert":
                chunks = chunks[:1]
            vectors.append(chunks.mean(dim=0))
        return torch.stack(vectors)

    return encode


def vectors_of_other_encoder(args: argparse.Namespace) -> Encode:
    """Returns a function that encodes the beginning of texts by sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model_path(args.encoder), device="cpu")
    limit = encoder.max_seq_length

    def encode(texts: Sequence[str]) -> Tensor:
        ids = encoder.tokenizer(list(texts), verbose=False)["input_ids"]
        longer = sum(len(row) > (limit or len(row)) for row in ids)
        if longer:
            logger.warning(
                "Only the first %s tokens of each text are read; %d of %d texts are longer.",
                limit,
                longer,
                len(texts),
            )
        return encoder.encode(list(texts), convert_to_tensor=True).float().cpu()

    return encode


# --- Rows as features


def read_rows(path: str) -> list[Row]:
    """Reads the rows of a file, and checks their texts and labels."""
    rows = []
    for location, values in open_rows(path).rows:
        row: Row = {"text": location.text(values, "text", "text")}
        for name in ("question", "choices"):
            if values.get(name) is not None:
                row[name] = values[name]
        label = values.get("label")
        if not isinstance(label, str | int):
            raise location.error("label", f"must be one class, got {label!r}.")
        row["label"] = label
        rows.append(row)
    return rows


def pairs_of(row: Row) -> list[str]:
    """Returns the texts beside a document: a question, or the question with each choice."""
    question = str(row.get("question", ""))
    choices = row.get("choices")
    if isinstance(choices, list):
        return [f"{question} {choice}" for choice in choices]
    if question:
        return [question]
    return []


def features_of(rows: Sequence[Row], vector_of: dict[str, Tensor]) -> Tensor:
    """Returns the features of rows, ``[N, P, D]`` or ``[N, P, 2 D]`` with P texts beside each.

    P is 1 without choices.
    """
    features = []
    for row in rows:
        document = vector_of[str(row["text"])]
        pairs = [vector_of[text] for text in pairs_of(row)]
        if pairs:
            features.append(torch.stack([torch.cat([document, pair]) for pair in pairs]))
        else:
            features.append(document.unsqueeze(0))
    return torch.stack(features)


def targets_of(rows: Sequence[Row], classes: Sequence[object]) -> Tensor:
    """Returns the index of each row's class, or of its right choice, ``[N]``."""
    if "choices" in rows[0]:
        return torch.tensor([int(str(row["label"])) for row in rows])
    unknown = {row["label"] for row in rows}.difference(classes)
    if unknown:
        raise ValueError(f"The training set has no class {sorted(map(str, unknown))[0]!r}.")
    return torch.tensor([classes.index(row["label"]) for row in rows])


# --- The classifier


class Classifier(nn.Module):
    """The classifier of our heads: two layers over the features of a row.

    Args:
        size: size of the features.
        outputs: number of classes; 1 for choices.
    """

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(size, HIDDEN_SIZE), nn.ReLU(), nn.Linear(HIDDEN_SIZE, outputs)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Computes logits ``[N, K]`` of features ``[N, P, F]``: K classes or P choices."""
        logits = self.layers(features)  # [N, P, K]
        if logits.shape[1] == 1:
            return logits[:, 0]
        return logits.squeeze(-1)


def train(
    args: argparse.Namespace,
    sets: dict[str, tuple[Tensor, Tensor]],
    outputs: int,
    seed: int,
) -> Classifier:
    """Trains a classifier, and returns the one of the epoch with the lowest validation loss.

    Training stops after three epochs without a lower loss.
    """
    torch.manual_seed(seed)
    features, targets = sets["train"]
    model = Classifier(features.shape[-1], outputs)
    best = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    lowest = float("inf")
    waited = 0
    for _ in range(args.num_train_epochs):
        for batch in torch.randperm(len(features)).split(BATCH_SIZE):
            optimizer.zero_grad()
            F.cross_entropy(model(features[batch]), targets[batch]).backward()
            optimizer.step()

        held_out, truth = sets["validation"]
        with torch.no_grad():
            loss = float(F.cross_entropy(model(held_out), truth))
        waited += 1
        if loss < lowest:
            lowest = loss
            best = copy.deepcopy(model)
            waited = 0
        if waited == 3:
            break
    return best


def scores_of(model: Classifier, features: Tensor, targets: Tensor) -> dict[str, float]:
    """Returns accuracy and macro F1."""
    with torch.no_grad():
        predicted = model(features).argmax(dim=-1)
    return {
        "accuracy": float((predicted == targets).float().mean()),
        "macro_f1": float(f1_score(targets, predicted, average="macro")),
    }


# --- The table


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("baseline", choices=["avg_sbert", "sbert", "other"])
    parser.add_argument("--encoder", default="minilm", help="Encoder: folder, or name on the Hub.")
    parser.add_argument(
        "--chunk_size", type=int, help="Tokens per chunk (default: 256; for sbert, 512)."
    )
    for name in ("train", "validation", "test"):
        parser.add_argument(f"--{name}_file", required=True, help=f"Rows of the {name} set.")
    parser.add_argument("--output_dir", required=True, help="Folder of results.json.")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--num_train_epochs", type=int, default=20, help="Most epochs.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="A training for each.")
    return parser


def main(argv: list[str]) -> dict[str, dict[str, float]]:
    """Trains a classifier per seed; returns mean and deviation of the scores of the test set."""
    args = make_parser().parse_args(argv)
    if args.chunk_size is None:
        args.chunk_size = {"sbert": 512}.get(args.baseline, 256)

    # 1. The vector of each distinct text.
    rows = {name: read_rows(vars(args)[f"{name}_file"]) for name in ("train", "validation", "test")}
    texts: dict[str, None] = {}
    for row in [row for part in rows.values() for row in part]:
        texts.update(dict.fromkeys([str(row["text"]), *pairs_of(row)]))
    make_encoder = chunk_vectors
    if args.baseline == "other":
        make_encoder = vectors_of_other_encoder
    vectors = make_encoder(args)(list(texts))
    vector_of = dict(zip(texts, vectors, strict=True))

    # 2. A training per seed.
    classes = sorted({row["label"] for row in rows["train"]}, key=str)
    outputs = len(classes)
    if "choices" in rows["train"][0]:
        outputs = 1
    sets = {}
    for name, part in rows.items():
        sets[name] = (features_of(part, vector_of), targets_of(part, classes))
    scores = []
    for seed in args.seeds:
        model = train(args, sets, outputs, seed)
        scores.append(scores_of(model, *sets["test"]))

    # 3. The row of the table.
    table = {}
    for name in scores[0]:
        values = [score[name] for score in scores]
        table[name] = {"mean": float(np.mean(values)), "deviation": float(np.std(values))}
        print(
            f"{args.baseline}, {name}: {table[name]['mean']:.3f} ± {table[name]['deviation']:.3f}"
        )
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"baseline": args.baseline, "encoder": args.encoder, "seeds": args.seeds, **table}
    (folder / "results.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
    return table


if __name__ == "__main__":
    raise SystemExit(run_command(main))
