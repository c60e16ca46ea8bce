"""Do chunk vectors that know their neighbours find passages better than those that do not? (docs/study.md)

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.passages --data DATA --train_file novels/train.jsonl \\
        --encoder all-MiniLM-L6-v2-static --output_dir passages --seeds 0 1 2

A sentence is taken out of every chunk of unseen novels, as in training. Every sixteenth looks for its chunk among all
chunks of all novels, and among those of its own novel (MRR). In SQuALITY, people's answers look for a chunk of their
story among those of 25 stories, with names deleted. Every row of vectors comes again with BM25: both scores scaled to
0 to 1 for each question, and added.

Trained rows learn from the same batches: `PassageLearner` with the settings of ``run_pretraining.py --objective
passages``. Attention is two layers of ModernBERT (local, with relative positions), added to a linear map or to the
convolution. Intervals of 95 % are over books, of the mean over seeds, and of the differences to the rows of
``--against``. ``--books`` judges by other novels, and ``--checkpoint`` a finished model. Finished parts are kept.
Writes ``study.json`` and ``table.md``.
"""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from transformers import ModernBertConfig, ModernBertModel, get_cosine_schedule_with_warmup

from benchmarks.common import measuring
from benchmarks.common.passages import Encode, PassageJudge, Task, answers, letters, removed_sentences
from benchmarks.common.studies import add_letters_option, study_parser
from nextlevelbert import NextLevelBertForContrastiveLearning, NextLevelBertModel, load_chunk_encoder, read_documents
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.sentences import sentence_token_ids
from nextlevelbert.pretraining.passages import DataCollatorForPassages, PassageDataset, PassageLearner
from nextlevelbert.pretraining.trained_tokens import NO_TOKEN, vectors_of
from nextlevelbert.tasks.retrieval import tfidf_scores

SIZE, SEGMENT, EVERY = 128, 128, 16  # tokens in a chunk, chunks in a segment, sentences for each question
CONTROL = "linear map"
RATE, LAYERS_RATE = 1e-3, 2e-4
# Chunks on either side, and the attention of the layers, if there are any.
ROWS: dict[str, tuple[int, str | None]] = {
    CONTROL: (0, None),
    "convolution over 5 chunks": (2, None),
    "convolution over 11 chunks": (5, None),
    "convolution over 17 chunks": (8, None),
    "linear map and attention": (0, "full_attention"),
    "linear map and local attention": (0, "sliding_attention"),
    "convolution over 17 chunks and local attention": (8, "sliding_attention"),
}
NEIGHBOURS = (0.4, 0.6, 0.8, 1.0)
FADING = (0.6,)


def layers_over(size: int, attention: str) -> ModernBertModel:
    """Two pre-norm layers with relative positions over ``[N, L, D]``; local attention sees 16 on either side."""
    return ModernBertModel(
        ModernBertConfig(
            vocab_size=1,
            hidden_size=size,
            num_hidden_layers=2,
            num_attention_heads=size // 32,
            intermediate_size=2 * size,
            layer_types=[attention] * 2,
            local_attention=32,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
            cls_token_id=None,
            sep_token_id=None,
        )
    )


class AttentionLearner(PassageLearner):
    """A model with pre-norm layers over what its map or its convolution gives.

    Their output is added with a small weight that is trained: training begins near the model without them, and every
    weight has a gradient.
    """

    def __init__(self, model: Any, source: LoadedChunkEncoder, token_dropout: float, attention: str) -> None:
        super().__init__(model, source, token_dropout)
        self.layers = layers_over(model.config.hidden_size, attention)
        self.share = nn.Parameter(torch.tensor(0.1))

    def contextual(self, vectors: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        near, size = super().contextual(vectors, real), vectors.shape[-1]
        hidden = self.layers(inputs_embeds=near * size**0.5, attention_mask=real.long()).last_hidden_state
        # The last norm gives them a length of about sqrt(D).
        return F.normalize(near + self.share * hidden / size**0.5, dim=-1).masked_fill(~real.unsqueeze(-1), 0.0)


def with_neighbours(white: nn.Module, weights: list[float]) -> Encode:
    """Whitened chunks, to which those that are k away are added with the weight k - 1."""

    def encode(documents: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for chunks in documents:
            rows = white(chunks)
            total = rows.clone()
            for distance, weight in enumerate(weights, start=1):
                total[distance:] += weight * rows[:-distance]
                total[:-distance] += weight * rows[distance:]
            found.append(total)
        return found

    return encode


def without_training(judge: PassageJudge, white: nn.Module) -> dict[str, Any]:
    rows: dict[str, Encode] = {
        "plain": lambda documents: documents,
        "whitened": lambda documents: [white(chunks) for chunks in documents],
        **{f"whitened, and {share} of each neighbour": with_neighbours(white, [share]) for share in NEIGHBOURS},
        **{
            f"whitened, fading by {share}": with_neighbours(white, [share**k for k in range(1, 9)]) for share in FADING
        },
    }
    found = {name: row for label, encode in rows.items() for name, row in alone_and_with_words(judge, label, encode)}
    near = {f"BM25, and {share} of each neighbour": judge.bm25(share) for share in NEIGHBOURS}
    return {**found, "TF-IDF": judge.words(tfidf_scores), "BM25": judge.bm25(), **near}


def alone_and_with_words(judge: PassageJudge, name: str, encode: Encode) -> list[tuple[str, dict[str, list[float]]]]:
    alone, both = judge.vectors(encode)
    return [(name, alone), (f"{name} + BM25", both)]


def contextual_of(model: NextLevelBertModel, documents: list[torch.Tensor]) -> list[torch.Tensor]:
    return model.contextualize(documents)[0]


def contextual(learner: PassageLearner) -> Encode:
    """A row's vectors, in pieces of at most a window."""
    window = learner.config.window()[0]

    def encode(documents: list[torch.Tensor]) -> list[torch.Tensor]:
        if all(len(chunks) == 1 for chunks in documents):  # questions, all at once
            rows = torch.stack(documents)
            return list(learner.contextual(rows, torch.ones(rows.shape[:2], dtype=torch.bool)))
        pieces = [[learner.contextual(part[None], torch.ones(1, len(part), dtype=torch.bool))[0]
                   for part in chunks.split(window)] for chunks in documents]  # fmt: skip
        return [torch.cat(parts) for parts in pieces]

    return encode


def weight_groups(module: nn.Module) -> list[dict[str, Any]]:
    """For an optimiser: the weights of ``module.layers`` with a rate of their own, and all others."""
    own = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    layers = [weight for name, weight in own.items() if name.startswith("layers.")]
    others = [weight for name, weight in own.items() if not name.startswith("layers.")]
    return [{"params": others}, *([{"params": layers, "lr": LAYERS_RATE}] if layers else [])]


def train(names: list[str], seed: int, corpus: TokenCorpus, whitening: Any, source: LoadedChunkEncoder,
          args: Namespace) -> dict[str, PassageLearner]:  # fmt: skip
    """Rows trained side by side, on the same batches with the same tokens dropped."""
    learners: dict[str, PassageLearner] = {}
    for name in names:
        reach, attention = ROWS[name]
        torch.manual_seed(seed)
        model = NextLevelBertForContrastiveLearning.from_chunk_encoder(
            source, SIZE, neighbours=reach, pooling="mean", whiten_chunks=True, include_chunk_encoder=False
        )
        model.model.whitening.load_state_dict(whitening)
        learners[name] = (
            AttentionLearner(model.train(), source, 0.15, attention)
            if attention
            else PassageLearner(model.train(), source, 0.15)
        )
    tools = {}
    for name, learner in learners.items():
        weights = [weight for weight in learner.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weight_groups(learner), RATE, weight_decay=0.01)
        tools[name] = (weights, optimizer, get_cosine_schedule_with_warmup(optimizer, args.steps // 20, args.steps))
    dataset = PassageDataset(corpus, SIZE, 4, SEGMENT, seed=seed)
    collate = DataCollatorForPassages(SIZE, sentence_token_ids(source.tokenizer))
    first, order = learners[names[0]], np.random.default_rng(seed)
    torch.manual_seed(seed)
    for step in range(args.steps):
        items = order.choice(len(dataset), args.batch_size, replace=False)
        dataset.epoch = step
        batch = collate([dataset[int(index)] for index in items])
        ids = batch["passage_ids"]
        with torch.no_grad():
            vectors = first.chunk_vectors(ids.flatten(0, 1)).unflatten(0, ids.shape[:2])
            questions = first.chunk_vectors(batch["question_ids"])
        real = (ids != NO_TOKEN).any(dim=-1)
        for name, learner in learners.items():
            weights, optimizer, schedule = tools[name]
            loss = learner.compare(vectors, real, questions, batch["question_chunks"], batch["document_ids"]).loss
            assert loss is not None  # there are questions
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return {name: learner.eval() for name, learner in learners.items()}


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    add_letters_option(parser)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--books", help="novels to judge by; default: those of validation in --data")
    parser.add_argument("--checkpoint", type=Path, nargs="+", default=[], help="folders of finished models to judge")
    parser.add_argument("--against", nargs="+", default=[CONTROL, "whitened", "BM25"], help="rows to compare with")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch_size", type=int, default=4)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    source = load_chunk_encoder(args.encoder, args.encoder_name)
    books = args.books or str(args.data / "novels/validation.jsonl.gz")
    tasks = [removed_sentences(books, source, SIZE, EVERY), answers(args.data, source, SIZE)]
    if args.letters_only:
        tasks += [task.kept(letters(source)) for task in tasks]
    judge = PassageJudge(tasks, source, SIZE)
    corpus = TokenCorpus(read_documents(str(args.train_file)), source.tokenizer)
    model = NextLevelBertModel.from_chunk_encoder(source, SIZE, neighbours=0, pooling="mean", whiten_chunks=True)
    model.fit_whitening(vectors_of(corpus, range(len(corpus)), source, model.config.chunking_rule()))
    assert model.whitening is not None  # asked for
    kept = args.output_dir / "without training.json"
    if not kept.exists():
        kept.write_text(json.dumps([without_training(judge, model.whitening)]))
    found: dict[str, list[dict[str, list[float]]]] = {
        name: [row] for name, row in json.loads(kept.read_text())[0].items()
    }
    for path in args.checkpoint:
        finished = NextLevelBertModel.from_pretrained(path).eval()
        for name, row in alone_and_with_words(judge, path.name, partial(contextual_of, finished)):
            found[name] = [row]
    for seed in args.seeds:
        kept = args.output_dir / f"seed {seed}.json"
        rows = json.loads(kept.read_text()) if kept.exists() else {}
        if missing := [name for name in args.rows if name not in rows]:
            learners = train(missing, seed, corpus, model.whitening.state_dict(), source, args)
            for label, learner in learners.items():
                rows |= dict(alone_and_with_words(judge, label, contextual(learner)))
            kept.write_text(json.dumps(rows))
        for name, row in rows.items():
            found.setdefault(name, []).append(row)
        print(write(args, tasks, found), flush=True)
    print(write(args, tasks, found))


def write(args: Namespace, tasks: list[Task], found: dict[str, list[dict[str, list[float]]]]) -> str:
    """Writes table and figures of the finished rows; returns the table."""
    columns = {column: task.groups() for task in tasks for column in task.columns}
    means = {name: {column: np.mean([row[column] for row in rows], axis=0) for column in columns}
             for name, rows in found.items()}  # fmt: skip
    controls = [name for name in args.against if name in means]
    text, record, lines = StringIO(), {}, []
    for name, rows in found.items():
        scores = {
            column: measuring.with_interval(means[name][column], groups, 0) for column, groups in columns.items()
        }
        above = {control: {column: measuring.with_interval(means[name][column] - means[control][column], groups, 0)
                           for column, groups in columns.items()} for control in controls}  # fmt: skip
        seeds = [{column: float(np.mean(row[column])) for column in columns} for row in rows]
        record[name] = {"scores": scores, "above": above, "seeds": seeds}
        gaps = above[controls[0]]
        cells = [f"{scores[column][0]:.4f} ({gaps[column][1]:+.4f} to {gaps[column][2]:+.4f})" for column in columns]
        lines.append([name, len(rows), *cells])
    with redirect_stdout(text):
        measuring.print_table(["", "seeds", *columns], lines)
    (args.output_dir / "table.md").write_text(text.getvalue())
    questions = {column: len(groups) for column, groups in columns.items()}
    facts = {"machine": measuring.processor(), "steps": args.steps, "questions": questions, "rows": record}
    (args.output_dir / "study.json").write_text(json.dumps(facts, indent=1) + "\n")
    return text.getvalue()


if __name__ == "__main__":
    main()
