"""Distils a sentence encoder into a table of token vectors, by two ridge regressions.

A text gets the mean of its tokens' vectors, which shall be near the vector that the encoder (the
teacher) gives it. The first regression maps the vectors of an older table to the teacher's space.
The second adds an offset to each token; its penalty keeps the offsets of rare tokens small.

    python examples/next_level_bert/distill_static.py texts.jsonl.gz --output_dir my-table
    nextlevelbert pretrain --chunk_encoder my-table --train_file books.jsonl ...

The texts are sentences and short paragraphs, each a row with a ``text``. The columns ``source`` and
``licence`` are counted in the card.

The table of nextlevelbert-static was not replaced by such a table. With the new table, whitened
means rank chapters and excerpts of the same novel higher, but excerpts of the same RFC lower. The
figures are in docs/results.md, under "Tried, and dropped".
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import paired_cosine_distances

from nextlevelbert import load_chunk_encoder, read_documents, static_checkpoint
from nextlevelbert.command import run_command

MAP_PENALTY = 0.1  # as a share of the mean variance of a dimension
OFFSET_PENALTY = 0.05  # of .003 to .3 about the best by held-out cosine on 5,000 mixed texts


def token_shares(tokenizer, texts: Sequence[str]) -> sparse.csr_array:
    """Returns the share of each of V tokens in each of n texts, ``[n, V]``."""
    ids = tokenizer(list(texts), add_special_tokens=False).input_ids
    lengths = np.array(list(map(len, ids)))
    borders = np.append(0, np.cumsum(lengths))
    shares = np.repeat(1 / np.maximum(lengths, 1), lengths)
    matrix = sparse.csr_array(
        (shares, np.concatenate(ids).astype(np.int32), borders),
        shape=(len(texts), len(tokenizer)),
    )
    matrix.sum_duplicates()
    return matrix


def fit_table(
    table: np.ndarray, shares: sparse.csr_array, targets: np.ndarray, map_only: bool = False
) -> np.ndarray:
    """Fits the vectors of tokens, so that their means are near the targets.

    Args:
        table: the older table ``[V, d]``.
        shares: the tokens of n texts, from `token_shares`.
        targets: the teacher's vectors ``[n, D]``.
        map_only: if true, tokens get no offsets.

    Returns:
        The new table ``[V, D]``.
    """
    means = shares @ table
    penalty = MAP_PENALTY * len(means) * means.var(axis=0).mean()
    mapped = Ridge(alpha=penalty).fit(means, targets).predict(table)
    if map_only:
        return mapped
    offsets = Ridge(alpha=OFFSET_PENALTY, fit_intercept=False, solver="sparse_cg")
    offsets.fit(sparse.csr_matrix(shares), targets - shares @ mapped)
    return mapped + offsets.coef_.T


def card(rows: Sequence[Mapping[str, Any]], teacher: str, cosine: float, held_out: int) -> str:
    """Writes the model card: what the table was made of, and its score."""
    counts = Counter(
        (str(row.get("source", "texts")), str(row.get("licence", "not named"))) for row in rows
    )
    lines = [
        "# A table of token vectors",
        "",
        f"It was distilled from {Path(teacher).name} by `distill_static.py` of nextlevelbert. On",
        f"{held_out:,} further texts, the cosine with the teacher's vectors is {cosine:.3f}.",
        "",
        "| source | licence | texts |",
        "| --- | --- | ---: |",
    ]
    lines += [f"| {source} | {licence} | {n:,} |" for (source, licence), n in counts.most_common()]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("texts", nargs="+", help="files with a text in each row")
    parser.add_argument("--teacher", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--table", default=static_checkpoint(), help="folder of the older table")
    parser.add_argument("--map_only", action="store_true", help="only the first regression")
    parser.add_argument("--held_out", type=int, default=10, help="every n-th text is not used")
    parser.add_argument("--output_dir", required=True, help="folder of the new table")
    args = parser.parse_args(argv)

    # 1. The texts, and the teacher's vectors.
    documents = list(read_documents(args.texts))
    texts = [document.text for document in documents]
    teacher = SentenceTransformer(args.teacher)
    targets = teacher.encode(texts, normalize_embeddings=True, show_progress_bar=True)

    # 2. The two regressions.
    older = load_chunk_encoder(args.table)
    table = older.encoder.model.embedding.weight.detach().double().numpy()
    shares = token_shares(older.tokenizer, texts)
    is_held_out = np.arange(len(texts)) % args.held_out == 0
    new = fit_table(table, shares[~is_held_out], targets[~is_held_out], args.map_only)

    # 3. The score on texts that were not used.
    distances = paired_cosine_distances(shares[is_held_out] @ new, targets[is_held_out])
    cosine = 1 - distances.mean()
    print(f"cosine with the teacher on {is_held_out.sum():,} held-out texts: {cosine:.3f}")

    # 4. The table in the files of sentence-transformers, with its card.
    step = StaticEmbedding(older.tokenizer.backend_tokenizer, new.astype(np.float32))
    SentenceTransformer(modules=[step, Normalize()], device="cpu").save(args.output_dir)
    rows = [documents[index].metadata for index in np.flatnonzero(~is_held_out)]
    text = card(rows, args.teacher, cosine, int(is_held_out.sum()))
    Path(args.output_dir, "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
