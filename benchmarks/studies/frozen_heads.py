"""One head for every kind of frozen document vector: logistic regression, its strength chosen by cross-validation.

    python -m benchmarks.studies.frozen_heads --train_file train.jsonl --test_file test.jsonl \\
        --hybrid checkpoints/nextlevelbert-hybrid --static checkpoints/nextlevelbert-static \\
        --minilm checkpoints/nextlevelbert-minilm-256 --cache_dir vectors --output_dir heads

Rows: the two checkpoints; the hybrid fitted to the training documents in place of novels; the hybrid's parts, and its
words counted in whole documents, hashed and not; the mean of static and of MiniLM's chunk vectors, plain and whitened;
MiniLM's first 512 tokens, and its first 256; the checkpoint --minilm; the hybrid beside MiniLM as a third part (see
third_part.py); TF-IDF of words and pairs of words; and four of them with TF-IDF, by the sum of the probabilities of
both heads. The head is that of the controls of `run_finetune.py`. Of the training documents 15 % are left out, those
that `run_finetune.py` holds out, so that its rows have the same training set. Prints accuracies with 95 % over the
test documents, and three rows minus each other row; writes ``scores.json``.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.studies.beside_tfidf import hashed, whole_counts
from benchmarks.studies.hybrid_vectors import document_vectors
from benchmarks.studies.third_part import joined
from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.commands.fit import hybrid_encoder
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.tasks.classification.baselines import tfidf_logistic_regression
from nextlevelbert.tasks.classification.controls import fit_regression
from nextlevelbert.tasks.classification.data import TaskData, read_classification
from nextlevelbert.tasks.classification.splits import hold_out_documents

HELD_OUT, SEED = 0.15, 42  # as run_finetune.py has them by default
WORDS, HYBRID, THREE = "TF-IDF", "hybrid", "hybrid and MiniLM"
OWN = "hybrid, fitted to the training documents"
MEAN = "mean of MiniLM's chunk vectors"


def read(path: str, names: tuple[str, ...] | None = None) -> TaskData:
    return read_classification(path, label_names=names)


def cut_to_window(encoder: LoadedChunkEncoder, model: Any, text: str) -> str:
    """The text as far as the model's first chunk reads it."""
    found = tokenize_document(encoder.tokenizer, text)
    boundaries = model.config.chunking_rule().boundaries(found.input_ids)
    return text if len(boundaries) < 3 else text[: int(found.char_ends[boundaries[1] - 1])]


def static_rows(args: Namespace, texts: list[str], train: list[str]) -> dict[str, torch.Tensor]:
    """Document vectors ``[B, D]`` that need no Transformer; one hybrid is fitted to the training documents."""
    names = {"": HYBRID, ", part 1": "whitened mean of static chunk vectors", ", part 2": "hybrid's word counts alone"}
    hybrid: Any = NextLevelBertModel.from_pretrained(args.hybrid).eval()
    rows = {names[part]: found for part, found in document_vectors(hybrid, texts, parts=True).items()}
    counts = whole_counts(hybrid, texts)
    for name, matrix in (("not hashed", counts), ("hashed", hashed(hybrid, counts))):
        rows[f"its words in whole documents, {name}"] = F.normalize(torch.from_numpy(matrix.toarray()), dim=1)
    with tempfile.TemporaryDirectory() as folder:
        own = hybrid_encoder(load_chunk_encoder(str(args.static)), train, Path(folder))
        fitted = NextLevelBertModel.from_chunk_encoder(own, pooling="plain")
        rows[OWN] = document_vectors(fitted, texts)[""]
    static: Any = NextLevelBertModel.from_pretrained(args.static).eval()
    rows[args.static.name] = document_vectors(static, texts)[""]
    rows["mean of static chunk vectors"] = retrieval.mean_of_chunks([book.plain for book in static.encode(texts)])
    return rows


def minilm_rows(args: Namespace, texts: list[str]) -> dict[str, torch.Tensor]:
    """Document vectors ``[B, D]`` of a Transformer's chunk vectors."""
    encoder = load_chunk_encoder(args.encoder, args.encoder_name)
    base = NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=retrieval.CHUNK_SIZE, num_hidden_layers=0)
    checkpoint = retrieval.trained(str(args.minilm), base)
    chunks = retrieval.chunk_vectors(base, texts, args.cache_dir)
    whitening = checkpoint.whitening
    rows = {
        MEAN: retrieval.mean_of_chunks(chunks),
        "whitened mean of MiniLM's": retrieval.whitened_mean(whitening.mean, whitening.weight)(chunks),
        args.minilm.name: retrieval.contextual(checkpoint, args.minilm.name)(chunks),
        f"MiniLM, the first {retrieval.CHUNK_SIZE} tokens": retrieval.first_chunk(chunks),
    }
    if args.window:
        wide = NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=args.window, num_hidden_layers=0)
        first = [cut_to_window(encoder, wide, text) for text in texts]
        rows[f"MiniLM, the first {args.window} tokens"] = retrieval.first_chunk(
            retrieval.chunk_vectors(wide, first, args.cache_dir)
        )
    return rows


def three_parts(rows: dict[str, torch.Tensor], share: float) -> torch.Tensor:
    """The mean of chunk vectors of three parts, from the means of the parts."""
    hybrid = torch.cat([rows["whitened mean of static chunk vectors"], rows["hybrid's word counts alone"]], dim=1)
    return joined(hybrid, rows["whitened mean of MiniLM's"], share)


def probabilities(train: TaskData, test: TaskData, vectors: torch.Tensor, numbers: dict[str, int]) -> np.ndarray:
    """``[M, K]`` of the test documents by a logistic regression; vectors are looked up by text."""
    features = [
        vectors[[numbers[data.documents[example.document]] for example in data.examples]].numpy().astype(np.float64)
        for data in (train, test)
    ]
    found = fit_regression(train, *features)
    assert found is not None  # every class has examples enough
    return np.exp(found[1])


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--hybrid", type=Path, required=True)
    parser.add_argument("--static", type=Path, required=True)
    parser.add_argument("--minilm", type=Path, required=True, help="checkpoint over --encoder, which whitens")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2", help="a Hub name or a folder")
    parser.add_argument("--encoder_name", help="its name on the Hub, where --encoder is a folder")
    parser.add_argument("--share", type=float, default=0.3, help="squared weight of MiniLM as a third part")
    parser.add_argument("--window", type=int, default=512, help="tokens of the truncated row; 0 leaves it out")
    parser.add_argument("--cache_dir", help="folder with a cache of MiniLM's chunk vectors; made if it is missing")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    train = read(args.train_file)
    test = read(args.test_file, train.label_names)
    train, _ = hold_out_documents(train, HELD_OUT, SEED)
    texts = list(dict.fromkeys([*train.documents, *test.documents]))
    numbers = {text: number for number, text in enumerate(texts)}
    rows = static_rows(args, texts, train.documents) | minilm_rows(args, texts)
    rows[THREE] = three_parts(rows, args.share)
    found = {name: probabilities(train, test, vectors, numbers) for name, vectors in rows.items()}
    words = np.exp(tfidf_logistic_regression(train, [test])[0])
    found |= {f"{name} + {WORDS}": found[name] + words for name in (HYBRID, OWN, MEAN, THREE)} | {WORDS: words}
    right = {name: np.asarray(scores.argmax(axis=1) == test.labels(), dtype=float) for name, scores in found.items()}
    alone = np.arange(len(test.examples))  # every test document is drawn on its own
    scores = {name: measuring.with_interval(hits, alone, 0) for name, hits in right.items()}
    gaps = {
        f"{main_row} minus": {
            name: measuring.with_interval(right[main_row] - hits, alone, 0)
            for name, hits in right.items()
            if name != main_row
        }
        for main_row in (HYBRID, THREE, f"{THREE} + {WORDS}")
    }
    measuring.print_table(
        ["", "accuracy", *gaps],
        [[name, "{:.3f} ({:.3f} to {:.3f})".format(*scores[name]),
          *("{:+.3f} to {:+.3f}".format(*gap[name][1:]) if name in gap else "" for gap in gaps.values())]
         for name in sorted(scores, key=lambda name: -scores[name][0])],
    )  # fmt: skip
    facts = {"machine": measuring.processor(), "train": len(train.examples), "test": len(test.examples),
             "share": args.share, "accuracy": scores, **gaps}  # fmt: skip
    (args.output_dir / "scores.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
