"""Runs the whole package on Python's own manual: search, masked pretraining, comparison.

    python examples/demo.py --output_dir demo

Nothing is downloaded: the manual is the one that Python brings, and the sentence encoder comes with
the package. All that the demo writes is below `--output_dir`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from sentence_transformers.util import semantic_search
from transformers import AutoModel

import nextlevelbert
from nextlevelbert import command
from nextlevelbert.pretraining.pretrain import pretrain as run_pretraining

QUESTION = "send an email with an attachment"
QUERIES = ("manual/lambda", "manual/try", "module/json", "module/threading")
EXPECTED_MINUTES = "one to two minutes on two cores"


def write_manual(folder: Path) -> None:
    """Writes every topic and module of Python's manual as a text file."""
    for document in nextlevelbert.read_documents("python-manual"):
        path = folder / f"{document.id}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document.text, encoding="utf-8")


def pretrain(manual: Path, output: Path) -> None:
    """Trains a NextLevelBERT to predict masked chunk vectors of the manual.

    The model has to find the right vector among the chunks of the batch and 8,192 stored ones, all
    whitened. The paper's loss needs far more steps than a demo has.
    """
    run_pretraining(
        {
            "chunk_encoder": nextlevelbert.static_checkpoint(),
            "chunk_size": 64,
            "whiten_chunks": True,
            "learning_rate": 1e-3,
            "sequence_length": 128,
            "per_device_train_batch_size": 16,
            "num_train_epochs": 20,
            "validation_share": 0.1,
            "eval_strategy": "steps",
            "eval_steps": 25,
            "save_strategy": "no",
            "do_train": True,
            "output_dir": str(output),
        },
        nextlevelbert.read_documents(manual),
    )


def print_scores(results: Path) -> None:
    """Prints how many masked vectors were found, beside chance and a control without training."""
    scores = json.loads(results.read_text(encoding="utf-8"))
    evaluations = [entry for entry in scores["log"] if "eval_masked_accuracy" in entry]
    before = evaluations[0]["eval_masked_accuracy"]
    after = evaluations[-1]["eval_masked_accuracy"]
    chance = evaluations[-1]["eval_chance_accuracy"]
    context_mean = scores["baseline"]["masked_accuracy"]

    print("\nMasked chunk vectors found among all masked ones, on held-out documents:")
    print(f"  by chance                       {chance:.3f}")
    print(f"  mean of the visible vectors     {context_mean:.3f}   (control, nothing trained)")
    print(f"  this model before training      {before:.3f}")
    print(f"  this model after training       {after:.3f}")
    print("399 pages are too few to learn more than the mean of the visible vectors gives.")


def document_vectors(model_folder: Path, corpus: nextlevelbert.VectorCorpus) -> torch.Tensor:
    """Computes the document vectors ``[documents, D]`` of a trained model from stored vectors."""
    model = AutoModel.from_pretrained(model_folder)
    with torch.no_grad():
        rows = [model(inputs_embeds=document.plain[None]).pooler_output for document in corpus]
    return torch.cat(rows)


def mean_vectors(corpus: nextlevelbert.VectorCorpus) -> torch.Tensor:
    """Computes the plain mean ``[documents, D]`` of the chunk vectors of each document."""
    return torch.stack([document.plain.float().mean(dim=0) for document in corpus])


def nearest_ids(query: str, vectors: torch.Tensor, ids: list[str]) -> str:
    """Names the three documents nearest to `query`, by the cosine of centred vectors."""
    # Vectors of one corpus share a large common direction; without it the differences show.
    centred = vectors - vectors.mean(dim=0)
    [hits] = semantic_search(centred[ids.index(query)], centred, top_k=4)
    names = [ids[hit["corpus_id"]] for hit in hits]
    return ", ".join(name for name in names if name != query)


def print_neighbours(model_folder: Path, corpus_folder: Path) -> None:
    """Prints the nearest documents by the loaded model, and by the control without training."""
    corpus = nextlevelbert.VectorCorpus(corpus_folder)
    trained = document_vectors(model_folder, corpus)
    mean = mean_vectors(corpus)

    print("\nNearest documents, by the trained model and by the plain mean of chunk vectors:")
    for query in QUERIES:
        print(f"  {query}")
        print(f"    model  {nearest_ids(query, trained, corpus.document_ids)}")
        print(f"    mean   {nearest_ids(query, mean, corpus.document_ids)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", type=Path, default=Path("demo"))
    folder = parser.parse_args().output_dir
    manual = folder / "manual"
    cache = str(folder / "cache")

    print(f"This demo takes {EXPECTED_MINUTES}.", flush=True)
    start = time.monotonic()
    write_manual(manual)

    print(f"\n1. Search {manual} for: {QUESTION}\n", flush=True)
    search = ["search", str(manual), QUESTION, "--cache_dir", cache]
    command.main([*search, "--documents", "3", "--passages", "2"])

    print("\n2. Train a NextLevelBERT to predict masked chunk vectors", flush=True)
    model = folder / "model"
    pretrain(manual, model)

    print("\n3. Compare it with what needs no training", flush=True)
    print_scores(model / "results.json")
    print_neighbours(model, folder / "model-corpus")

    print(f"""
Done in {time.monotonic() - start:.0f} seconds. Look at
  {model / "learning_curve.png"}  (loss and masked vectors found)
  {model / "README.md"}  (the model card, ready for the Hub)
Next, with a folder of your own documents:
  .venv/bin/nextlevelbert search my_books/ "a question"
  .venv/bin/nextlevelbert app my_books/  (a page; needs: .venv/bin/pip install ".[app]")
  .venv/bin/nextlevelbert pretrain --train_file my_books/ \\
      --chunk_encoder nextlevelbert-static --output_dir my-model --do_train""")


if __name__ == "__main__":
    main()
