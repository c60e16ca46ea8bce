"""Do a Transformer's chunk vectors find passages, chunk by chunk and by late chunking? (docs/study.md)

    python -m benchmarks.studies.late_chunking --data DATA --train_file novels/train.jsonl \\
        --encoder sentence-transformers/all-MiniLM-L6-v2 --checkpoint checkpoints/nextlevelbert-passages \\
        --output_dir late_chunking

The judge of ``benchmarks.studies.passages`` on its first 128 chunks of each novel, with every fourth sentence as a
question, because a Transformer is slow. Late chunking (Günther and others 2024, arXiv 2409.04701): the encoder reads
as many whole chunks as fit into its 512 positions, and a chunk's vector is the mean of its own tokens. Whitening is
fitted to the first 64 chunks of 40 training novels, in the same way of reading. Stored vectors are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from benchmarks.common.passages import Encode, PassageJudge, Task, answers, removed_sentences
from benchmarks.common.studies import study_parser
from benchmarks.studies.passages import SIZE, _contextual_of, alone_and_with_words, with_neighbours, write
from nextlevelbert import NextLevelBertModel, load_chunk_encoder, read_documents
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.pooling import ChunkWhitening, fit_whitening
from nextlevelbert.pretraining.trained_tokens import NO_TOKEN
from nextlevelbert.tasks.retrieval import tfidf_scores

CHUNKS, EVERY, FITTED_NOVELS, FITTED_CHUNKS = 128, 4, 40, 64


def beginning(task: Task) -> Task:
    """The first chunks of every document, and their questions."""
    assert task.places is not None
    kept = [number for number, place in enumerate(task.places) if place < CHUNKS]
    return Task(
        [chunks[:CHUNKS] for chunks in task.passages],
        [task.questions[number] for number in kept],
        [task.right[number] for number in kept],
        [task.places[number] for number in kept],
        task.names,
        task.columns,
    )


def windows(lengths: Iterable[int], capacity: int) -> list[list[int]]:
    """Chunks that are read together: as many as fit into the tokens of a window, at least one."""
    found: list[list[int]] = []
    free = 0
    for number, length in enumerate(lengths):
        if not found or length > free:
            found.append([])
            free = capacity
        found[-1].append(number)
        free -= length
    return found


@torch.no_grad()
def vectors_by_windows(source: LoadedChunkEncoder, document: torch.Tensor, late: bool) -> torch.Tensor:
    """Chunk vectors ``[n, D]`` of length 1 of token ids ``[n, C]``, -1 where there is none.

    Not `late`, a chunk stands alone, and its vector is the mean over its tokens, [CLS] and [SEP], as the encoder has
    learned it.
    """
    chunks = [row[row != NO_TOKEN] for row in document]
    groups = windows(map(len, chunks), 510) if late else [[number] for number in range(len(chunks))]
    tokenizer = source.tokenizer
    first, last = torch.tensor([tokenizer.cls_token_id]), torch.tensor([tokenizer.sep_token_id])
    texts = [torch.cat([first, *(chunks[number] for number in group), last]) for group in groups]
    found: list[torch.Tensor] = []
    for start in range(0, len(texts), 16):
        part = texts[start : start + 16]
        ids, mask = pad_sequence(part, True), pad_sequence([torch.ones_like(text) for text in part], True)
        hidden = source.encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [b, T, D]
        for text, rows, group in zip(part, hidden, groups[start : start + 16], strict=True):
            if late:
                found += [own.mean(dim=0) for own in rows[1 : len(text) - 1].split([len(chunks[n]) for n in group])]
            else:
                found.append(rows[: len(text)].mean(dim=0))
    return F.normalize(torch.stack(found), dim=1)


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--books", help="novels to judge by; default: those of validation in --data")
    parser.add_argument("--checkpoint", type=Path, required=True, help="a static model of --objective passages")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    source, finished = load_chunk_encoder(args.encoder), NextLevelBertModel.from_pretrained(args.checkpoint).eval()
    table = load_chunk_encoder(args.checkpoint)
    if source.tokenizer.get_vocab() != table.tokenizer.get_vocab():
        parser.error(
            f"{args.encoder} and {args.checkpoint} do not have one vocabulary; the judge counts in its tokens."
        )
    books = args.books or str(args.data / "novels/validation.jsonl.gz")
    tasks = [beginning(removed_sentences(books, table, SIZE, EVERY)), answers(args.data, table, SIZE)]
    static = PassageJudge(tasks, table, SIZE)
    assert finished.whitening is not None  # as a model of passages has it

    rows: dict[str, tuple[PassageJudge, Encode]] = {
        args.checkpoint.name: (static, partial(_contextual_of, finished)),
        "static, whitened": (static, partial(map_each, finished.whitening)),
        "static, whitened, and 0.4 of each neighbour": (static, with_neighbours(finished.whitening, [0.4])),
    }
    novels = TokenCorpus(read_documents(str(args.train_file)), source.tokenizer)
    fitted = [novels[number][: FITTED_CHUNKS * SIZE].long() for number in range(FITTED_NOVELS)]
    for name, late in (("MiniLM", False), ("MiniLM, late chunking", True)):
        kept = args.output_dir / f"{name}.pt"
        if not kept.exists():
            read = partial(vectors_by_windows, source, late=late)
            white = ChunkWhitening(table.encoder.model.config.hidden_size)
            mean, weight = fit_whitening(
                read(F.pad(ids, (0, -len(ids) % SIZE), value=NO_TOKEN).reshape(-1, SIZE)) for ids in fitted
            )
            white.mean.copy_(mean)
            white.weight.copy_(weight)
            vectors = [
                # A question stands alone.
                [
                    [*map(read, task.passages)],
                    [vectors_by_windows(source, each, late=False) for each in task.questions],
                ]
                for task in tasks
            ]
            torch.save({"whitening": white.state_dict(), "vectors": vectors}, kept)
        stored = torch.load(kept)
        white = ChunkWhitening(table.encoder.model.config.hidden_size)
        white.load_state_dict(stored["whitening"])
        judge = static.with_vectors(stored["vectors"])
        rows[name] = (judge, lambda documents: documents)
        rows[f"{name}, whitened"] = (judge, partial(map_each, white))
        rows[f"{name}, whitened, and 0.4 of each neighbour"] = (judge, with_neighbours(white, [0.4]))
    found = {
        label: [scores]
        for name, (judge, encode) in rows.items()
        for label, scores in alone_and_with_words(judge, name, encode)
    }
    found |= {"TF-IDF": [static.words(tfidf_scores)], "BM25": [static.bm25()]}
    args.against, args.steps = [args.checkpoint.name, "BM25"], None
    print(write(args, tasks, found))


def map_each(function: torch.nn.Module, documents: list[torch.Tensor]) -> list[torch.Tensor]:
    return [function(chunks) for chunks in documents]


if __name__ == "__main__":
    main()
