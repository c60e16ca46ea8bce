"""Extractive summaries: BERTSUM's format and `run_finetune.py --task summarization`."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import BertModel, RobertaConfig, RobertaModel

from nextlevelbert import BertAlForExtractiveSummarization
from nextlevelbert.evaluation.rouge import greedy_oracle
from nextlevelbert.finetuning import task as finetuning_task
from nextlevelbert.models.bert_al_sentences import encode_sentences
from nextlevelbert.tasks.summarization import data as summarization_data
from nextlevelbert.tasks.summarization.baselines import with_extended_positions
from nextlevelbert.tasks.summarization.data import (
    SummarizationDataset,
    SummaryColumns,
    read_summarization,
)
from nextlevelbert.tasks.summarization.train import score_summaries, trivial_summaries

from ..finetuning_toys import SCRIPT, refusal, run_here, write

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_the_samples_of_cnn_dailymail(shared, minilm, tmp_path, monkeypatch):
    path = shared / "data" / "cnndm_sample" / "sample.jsonl.gz"
    columns = SummaryColumns("source_sentences", "summary_sentences")
    data = read_summarization(path, minilm.tokenizer, columns)
    assert len(data.documents) == 6
    assert not data.labelled
    rows = [json.loads(line) for line in gzip.open(path, "rt")]
    for document, row in zip(data.documents, rows, strict=True):
        assert (document.id, document.sentences) == (row["id"], row["source_sentences"])
        assert document.reference == row["summary_sentences"]
        chosen = greedy_oracle(document.sentences, document.reference)
        assert document.labels == [int(number in chosen) for number in range(len(document.sentences))]
    # The schema of the Hub: texts, and highlights a line each.
    hub = [
        {
            "article": " ".join(row["source_sentences"]),
            "highlights": "\n".join(row["summary_sentences"]),
            "id": row["id"],
        }
        for row in rows
    ]
    monkeypatch.setattr(summarization_data, "_WORTH_PROCESSES", 6)  # as of a large set: several processes
    cache = tmp_path / "oracle"
    again = read_summarization(write(tmp_path / "hub.jsonl", hub), minilm.tokenizer, oracle_cache=cache)
    monkeypatch.setattr(summarization_data, "greedy_oracle", None)  # found again, not made again
    assert read_summarization(tmp_path / "hub.jsonl", minilm.tokenizer, oracle_cache=cache) == again
    assert [document.reference for document in again.documents] == [document.reference for document in data.documents]
    assert all(sum(document.labels) > 0 for document in again.documents)
    scores = trivial_summaries(data, 3)
    assert scores["oracle, at most 3 sentences"]["rouge2"] > scores["first 3 sentences"]["rouge2"]


def test_without_other_sets_documents_are_held_out(run_script, encoder, files, tmp_path):
    """And the published weights are the best evaluation's, whatever `Trainer` thinks of it."""
    arguments = ("--model_type", "bert-al", "--recurrence", "none", *files[:2], "--num_train_epochs", "3")
    start(run_script, tmp_path / "held", encoder, *arguments, "--load_best_model_at_end", "false")
    results = json.loads((tmp_path / "held" / "results.json").read_text())
    assert results["reported"] == "validation"
    assert "The evaluation was chosen on this set, too" in (tmp_path / "held" / "README.md").read_text()
    stored = [
        json.loads(line) for line in (tmp_path / "held" / "validation_predictions.jsonl").read_text().splitlines()
    ]
    assert len(stored) == 6  # 15 % of 40
    model = BertAlForExtractiveSummarization.from_pretrained(tmp_path / "held")
    texts = {row["id"]: row["text"] for row in rows(40, 0)}
    for record in stored:
        assert model.summarize(texts[record["id"]]).scores == pytest.approx(record["scores"], abs=1e-4)


@torch.no_grad()
def test_extended_positions_of_roberta_start_behind_the_padding(minilm, tmp_path):
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    plain = RobertaModel(RobertaConfig(**size, max_position_embeddings=34, vocab_size=30522), add_pooling_layer=False)
    plain.eval().save_pretrained(tmp_path)
    minilm.tokenizer.save_pretrained(tmp_path)
    model = with_extended_positions(tmp_path, pretrained=8, total=50)
    ids = torch.randint(1000, 2000, (1, 8))
    torch.testing.assert_close(model.model(ids).last_hidden_state, plain(ids).last_hidden_state, atol=1e-6, rtol=0)
    assert model.model(torch.randint(1000, 2000, (1, 50))).last_hidden_state.shape == (1, 50, 16)


@torch.no_grad()
def test_extended_positions_keep_what_was_learnt(encoder):
    plain = BertModel.from_pretrained(encoder, add_pooling_layer=False)
    model = with_extended_positions(encoder, pretrained=16, total=100).eval()
    ids = torch.randint(1000, 2000, (1, 100))
    torch.testing.assert_close(
        model.model(ids[:, :16]).last_hidden_state, plain(ids[:, :16]).last_hidden_state, atol=1e-6, rtol=0
    )
    table = model.model.encoder.embeddings.position_embeddings.weight
    assert table.shape == (100, 32)
    assert not torch.isclose(table[16:64], plain.embeddings.position_embeddings.weight[16:64]).any(dim=1).all()
    assert table[16:].std().item() == pytest.approx(0.02, rel=0.1)
    # All tokens see each other, in one segment.
    other = ids.clone()
    other[0, 99] = 5
    assert (model.model(other).last_hidden_state[0, 0] != model.model(ids).last_hidden_state[0, 0]).any()


# Training: sentences with the word "storm" belong to the summary.


def rows(count: int, seed: int) -> list[dict]:
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        labels = [1, 1] + [0] * (2 + number % 5)  # documents of 4 to 8 sentences
        draw.shuffle(labels)
        words = [("bread", "storm")[label] for label in labels]
        days = draw.integers(10, 31, size=len(words))
        sentences = [f"On day {day} we had {word}." for day, word in zip(days, words, strict=True)]
        chosen = [sentence for sentence, label in zip(sentences, labels, strict=True) if label]
        made.append({"id": f"{seed}-{number}", "text": sentences, "summary": " ".join(chosen), "labels": labels})
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("summaries")
    counts = {"train": 40, "validation": 6, "test": 7}
    return [
        word
        for seed, (name, count) in enumerate(counts.items())
        for word in (f"--{name}_file", write(folder / f"{name}.jsonl", rows(count, seed)))
    ]


OPTIONS = ["--task", "summarization", "--label_column", "labels", "--summary_sentences", "2"]
OPTIONS += ["--learning_rate", "1e-2", "--lr_scheduler_type", "constant", "--warmup_steps", "0"]


def start(run_script, folder: Path, model: str, *arguments: str) -> str:
    options = () if "--lora" in arguments else ("--segment_length", "16")
    return run_script(SCRIPT, "--model", model, *OPTIONS, *options, "--output_dir", str(folder), *arguments)


def test_it_learns_and_leaves_a_whole_checkpoint(run_script, encoder, files, tmp_path):
    folder = tmp_path / "summarizer"
    arguments = ("--model_type", "bert-al", *files, "--num_train_epochs", "12", "--seeds", "0", "1")
    printed = start(run_script, folder, encoder, *arguments)
    results = json.loads((folder / "results.json").read_text())
    assert (results["reported"], results["settings"]["recurrence"]) == ("test", "residual")
    [name] = [row for row in results["rows"] if row.startswith("tiny (bert-al), 2 seeds, test")]
    assert results["rows"][name]["precision"][0] > results["rows"]["first 2 sentences"]["precision"] + 0.15
    assert results["rows"]["oracle, at most 2 sentences"]["rouge1"] == pytest.approx(1.0)
    assert f"| {name} |" in printed

    # What is reported is the mean of the three evaluations with the lowest loss.
    seed = json.loads((folder / "seed-0" / "result.json").read_text())
    losses = sorted(entry["eval_loss"] for entry in seed["curve"] if "eval_loss" in entry)
    assert [one["loss"] for one in seed["checkpoints"]] == losses[:3]
    assert seed["test"]["rouge2"] == pytest.approx(np.mean([one["rouge2"] for one in seed["checkpoints"]]))
    assert sorted(path.name for path in (folder / "seed-0").iterdir() if path.is_dir()) == []
    assert len({tuple(one[name] for name in ("rouge1", "rouge2", "precision")) for one in seed["checkpoints"]}) > 1
    seeds = [json.loads((folder / f"seed-{number}" / "result.json").read_text()) for number in (0, 1)]
    assert results["best_seed"] == int(np.argmin([one["validation"]["loss"] for one in seeds]))

    # The published model makes the stored predictions, whose scores are those of the best evaluation.
    model = BertAlForExtractiveSummarization.from_pretrained(folder)
    data = read_summarization(files[5], model.tokenizer, SummaryColumns(labels="labels"))
    stored = [json.loads(line) for line in (folder / "test_predictions.jsonl").read_text().splitlines()]
    for record, document in zip(stored, data.documents, strict=True):
        summary = model.summarize(document.sentences, sentences=2)
        assert (record["id"], record["indices"]) == (document.id, summary.indices)
        assert [document.text[start:end] for start, end in record["spans"]] == record["sentences"] == summary.sentences
        assert record["scores"] == pytest.approx(summary.scores, abs=1e-4)
    best = json.loads((folder / f"seed-{results['best_seed']}" / "result.json").read_text())["checkpoints"][0]
    scores = score_summaries(data, [record["indices"] for record in stored])
    assert {name: best[name] for name in scores} == pytest.approx(scores)
    card = (folder / "README.md").read_text()
    assert f"| {name} |" in card
    assert 'BertAlForExtractiveSummarization.from_pretrained("summarizer")' in card

    # Finished seeds are read again; other settings want another folder.
    before = (folder / "seed-1" / "result.json").stat().st_mtime_ns
    start(run_script, folder, encoder, *arguments)
    assert (folder / "seed-1" / "result.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="summary_sentences: 2 there, 3 now"):
        start(run_script, folder, encoder, *arguments, "--summary_sentences", "3")


@pytest.mark.parametrize("kind", ["truncated", "extended"])
def test_the_baselines(run_script, encoder, files, tmp_path, kind, caplog):
    start(run_script, tmp_path / kind, encoder, "--model_type", kind, *files, "--num_train_epochs", "1")
    seed = json.loads((tmp_path / kind / "seed-0" / "result.json").read_text())
    stored = [json.loads(line) for line in (tmp_path / kind / "test_predictions.jsonl").read_text().splitlines()]
    if kind == "truncated":
        assert {len(record["scores"]) for record in stored} == {2}  # those that begin in the first 16 tokens
        assert "7 of 7 documents lose" in caplog.text
    else:
        assert [len(record["scores"]) for record in stored] == [4, 5, 6, 7, 8, 4, 5]
        model = BertAlForExtractiveSummarization.from_pretrained(tmp_path / kind / "seed-0")
        assert model.config.segment_length == 72
        assert (model.config.recurrence, seed["steps"]) == ("none", 5)
        with pytest.raises(ValueError, match="learnt_positions: 16 there, 32 now"):
            start(run_script, tmp_path / kind, encoder, "--model_type", kind, *files, "--segment_length", "32")
    assert not (tmp_path / kind / "README.md").exists()


def test_frozen_sentence_vectors_of_any_encoder(run_script, longformer, files, tmp_path):
    """A head on each sentence's own vector, as sentence-transformers gives it."""
    folder = tmp_path / "frozen"
    arguments = ["--model_type", "sentence-vectors", *files, "--num_train_epochs", "12"]
    run_script(SCRIPT, "--model", longformer, *OPTIONS, "--output_dir", str(folder), *arguments)
    results = json.loads((folder / "results.json").read_text())
    [name] = [row for row in results["rows"] if row.endswith("(sentence-vectors), test")]
    assert results["rows"][name]["precision"] > results["rows"]["first 2 sentences"]["precision"] + 0.15
    weights = load_file(folder / "seed-0" / "model.safetensors")
    encoder = SentenceTransformer(longformer)
    data = read_summarization(files[5], encoder.tokenizer, SummaryColumns(labels="labels"))
    stored = [json.loads(line) for line in (folder / "test_predictions.jsonl").read_text().splitlines()]
    for record, document in zip(stored, data.documents, strict=True):
        vectors = encoder.encode(document.sentences, convert_to_tensor=True).cpu()  # [S, D]
        logits = vectors @ weights["classifier.weight"][0] + weights["classifier.bias"]
        assert record["scores"] == pytest.approx(logits.sigmoid().tolist(), abs=0.01)  # stored as float16
        assert len(record["scores"]) == len(document.sentences)


@pytest.mark.long
def test_a_killed_run_goes_on_to_the_same_weights(run_script, encoder, files, tmp_path, monkeypatch, caplog):
    class Stopped(Exception):
        pass

    class EarlyStoppingCallback(finetuning_task.EarlyStoppingCallback):  # stored by its name
        def on_save(self, args, state, control, **kwargs):
            if state.epoch >= 2:
                raise Stopped

    model = BertAlForExtractiveSummarization.from_encoder(encoder, segment_length=16, recurrence="replace")
    model.config.classifier_dropout = 0.3
    model.save_pretrained(tmp_path / "begun")
    arguments = (
        str(tmp_path / "begun"),
        "--model_type",
        "bert-al",
        *files,
        "--num_train_epochs",
        "4",
        "--trigram_blocking",
    )
    start(run_script, tmp_path / "straight", *arguments)
    with monkeypatch.context() as context:
        context.setattr(finetuning_task, "EarlyStoppingCallback", EarlyStoppingCallback)
        with pytest.raises(Stopped):
            start(run_script, tmp_path / "killed", *arguments)
    assert list(tmp_path.glob("killed/seed-0/checkpoint-*"))
    shutil.copytree(tmp_path / "killed", tmp_path / "torn")
    sorted(tmp_path.glob("torn/seed-0/best/step-*"))[0].write_bytes(b"")
    for name in ("killed", "torn"):
        caplog.clear()
        start(run_script, tmp_path / name, *arguments)
        assert ("best is not whole: step-" in caplog.text) == (name == "torn")
    results = [
        json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("killed", "straight", "torn")
    ]
    assert results[0]["checkpoints"] == results[1]["checkpoints"] == results[2]["checkpoints"]
    assert len(results[0]["checkpoints"]) == 3
    ours, theirs = (load_file(tmp_path / name / "seed-0" / "model.safetensors") for name in ("killed", "straight"))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-5)

    # The same checkpoint, adapted.
    start(run_script, tmp_path / "adapter", *arguments, "--lora", "--num_train_epochs", "1")
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {"lora_A", "lstm", "classifier"} <= {part for name in adapter for part in name.split(".")}
    card = (tmp_path / "adapter" / "README.md").read_text()
    code = card.split("```python")[1].split("```")[0].replace("print(", "summary = (")
    code = code.replace("the checkpoint that it started from", arguments[0])
    code = code.replace('(base, "adapter")', f'(base, "{tmp_path / "adapter"}")').replace(
        "the text of a whole doc", "A. B"
    )
    names: dict = {}
    exec(code, names)
    stored = json.loads((tmp_path / "adapter" / "test_predictions.jsonl").read_text().splitlines()[4])
    found = names["model"].eval().summarize(rows(7, 2)[4]["text"], sentences=2, trigram_blocking=True)
    assert stored["scores"] == pytest.approx(found.scores, abs=1e-4)
    # Each of them says "we had" and more after another's; blocked, there is one of each kind at most.
    assert len(stored["indices"]) <= 2
    assert "trigram_blocking=True" in card


@pytest.mark.long
def test_two_processes_learn_what_one_does(run_script, encoder, files, tmp_path):
    options = [
        "--model_type",
        "bert-al",
        "--recurrence",
        "replace",
        *files,
        "--max_steps",
        "4",
        "--logging_steps",
        "1",
    ]
    options += ["--logging_strategy", "steps"]
    start(run_script, tmp_path / "one", encoder, *options)
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT),
         "--model", encoder, *OPTIONS, *options, "--segment_length", "16", "--disable_tqdm", "true",
         "--per_device_train_batch_size", "4", "--output_dir", str(tmp_path / "two")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    results = [json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("one", "two")]
    one, two = (torch.tensor([entry["loss"] for entry in result["curve"] if "loss" in entry]) for result in results)
    assert len(one) == 4
    torch.testing.assert_close(two, one, atol=5e-4, rtol=0)
    assert results[1]["test"]["rouge1"] == pytest.approx(results[0]["test"]["rouge1"], abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model_type", "chunkbert"), "bert-al, truncated, extended, sentence-vectors, not chunkbert"),
        (("--lora",), "--lora adapts a checkpoint"),
        (("--model_type", "truncated", "--recurrence", "none"), "no --recurrence here; .* --model_type bert-al"),
        (("--model_type", "truncated", "--lora"), "no --lora here; .* --model_type bert-al"),
        (("--model_type", "sentence-vectors", "--segment_length", "8"), "no --segment_length here"),
        (("--model_type", "sentence-vectors", "--attn_implementation", "sdpa"), "no --attn_implementation here"),
        (("--model_type", "truncated", "--push_to_hub"), "no option --push_to_hub"),
        (("--question_column", "q"), "no option --question_column"),
        (("--summary_sentences", "0"), "--summary_sentences must be 1 or more, got 0"),
        (("--metric_for_best_model", "rouge"), "no option --metric_for_best_model"),
        (("--label_smoothing_factor", "0.1"), "no option --label_smoothing_factor"),
        (("--max_training_tokens", "-5"), "--max_training_tokens must be 1 or more"),
        (("--k", "5"), "no option --k"),
        (("--lora", "--segment_length", "8"), "leave out --segment_length"),
        (("--model_type", "extended", "--task", "classification"), "--model_type .*, not extended"),
        (("--task", "classification", "--model_type", "chunkbert", "--recurrence", "none"), "no --recurrence here"),
        (("--task", "classification", "--model_type", "chunkbert", "--trigram_blocking"), "--trigram_blocking"),
    ],
)  # fmt: skip
def test_what_it_refuses(capsys, encoder, files, tmp_path, arguments, message):
    plain = ["--task", "summarization", "--model", encoder, *files, "--output_dir", str(tmp_path / "no")]
    assert re.search(message, refusal(capsys, lambda: run_here(*plain, *arguments)))


@pytest.mark.parametrize("length", ["0", "65"])
def test_segments_that_the_encoder_cannot_read(run_script, encoder, files, tmp_path, length):
    with pytest.raises(ValueError, match=rf"segment_length must be 1 to 64, .* got {length}"):
        start(run_script, tmp_path / "no", encoder, *files, "--segment_length", length)


def test_a_batch_by_hand(minilm, tmp_path):
    data = read_summarization(
        write(tmp_path / "rows.jsonl", rows(2, 0)), minilm.tokenizer, SummaryColumns(labels="labels")
    )
    dataset = SummarizationDataset(data, minilm.tokenizer, limit=20)
    assert [len(row["input_ids"]) for row in dataset.rows] == [20, 20]
    batch = dataset.collate([dataset[0], {name: values[:9] for name, values in dataset[1].items()}])
    assert list(batch) == ["labels", "input_ids", "attention_mask", "token_type_ids"]
    assert batch["labels"].tolist() == [row["labels"][:3] for row in rows(2, 0)]
    whole, _ = encode_sentences(rows(2, 0)[0]["text"], minilm.tokenizer)
    assert batch["input_ids"][0].tolist() == whole[:20].tolist()
    assert dataset.lost == [len(whole) - 20, len(whole) - 20 + 9]  # the second has a sentence more
    shorter = {**dataset[1], "labels": dataset[1]["labels"][:1]}
    assert dataset.collate([dataset[0], shorter])["labels"][1, 1:].tolist() == [-100, -100]
