"""The modules for `evaluate`: their scores against libraries and by hand, and their loading from
disk and Hub."""

import json
from pathlib import Path

import evaluate
import numpy as np
import pytest
from sklearn.metrics import average_precision_score, top_k_accuracy_score
from sklearn.metrics.pairwise import cosine_similarity

METRICS = Path(__file__).parents[2] / "metrics"
NAMES = ("conll_coreference", "hotpotqa_joint", "masked_vector_accuracy", "same_work_retrieval")


def load(name: str) -> evaluate.EvaluationModule:
    return evaluate.load(str(METRICS / name))


def test_each_folder_is_tested():
    assert tuple(sorted(path.name for path in METRICS.iterdir())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_space_has_a_page(name):
    """A static Space without an index.html shows an error."""
    folder = METRICS / name
    header = (folder / "README.md").read_text(encoding="utf-8").split("---")[1]
    page = (folder / "index.html").read_text(encoding="utf-8")
    title = page.split("<title>")[1].split("</title>")[0]

    assert f"\ntitle: {title}\n" in header
    assert f'evaluate.load("NAME/{name}")' in page


@pytest.mark.parametrize("name", NAMES)
def test_each_loads_without_the_hub(name, monkeypatch):
    """By its folder, from the root of a clone."""
    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", True)
    monkeypatch.chdir(METRICS.parent)

    metric = evaluate.load(f"metrics/{name}")

    assert (metric.name, metric.module_type) == (name, "metric")


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_takes_and_what_to_cite(name):
    metric = load(name)

    assert metric.citation.startswith("@")
    assert metric.citation.count("{") == metric.citation.count("}")
    for word in ("Args:", "predictions:", "references:", "Returns:"):
        assert word in metric.inputs_description


@pytest.mark.parametrize("name", NAMES)
def test_no_predictions_are_refused(name):
    with pytest.raises(ValueError, match="There are no predictions"):
        load(name).compute(predictions=[], references=[])


def test_coreference_of_given_mentions():
    """If both sides have the same mentions, labels of any kind are a short form of clusters."""
    gold = [1, 1, 1, 2, 2, 2, 2]
    predicted = [1, 1, 2, 2, 3, 3, 3]
    texts = {"predictions": list(map(str, predicted)), "references": list(map(str, gold))}
    key = [[[0], [1], [2]], [[3], [4], [5], [6]]]
    response = [[[0], [1]], [[2], [3]], [[4], [5], [6]]]
    metric = load("conll_coreference")

    scores = metric.compute(predictions=predicted, references=gold)

    assert scores == metric.compute(**texts)
    assert scores == metric.compute(predictions=[response], references=[key])
    assert scores["muc_f1"] == pytest.approx(2 / 3)  # 3 of 5 links of the key, 3 of 4 of the other


def test_coreference_of_predicted_mentions():
    """Where mentions differ: the values that Pradhan et al. print for a b c | d e f g against a b |
    c d | f g h i."""
    metric = load("conll_coreference")
    key = [[[1], [2], [3]], [[4], [5], [6], [7]]]
    response = [[[1], [2]], [[3], [4]], [[6], [7], [8], [9]]]
    scores = metric.compute(references=[key], predictions=[response])
    names = ("muc_f1", "b3_f1", "ceafe_f1")

    assert [round(scores[name], 2) for name in names] == [0.4, 0.45, 0.52]

    # A document without clusters comes first; mentions of two documents are not the same.
    scores = metric.compute(predictions=[[], [[[1], [2]]]], references=[[[[1], [2]]], [[[1], [2]]]])

    assert (scores["muc_recall"], scores["muc_precision"]) == (0.5, 1.0)


def test_hotpotqa_is_that_of_the_questions():
    """Two questions in another order on each side, one of them right in all."""
    facts = {"title": ["Emma", "Bath"], "sent_id": [0, 2]}
    right = [
        {"id": "a", "answer": "Jane Austen", "supporting_facts": facts},
        {"id": "b", "answer": "yes", "supporting_facts": facts},
    ]
    less = {
        "id": "a",
        "answer": "the Austen",
        "supporting_facts": {"title": ["Emma"], "sent_id": [0]},
    }
    scores = load("hotpotqa_joint").compute(predictions=[right[1], less], references=right)
    for part in ("answer", "support"):
        assert scores[f"{part}_em"] == 0.5
        assert scores[f"{part}_precision"] == 1.0
        assert scores[f"{part}_recall"] == 0.75

    assert scores["joint_recall"] == (0.25 + 1) / 2


def test_masked_vectors_against_scikit_learn():
    draw = np.random.default_rng(0)
    targets = draw.normal(size=(40, 6)).astype("float32")
    predictions = targets + draw.normal(size=targets.shape).astype("float32")
    metric = load("masked_vector_accuracy")
    whole = metric.compute(predictions=predictions, references=targets)
    cosines = cosine_similarity(predictions, targets)

    assert whole["masked_accuracy"] == pytest.approx(
        top_k_accuracy_score(np.arange(40), cosines, k=1)
    )
    assert 0.1 < whole["masked_accuracy"] < 0.9
    assert whole["masked_cosine"] == pytest.approx(cosines.diagonal().mean(), abs=1e-6)
    assert whole["chance_accuracy"] == pytest.approx(1 / 40)


def test_same_work_by_hand():
    """The passage that is alone is in the pool, where both of Emma find it first, and no query."""
    works = ["Emma", "Emma", "Walden", "Walden", "Alone"]
    vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [1.0, 0.05]]
    scores = load("same_work_retrieval").compute(predictions=vectors, references=works, k=1)

    assert (scores["queries"], scores["hit_rate@1"]) == (4, 0.5)
    assert scores["map"] == scores["mrr"] == (1 / 2 + 1 / 2 + 1 + 1) / 4


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


@pytest.mark.long
def test_a_folder_is_a_space_of_the_hub(hub, fresh_process):
    """Uploaded as it is by the Hub's client, and loaded from there by name."""
    vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
    works = ["Emma", "Emma", "Walden", "Walden"]
    folder = METRICS / "same_work_retrieval"
    printed = fresh_process(PUSH_AND_LOAD, folder, json.dumps(vectors), json.dumps(works))
    files = hub.files("space", "user/same_work_retrieval")

    assert json.loads(printed.splitlines()[-1])["map"] == 1.0
    assert files["README.md"].startswith(b"---\ntitle: Same-work retrieval\n")

    [copied] = (fresh_process.folder / "modules" / "evaluate_modules").rglob(
        "same_work_retrieval.py"
    )

    assert (
        copied.read_bytes()
        == files["same_work_retrieval.py"]
        == (folder / "same_work_retrieval.py").read_bytes()
    )


def test_same_work_against_scikit_learn():
    draw = np.random.default_rng(2)
    works = ["Emma"] * 6 + ["Ulysses"] * 5 + ["Walden"] * 4 + ["Alone"]
    centres = dict(zip(works, draw.normal(size=(len(works), 8)), strict=True))
    noise = 1.2 * draw.normal(size=(len(works), 8))
    vectors = (np.stack([centres[work] for work in works]) + noise).astype("float32")
    scores = load("same_work_retrieval").compute(predictions=vectors, references=works, k=3)
    cosines = cosine_similarity(vectors.astype("float64"))
    precisions = []
    ranks = []
    for index, work in enumerate(works[:-1]):
        is_same = np.delete(np.array(works) == work, index)
        others = np.delete(cosines[index], index)
        precisions.append(average_precision_score(is_same, others))
        ranks.append(1 + np.argmax(is_same[np.argsort(-others)]))

    assert scores["queries"] == 15  # the passage that is alone is in the pool, and no query
    assert scores["map"] == pytest.approx(np.mean(precisions))
    assert scores["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert scores["hit_rate@3"] == pytest.approx(np.mean(np.array(ranks) <= 3))
    assert 0.2 < scores["map"] < 0.95
