"""What the three chunking modes cost: padding in micro-batches, chunks, and chunks that an edit
changes.

An edit inserts, deletes or replaces one sentence in the first twentieth of a document; re-encoded
are the chunks of the edited document that the old one does not have. Nothing is timed and no
network runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

from benchmarks.common import measuring
from nextlevelbert import ChunkingRule, load_chunk_encoder, read_documents
from nextlevelbert.models.chunk_encoder import micro_batches
from nextlevelbert.models.sentences import sentence_boundaries, sentence_token_ids
from nextlevelbert.models.tokenizing import tokenize_document

EDITS = 9
BUDGETS = (2_048, 131_072)  # positions of a micro-batch on a CPU, on an accelerator
DOCUMENTS_PER_SHARD = 8


def padding(lengths: np.ndarray, budget: int) -> tuple[int, int]:
    """Counts real and padded positions of chunks that are encoded together."""
    batches = list(micro_batches(lengths, budget))
    return int(lengths.sum()), sum(int(lengths[rows].max()) * len(rows) for rows in batches)


def edited(
    ids: np.ndarray, sentences: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yields the document with a sentence inserted, deleted or replaced, in turn.

    New sentences come from a later part of the document.
    """
    early = max(2, len(sentences) // 20)
    for number in range(EDITS):
        place = int(rng.integers(1, early))
        other = int(rng.integers(early, len(sentences) - 1))
        start = sentences[place]
        end = sentences[place + 1]
        new = ids[sentences[other] : sentences[other + 1]]
        inserted = [ids[:start], new, ids[start:]]
        deleted = [ids[:start], ids[end:]]
        replaced = [ids[:start], new, ids[end:]]
        yield np.concatenate((inserted, deleted, replaced)[number % 3])


def chunks(rule: ChunkingRule, ids: np.ndarray) -> list[bytes]:
    return [ids[start:end].tobytes() for start, end in pairwise(rule.boundaries(ids))]


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    measuring.add_file_option(parser)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument(
        "--smallest", type=int, default=20_000, help="characters; shorter documents are left out"
    )
    args = parser.parse_args()
    tokenizer = load_chunk_encoder(args.encoder).tokenizer
    long = (
        document.text
        for document in read_documents(args.file)
        if len(document.text) >= args.smallest
    )
    documents = [
        tokenize_document(tokenizer, text).input_ids for text in islice(long, args.documents)
    ]
    classes = sentence_token_ids(tokenizer)
    measuring.print_header(
        "no network", f"{len(documents)} documents, {sum(map(len, documents)):,} tokens"
    )
    rows = []
    fixed = 0
    for mode in ("fixed", "packed_sentences", "sentences"):
        rule = ChunkingRule.from_tokenizer(tokenizer, 256, mode)
        lengths = [
            np.diff(rule.boundaries(ids)) + 2 for ids in documents
        ]  # with the two special tokens
        shards = [
            np.concatenate(lengths[start : start + DOCUMENTS_PER_SHARD])
            for start in range(0, len(lengths), DOCUMENTS_PER_SHARD)
        ]
        shares = []
        for budget in BUDGETS:
            real, padded = np.sum([padding(shard, budget) for shard in shards], axis=0)
            shares.append(f"{padded / real - 1:.2%}")
        changed = []
        rng = np.random.default_rng(0)
        for ids in documents:
            before = set(chunks(rule, ids))
            for after in edited(ids, sentence_boundaries(ids, classes), rng):
                new = chunks(rule, after)
                changed.append(sum(chunk not in before for chunk in new) / len(new))
        count = sum(map(len, lengths))
        fixed = fixed or count
        spread = [np.mean(changed), *np.quantile(changed, [0.5, 0.9, 1.0])]
        rows.append([mode, f"{count / fixed:.2f}", *shares, *(f"{value:.2%}" for value in spread)])
    head = ["chunking", "chunks against `fixed`", *(f"padding at {budget:,}" for budget in BUDGETS)]
    measuring.print_table([*head, "re-encoded: mean", "median", "90th", "largest"], rows)


if __name__ == "__main__":
    main()
