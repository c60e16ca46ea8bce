"""Do chunk borders that lie elsewhere in every epoch make up for few books? (docs/study.md)

    python benchmarks/shifted_borders.py --data DATA --cache_dir vectors --output_dir shifted

The first novels are encoded four times, with the first 0, 64, 128 and 192 tokens left out, so that every chunk border
moves. The recipe "whitened, gate" of next_level_study.py is then trained in four stages, once with a stage for each of
these corpora and once with four on the first of them: the same steps, rates and restarts. Judged like every row of the
study. What is there already is not made again; prints a Markdown table and writes ``study.json``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import Any

import document_retrieval as retrieval
import measuring
import torch
from next_level_study import ANYWHERE, SCRIPT, rounded
from study_judge import JUDGED, Judge, interval

from nextlevelbert import ChunkingRule, Document, NextLevelBertModel, VectorCorpus, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.models.whitening import fit_whitening

SHIFTS = (0, 64, 128, 192)


def shifted(args: Namespace, shift: int) -> Path:
    """A corpus of the novels without their first tokens."""
    folder = args.output_dir / f"corpus-{shift}"
    if not (folder / "manifest.json").exists() or not json.loads((folder / "manifest.json").read_text())["complete"]:
        source = load_chunk_encoder(args.encoder, args.encoder_name)
        rule = ChunkingRule.from_tokenizer(source.tokenizer, args.chunk_size, args.chunking, source.max_chunk_size)
        novels = []
        for row in islice(retrieval.rows_of(args.data / "novels/train.jsonl.gz"), args.books):
            starts = tokenize_document(source.tokenizer, row["text"]).char_starts
            novels.append(Document(row["id"], row["text"][starts[shift] :]))
        encode_corpus(iter(novels), source, rule, folder, dtype=torch.bfloat16, characters_per_shard=1_000_000)
    return folder


def train(args: Namespace, name: str, shifts: tuple[int, ...], seed: int) -> Path:
    """A stage on each of these corpora, each from where the one before it ended."""
    last: Path | None = None
    for stage, shift in enumerate(shifts):
        folder = args.output_dir / f"{name}-{seed}-stage-{stage}"
        start = ["--whiten_chunks"] if last is None else ["--model", str(last)]
        command = [
            sys.executable, str(SCRIPT), "--do_train", "--corpus_dir", str(args.output_dir / f"corpus-{shift}"),
            "--output_dir", str(folder), "--chunk_encoder", args.encoder, "--no_include_chunk_encoder", "--bf16",
            "--disable_tqdm", "true", "--save_strategy", "no", "--eval_strategy", "no", "--eval_on_start", "false",
            "--max_steps", str(args.steps // len(shifts)), "--lr_scheduler_type", "constant", "--seed", str(seed),
            *(["--chunk_encoder_name", args.encoder_name] if args.encoder_name else []), *ANYWHERE, *start,
        ]  # fmt: skip
        if not (folder / "eval_results.json").exists():
            subprocess.run(command, check=True, stdout=sys.stderr)
        last = folder
    assert last is not None
    return last


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, retrieval/ and squality/")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--encoder_name", help="its name on the Hub, where --encoder is a folder")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--books", type=int, default=15, help="training novels, the first ones")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.set_defaults(chunk_size=retrieval.CHUNK_SIZE, chunking="fixed", tasks=[JUDGED])
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    corpora = [VectorCorpus(shifted(args, shift)) for shift in SHIFTS]
    judge = Judge(args)
    rows: dict[str, Any] = {"mean of chunk vectors (Avg. SBERT)": judge.scores(retrieval.mean_of_chunks)}
    for count in (1, len(corpora)):
        mean, weight = fit_whitening(document.vectors for corpus in corpora[:count] for document in corpus)
        rows[f"mean, whitened within documents, {count} borders"] = judge.scores(
            lambda chunks, mean=mean, weight=weight: retrieval.mean_of_chunks(
                [torch.nn.functional.normalize((vectors - mean) @ weight.T, dim=-1) for vectors in chunks]
            )
        )
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
