"""Which documents of a corpus are most alike? Document vectors are computed from stored chunk
vectors, without text.

python examples/nearest_documents.py --model demo/model --corpus_dir demo/corpus manual/lambda
module/json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sentence_transformers.util import semantic_search
from transformers import AutoModel

import nextlevelbert

DEFAULT_QUERIES = (
    "manual/lambda",
    "manual/try",
    "module/json",
    "module/threading",
    "module/email.message",
)


def document_vectors(
    model: nextlevelbert.NextLevelBertModel, corpus: nextlevelbert.VectorCorpus
) -> torch.Tensor:
    """``[documents, D]``, one pass of the encoder over chunks for each document."""
    with torch.no_grad():
        return torch.cat(
            [model(inputs_embeds=document.vectors[None]).pooler_output for document in corpus]
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "documents",
        nargs="*",
        default=DEFAULT_QUERIES,
        help="ids of documents whose neighbours to print",
    )
    parser.add_argument("--model", required=True, help="a pretrained checkpoint")
    parser.add_argument(
        "--corpus_dir", required=True, help="a corpus encoded with its chunk encoder"
    )
    parser.add_argument("--top", type=int, default=4, help="how many neighbours to print")
    args = parser.parse_args()

    model = AutoModel.from_pretrained(args.model)
    corpus = nextlevelbert.VectorCorpus(args.corpus_dir)
    corpus.check_model(model.config)
    vectors = document_vectors(model, corpus)
    # Vectors of one corpus share a large common direction; without it the differences show.
    vectors = vectors - vectors.mean(dim=0)

    print(f"\nNearest documents among {len(corpus)} (cosine of centred document vectors):")
    for name in args.documents:
        query = vectors[corpus.document_ids.index(name)]
        [hits] = semantic_search(query, vectors, top_k=args.top + 1)
        nearest = [hit for hit in hits if corpus.document_ids[hit["corpus_id"]] != name][: args.top]
        print(
            f"  {name:22}",
            " · ".join(f"{corpus.document_ids[h['corpus_id']]} {h['score']:.2f}" for h in nearest),
        )

    results = Path(args.model) / "results.json"
    if results.exists():
        history = json.loads(results.read_text())["log"]
        losses = [entry["loss"] for entry in history if "loss" in entry]
        scores = [
            entry["eval_masked_accuracy"] for entry in history if "eval_masked_accuracy" in entry
        ]
        print(f"\nTraining loss: first {losses[0]:.4f}, last {losses[-1]:.4f}.")
        if scores:
            print(
                f"Masked vectors found on held-out documents: first {scores[0]:.3f}, last"
                f" {scores[-1]:.3f}."
            )
        print(
            f"\nNext: look at {args.model}/README.md and learning_curve.png, then use your own"
            " documents:\n  .venv/bin/python run_pretraining.py --train_file my_books/"
            " --output_dir my_model --do_train\n  (a folder of .txt, a .jsonl or a .parquet; or"
            " --dataset_name for a dataset on the Hub)\n"
        )


if __name__ == "__main__":
    main()
