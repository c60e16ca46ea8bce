"""The modules for `evaluate`: their scores against libraries, their loading from disk and Hub, and its evaluator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Value
from setuptools import Distribution
from sklearn.metrics import accuracy_score, average_precision_score, top_k_accuracy_score
from sklearn.metrics.pairwise import cosine_similarity
from transformers import AutoTokenizer, pipeline

from nextlevelbert import NextLevelBertForSequenceClassification
from nextlevelbert.evaluation import cluster_scores, coreference_scores, load_metric, metrics

from ..conftest import toy_config
from ..hub_server import HubServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def caches(tmp_path_factory) -> Iterator[None]:
    """Where `evaluate` copies modules and keeps inputs, for the tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_MODULES_CACHE", "HF_METRICS_CACHE"):
            patch.setattr(evaluate.config, name, tmp_path_factory.mktemp(name))
        yield


@pytest.mark.parametrize("name", metrics.METRICS)
def test_each_loads_without_the_hub(name, monkeypatch):
    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", True)
    for metric in (load_metric(name), evaluate.load(str(Path(metrics.__file__).parent / name))):
        assert isinstance(metric, evaluate.Metric)
        assert (metric.name, metric.module_type) == (name, "metric")
        assert metric.description.strip()
        assert "Example:" in metric.inputs_description


def test_a_metric_that_is_not_here():
    with pytest.raises(ValueError, match=r"no metric 'rouge' here; choose from conll_coreference, hotpotqa_joint"):
        load_metric("rouge")


def test_the_wheel_has_every_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.include_package_data = False  # which would write a folder here
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    built = {os.path.relpath(path, build.build_lib) for path in build.get_outputs(include_bytecode=False)}
    here = {str(path.relative_to(ROOT)) for end in ("py", "md") for path in (ROOT / "nextlevelbert").rglob(f"*.{end}")}
    assert here - built == set()
    assert {f"nextlevelbert/evaluation/metrics/{name}/README.md" for name in metrics.METRICS} <= built


# Coreference.


def test_coreference_of_given_mentions():
    """The example of Pradhan et al. (2014), where both sides have the same mentions; text and numbers are labels."""
    gold, predicted = ["1", "1", "1", "2", "2", "2", "2"], ["1", "1", "2", "2", "3", "3", "3"]
    expected = coreference_scores(gold, predicted)
    metric = load_metric("conll_coreference")
    assert metric.compute(predictions=predicted, references=gold) == expected
    numbers = [[int(label) for label in labels] for labels in (predicted, gold)]
    assert metric.compute(predictions=numbers[0], references=numbers[1]) == expected


def test_coreference_of_predicted_mentions():
    """Their example with mentions of one side only, by the values that they print; split over two documents."""
    key = [[[[0, 1], [1, 2], [2, 3]]], [[[0, 0], [1, 1], [2, 2], [3, 3]]]]
    response = [[[[0, 1], [1, 2]], [[2, 3], [9, 9]]], [[[2, 2], [3, 3], [4, 4], [5, 5]]]]
    metric = load_metric("conll_coreference")
    found = metric.compute(predictions=response, references=key)
    flat = [
        [{(number, *mention) for mention in cluster} for number, document in enumerate(side) for cluster in document]
        for side in (key, response)
    ]
    assert found == cluster_scores(*flat)
    # In one document: the values that Pradhan et al. print for a b c | d e f g against a b | c d | f g h i.
    one = metric.compute(
        references=[[[[1], [2], [3]], [[4], [5], [6], [7]]]],
        predictions=[[[[1], [2]], [[3], [4]], [[6], [7], [8], [9]]]],
    )
    assert {name: round(one[name], 2) for name in ("muc_f1", "b3_f1", "ceafe_f1")} == {
        "muc_f1": 0.4,
        "b3_f1": 0.45,
        "ceafe_f1": 0.52,
    }


def test_a_document_without_clusters_comes_first():
    metric = load_metric("conll_coreference")
    found = metric.compute(predictions=[[], [[[1], [2]]]], references=[[[[1], [2]]], [[[1], [2]]]])
    assert (found["muc_recall"], found["muc_precision"]) == (0.5, 1.0)


# HotpotQA.


def row(number: str, answer: str, *facts: tuple[str, int]) -> dict:
    titles, sentences = zip(*facts, strict=True) if facts else ((), ())
    return {
        "id": number,
        "answer": answer,
        "supporting_facts": {"title": list(titles), "sent_id": list(sentences)},
    }


def test_hotpotqa_by_hand():
    """Two questions in another order on each side, one of them right in all."""
    right = [row("a", "Jane Austen", ("Emma", 0), ("Bath", 2)), row("b", "yes", ("Sea", 1))]
    predicted = [row("b", "yes", ("Sea", 1)), row("a", "the Austen", ("Emma", 0))]
    found = load_metric("hotpotqa_joint").compute(predictions=predicted, references=right)
    answer, support = (1.0, 0.5), (1.0, 0.5)  # precision and recall of question a
    joint = (answer[0] * support[0], answer[1] * support[1])
    for name, (precision, recall) in {"answer": answer, "support": support, "joint": joint}.items():
        assert found[f"{name}_em"] == 0.5
        assert found[f"{name}_precision"] == pytest.approx((precision + 1) / 2)
        assert found[f"{name}_recall"] == pytest.approx((recall + 1) / 2)
        assert found[f"{name}_f1"] == pytest.approx((2 * precision * recall / (precision + recall) + 1) / 2)


def test_hotpotqa_takes_rows_of_its_data_set():
    """Column and all, as `load_dataset` gives them; a prediction without facts scores 0 on them."""
    features = Features(
        {
            "id": Value("string"),
            "answer": Value("string"),
            "supporting_facts": {"title": [Value("string")], "sent_id": [Value("int32")]},
        }
    )
    data = Dataset.from_list([row("a", "Bath", ("Emma", 0)), row("b", "no", ("Sea", 1))], features=features)
    predicted = [row("a", "Bath"), row("b", "no", ("Sea", 1))]
    found = load_metric("hotpotqa_joint").compute(predictions=predicted, references=data.to_list())
    assert (found["answer_em"], found["support_f1"], found["joint_em"]) == (1.0, 0.5, 0.5)


def test_hotpotqa_question_given_twice():
    rows = [row("a", "Bath"), row("a", "Emma")]
    with pytest.raises(ValueError, match="'a' is given twice"):
        load_metric("hotpotqa_joint").compute(predictions=rows, references=rows)


# Masked vectors.


def test_masked_vectors_against_scikit_learn():
    draw = np.random.default_rng(0)
    targets = draw.normal(size=(40, 6)).astype("float32")
    predictions = targets + draw.normal(size=targets.shape).astype("float32")
    pools = draw.integers(0, 3, 40)
    metric = load_metric("masked_vector_accuracy")
    whole = metric.compute(predictions=predictions, references=targets)
    cosines = cosine_similarity(predictions, targets)
    assert whole["masked_accuracy"] == pytest.approx(top_k_accuracy_score(np.arange(40), cosines, k=1))
    assert 0.1 < whole["masked_accuracy"] < 0.9
    assert whole["masked_cosine"] == pytest.approx(cosines.diagonal().mean(), abs=1e-6)
    assert whole["chance_accuracy"] == pytest.approx(1 / 40)
    parts = metric.compute(predictions=predictions, references=targets, pools=pools.tolist())
    elsewhere = pools[:, None] != pools[None, :]
    best = np.where(elsewhere, -2, cosines).argmax(axis=1)
    assert parts["masked_accuracy"] == pytest.approx(accuracy_score(np.arange(40), best))
    assert parts["masked_accuracy"] > whole["masked_accuracy"]
    assert parts["chance_accuracy"] == pytest.approx(3 / 40)
    with pytest.raises(ValueError, match="2 pools for 40 vectors"):
        metric.compute(predictions=predictions, references=targets, pools=[0, 1])


def test_masked_vectors_in_batches():
    """`add_batch` as a training loop has it; the positions of all batches are one pool."""
    draw = np.random.default_rng(1)
    vectors = draw.normal(size=(10, 4)).astype("float32")
    metric = load_metric("masked_vector_accuracy")
    for start in (0, 5):
        metric.add_batch(predictions=vectors[start : start + 5], references=vectors[start : start + 5])
    assert metric.compute() == pytest.approx({"masked_cosine": 1, "masked_accuracy": 1, "chance_accuracy": 0.1})


# Passages of the same work.


def test_same_work_against_scikit_learn():
    draw = np.random.default_rng(2)
    works = ["Emma"] * 6 + ["Ulysses"] * 5 + ["Walden"] * 4 + ["Alone"]
    centres = {work: draw.normal(size=8) for work in works}
    vectors = np.stack([centres[work] + 1.2 * draw.normal(size=8) for work in works]).astype("float32")
    found = load_metric("same_work_retrieval").compute(predictions=vectors, references=works, k=3)
    cosines = cosine_similarity(vectors.astype("float64"))
    precisions, ranks = [], []
    for number, work in enumerate(works[:-1]):
        others = [other for other in range(len(works)) if other != number]
        same = [works[other] == work for other in others]
        precisions.append(average_precision_score(same, cosines[number, others]))
        ranks.append(1 + np.argmax(np.array(same)[np.argsort(-cosines[number, others])]))
    assert found["queries"] == 15  # the passage that is alone is in the pool, and no query
    assert found["map"] == pytest.approx(np.mean(precisions))
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert found["hit_rate@3"] == pytest.approx(np.mean(np.array(ranks) <= 3))
    assert 0.2 < found["map"] < 0.95


def test_same_work_of_equal_vectors_is_the_lowest_score():
    found = load_metric("same_work_retrieval").compute(predictions=[[1.0, 0.0]] * 4, references=[1, 1, 2, 2])
    assert found["mrr"] == pytest.approx(1 / 3)


def test_no_two_passages_of_one_work():
    with pytest.raises(ValueError, match="2 passages, no two of them of one work"):
        load_metric("same_work_retrieval").compute(predictions=[[1.0], [2.0]], references=["a", "b"])


# From the Hub.

PUSH_AND_LOAD = """
import json, sys
import evaluate
from huggingface_hub import HfApi

folder, name = sys.argv[1], sys.argv[1].rsplit("/", 1)[1]
HfApi().create_repo(f"user/{name}", repo_type="space", space_sdk="static")
HfApi().upload_folder(repo_id=f"user/{name}", repo_type="space", folder_path=folder, ignore_patterns=["*.pyc"])
metric = evaluate.load(f"user/{name}")
print(json.dumps(metric.compute(predictions=json.loads(sys.argv[2]), references=json.loads(sys.argv[3]))))
"""


def test_a_folder_is_a_space_of_the_hub(tmp_path):
    """Uploaded as it is by the Hub's client, and loaded from there by name."""
    vectors, works = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], ["Emma", "Emma", "Walden", "Walden"]
    folder = Path(metrics.__file__).parent / "same_work_retrieval"
    with HubServer() as hub:
        done = subprocess.run(
            [sys.executable, "-c", PUSH_AND_LOAD, str(folder), json.dumps(vectors), json.dumps(works)],
            cwd=ROOT,
            env=hub.environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        files = hub.files("space", "user/same_work_retrieval")
    assert json.loads(done.stdout.splitlines()[-1])["map"] == 1.0
    assert files["README.md"].startswith(b"---\ntitle: Same-work retrieval\n")
    [copied] = (tmp_path / "modules" / "evaluate_modules").rglob("same_work_retrieval.py")
    assert copied.read_bytes() == files["same_work_retrieval.py"] == (folder / "same_work_retrieval.py").read_bytes()


# The evaluator.


class Accuracy(evaluate.Metric):
    """The Hub's `accuracy`, which cannot be loaded here."""

    def _info(self):
        values = {"predictions": Value("int32"), "references": Value("int32")}
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=Features(values))

    def _compute(self, predictions, references):
        return {"accuracy": accuracy_score(references, predictions)}


@pytest.fixture(scope="module")
def classifier(minilm, tmp_path_factory) -> str:
    """A toy whose answer depends on the end of long documents, which a tokenizer's usual limit would cut off."""
    torch.manual_seed(0)
    model = NextLevelBertForSequenceClassification(toy_config(num_labels=3)).eval()
    model.tokenizer = minilm.tokenizer
    folder = tmp_path_factory.mktemp("classifier")
    model.save_pretrained(folder)
    return str(folder)


def test_evaluator_reads_long_documents_to_the_end(classifier):
    begin = "The ship sailed over the dark sea and nobody was awake. " * 120
    texts = [
        begin + end * 400 for end in ("The judge spoke of the law. ", "Butter, sugar, flour! ", "42 ", "Why? Oh why? ")
    ]
    model = NextLevelBertForSequenceClassification.from_pretrained(classifier)
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    with torch.no_grad():
        logits = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])
        cut = model(**tokenizer(texts[0], return_tensors="pt", truncation=True, max_length=512)).logits
    # With the mean of all as the bias, the classes part the documents; the start alone would answer alike for all.
    with torch.no_grad():
        model.classifier[-1].bias -= logits.mean(dim=0)
    answers = (logits - logits.mean(dim=0)).argmax(dim=-1).tolist()
    assert len(set(answers)) > 1
    assert not torch.allclose(cut, logits[0], atol=1e-4)
    data = Dataset.from_dict({"text": texts, "label": [*answers[:3], (answers[3] + 1) % 3]})
    judge = evaluate.evaluator("text-classification")
    options = {"data": data, "metric": Accuracy(), "label_mapping": model.config.label2id}
    assert judge.compute(model, tokenizer=tokenizer, **options)["accuracy"] == 0.75
    # evaluate 0.4.6 asks transformers for TensorFlow's models, which 5 has no more, when it is given a pipeline.
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    judge.prepare_pipeline = lambda **options: classify
    assert judge.compute(classify, **options)["accuracy"] == 0.75


def test_evaluator_by_name_with_intervals(classifier):
    texts = ["The ship sailed. " * count for count in (1, 50, 800)]
    model = NextLevelBertForSequenceClassification.from_pretrained(classifier)
    judge = evaluate.evaluator("text-classification")
    found = judge.compute(
        classifier,
        data=Dataset.from_dict({"text": texts, "label": [0, 1, 2]}),
        metric=Accuracy(),
        label_mapping=model.config.label2id,
        strategy="bootstrap",
        n_resamples=20,
        random_state=0,
    )
    classify = pipeline("text-classification", model=classifier)
    expected = np.mean([one["label"] == f"LABEL_{number}" for number, one in enumerate(classify(texts))])
    assert found["accuracy"]["score"] == pytest.approx(expected)
    assert found["accuracy"]["confidence_interval"][0] <= expected <= found["accuracy"]["confidence_interval"][1]
