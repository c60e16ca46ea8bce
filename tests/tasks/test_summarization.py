"""Extractive summaries: the data, the baselines of the paper, and `run_finetune.py --task
summarization`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, RobertaConfig

from nextlevelbert import BertAlForExtractiveSummarization
from nextlevelbert.evaluation.rouge import greedy_oracle
from nextlevelbert.models.bert_al_sentences import encode_sentences
from nextlevelbert.tasks.summarization import (
    SummaryArguments,
    collate,
    main,
    read_summaries,
    score_summaries,
    tokenized,
    trivial_summaries,
    with_extended_positions,
)
from nextlevelbert.training.trainer import read_json

from ..finetuning_toys import write
from ..test_runs import stories


def columns(**values) -> SummaryArguments:
    return SummaryArguments(model="a model", **values)


# --- Data


def test_the_samples_of_cnn_dailymail(shared, tmp_path):
    path = shared / "data" / "cnndm_sample" / "sample.jsonl.gz"
    options = columns(text_column="source_sentences", summary_column="summary_sentences")
    data = read_summaries(options, str(path), "train")
    assert len(data) == 6
    rows = [json.loads(line) for line in gzip.open(path, "rt")]
    for document, row in zip(data, rows, strict=True):
        assert (document.id, document.sentences) == (row["id"], row["source_sentences"])
        assert document.reference == row["summary_sentences"]
        chosen = greedy_oracle(document.sentences, document.reference)
        assert document.labels == [
            int(number in chosen) for number in range(len(document.sentences))
        ]
    # The schema of the Hub: texts, and highlights a line each.
    texts = [
        (" ".join(row["source_sentences"]), "\n".join(row["summary_sentences"])) for row in rows
    ]
    hub = [{"article": article, "highlights": highlights} for article, highlights in texts]
    again = read_summaries(columns(), write(tmp_path / "hub.jsonl", hub), "train")
    assert [document.reference for document in again] == [document.reference for document in data]
    assert all(sum(document.labels) > 0 for document in again)
    scores = trivial_summaries(data, 3)
    assert scores["oracle, at most 3 sentences"]["rouge2"] > scores["first 3 sentences"]["rouge2"]


def test_rows_that_are_refused(tmp_path):
    good = {"text": ["One.", "Two."], "summary": "One.", "labels": [1, 0]}
    path = write(tmp_path / "rows.jsonl", [good, {**good, "labels": [1]}])
    with pytest.raises(ValueError, match="line 2, column 'labels'"):
        read_summaries(columns(label_column="labels"), path, "train")
    apart = write(tmp_path / "apart.jsonl", [{"text": "It rained. Yes.", "summary": "Tea time."}])
    with pytest.raises(ValueError, match=r"share no word with their summary\..*--label_column"):
        read_summaries(columns(), apart, "train")


@pytest.mark.parametrize(
    ("text", "summary"),
    [("Да. Мама мыла раму.", "Мама мыла окно."), ("下雨了。猫坐在垫子上。", "猫在垫子上。")],
)
def test_other_scripts_are_labelled_and_scored(tmp_path, text, summary):
    path = write(tmp_path / "rows.jsonl", [{"text": text, "summary": summary}])
    data = read_summaries(columns(), path, "train")
    assert data[0].labels == [0, 1]
    scores = trivial_summaries(data, 1)
    assert scores["oracle, at most 1 sentences"]["rouge1"] > 0.6
    assert scores["first 1 sentences"]["rouge1"] == 0.0


def test_a_batch_by_hand(minilm, tmp_path, caplog):
    data = read_summaries(
        columns(label_column="labels"), write(tmp_path / "rows.jsonl", stories(2, 0)), "train"
    )
    rows = tokenized(data, minilm.tokenizer, limit=20)
    whole, _ = encode_sentences(stories(2, 0)[0]["text"], minilm.tokenizer)
    assert "2 of 2 documents lose" in caplog.text  # what is cut is told
    shorter = {
        "labels": rows[1]["labels"][:1],
        "document": tuple(values[:9] for values in rows[1]["document"]),
    }
    batch = collate([rows[0], shorter], 0)
    assert batch["input_ids"][0].tolist() == whole[:20].tolist()
    assert batch["labels"].tolist() == [
        stories(2, 0)[0]["labels"][:3],
        [rows[1]["labels"][0], -100, -100],
    ]
    assert batch["attention_mask"].sum(dim=1).tolist() == [20, 9]


# --- The paper's "Baseline-2"


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@torch.no_grad()
def test_extended_positions_keep_what_was_learnt(minilm, tmp_path, kind):
    """RoBERTa's start behind the padding id."""
    torch.manual_seed(0)
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    size["vocab_size"] = 30522
    config = BertConfig(**size, max_position_embeddings=64)
    config = RobertaConfig(**size, max_position_embeddings=66) if kind == "roberta" else config
    plain = AutoModel.from_config(config, add_pooling_layer=False).eval()
    plain.save_pretrained(tmp_path)
    minilm.tokenizer.save_pretrained(tmp_path)
    model, unused = with_extended_positions(str(tmp_path), 16, 100), 2 * (kind == "roberta")
    ids = torch.randint(1000, 2000, (1, 100))
    torch.testing.assert_close(
        model.model(ids[:, :16]).last_hidden_state,
        plain(ids[:, :16]).last_hidden_state,
        atol=1e-6,
        rtol=0,
    )
    table, learnt = (
        m.embeddings.position_embeddings.weight[unused:] for m in (model.model.encoder, plain)
    )
    assert table.shape == (100, 32)
    assert not torch.isclose(table[16:64], learnt[16:64]).any(dim=1).all()
    assert table[16:].std().item() == pytest.approx(0.02, rel=0.1)
    # All tokens see each other, in one segment.
    changed = ids.clone()
    changed[0, 99] = 5
    assert (
        model.model(changed).last_hidden_state[0, 0] != model.model(ids).last_hidden_state[0, 0]
    ).any()


# --- The task


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("summaries")
    counts = {"train": 40, "validation": 6, "test": 7}
    return [
        word
        for seed, (name, count) in enumerate(counts.items())
        for word in (f"--{name}_file", write(folder / f"{name}.jsonl", stories(count, seed)))
    ]


def start(folder: Path, model: str, *words: str) -> dict:
    """Runs the task; its results."""
    options = ["--label_column", "labels", "--summary_sentences", "2", "--disable_tqdm", "true"]
    options += ["--learning_rate", "1e-2", "--lr_scheduler_type", "constant", "--warmup_steps", "0"]
    main(["--model", model, *options, "--output_dir", str(folder), *words])
    return read_json(folder / "results.json")


def test_it_learns_and_leaves_a_whole_checkpoint(encoder, files, tmp_path, capsys):
    words = ("--segment_length", "16", *files, "--num_train_epochs", "8", "--seeds", "0", "1")
    results = start(tmp_path, encoder, *words)
    assert results["reported"] == "test"
    [name] = [row for row in results["rows"] if row.startswith("tiny (bert-al), 2 seeds, test")]
    assert (
        results["rows"][name]["precision"][0]
        > results["rows"]["first 2 sentences"]["precision"] + 0.15
    )
    assert results["rows"]["oracle, at most 2 sentences"]["rouge1"] == pytest.approx(1.0)
    assert f"| {name} |" in capsys.readouterr().out

    # What is reported is the mean of the three evaluations with the lowest loss.
    seed = read_json(tmp_path / "seed-0" / "result.json")
    losses = sorted(entry["eval_loss"] for entry in seed["log"] if "eval_loss" in entry)
    evaluations = [seed["scores"][f"evaluation {number}"] for number in (1, 2, 3)]
    assert [one["loss"] for one in evaluations] == losses[:3]
    assert seed["scores"]["test"]["rouge2"] == pytest.approx(
        np.mean([one["rouge2"] for one in evaluations])
    )
    assert [path.name for path in (tmp_path / "seed-0").iterdir() if path.is_dir()] == []
    seeds = [read_json(tmp_path / f"seed-{number}" / "result.json") for number in (0, 1)]
    assert results["best_seed"] == int(
        np.argmin([one["scores"]["validation"]["loss"] for one in seeds])
    )

    # The published model is the best evaluation's.
    data = read_summaries(columns(label_column="labels"), files[5], "train")
    stored = [
        json.loads(line) for line in (tmp_path / "test_predictions.jsonl").read_text().splitlines()
    ]
    best = seeds[results["best_seed"]]["scores"]["evaluation 1"]
    scores = score_summaries(data, [record["indices"] for record in stored])
    assert scores == pytest.approx({name: best[name] for name in scores})
    model = BertAlForExtractiveSummarization.from_pretrained(tmp_path)
    assert model.summarize(data[0].sentences, 2).indices == stored[0]["indices"]


def test_the_paper_s_baselines_read_at_once(encoder, files, tmp_path):
    """And without other sets, documents are held out."""
    for kind in ("truncated", "extended"):
        words = (
            "--model_type",
            kind,
            "--segment_length",
            "24",
            *files[:2],
            "--num_train_epochs",
            "1",
        )
        results = start(tmp_path / kind, encoder, *words)
        assert results["reported"] == "validation"
        assert not (tmp_path / kind / "model.safetensors").exists()  # a baseline is not published
    stored = (tmp_path / "truncated" / "validation_predictions.jsonl").read_text().splitlines()
    assert len(stored) == 6  # 15 % of 40
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    texts = {row["id"]: row["text"] for row in stories(40, 0)}
    for record in map(json.loads, stored):
        ids, _ = encode_sentences(texts[record["id"]], tokenizer)
        assert len(record["scores"]) == int(
            (ids[:24] == tokenizer.cls_token_id).sum()
        )  # sentences before the cut


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--model_type", "truncated", "--recurrence", "none"), "--recurrence"),
        (("--summary_sentences", "0"), "--summary_sentences"),
        (("--model_type", "truncated", "--push_to_hub"), "is a baseline, which is not published"),
    ],
)
def test_what_it_refuses(capsys, encoder, files, tmp_path, words, name):
    with pytest.raises((SystemExit, ValueError)) as refused:
        start(tmp_path, encoder, *files, *words)
    assert name in f"{refused.value}{capsys.readouterr().err}"
