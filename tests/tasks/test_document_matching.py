"""Document matching with CDLM: pairs of documents in both forms, and the task from sets to card."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset

from nextlevelbert import CdlmForDocumentMatching, CdlmProcessor
from nextlevelbert.tasks.document_matching import MatchingArguments, load_document_pairs, main

from ..finetuning_toys import write

TRAINING = (
    "--max_length 64 --attention_window 16 --learning_rate 3e-3"
    " --lr_scheduler_type constant --warmup_steps 0"
    " --per_device_train_batch_size 4 --disable_tqdm true"
).split()
ROWS = [
    {"id": "a-b", "text1": "Whales, large and small.", "text2": "The white whale.", "label": 1},
    {
        "id": "a-c",
        "text1": "Whales, large and small.",
        "text2": "A ball at Netherfield.",
        "label": 0,
    },
]


def test_named_columns(tmp_path):
    stored = load_document_pairs(write(tmp_path / "pairs.jsonl", ROWS))
    assert [tuple(row.values()) for row in stored] == [tuple(row.values()) for row in ROWS]
    renamed = [
        {"first": row["text1"], "second": row["text2"], "related": row["label"]} for row in ROWS
    ]
    Dataset.from_list(renamed).to_csv(tmp_path / "renamed.csv")
    pairs = load_document_pairs(
        tmp_path / "renamed.csv", MatchingArguments("first", "second", "related")
    )
    assert (pairs["id"][:], pairs["label"][:]) == (["row-000000", "row-000001"], [1, 0])
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
    draw, made = np.random.default_rng(seed), []
    for _ in range(count):
        words = draw.choice(["sea", "oven"], 2)
        texts = [" ".join([f"the {word} and the {word}"] * 2) for word in words]
        made.append({"text1": texts[0], "text2": texts[1], "label": int((words == "sea").all())})
    return write(folder / name, made)


def test_matching_is_learnt_and_published(encoder, tmp_path):
    output = tmp_path / "matcher"
    train, validation = (
        pairs(tmp_path, "train.jsonl", 48, 0),
        pairs(tmp_path, "validation.jsonl", 16, 1),
    )
    words = ["--model", encoder, "--train_file", train, "--validation_file", validation, *TRAINING]
    with pytest.raises(ValueError, match="training set"):
        main([*words, "--test_file", train, "--output_dir", str(output)])
    with pytest.raises(ValueError, match="one of loss"):  # evaluations have no other score
        main([*words, "--metric_for_best_model", "f1", "--output_dir", str(output)])
    main([*words, "--num_train_epochs", "6", "--output_dir", str(output)])
    results = json.loads((output / "results.json").read_text())["rows"]
    [scores] = [scores for name, scores in results.items() if name.startswith("tiny (cdlm)")]
    assert scores["accuracy"] > 0.8
    # The model gives the probabilities that were written.
    model, processor = (
        CdlmForDocumentMatching.from_pretrained(output).eval(),
        CdlmProcessor.from_pretrained(output),
    )
    written = {
        row["id"]: row for row in map(json.loads, (output / "validation_predictions.jsonl").open())
    }
    rows = load_document_pairs(validation)
    with torch.no_grad():
        logits = model(**processor([[row["first"], row["second"]] for row in rows])).logits
    for row, probability in zip(rows, logits.softmax(dim=-1)[:, 1].tolist(), strict=True):
        assert written[row["id"]]["probability"] == pytest.approx(probability, abs=2e-5)
    card = (output / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict = {}
    exec(code.replace('"matcher"', repr(str(output))), names)
    assert names["probability"].shape == (1,)
    assert str(tmp_path) not in card
    assert "Chosen on this set, too: the epoch" in card
