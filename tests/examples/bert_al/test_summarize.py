"""Extractive summaries: the data, the baselines of the paper, and `run_finetune.py --task
summarization`."""

import gzip
import json

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
from nextlevelbert.training.runs import read_json

from ..finetuning_toys import predictions, write
from ..test_runs import stories
from ..vector_toys import TINY, close


def columns(**values):
    return SummaryArguments(model="a model", **values)


# --- Data


def test_the_samples_of_cnn_dailymail(shared, tmp_path):
    path = shared / "data" / "cnndm_sample" / "sample.jsonl.gz"
    options = columns(text_column="source_sentences", summary_column="summary_sentences")
    data = read_summaries(options, str(path), "train")
    assert len(data) == 6
    with gzip.open(path, "rt") as file:
        rows = list(map(json.loads, file))
    as_on_the_hub = []
    for document, row in zip(data, rows, strict=True):
        assert (document.id, document.sentences) == (row["id"], row["source_sentences"])
        assert document.reference == row["summary_sentences"]
        chosen = greedy_oracle(document.sentences, document.reference)
        assert np.flatnonzero(document.labels).tolist() == chosen
        article = " ".join(row["source_sentences"])
        highlights = "\n".join(row["summary_sentences"])
        as_on_the_hub.append({"article": article, "highlights": highlights})

    again = read_summaries(columns(), write(tmp_path / "hub.jsonl", as_on_the_hub), "train")
    for document, same in zip(data, again, strict=True):
        assert same.reference == document.reference
        assert sum(same.labels) > 0
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
    story, _ = stories(2, 0)
    path = write(tmp_path / "rows.jsonl", stories(2, 0))
    data = read_summaries(columns(label_column="labels"), path, "train")
    long, other = tokenized(data, minilm.tokenizer, limit=20)
    assert "2 of 2 documents lose" in caplog.text  # what is cut is told
    ids, types = other["document"]
    short = {"labels": other["labels"][:1], "document": (ids[:9], types[:9])}
    batch = collate([long, short], 0)
    whole, _ = encode_sentences(story["text"], minilm.tokenizer)
    assert batch["input_ids"][0].tolist() == whole[:20].tolist()
    assert batch["labels"].tolist() == [story["labels"][:3], [other["labels"][0], -100, -100]]
    assert batch["attention_mask"].sum(dim=1).tolist() == [20, 9]


# --- The paper's "Baseline-2"


@pytest.mark.parametrize(
    ("config_class", "unused"),
    [(BertConfig, 0), (RobertaConfig, 2)],  # RoBERTa's start behind the padding id
)
@torch.no_grad()
def test_extended_positions_keep_what_was_learnt(minilm, tmp_path, config_class, unused):
    torch.manual_seed(0)
    config = config_class(**TINY, vocab_size=30_522, max_position_embeddings=64 + unused)
    plain = AutoModel.from_config(config, add_pooling_layer=False).eval()
    plain.save_pretrained(tmp_path)
    minilm.tokenizer.save_pretrained(tmp_path)
    model = with_extended_positions(str(tmp_path), 16, 100).model
    ids = torch.randint(1000, 2000, (1, 100))
    expected = plain(ids[:, :16]).last_hidden_state
    close(model(ids[:, :16]).last_hidden_state, expected, atol=1e-6)
    table = model.encoder.embeddings.position_embeddings.weight[unused:]
    learnt = plain.embeddings.position_embeddings.weight[unused:]
    assert table.shape == (100, 32)
    assert not torch.isclose(table[16:64], learnt[16:64]).any(dim=1).all()
    assert table[16:].std().item() == pytest.approx(0.02, rel=0.1)
    # All tokens see each other, in one segment.
    before = model(ids).last_hidden_state[0, 0]
    ids[0, 99] = 5
    assert not torch.equal(model(ids).last_hidden_state[0, 0], before)


# --- The task


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    words = []
    for seed, (name, count) in enumerate({"train": 40, "validation": 6, "test": 7}.items()):
        words += [f"--{name}_file", write(folder / f"{name}.jsonl", stories(count, seed))]
    return words


def start(folder, model, *words):
    """Runs the task; its results."""
    options = "--label_column labels --summary_sentences 2 --disable_tqdm true".split()
    options += "--learning_rate 1e-2 --lr_scheduler_type constant --warmup_steps 0".split()
    main(["--model", model, *options, "--output_dir", str(folder), *words])
    return read_json(folder / "results.json")


@pytest.fixture(scope="module")
def trained(encoder, files, tmp_path_factory):
    """The folder of a run of two seeds."""
    folder = tmp_path_factory.mktemp("trained")
    start(folder, encoder, "--segment_length", "16", *files, "--num_train_epochs", "8", *SEEDS)
    return folder


SEEDS = ["--seeds", "0", "1"]


def result_of(folder, seed):
    return read_json(folder / f"seed-{seed}" / "result.json")


def test_the_mean_of_the_three_evaluations_with_the_lowest_loss_is_reported(trained):
    seed = result_of(trained, 0)
    losses = sorted(entry["eval_loss"] for entry in seed["log"] if "eval_loss" in entry)
    rouge2 = 0.0
    for number, loss in enumerate(losses[:3], start=1):
        evaluation = seed["scores"][f"evaluation {number}"]
        assert evaluation["loss"] == loss
        rouge2 += evaluation["rouge2"] / 3
    assert seed["scores"]["test"]["rouge2"] == pytest.approx(rouge2)


def test_the_best_evaluation_of_the_best_seed_is_published(trained, files):
    for path in (trained / "seed-0").iterdir():
        assert path.is_file()  # no weights of other evaluations, and no checkpoints
    one = result_of(trained, 0)["scores"]
    other = result_of(trained, 1)["scores"]
    told = read_json(trained / "results.json")
    assert told["best_seed"] == int(other["validation"]["loss"] < one["validation"]["loss"])
    assert told["reported"] == "test"
    assert "tiny (bert-al), 2 seeds, test" in told["rows"]

    data = read_summaries(columns(label_column="labels"), files[5], "train")
    stored = predictions(trained / "test_predictions.jsonl")
    best = result_of(trained, told["best_seed"])["scores"]["evaluation 1"]
    for name, score in score_summaries(data, [record["indices"] for record in stored]).items():
        assert score == pytest.approx(best[name])
    model = BertAlForExtractiveSummarization.from_pretrained(trained)
    assert model.summarize(data[0].sentences, 2).indices == stored[0]["indices"]


@pytest.mark.parametrize("kind", ["truncated", "extended"])
def test_the_paper_s_baselines_read_at_once(kind, encoder, files, tmp_path, capsys):
    """And without other sets, documents are held out."""
    words = ["--model_type", kind, "--segment_length", "24", *files[:2], "--num_train_epochs", "1"]
    results = start(tmp_path, encoder, *words)
    assert results["reported"] == "validation"
    assert f"| tiny ({kind}), validation |" in capsys.readouterr().out
    assert not (tmp_path / "model.safetensors").exists()  # a baseline is not published

    stored = predictions(tmp_path / "validation_predictions.jsonl")
    assert len(stored) == 6  # 15 % of 40
    limit = {"truncated": 24}.get(kind)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    texts = {row["id"]: row["text"] for row in stories(40, 0)}
    for record in stored:
        ids, _ = encode_sentences(texts[record["id"]], tokenizer)
        sentences = np.count_nonzero(ids[:limit] == tokenizer.cls_token_id)
        assert len(record["scores"]) == sentences  # before the cut


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
