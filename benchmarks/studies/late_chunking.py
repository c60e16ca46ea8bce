"""Do a Transformer's chunk vectors find passages, chunk by chunk and by late chunking? (docs/study.md)

    python -m benchmarks.studies.late_chunking --data DATA --train_file novels/train.jsonl \\
        --encoder sentence-transformers/all-MiniLM-L6-v2 --checkpoint checkpoints/nextlevelbert-passages \\
        --output_dir late_chunking

The judge of ``benchmarks.studies.passages`` on the first 64 chunks of each novel, with every removed sentence as a
question, because a Transformer is slow. Late chunking (Günther and others 2024, arXiv 2409.04701): the encoder reads
as many whole chunks as fit into its 512 positions, and a chunk's vector is the mean of its own tokens. A question is
read alone. Whitening is fitted to the first 64 chunks of 16 training novels, read in the same way. Chunk vectors are
kept in the output folder. Writes ``study.json`` and ``table.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from benchmarks.common.passages import Encode, PassageJudge, Task, answers, removed_sentences
from benchmarks.common.studies import study_parser
from benchmarks.studies.passages import SIZE, alone_and_with_words, contextual_of, with_neighbours, write
from nextlevelbert import NextLevelBertModel, load_chunk_encoder, read_documents
from nextlevelbert.corpus.files import write_atomically
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.pooling import ChunkWhitening, fit_whitening
from nextlevelbert.pretraining.passages import PassageLearner
from nextlevelbert.pretraining.trained_tokens import NO_TOKEN
from nextlevelbert.tasks.retrieval import tfidf_scores

CHUNKS, FITTED_NOVELS = 64, 16
TEXTS_PER_PASS = 16


def beginning(task: Task, chunks: int) -> Task:
    """The first chunks of every document, and their questions."""
    assert task.places is not None
    kept = [number for number, place in enumerate(task.places) if place < chunks]
    return Task(
        [rows[:chunks] for rows in task.passages],
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
def read(source: LoadedChunkEncoder, document: torch.Tensor, late: bool) -> torch.Tensor:
    """Chunk vectors ``[n, D]`` of length 1 of token ids ``[n, C]``, -1 where there is none.

    Not `late`, a chunk stands alone, and its vector is the mean over its tokens, [CLS] and [SEP], as the encoder has
    learned it.
    """
    chunks = [row[row != NO_TOKEN] for row in document]
    tokenizer = source.tokenizer
    first, last = torch.tensor([tokenizer.cls_token_id]), torch.tensor([tokenizer.sep_token_id])
    capacity = source.encoder.model.config.max_position_embeddings - 2
    groups = windows(map(len, chunks), capacity) if late else [[number] for number in range(len(chunks))]
    texts = [torch.cat([first, *(chunks[number] for number in group), last]) for group in groups]
    found: list[torch.Tensor] = []
    for start in range(0, len(texts), TEXTS_PER_PASS):
        part = texts[start : start + TEXTS_PER_PASS]
        ids, mask = pad_sequence(part, True), pad_sequence([torch.ones_like(text) for text in part], True)  # [b, T]
        hidden = source.encoder.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [b, T, D]
        for text, rows, group in zip(part, hidden, groups[start : start + TEXTS_PER_PASS], strict=True):
            if late:
                own = rows[1 : len(text) - 1].split([len(chunks[number]) for number in group])
                found += [tokens.mean(dim=0) if len(tokens) else rows[0] * 0 for tokens in own]
            else:
                found.append(rows[: len(text)].mean(dim=0))
    return F.normalize(torch.stack(found), dim=1)


def kept_in(
    file: Path, source: LoadedChunkEncoder, sides: list[list[torch.Tensor]], late: bool
) -> list[list[torch.Tensor]]:
    """Chunk vectors of all documents, which a safetensors file holds or gets."""
    if not file.exists():
        vectors = {
            f"{side}.{number}": read(source, chunks, late)
            for side, documents in enumerate(sides)
            for number, chunks in enumerate(documents)
        }
        sizes = json.dumps([len(documents) for documents in sides])
        write_atomically(file, save(vectors, {"sizes": sizes}))
    with safe_open(file, framework="pt") as kept:
        sizes = json.loads(kept.metadata()["sizes"])
        return [[kept.get_tensor(f"{side}.{number}") for number in range(count)] for side, count in enumerate(sizes)]


def fitted(documents: Iterable[torch.Tensor], size: int) -> ChunkWhitening:
    """A whitening fitted to chunk vectors ``[n, D]`` of documents."""
    white = ChunkWhitening(size)
    mean, weight = fit_whitening(documents)
    white.mean.copy_(mean)
    white.weight.copy_(weight)
    return white


def rows_of(name: str, judge: PassageJudge, white: nn.Module) -> dict[str, tuple[PassageJudge, Encode]]:
    """Plain and whitened chunk vectors, and whitened ones with their neighbours."""
    return {
        name: (judge, lambda documents: documents),
        f"{name}, whitened": (judge, lambda documents: [white(chunks) for chunks in documents]),
        **{f"{name}, whitened, and {share} of each neighbour": (judge, with_neighbours(white, [share]))
           for share in (0.4, 0.8)},
    }  # fmt: skip


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--checkpoint", type=Path, required=True, help="a static model of --objective passages")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    source, table = load_chunk_encoder(args.encoder, args.encoder_name), load_chunk_encoder(args.checkpoint)
    finished = NextLevelBertModel.from_pretrained(args.checkpoint).eval()
    if source.tokenizer.get_vocab() != table.tokenizer.get_vocab():
        parser.error(
            f"{args.encoder} and {args.checkpoint} do not have one vocabulary; the judge counts in its tokens."
        )
    books = str(args.data / "novels/validation.jsonl.gz")
    tasks = [beginning(removed_sentences(books, table, SIZE), CHUNKS), answers(args.data, table, SIZE)]
    novels = TokenCorpus(read_documents(str(args.train_file)), source.tokenizer)
    wanted = [novels[number][: CHUNKS * SIZE].long() for number in range(FITTED_NOVELS)]
    shelf = [F.pad(ids, (0, -len(ids) % SIZE), value=NO_TOKEN).reshape(-1, SIZE) for ids in wanted]

    static = PassageJudge(tasks, table, SIZE)
    words = {"TF-IDF": [static.words(tfidf_scores)], "BM25": [static.bm25()]}  # counted once, for all rows
    assert finished.whitening is not None  # as a model of passages has it
    learner = PassageLearner(finished, table, 0.0).eval()
    size = finished.config.hidden_size
    with torch.no_grad():
        white = fitted([learner.chunk_vectors(chunks) for chunks in shelf], size)
    rows = rows_of("static", static, white)
    rows["static, whitened by all training novels"] = (
        static,
        lambda documents: [finished.prepare_chunks(chunks) for chunks in documents],
    )
    rows[args.checkpoint.name] = (static, partial(contextual_of, finished))
    kept = args.output_dir / "questions.safetensors"
    questions = kept_in(kept, source, [task.questions for task in tasks], late=False)
    for name, late in (("MiniLM", False), ("MiniLM, late chunking", True)):
        kept = args.output_dir / f"{name}.safetensors"
        *vectors, near = kept_in(kept, source, [*(task.passages for task in tasks), shelf], late)
        judge = static.with_vectors([list(sides) for sides in zip(vectors, questions, strict=True)])
        rows |= rows_of(name, judge, fitted(near, size))
    found = {
        label: [scores]
        for name, (judge, encode) in rows.items()
        for label, scores in alone_and_with_words(judge, name, encode)
    }
    args.against = ["MiniLM, whitened", "MiniLM", "static, whitened", args.checkpoint.name, "BM25"]
    args.steps = None
    print(write(args, tasks, found | words))


if __name__ == "__main__":
    main()
