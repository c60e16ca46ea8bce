"""The benchmarks: every one starts, and what decides their figures is looked at closely."""

import gzip
import importlib
import itertools
import json
import math
import re
import shutil
import sys
from argparse import Namespace
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LongformerConfig, LongformerModel

from benchmarks.speed import gpu_throughput
from benchmarks.studies import (
    attention_alignment,
    chunk_tasks,
    compare_runs,
    masked_objectives,
    masked_trial,
    minilm_objectives,
    trained_rows,
    two_stages,
)
from metrics.conll_coreference.conll_coreference import coreference_scores
from nextlevelbert import CdlmModel, CdlmProcessor, NextLevelBertModel, VectorCorpus
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP

from .toys.finetuning import write
from .toys.vectors import close

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(
    f"{path.parent.name}.{path.stem}" for path in FOLDER.glob("s*/*.py") if path.stem != "__init__"
)
SEA = "The ship sailed out of the harbour into the storm. The captain watched the waves. "


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_starts(name, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage:")
    assert " ".join(module.__doc__.splitlines()[0].split()) in " ".join(shown.split())


def test_there_is_a_benchmark_for_every_line_of_make_bench():
    makefile = (FOLDER.parent / "Makefile").read_text()
    made = set(re.findall(r"-m benchmarks\.([\w.]+)", makefile))
    assert made
    assert made <= set(NAMES)


@pytest.mark.long
def test_the_script_for_a_gpu_runs_on_a_cpu(toy_encoder_path, monkeypatch, capsys):
    words = ["--encoder", toy_encoder_path, "--device", "cpu", "--tiny"]
    monkeypatch.setattr(sys, "argv", ["gpu_throughput", *words])

    gpu_throughput.main()

    shown = capsys.readouterr().out
    assert "failed" not in shown
    for row in ("MPNet", "BERT-AL", "loss alone", "forward pass of 8 chunks", "CDLM", "Trainer"):
        assert row.lower() in shown.lower()


def mention_topics(topics, wrong):
    """Predictions of mentions; in some topics everything is one cluster."""
    rows = []
    for topic, place in itertools.product(topics, range(4)):
        row = {"document": f"{topic}_1ecb", "start": place, "end": place + 1}
        row["gold"] = f"g{topic}-{place % 2}"
        row["cluster"] = place % 2
        if topic in wrong:
            row["cluster"] = 0
        rows.append(row)
    return rows


def test_two_runs_compared(tmp_path):
    right = mention_topics(range(8), wrong=set())
    wrong = mention_topics(range(8), wrong=set(range(1, 8)))
    for name, records in (("one", right), ("other", wrong)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "test_predictions.jsonl", records)
    name, comparison = compare_runs.compare_runs(tmp_path / "one", tmp_path / "other", 500)
    assert (name, comparison.first) == ("CoNLL F1", 1.0)
    gold = list(map(itemgetter("gold"), wrong))
    by_hand = coreference_scores(gold, list(map(itemgetter("document", "cluster"), wrong)))
    assert comparison.second == pytest.approx(by_hand["conll_f1"])
    # Seven topics differ, all in one direction.
    assert comparison.permutation_p == pytest.approx(2 / 2**7)
    write(tmp_path / "other" / "test_predictions.jsonl", right[1:2])
    with pytest.raises(ValueError, match="predict other rows"):
        compare_runs.compare_runs(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ({"query": "q", "ranks_of_relevant_documents": [4, 7]}, 0.25),
        ({"id": 1, "probability": 0.4, "label": 0}, 1.0),
        ({"id": 1, "prediction": "a", "label": "b"}, 0.0),
    ],
)
def test_the_value_of_a_prediction(row, value):
    assert compare_runs.value(row) == value


@pytest.fixture(scope="module")
def study(toy_encoder_path, tmp_path_factory):
    """Folder of a study of tiny novels, encoded."""
    folder = tmp_path_factory.mktemp("study")
    novels = []
    for number, subject in enumerate(["the whale swims", "a train departs", "bread is baked"]):
        text = " ".join(f"{subject} {day} times." for day in range(80))
        novels.append({"id": f"novel-{number}", "text": text})
    (folder / "novels").mkdir()
    write(folder / "novels" / "train.jsonl", novels)
    write(folder / "novels" / "held_out.jsonl", novels)
    for novel in novels:
        body = novel["text"]
        novel["text"] = f"CHAPTER I\n{body}\nCHAPTER II\n{body}"
        second = novel["text"].index("CHAPTER II")
        novel["chapters"] = [
            {"heading": "CHAPTER I", "start": 0, "end": second},
            {"heading": "CHAPTER II", "start": second, "end": len(novel["text"])},
        ]
    rows = "".join(json.dumps(novel) + "\n" for novel in novels)
    for name in ("train", "validation"):
        with gzip.open(folder / "novels" / f"{name}.jsonl.gz", "wt") as file:
            file.write(rows)
    chapters = {f"{novel['id']}#{n}": novel["text"][n::2] for novel in novels for n in range(2)}
    same = {name: {f"{name[:-1]}{1 - int(name[-1])}": 1} for name in chapters}
    tasks = [
        RetrievalTask("books", chapters, chapters, same),
        RetrievalTask("squality", {"answer": "It swims."}, chapters, {"answer": {"novel-0#0": 1}}),
    ]
    words = ["encode", "--folder", str(folder), "--data", str(folder)]
    words += ["--novels", str(folder / "novels"), "--encoder", toy_encoder_path]
    words += ["--texts", str(folder / "novels" / "held_out.jsonl")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masked_objectives, "load_tasks", lambda data: tasks)
        sizes = ["--chunk_size", "12", "--offsets", "2"]
        patch.setattr(sys, "argv", ["masked_objectives", *words, *sizes])
        masked_objectives.main()
    return folder


def objective_run(study, monkeypatch, *words, action="train"):
    sizes = "--sequence_length 16 --batch_size 2 --classes 8".split()
    lengths = "--positions 192 --evaluate_every 64".split()
    words = (action, "--folder", str(study), *sizes, *lengths, *words)
    monkeypatch.setattr(sys, "argv", ["masked_objectives", *words])
    masked_objectives.main()


LONG = [pytest.param([row], marks=pytest.mark.long) for row in "abdef"]


@pytest.mark.parametrize("words", [["l"], ["g", "--best", "e"], *LONG])
def test_every_masked_objective_is_trained_and_measured(study, monkeypatch, words):
    objective_run(study, monkeypatch, "--row", *words)
    lines = masked_objectives.read_lines(study / "results.jsonl")
    lines = [line for line in lines if line["row"][0] == words[0]]
    for line, positions in zip(lines, (0, 64, 128, 192), strict=True):
        assert line["positions"] == positions
        assert 0 <= line["found_in_pool"] <= 1
        assert 0 <= line["train_weighed_in_all"] <= 1
        assert math.isfinite(line["r2"])


def test_the_trial_of_masked_vectors_has_controls_and_intervals(study, monkeypatch, tmp_path):
    sizes = "--sequence_length 16 --batch_size 2 --positions 64 --evaluate_every 64"
    monkeypatch.setattr(masked_trial, "SETTINGS", sizes)
    figures = tmp_path / "trial.json"
    words = ["--folder", str(study), "--json", str(figures)]
    monkeypatch.setattr(sys, "argv", ["masked_trial", *words, "--runs", "l"])

    masked_trial.main()

    rows = json.loads(figures.read_text())["rows"]
    trained = rows["l"]
    assert trained["chunks"] == VectorCorpus(study / "train").num_chunks
    assert rows["weighed"]["unseen: of 8,192, minus weighed"] == [0, 0, 0]
    share, low, high = trained["training: of all masked"]
    assert 0 <= low <= share <= high <= 1
    # Both chapters of a novel have the same text.
    assert trained["chapters, beside"] == rows["whitened mean"]["chapters"] == [1, 1, 1]
    run = masked_trial.options_of(study, "l")
    assert round(masked_trial.train_once(run)) == trained["CPU-seconds"]  # it is not trained again


def test_the_objectives_are_measured_as_the_trial_is(study, monkeypatch, tmp_path):
    sizes = "--sequence_length 16 --batch_size 2 --positions 32 --evaluate_every 32"
    monkeypatch.setattr(minilm_objectives, "SETTINGS", sizes)
    figures = tmp_path / "objectives.json"
    words = ["--folder", str(study), "--json", str(figures), "--runs", "a", "d, second seed"]
    monkeypatch.setattr(sys, "argv", ["minilm_objectives", *words])

    minilm_objectives.main()

    rows = json.loads(figures.read_text())["rows"]
    assert {*rows} == {*masked_objectives.CONTROLS, "whitened mean", "a", "d, second seed"}
    assert rows["a"]["positions"] == 32
    assert rows["a"]["unseen: of 8,192"] != rows["a"]["unseen: of all masked"]


def test_further_texts_are_read_at_every_offset(study, monkeypatch):
    monkeypatch.setattr(masked_trial, "SETTINGS", "--sequence_length 16")
    args = masked_trial.options_of(study, "h, novels and texts")
    row = masked_objectives.row_of("h", "d")

    parts = masked_objectives.training_set(args, row).datasets

    names = ["train", "train-offset-1", "more", "more-offset-1"]
    for part, name in zip(parts, names, strict=True):
        assert part.corpus.num_chunks == VectorCorpus(study / name).num_chunks
    assert masked_trial.chunks_of(args) == parts[0].corpus.num_chunks + parts[2].corpus.num_chunks


def test_two_stages_stand_beside_their_controls(study, toy_encoder_path, monkeypatch, tmp_path):
    static = tmp_path / "static"
    NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=12, num_hidden_layers=0
    ).save_pretrained(static)
    sizes = "--sequence_length 16 --batch_size 2 --positions 64 --evaluate_every 64"
    monkeypatch.setattr(masked_trial, "SETTINGS", sizes)
    masked_trial.train_once(masked_trial.options_of(study, "k"))
    monkeypatch.setattr(two_stages, "MASKS", {"random": None, "masks": ["k"]})
    monkeypatch.setattr(two_stages, "SEEDS", 1)
    monkeypatch.setattr(two_stages, "STEPS", 2)
    figures = tmp_path / "stages.json"
    words = ["--folder", str(study), "--static", str(static), "--json", str(figures)]
    monkeypatch.setattr(sys, "argv", ["two_stages", *words])

    two_stages.main()

    rows = json.loads(figures.read_text())["rows"]
    # Both chapters of a novel have the same text.
    assert rows["masks, beside"]["chapters"] == [1, 1, 1]
    assert rows["static"]["squality, minus static"] == [0, 0, 0]
    before = two_stages.new_model(study, "k").state_dict()
    after = two_stages.train_once(study, "masks", seed=0).state_dict()
    weight = "encoder.encoder.layer.0.output.dense.weight"
    changed = (after[weight] - before[f"model.{weight}"]).abs().max()
    # Two steps of AdamW at 3e-4 at most, from the weights that were trained on masks.
    assert 0 < changed < 7e-4


def test_tasks_of_chunks_are_compared_with_the_best_control(
    study, toy_encoder_path, monkeypatch, tmp_path
):
    monkeypatch.setattr(chunk_tasks, "LENGTH", 8)
    monkeypatch.setattr(chunk_tasks, "HALF", 4)
    monkeypatch.setattr(chunk_tasks, "NOT_PRETRAINED", ("layers, random",))
    folders = ["--study", str(study), "--folder", str(tmp_path), "--encoder", toy_encoder_path]
    novels = ["--data", str(study), "--novels", str(tmp_path / "nothing")]
    (tmp_path / "nothing").mkdir()
    write(tmp_path / "nothing" / "held_out.jsonl", [{"id": "another", "text": "a"}])
    monkeypatch.setattr(sys, "argv", ["chunk_tasks", "encode", *folders, *novels])
    chunk_tasks.main()
    sizes = "--sequence_length 16 --batch_size 2 --positions 64 --evaluate_every 64"
    monkeypatch.setattr(masked_trial, "SETTINGS", sizes)
    masked_trial.train_once(masked_trial.options_of(study, "k"))
    run = study / "runs" / "k-0-64-16" / "checkpoint-2"  # with whitened inputs
    figures = tmp_path / "figures.json"
    words = ["--seeds", "1", "--epochs", "1", "--json", str(figures), "--run", str(run)]
    monkeypatch.setattr(sys, "argv", ["chunk_tasks", "train", *folders, *words])

    chunk_tasks.main()

    rows = json.loads(figures.read_text())["rows"]
    for task in chunk_tasks.TASKS:
        best = max((cells.get(task, 0), name) for name, cells in rows.items())[1]
        assert rows[best][f"{task}, minus best"] == [0, 0, 0]
    assert "order" not in rows["cosines"]
    assert rows["layers, k-0-64-16"].keys() == rows["layers, random"].keys()
    lines = (tmp_path / "results.jsonl").read_text()
    chunk_tasks.main()
    assert (tmp_path / "results.jsonl").read_text() == lines  # nothing is trained again


def test_trained_models_stand_beside_means_of_their_chunks(study, monkeypatch, tmp_path):
    (tmp_path / "vectors").symlink_to(study)
    names = ("no-layers-0", "200-steps-no-layers-0", "layers-0", "layers-1")
    for name in names:
        learner = masked_objectives.new_learner(
            study, masked_objectives.row_of("a", best="d"), classes=0
        )
        learner.model.base_model.save_pretrained(tmp_path / name)
    monkeypatch.setitem(trained_rows.COMMANDS, "next-level-bert", dict.fromkeys(names, ""))

    rows = trained_rows.measure_vectors(Namespace(folder=tmp_path))

    assert {*rows} == {"mean", "whitened mean", "no-layers", "200-steps-no-layers", "layers"}
    # Both chapters of a novel have the same text.
    assert rows["layers"]["chapters"] == [1, 1, 1]
    assert rows["mean"]["chapters, minus mean"] == [0, 0, 0]
    assert rows["layers"]["squality"] == rows["no-layers"]["squality"]


def test_novels_are_told_apart_in_the_stream_of_masked_vectors():
    special_ids = torch.tensor([[CLS, NOT_SPECIAL, SEP, MASK], [CLS, MASK, SEP, MASK]])
    batch = {"special_ids": special_ids, "mask_positions": special_ids == MASK}

    novels = masked_trial.novels_of([batch, batch])

    assert novels.tolist() == [1, 1, 2, 3, 3, 4]


def test_a_run_is_measured_on_novels_that_were_set_aside(study, monkeypatch, capsys):
    objective_run(study, monkeypatch, "--row", "c")
    objective_run(study, monkeypatch, "--row", "c", action="last_look")
    shown = capsys.readouterr().out
    assert "| held_out_chapters_plain | 1.0000 |" in shown  # both chapters have the same text
    assert "| chance_in_all | 0." in shown


def test_what_contextual_vectors_add_is_measured_by_book():
    queries = {
        "chapters_contextual": {"a#1": 0.5, "a#2": 0.7, "b#1": 0.9},
        "chapters_plain": {"a#1": 0.4, "a#2": 0.6, "b#1": 0.8},
    }
    shown = masked_objectives.above_plain(queries, "chapters", kind="contextual")
    assert shown == "+0.100 (+0.100 to +0.100)"


@pytest.mark.long
def test_a_masked_objective_goes_on_where_it_was_stopped(study, monkeypatch):
    final = study / "runs" / "f-e-3-192-16" / "checkpoint-6" / "model.safetensors"
    words = "--row f --best e --seed 3".split()
    objective_run(study, monkeypatch, *words, "--until", "64")
    assert not final.exists()
    objective_run(study, monkeypatch, *words)
    resumed = final.read_bytes()
    shutil.rmtree(study / "runs")
    objective_run(study, monkeypatch, *words)
    assert final.read_bytes() == resumed
    monkeypatch.setattr(sys, "argv", ["masked_objectives", "draw", "--folder", str(study)])
    masked_objectives.main()
    assert (study / "masked_objectives.png").stat().st_size > 10_000


@torch.no_grad()
def test_attention_between_a_token_and_the_source_in_both_directions():
    """Against plain Longformer with one global token, where both directions can be read off its
    definition."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        attention_window=4,
        max_position_embeddings=40,
        pad_token_id=1,
    )
    model = LongformerModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(3, 30, (1, 12))
    wide = torch.zeros_like(ids)
    wide[0, 3] = 1
    output = model(ids, global_attention_mask=wide, output_attentions=True)
    states = model.embeddings(ids)
    layer = model.encoder.layer[0].attention.self

    def heads(projection):
        return projection(states)[0].view(12, 2, 8).transpose(0, 1)  # [heads, tokens, size]

    query = heads(layer.query_global)[:, 3:4] / 8**0.5
    from_source = (query @ heads(layer.key_global).mT).softmax(-1)[:, 0]  # to every token
    products = heads(layer.query) / 8**0.5 @ heads(layer.key).mT
    near = (torch.arange(12)[:, None] - torch.arange(12)).abs() <= 2
    near[:, 3] = True
    to_source = products.masked_fill(~near, -torch.inf).softmax(-1)[:, :, 3]
    scores = attention_alignment.scores_of(output.attentions[-1], output.global_attentions[-1])
    expected = (from_source + to_source).sum(dim=0)
    rest = torch.arange(12) != 3
    close(scores[rest], expected[rest], atol=1e-6)


def test_percentile_ranks():
    inside = np.array([0, 1, 1, 1, 1, 1, 0], dtype=bool)
    scores = np.array([9.0, 0.0, 1.0, 2.0, 2.0, 3.0, 9.0])
    rank = attention_alignment.percentile_rank(scores, inside, np.arange(7) == 3)
    assert rank == pytest.approx(100 * 2.5 / 4)
    # Of 0 and 3, e^0 and e^3 have a mean of 10.5, which is above e^2; 1.5 would be below 2.
    scores = np.array([0.0, 3.0, 1.6, 2.0, 2.5])
    for scores_or_large in (scores, scores + 900):  # the same without an overflow
        rank = attention_alignment.percentile_rank(
            scores_or_large, np.ones(5, dtype=bool), np.arange(5) < 2
        )
        assert rank == pytest.approx(100 * 2 / 3)


def test_pairs_of_mentions_are_ranked(encoder):
    model = CdlmModel.from_encoder(encoder, max_length=128, attention_window=16).eval()
    processor = CdlmProcessor.from_model(model)
    new_document = attention_alignment.ECBPLUS["CoreferenceDocument"]
    mention = [attention_alignment.ECBPLUS["CoreferenceMention"](4, 8, "ship", 0)]
    documents = []
    for number, text in enumerate([SEA, "The ship came home."]):
        sentences = [(0, len(text))]
        documents.append(
            new_document(f"1_{number}ecb", 1, "1_ecb", text, sentences, mentions=mention)
        )
    [pair] = attention_alignment.draw_pairs(documents, 5, 0)
    assert pair.positive
    assert pair[1:3] == ((4, 8), (4, 8))
    assert 0 <= attention_alignment.rank(model, processor, pair) <= 100
    long = pair._replace(texts=(pair.texts[0], pair.texts[1] + " again" * 200))
    assert attention_alignment.rank(model, processor, long) is None


def test_the_interval_is_that_of_a_paired_t_test():
    rng = np.random.default_rng(0)
    second = rng.normal(size=400)
    first = second + rng.normal(0.1, 0.5, size=400)
    comparison = compare_runs.compare(list(first), list(second), resamples=3_000)
    exact = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert comparison.interval == pytest.approx((exact.low, exact.high), abs=0.01)
    assert comparison.bootstrap_p == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=0.01)
    same = compare_runs.compare([1.0, 0.0, 1.0], [1.0, 0.0, 1.0], resamples=100)
    assert (same.interval, same.bootstrap_p, same.permutation_p) == ((0.0, 0.0), 1.0, 1.0)
