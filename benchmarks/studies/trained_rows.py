"""Trains a model of each paper on a small set, and measures it beside its controls.

    python -m benchmarks.studies.trained_rows bert-al --data DATA --encoder MINILM --folder STUDY

Each run is a command of the package or of `examples`; `COMMANDS` has them all. A run that is
finished is not trained again. `next-level-bert` reads the vectors of `novel_vectors --bf16` in
``STUDY/vectors``. Intervals are of 95 % over books, stories, articles or topics.
"""

from __future__ import annotations

import json
import resource
import runpy
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import AutoTokenizer

from benchmarks.common.measuring import add_json_option, with_interval, write_figures, write_rows
from benchmarks.studies.compare_runs import compare_runs
from benchmarks.studies.coreference_rules import f1_with_interval
from benchmarks.studies.document_vectors import load_answers, mostly_capitalised, without
from benchmarks.studies.novel_vectors import METRICS, Pooling, relevant_documents, search
from nextlevelbert import NextLevelBertModel, VectorCorpus
from nextlevelbert.data.tables import open_rows
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.whitening import fit_whitening

ROOT = Path(__file__).parents[2]
ROUGE = runpy.run_path(str(ROOT / "examples/bert_al/rouge.py"))

_BERT_AL = (
    "python examples/bert_al/summarize.py --model {encoder}"
    " --train_file {data}/bbc_extractive_summaries/train.jsonl.gz"
    " --validation_file {data}/bbc_extractive_summaries/validation.jsonl.gz"
    " --text_column sentences --label_column labels --no_keep_attention_dropout"
    " --per_device_train_batch_size 4 --max_steps 300 --eval_strategy steps --eval_steps 300"
    " --save_strategy steps --save_steps 300"
)
_HYPERPARTISAN = (
    "nextlevelbert finetune --task classification --recipe paper --bf16"
    " --train_file {data}/hyperpartisan/train.jsonl.gz"
    " --validation_file {data}/hyperpartisan/validation.jsonl.gz"
)
_FOUR_EPOCHS = f"{_HYPERPARTISAN} --model {{encoder}} --num_train_epochs 4 --seeds 0"
_CDLM = (
    "python examples/cdlm/pretrain.py --model {encoder} --do_train"
    " --train_file {data}/ecbplus/train.jsonl.gz --cluster_column subtopic"
    " --validation_file {data}/ecbplus/validation.jsonl.gz --max_length 1024"
    " --per_device_train_batch_size 2 --max_steps 60 --save_strategy no"
)
_COREFERENCE = (
    "python examples/cdlm/coreference.py --train_file {data}/ecbplus/train.jsonl.gz"
    " --validation_file {data}/ecbplus/validation.jsonl.gz --mentions_at_once all"
    " --context sentence --learning_rate 1e-4 --per_device_train_batch_size 4 --max_steps 160"
    " --save_strategy no"
)
_NEXT_LEVEL_BERT = (
    "nextlevelbert pretrain --corpus_dir {folder}/vectors/train --chunk_encoder {encoder}"
    " --chunk_encoder_name sentence-transformers/all-MiniLM-L6-v2 --no_include_chunk_encoder"
    " --do_train --bf16 --eval_strategy steps --eval_steps 1000"
    " --save_strategy no"
)
_MASKED = f"{_NEXT_LEVEL_BERT} --per_device_train_batch_size 4 --max_steps 100"
_PAPER = f"{_MASKED} --loss smooth_l1"
_CONTRASTIVE = (
    f"{_NEXT_LEVEL_BERT} --objective contrastive --per_device_train_batch_size 64"
    " --per_device_eval_batch_size 64 --learning_rate 3e-4"
)
_WHITENED = f"{_CONTRASTIVE} --pooling residual --whiten_chunks"
_SEEDS = 2
LONG = 512  # tokens that the plain BERT reads

# Commands by family and run; a run may use the output folders of earlier ones.
COMMANDS: dict[str, dict[str, str]] = {
    "bert-al": {
        "residual-16": f"{_BERT_AL} --segment_length 16",
        "replace-16": f"{_BERT_AL} --segment_length 16 --recurrence replace",
        "residual-128": f"{_BERT_AL} --segment_length 128",
        "truncated-16": f"{_BERT_AL} --segment_length 16 --model_type truncated",
        "truncated-128": f"{_BERT_AL} --segment_length 128 --model_type truncated",
    },
    "chunkbert": {
        "chunkbert": f"{_FOUR_EPOCHS} --model_type chunkbert",
        "truncated": f"{_FOUR_EPOCHS} --model_type truncated",
        "tfidf": f"{_HYPERPARTISAN} --model tfidf",
    },
    "hate": {
        "pretrained": (
            "nextlevelbert pretrain --model_type hate --chunk_encoder {encoder} --do_train"
            " --train_file {folder}/stories.jsonl --hidden_size 64 --max_steps 200"
            " --save_strategy no"
        ),
        "ranker": (
            "python examples/hate/rank_documents.py --model {folder}/pretrained"
            " --data_dir {folder}/msmarco --num_train_epochs 6"
        ),
    },
    "cdlm": {
        "cdlm": f"{_CDLM} --global_attention masked",
        "local": f"{_CDLM} --global_attention none",
        "prefix": f"{_CDLM} --global_attention prefix",
        "rand": f"{_CDLM} --random_clusters",
        "start-linked": f"{_COREFERENCE} --model {{encoder}} --max_length 1024",
        "cdlm-linked": f"{_COREFERENCE} --model {{folder}}/cdlm",
        "local-linked": f"{_COREFERENCE} --model {{folder}}/local",
        "prefix-linked": f"{_COREFERENCE} --model {{folder}}/prefix",
        "rand-linked": f"{_COREFERENCE} --model {{folder}}/rand",
    },
    "next-level-bert": {
        "smooth-l1-30-0": f"{_PAPER} --seed 0 --masking_probability .3",
        "smooth-l1-40-0": f"{_PAPER} --seed 0 --masking_probability .4",
    },
}
for _seed in range(_SEEDS):
    COMMANDS["next-level-bert"] |= {
        f"smooth-l1-{_seed}": f"{_PAPER} --seed {_seed}",
        f"choice-{_seed}": f"{_MASKED} --seed {_seed}",
        f"contrastive-{_seed}": f"{_CONTRASTIVE} --max_steps 100 --seed {_seed}",
        f"whitened-{_seed}": f"{_WHITENED} --max_steps 100 --seed {_seed}",
        f"no-layers-{_seed}": (f"{_WHITENED} --max_steps 100 --num_hidden_layers 0 --seed {_seed}"),
        f"200-steps-{_seed}": f"{_WHITENED} --max_steps 200 --seed {_seed}",
        f"200-steps-no-layers-{_seed}": (
            f"{_WHITENED} --max_steps 200 --num_hidden_layers 0 --seed {_seed}"
        ),
    }


Rows = dict[str, dict[str, Any]]


def run_once(args: Namespace, name: str, command: str) -> float:
    """Runs a command unless it has ended, and returns its CPU-seconds.

    Raises:
        subprocess.CalledProcessError: if the command fails.
    """
    ended = args.folder / "ended" / f"{name}.json"
    if not ended.exists():
        program, *words = [word.format(**vars(args)) for word in shlex.split(command)]
        argv = [sys.executable, *words]
        if program == "nextlevelbert":
            argv[1:1] = ["-m", program]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*argv, "--output_dir", args.folder / name], cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        ended.parent.mkdir(exist_ok=True)
        ended.write_text(json.dumps({"command": words, "cpu_seconds": seconds}))
    return float(json.loads(ended.read_text())["cpu_seconds"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def with_spread(values: Sequence[float]) -> list[float]:
    """Returns the mean over seeds, the lowest and the highest value."""
    return [fmean(values), min(values), max(values)]


# --- BERT-AL


def measure_summaries(args: Namespace) -> Rows:
    """Measures ROUGE-1 and precision of each article, and the difference to the TF-IDF centroid."""
    path = args.data / "bbc_extractive_summaries/validation.jsonl.gz"
    articles = [row for _, row in open_rows(path).rows]
    choices: dict[str, list[list[int]]] = {}
    for name in COMMANDS["bert-al"]:
        records = read_lines(args.folder / name / "predictions.jsonl")
        [of_model, *controls] = records[0]["chosen"]
        choices[name] = [record["chosen"][of_model] for record in records]
        for control in controls:
            choices[control] = [record["chosen"][control] for record in records]

    values: dict[str, dict[str, np.ndarray]] = {}
    for name, chosen in choices.items():
        overlaps = []
        precisions = []
        for article, indices in zip(articles, chosen, strict=True):
            summary = [article["sentences"][index] for index in indices]
            overlaps.append(ROUGE["rouge_scores"]([summary], [[article["summary"]]])["rouge1"])
            precisions.append(np.mean([article["labels"][index] for index in indices]))
        values[name] = {"rouge1": np.array(overlaps), "precision": np.array(precisions)}
    alone = np.arange(len(articles))
    rows: Rows = {}
    for name, scores in values.items():
        rows[name] = {}
        for score, of_articles in scores.items():
            rows[name][score] = with_interval(of_articles, alone, seed=0)
            for control in ("first 3 sentences", "TF-IDF centroid"):
                differences = of_articles - values[control][score]
                rows[name][f"{score}, minus {control}"] = with_interval(differences, alone, seed=0)
    return rows


# --- ChunkBERT


def measure_classes(args: Namespace) -> Rows:
    """Measures the accuracy over all articles and over long ones, a mean over seeds."""
    path = args.data / "hyperpartisan/validation.jsonl.gz"
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    lengths = [len(tokenizer(row["text"])["input_ids"]) for _, row in open_rows(path).rows]
    parts = {"all": np.full(len(lengths), fill_value=True), "long": np.array(lengths) > LONG}

    right = {}
    for name in COMMANDS["chunkbert"]:
        of_seeds = []
        for file in sorted((args.folder / name).glob("seed-*/validation_predictions.jsonl")):
            records = read_lines(file)
            of_seeds.append([record["prediction"] == record["label"] for record in records])
        right[name] = np.mean(of_seeds, axis=0)
    rows: Rows = {name: {} for name in right}
    for name, values in right.items():
        for part, chosen in parts.items():
            alone = np.arange(chosen.sum())
            rows[name][part] = with_interval(values[chosen], alone, seed=0)
            for control in ("truncated", "tfidf"):
                differences = (values - right[control])[chosen]
                rows[name][f"{part}, minus {control}"] = with_interval(differences, alone, seed=0)
    return rows


# --- HATE


def write_squality(args: Namespace) -> None:
    """Writes SQuALITY in the layout of MS MARCO, and the stories to train on; names are deleted.

    Answers to the training stories are training queries, those to the validation stories are test
    queries. A test query is answered by one of the validation stories.
    """
    test = load_answers(args.data)
    queries = {}
    relevant = {}
    stories = {}
    for _, row in open_rows(args.data / "squality/train.jsonl.gz").rows:
        stories[row["id"]] = row["text"]
        for question in row["questions"]:
            for number, response in enumerate(question["responses"], start=1):
                query = f"{row['id']}-{question['number']}-{number}"
                queries[query] = response
                relevant[query] = {row["id"]: 1}
    train = without(
        RetrievalTask("train", queries, stories, relevant), mostly_capitalised(stories.values())
    )

    folder = args.folder / "msmarco"
    folder.mkdir(exist_ok=True)
    write_table(
        folder / "msmarco-docs.tsv",
        ((name, "", "", text) for name, text in {**train.documents, **test.documents}.items()),
    )
    for split, task in {"doctrain": train, "docdev": test}.items():
        write_table(folder / f"msmarco-{split}-queries.tsv", task.queries.items())
        grades = ((query, 0, name, 1) for query, names in task.relevant.items() for name in names)
        write_table(folder / f"msmarco-{split}-qrels.tsv", grades)
    candidates = ((query, "Q0", name) for query in test.queries for name in test.documents)
    write_table(folder / "msmarco-docdev-top100", candidates)
    rows = ({"id": name, "text": text} for name, text in train.documents.items())
    write_rows(args.folder / "stories.jsonl", rows)


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Writes rows with tabs between columns; other white space becomes a space."""
    lines = ["\t".join(" ".join(str(cell).split()) for cell in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_rankings(args: Namespace) -> Rows:
    """Reads the MRR@10 of each row; that of the trained model has an interval over stories."""
    results = json.loads((args.folder / "ranker/results.json").read_text())
    rows: Rows = {name: {"mrr": scores["mrr@10"]} for name, scores in results["rows"].items()}
    ranks = {}
    for line in (args.folder / "ranker/predictions.trec").read_text().splitlines():
        query, _, story, rank, *_ = line.split()
        if query.startswith(f"{story}-"):
            ranks[query] = int(rank)
    reciprocal = np.array([1 / rank if rank <= 10 else 0 for rank in ranks.values()])
    stories = np.array([query.partition("-")[0] for query in ranks])
    rows["pretrained"]["mrr"] = with_interval(reciprocal, stories, seed=0)
    return rows


# --- CDLM


def measure_links(args: Namespace) -> Rows:
    """Measures CoNLL F1 with an interval over topics, and the difference to the start."""
    rows: Rows = {}
    for name in COMMANDS["cdlm"]:
        if not name.endswith("-linked"):
            continue
        records = read_lines(args.folder / name / "validation_predictions.jsonl")
        topics = np.array([record["document"].split("_")[0] for record in records])
        gold = [record["gold"] for record in records]
        clusters = [record["cluster"] for record in records]
        rows[name] = {"conll_f1": f1_with_interval(gold, clusters, topics)}
        if name != "start-linked":
            start = args.folder / "start-linked"
            _, compared = compare_runs(args.folder / name, start, resamples=1_000)
            gain = compared.first - compared.second
            rows[name]["conll_f1, minus start"] = [gain, *compared.interval]
            rows[name]["p"] = compared.permutation_p
    return rows


# --- NextLevelBERT


def plain_mean(vectors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([document.mean(dim=0) for document in vectors])


def whitened_mean(corpus: VectorCorpus) -> Pooling:
    """Makes a function that averages whitened chunk vectors of length 1."""
    mean, weight = fit_whitening(document.plain for document in corpus)

    def pool(vectors: list[torch.Tensor]) -> torch.Tensor:
        return plain_mean([F.normalize((chunks - mean) @ weight, dim=-1) for chunks in vectors])

    return pool


def own_vector(model: NextLevelBertModel) -> Pooling:
    def pool(vectors: list[torch.Tensor]) -> torch.Tensor:
        _, documents = model.contextualize(vectors)
        return documents

    return pool


@torch.inference_mode()
def measure_vectors(args: Namespace) -> Rows:
    """Measures document vectors over seeds, and the differences to means of chunk vectors."""
    folder = args.folder / "vectors"
    methods: dict[str, list[Pooling]] = {
        "mean": [plain_mean],
        "whitened mean": [whitened_mean(VectorCorpus(folder / "train"))],
    }
    for name in COMMANDS["next-level-bert"]:
        row, _, _ = name.rpartition("-")
        model = NextLevelBertModel.from_pretrained(args.folder / name).eval()
        methods.setdefault(row, []).append(own_vector(model))

    rows: Rows = {name: {} for name in methods}
    for task in METRICS:
        relevant = relevant_documents(folder, task)
        books = np.array([min(documents).partition("#")[0] for documents in relevant.values()])
        values: dict[str, list[list[float]]] = {}
        for name, of_seeds in methods.items():
            scores = [search(folder, task, pool) for pool in of_seeds]
            values[name] = [[of_seed[query] for query in relevant] for of_seed in scores]
        for name, scores_of_seeds in values.items():
            rows[name][task] = with_spread([fmean(scores) for scores in scores_of_seeds])
            for control in ("mean", "whitened mean", "no-layers", "200-steps-no-layers"):
                differences = np.mean(scores_of_seeds, axis=0) - np.mean(values[control], axis=0)
                key = f"{task}, minus {control}"
                rows[name][key] = with_interval(differences, books, seed=0)
    return rows


MEASURES: dict[str, Callable[[Namespace], Rows]] = {
    "bert-al": measure_summaries,
    "chunkbert": measure_classes,
    "hate": measure_rankings,
    "cdlm": measure_links,
    "next-level-bert": measure_vectors,
}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=MEASURES)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with hyperpartisan/, ecbplus/ and so on"
    )
    parser.add_argument("--encoder", required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--folder", type=Path, required=True, help="of the trained models")
    add_json_option(parser)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.family == "hate":
        write_squality(args)

    seconds = 0.0
    for name, command in COMMANDS[args.family].items():
        print(f"{name}: {command}", flush=True)
        seconds += run_once(args, name, command)
    rows = MEASURES[args.family](args)
    write_figures(args.json, rows, cpu_seconds=round(seconds))


if __name__ == "__main__":
    main()
