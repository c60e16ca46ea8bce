"""Document matching with CDLM: pairs of documents in both forms, and the script from files to
scores."""

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from nextlevelbert import CdlmForDocumentMatching, CdlmProcessor

from ...toys.finetuning import predictions, write
from .scripts import ROOT, TRAINING, match_documents

ROWS = [
    {"text1": "Whales.", "text2": "The white whale.", "label": 1},
    {"text1": "Whales.", "text2": "A ball at Netherfield.", "label": 0},
]


def test_named_columns(tmp_path):
    pairs = match_documents.read_pairs(write(tmp_path / "pairs.jsonl", ROWS))

    assert pairs == [
        ("Whales.", "The white whale.", 1),
        ("Whales.", "A ball at Netherfield.", 0),
    ]


@pytest.mark.parametrize("changed", [{"label": 2}, {"label": None}, {"text2": " "}])
def test_a_row_that_is_no_pair_is_named(tmp_path, changed):
    path = write(tmp_path / "bad.jsonl", [ROWS[0], {**ROWS[0], **changed}])
    with pytest.raises(ValueError, match="line 2"):
        match_documents.read_pairs(path)


def test_the_files_of_zhou_et_al(tmp_path):
    """Label and two texts without a header; long fields, quotes, line ends, and the mark of a
    citation."""
    long = "word " * 40_000
    rows = [
        [1, 'It "works", as\x01 shown.\nSo it does.', long],
        [0, "One, two.", "NA"],
        [1, "a", "b", "more"],
    ]
    path = tmp_path / "train_cite.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)

    assert match_documents.read_pairs(path) == [
        ('It "works", as shown.\nSo it does.', long, 1),
        ("One, two.", "NA", 0),
        ("a", "b", 1),
    ]


@pytest.mark.parametrize("line", ["label,c,d", "0,c", "0,c, ", "0"])
def test_a_malformed_pair_of_zhou_et_al_is_named(tmp_path, line):
    path = tmp_path / "pairs.csv"
    path.write_text(f"1,a,b\n{line}\n")
    with pytest.raises(ValueError, match="row 2"):
        match_documents.read_pairs(path)


def pairs(folder: Path, name: str, count: int, seed: int) -> str:
    """Documents that belong together where both are about the sea."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        one, other = draw.choice(["sea", "oven"], 2)
        is_match = bool(one == other == "sea")
        rows.append(
            {"text1": f"the {one} " * 4, "text2": f"the {other} " * 4, "label": int(is_match)}
        )
    return write(folder / name, rows)


def test_matching_is_learnt(encoder, tmp_path):
    output = tmp_path / "matcher"
    argv = ["--model", encoder, "--train_file", pairs(tmp_path, "train.jsonl", 48, 0), *TRAINING]
    test = pairs(tmp_path, "test.jsonl", 16, 1)
    argv += ["--test_file", test, "--num_train_epochs", "6", "--output_dir", str(output)]

    scores = match_documents.main(argv)

    assert scores["accuracy"] > 0.8
    assert scores["f1"] > scores["f1_of_always_related"]
    # The saved model has the probabilities that were written, and they the scores.
    model = CdlmForDocumentMatching.from_pretrained(output).eval()
    processor = CdlmProcessor.from_pretrained(output)
    records = predictions(output / "test_predictions.jsonl")
    labels = []
    predicted = []
    for record, pair in zip(records, match_documents.read_pairs(test), strict=True):
        logits = model(**processor([[pair.first, pair.second]])).logits
        probability = logits.softmax(dim=-1)[0, 1].item()
        assert record["probability"] == pytest.approx(probability, abs=2e-5)
        assert record["label"] == pair.label
        labels.append(pair.label)
        predicted.append(int(probability > 0.5))
    assert scores["f1"] == pytest.approx(f1_score(labels, predicted))


class Stopped(Exception):
    """The trainer would be made now."""


def test_the_settings_of_the_papers_arrive(encoder, tmp_path, monkeypatch):
    """Appendix C.2 names the values; the learning rate is in Zhou et al.'s script."""
    made = {}

    def stop(**parts):
        made.update(parts)
        raise Stopped

    monkeypatch.setattr(match_documents, "Trainer", stop)
    file = write(tmp_path / "pairs.jsonl", ROWS)
    recipe = str(ROOT / "examples" / "recipes" / "cdlm_matching.yaml")
    argv = ["--recipe", recipe, "--model", encoder, "--train_file", file, "--test_file", file]
    with pytest.raises(Stopped):
        match_documents.main([*argv, "--output_dir", str(tmp_path)])

    args = made["args"]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 32
    assert (args.num_train_epochs, args.learning_rate) == (8, 2e-5)
