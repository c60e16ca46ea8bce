"""Document matching with CDLM: pairs of documents in both forms, and the task from sets to card."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert import CdlmForDocumentMatching, CdlmProcessor
from nextlevelbert.tasks.document_matching import MatchingArguments, load_document_pairs, main
from nextlevelbert.training.runs import read_json

from ..finetuning_toys import predictions, write

TRAINING = (
    "--max_length 64 --attention_window 16 --learning_rate 3e-3"
    " --lr_scheduler_type constant --warmup_steps 0"
    " --per_device_train_batch_size 4 --disable_tqdm true"
).split()
ROWS = [
    {"id": "a-b", "text1": "Whales.", "text2": "The white whale.", "label": 1},
    {"id": "a-c", "text1": "Whales.", "text2": "A ball at Netherfield.", "label": 0},
]


def test_named_columns(tmp_path):
    assert list(load_document_pairs(write(tmp_path / "pairs.jsonl", ROWS))) == [
        {"id": "a-b", "first": "Whales.", "second": "The white whale.", "label": 1},
        {"id": "a-c", "first": "Whales.", "second": "A ball at Netherfield.", "label": 0},
    ]
    (tmp_path / "renamed.csv").write_text("one,other,related\nWhales.,It.,0\nSea.,The ship.,1\n")
    columns = MatchingArguments("one", "other", "related")
    pairs = load_document_pairs(tmp_path / "renamed.csv", columns)
    assert pairs["id"][:] == ["row-000000", "row-000001"]
    assert pairs["label"][:] == [0, 1]
    with pytest.raises(ValueError, match="label"):
        load_document_pairs(write(tmp_path / "bad.jsonl", [{**ROWS[0], "label": 2}]))


def test_the_files_of_zhou_et_al(tmp_path):
    """Label and two texts without a header; long fields, quotes, line ends, and the mark of a
    citation."""
    long = "word " * 40_000
    rows = [
        [1, 'It "works", as\x01 shown.\nSo it does.', long],
        [0, "One, two.", "Three."],
        [1, "a", "b", "more"],
    ]
    with (tmp_path / "train_cite.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    pairs = load_document_pairs(tmp_path / "train_cite.csv")
    assert [tuple(pair.values()) for pair in pairs] == [  # the shortest first
        ("row-000002", "a", "b", 1),
        ("row-000001", "One, two.", "Three.", 0),
        ("row-000000", 'It "works", as shown.\nSo it does.', long, 1),
    ]


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


def test_matching_is_learnt_and_published(encoder, tmp_path):
    output = tmp_path / "matcher"
    train = pairs(tmp_path, "train.jsonl", 48, 0)
    validation = pairs(tmp_path, "validation.jsonl", 16, 1)
    words = ["--model", encoder, "--train_file", train, "--validation_file", validation, *TRAINING]
    words += ["--output_dir", str(output)]
    with pytest.raises(ValueError, match="training set"):
        main([*words, "--test_file", train])
    with pytest.raises(ValueError, match="one of loss"):  # evaluations have no other score
        main([*words, "--metric_for_best_model", "f1"])
    main([*words, "--num_train_epochs", "6"])
    rows = read_json(output / "results.json")["rows"]
    assert next(iter(rows)).startswith("tiny (cdlm)")
    assert next(iter(rows.values()))["accuracy"] > 0.8
    # The model gives the probabilities that were written.
    model = CdlmForDocumentMatching.from_pretrained(output).eval()
    processor = CdlmProcessor.from_pretrained(output)
    documents = load_document_pairs(validation)
    written = {}
    for row in predictions(output / "validation_predictions.jsonl"):
        written[row["id"]] = row["probability"]
    for row in documents:
        logits = model(**processor([[row["first"], row["second"]]])).logits
        probability = logits.softmax(dim=-1)[0, 1].item()
        assert written[row["id"]] == pytest.approx(probability, abs=2e-5)
    card = (output / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict = {}
    exec(code.replace('"matcher"', repr(str(output))), names)
    assert names["probability"].shape == (1,)
    assert str(tmp_path) not in card
    assert "Chosen on this set, too: the epoch" in card
