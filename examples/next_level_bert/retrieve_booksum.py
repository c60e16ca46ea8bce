"""Searches BookSum without training: NextLevelBERT's Table 2 (columns BookSum) and Figure 2.

A chapter is the query for its summaries, among the summaries of all splits (Czinczoll et al., ACL
2024, arXiv 2402.17682, section 3.2). The rows of the table are the model, Avg. SBERT (the mean of
the same chunk vectors), SBERT (the beginning of each text alone), BM25 and TF-IDF.

    python examples/next_level_bert/retrieve_booksum.py --model MODEL --output_dir TABLE
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from matplotlib.figure import Figure
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from nextlevelbert import VectorCorpus, encode_corpus, load_chunk_encoder, model_path
from nextlevelbert.command import run_command
from nextlevelbert.data import open_rows
from nextlevelbert.evaluation import (
    Ranking,
    RetrievalTask,
    bm25_scores,
    count_words,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    tfidf_scores,
)

K = 10  # the table has MRR@10 and the hit rate at 10
SHORTEST_BUCKET = 64  # words; shorter chapters are in the first bucket, from 0 to 127 words


def parse_arguments(argv: list[str] | None) -> Namespace:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a NextLevelBERT: folder or name on the Hub")
    parser.add_argument(
        "--sbert", help="encoder of the row SBERT (if not given, the chunk encoder of the model)"
    )
    parser.add_argument(
        "--encoders",
        nargs="*",
        default=[],
        help="further encoders, each a row, such as allenai/longformer-base-4096",
    )
    parser.add_argument("--dataset", default="kmfoda/booksum", help="file, or name on the Hub")
    parser.add_argument("--query_column", default="chapter", help="column of the queries")
    parser.add_argument("--document_column", default="summary_text", help="column of the pool")
    parser.add_argument("--output_dir", default="booksum", help="folder of vectors and results")
    return parser.parse_args(argv)


def read_task(dataset: str, query_column: str, document_column: str) -> RetrievalTask:
    """Reads all splits; equal chapters are one query, equal summaries one document."""
    query_ids: dict[str, str] = {}  # by text
    document_ids: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for location, row in open_rows(dataset, split="train+validation+test").rows:
        query = location.text(row, query_column, "--query_column")
        document = location.text(row, document_column, "--document_column")
        query_id = query_ids.setdefault(query, f"query-{len(query_ids):06d}")
        document_id = document_ids.setdefault(document, f"document-{len(document_ids):06d}")
        relevant.setdefault(query_id, {})[document_id] = 1

    return RetrievalTask(
        Path(dataset).name,
        queries={query_id: text for text, query_id in query_ids.items()},
        documents={document_id: text for text, document_id in document_ids.items()},
        relevant=relevant,
    )


def encode_chunks(task: RetrievalTask, model: AutoModel, folder: Path) -> VectorCorpus:
    """Encodes the chunks of all texts once; a run that was interrupted resumes."""
    encoder = model.detach_chunk_encoder()
    encoder.encoder.to(model.device)
    texts = [*task.queries.items(), *task.documents.items()]
    corpus = encode_corpus(texts, encoder, model.config.chunking_rule(), folder)
    if corpus.empty:
        raise ValueError(
            f"{len(corpus.empty)} texts contain no token, such as {min(corpus.empty)} in the order"
            " of the data set. Leave their rows out."
        )
    return corpus


def rank_vectors(task: RetrievalTask, vectors: Mapping[str, torch.Tensor]) -> dict[str, Ranking]:
    """Ranks the pool by the vector of each text, by its id."""
    queries = torch.stack([vectors[query] for query in task.queries])
    documents = torch.stack([vectors[document] for document in task.documents])
    return rank_documents(task, query_vectors=queries, document_vectors=documents)


def rank_beginnings(
    task: RetrievalTask, name: str, max_tokens: int | None = None
) -> dict[str, Ranking]:
    """Ranks the pool by one vector for the beginning of each text, which an encoder reads at once.

    Args:
        task: the queries and the pool.
        name: encoder, by folder or name on the Hub.
        max_tokens: tokens to read (default: as many as the encoder is set to).
    """
    encoder = SentenceTransformer(name)
    if max_tokens is not None:
        encoder.max_seq_length = max_tokens
    queries = encoder.encode(list(task.queries.values()), convert_to_tensor=True)
    documents = encoder.encode(list(task.documents.values()), convert_to_tensor=True)
    return rank_documents(task, query_vectors=queries, document_vectors=documents)


def scores_by_length(
    task: RetrievalTask, rankings: Mapping[str, Ranking]
) -> list[dict[str, float]]:
    """Scores the queries in buckets of about the same length.

    The length of a pair is the length of its longer side in words: of the chapter. If a query has
    several relevant documents, their mean length counts. Buckets end at powers of two.
    """
    words = {document: count_words(text) for document, text in task.documents.items()}
    buckets: dict[int, dict[str, Ranking]] = {}
    for query, ranking in rankings.items():
        relevant = [words[document] for document in task.relevant[query]]
        longer = max(count_words(task.queries[query]), int(np.mean(relevant)), SHORTEST_BUCKET)
        buckets.setdefault(longer.bit_length(), {})[query] = ranking

    rows = []
    for power, bucket in sorted(buckets.items()):
        start = 0.0
        if power > SHORTEST_BUCKET.bit_length():
            start = 2.0 ** (power - 1)
        scores = retrieval_scores(bucket, K)
        rows.append({"from_words": start, "below_words": 2.0**power, **scores})
    return rows


def draw_by_length(
    by_length: Mapping[str, Sequence[Mapping[str, float]]], path: Path, title: str
) -> None:
    """Draws MRR over length, with a line for each row of the table."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, buckets in by_length.items():
        ticks = []
        for bucket in buckets:
            words = f"{bucket['from_words']:,.0f}–{bucket['below_words'] - 1:,.0f}"
            ticks.append(f"{words}\n({bucket['queries']:,.0f})")
        axes.plot(ticks, [bucket["mrr"] for bucket in buckets], "o-", label=name, markersize=4)
    axes.set(
        xlabel="words of the longer side (number of queries)",
        ylabel="MRR",
        ylim=(0, 1.02),
        title=title,
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def report(
    task: RetrievalTask, rankings: Mapping[str, dict[str, Ranking]], model_row: str, folder: Path
) -> dict[str, dict[str, float]]:
    """Prints the table; writes scores, a picture, and the model's ranks.

    By the ranks, `benchmarks/studies/compare_runs.py` tests whether a model is better than another.
    """
    scores = {}
    by_length = {}
    print(f"| | MRR@{K} | hit rate at {K} |\n| --- | --- | --- |")
    for name, ranking in rankings.items():
        scores[name] = retrieval_scores(ranking, K)
        by_length[name] = scores_by_length(task, ranking)
        print(f"| {name} | {scores[name][f'mrr@{K}']:.4f} | {scores[name][f'hit_rate@{K}']:.4f} |")

    draw_by_length(by_length, folder / "mrr_by_length.png", title=task.name)
    results = {"task": task.name, "rows": scores, "by_length": by_length}
    (folder / "results.json").write_text(json.dumps(results, indent=2), encoding="utf-8")
    with (folder / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for query, order in rankings[model_row].items():
            ranks = order.ranks.tolist()
            print(json.dumps({"query": query, "ranks_of_relevant_documents": ranks}), file=file)
    return scores


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    args = parse_arguments(argv)
    folder = Path(args.output_dir)

    # 1. The queries and the pool.
    task = read_task(args.dataset, args.query_column, args.document_column)
    print(f"{task.name}: {len(task.queries)} queries, {len(task.documents)} documents")

    # 2. The model, and the encoder of the row SBERT, which reads as many tokens as it can.
    model = AutoModel.from_pretrained(model_path(args.model)).to(PartialState().device).eval()
    sbert = args.sbert
    if sbert is None:
        sbert = model.config.chunk_encoder_name
    if not sbert:
        raise ValueError(f"{args.model} does not name its chunk encoder. Give --sbert.")
    sbert = model_path(sbert)
    max_tokens = load_chunk_encoder(sbert).max_chunk_size

    # 3. Chunk vectors of all texts, and the document vectors that the model makes of them.
    corpus = encode_chunks(task, model, folder / "vectors")
    ids = [*task.queries, *task.documents]
    chunks = [corpus[name].plain.float() for name in ids]
    with torch.no_grad():
        _, documents = model.contextualize(chunks)
    means = [vectors.mean(dim=0) for vectors in chunks]

    # 4. The rows: each ranks the pool for every query.
    model_row = Path(args.model).resolve().name
    rankings = {
        model_row: rank_vectors(task, dict(zip(ids, documents.float().cpu(), strict=True))),
        "Avg. SBERT": rank_vectors(task, dict(zip(ids, means, strict=True))),
    }
    rankings["SBERT"] = rank_beginnings(task, sbert, max_tokens=max_tokens)
    for name in args.encoders:
        rankings[name] = rank_beginnings(task, name)

    queries = list(task.queries.values())
    pool = list(task.documents.values())
    rankings["BM25"] = rank_by_scores(task, bm25_scores(queries, pool))
    rankings["TF-IDF"] = rank_by_scores(task, tfidf_scores(queries, pool))

    # 5. The table, and the files of scores and ranks.
    return report(task, rankings, model_row, folder)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
