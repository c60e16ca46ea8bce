"""Multiple choice in the script."""

from __future__ import annotations

import json

import pytest

from ..finetuning_toys import predictions, run_the_card, start


def test_quality_s_real_article_end_to_end(shared, toy_checkpoint, tmp_path):
    sample = str(shared / "data" / "quality" / "examples.jsonl.gz")
    options = {"--train_file": sample, "--validation_file": sample, "--num_train_epochs": "2"}
    start(tmp_path / "chooser", toy_checkpoint, task="multiple_choice", **options)
    found = predictions(tmp_path / "chooser" / "validation_predictions.jsonl")
    assert len(found) == 5
    assert all(len(row["scores"]) == 4 and sum(row["scores"]) == pytest.approx(1, abs=1e-5) for row in found)
    results = json.loads((tmp_path / "chooser" / "results.json").read_text())
    # The one article is not enough to fit a whitening to.
    assert list(results["trivial_baseline"]) == [
        "most frequent label",
        "candidate nearest to the mean of the chunk vectors",
    ]
    card = (tmp_path / "chooser" / "README.md").read_text()
    assert "chosen on this set, too, so the scores are likely too high" in card  # there is but one article
    assert run_the_card(tmp_path / "chooser", card).shape == (1, 2)
