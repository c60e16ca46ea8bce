"""Do chunk borders that move in every epoch make up for few books? (docs/study.md)

    python -m benchmarks.studies.shifted_borders --data DATA --cache_dir vectors --output_dir shifted

The first novels are encoded four times, with the first 0, 64, 128 and 192 tokens left out, so that every chunk border
moves. The recipe "whitened, gate" of next_level_study.py is then trained in four stages, once with a stage for each of
these corpora and once with four on the first of them: the same steps, rates and restarts. Judged like every row of the
study. Finished parts are kept. Prints a Markdown table and writes ``study.json``.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.corpora import kept_corpus
from benchmarks.common.judge import JUDGED, Judge, interval
from benchmarks.common.studies import pretrain, study_parser
from benchmarks.studies.next_level_study import ANYWHERE, rounded
from nextlevelbert import Document, NextLevelBertModel, VectorCorpus, load_chunk_encoder
from nextlevelbert.data.rows import file_rows
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.models.pooling import fit_whitening

SHIFTS = (0, 64, 128, 192)


def shifted(args: Namespace, shift: int) -> VectorCorpus:
    """A corpus of the novels without their first tokens."""
    source = load_chunk_encoder(args.encoder, args.encoder_name)

    def novels() -> Iterator[Document]:
        for row in islice(file_rows(args.data / "novels/train.jsonl.gz"), args.books):
            starts = tokenize_document(source.tokenizer, row["text"]).char_starts
            yield Document(row["id"], row["text"][starts[shift] :])

    return kept_corpus(novels(), source, args.chunk_size, args.chunking, args.output_dir / f"corpus-{shift}")


def train(args: Namespace, name: str, shifts: tuple[int, ...], seed: int) -> Path:
    """A stage on each of these corpora, each starting from the model of the stage before."""
    last: Path | None = None
    for stage, shift in enumerate(shifts):
        folder = args.output_dir / f"{name}-{seed}-stage-{stage}"
        start = ["--whiten_chunks"] if last is None else ["--model", str(last)]
        own = ["--max_steps", args.steps // len(shifts), "--lr_scheduler_type", "constant", "--seed", seed]
        if not (folder / "eval_results.json").exists():
            pretrain(args.output_dir / f"corpus-{shift}", folder, args, *own, *ANYWHERE, *start)
        last = folder
    assert last is not None
    return last


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument("--books", type=int, default=15, help="training novels, the first ones")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.set_defaults(chunk_size=retrieval.CHUNK_SIZE, chunking="fixed", tasks=[JUDGED], letters_only=False)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    corpora = [shifted(args, shift) for shift in SHIFTS]
    judge = Judge(args)
    rows: dict[str, Any] = {"mean of chunk vectors (Avg. SBERT)": judge.scores(retrieval.mean_of_chunks)}
    for count in (1, len(corpora)):
        mean, weight = fit_whitening(document.vectors for corpus in corpora[:count] for document in corpus)
        rows[f"mean, whitened within documents, {count} borders"] = judge.scores(retrieval.whitened_mean(mean, weight))
    for seed in args.seeds:
        for name, shifts in (("same", SHIFTS[:1] * len(SHIFTS)), ("shifted", SHIFTS)):
            model = NextLevelBertModel.from_pretrained(train(args, name, shifts, seed)).eval()
            rows[f"trained, {name} borders, seed {seed}"] = judge.scores(retrieval.contextual(model, name))
    base = rows["mean of chunk vectors (Avg. SBERT)"]
    facts = {"machine": measuring.processor(), "books": args.books, "steps": args.steps, "rows": rounded(rows)}
    (args.output_dir / "study.json").write_text(json.dumps(facts) + "\n")
    measuring.print_table(
        ["", "chapters MAP", "adjacent", "above Avg. SBERT"],
        [
            [name, *(f"{row[f'{JUDGED}: {label}']:.3f}" for label in ("MAP", "adjacent recall@10")),
             "{:+.3f} to {:+.3f}".format(*interval(row, base))]
            for name, row in rows.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
