"""Pictures and tables of a training."""

from pathlib import Path

import matplotlib.axes
import numpy as np
import pytest
from PIL import Image

from nextlevelbert.training.plots import plot_confusion, plot_curves, plot_pretraining, results_table


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn: the points of each line with its label."""
    lines, plot = [], matplotlib.axes.Axes.plot

    def record(axes, xs, ys, *args, **kwargs):
        lines.append((kwargs["label"], list(xs), list(ys)))
        return plot(axes, xs, ys, *args, **kwargs)

    monkeypatch.setattr(matplotlib.axes.Axes, "plot", record)
    return lines


def test_pretraining_shows_losses_and_the_scores_that_there_are(drawn, tmp_path):
    log = [
        {"step": 0, "eval_loss": 4.0, "eval_perplexity": 54.6},
        {"step": 5, "loss": 3.5},
        {"step": 10, "eval_loss": 3.0, "eval_perplexity": 20.1},
    ]
    plot_pretraining(log, tmp_path / "curve.png")
    assert drawn == [
        ("training", [5], [3.5]),
        ("validation", [0, 10], [4.0, 3.0]),
        ("perplexity of masked words", [0, 10], [54.6, 20.1]),
    ]
    wide = Image.open(tmp_path / "curve.png").width
    plot_pretraining([{"step": 5, "loss": 3.5}], tmp_path / "curve.png")  # no evaluation: the loss alone
    assert Image.open(tmp_path / "curve.png").width == wide // 2


def test_curves_have_a_line_per_seed_and_one_label_for_all(drawn, tmp_path):
    first, second = [{"epoch": 1.0, "loss": 2.0}], [{"epoch": 1.0, "loss": 1.5}, {"epoch": 2.0, "eval_f1": 0.5}]
    plot_curves([first, second], "f1", tmp_path / "curve.png")
    assert [line for line in drawn if line[1]] == [
        ("training", [1.0], [2.0]),
        (None, [1.0], [1.5]),
        (None, [2.0], [0.5]),
    ]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_confusion_matrix_counts_true_against_predicted(monkeypatch, tmp_path):
    written, text = [], matplotlib.axes.Axes.text
    monkeypatch.setattr(
        matplotlib.axes.Axes, "text",
        lambda axes, x, y, label, **kwargs: (written.append((x, y, label)), text(axes, x, y, label, **kwargs))[1],
    )  # fmt: skip
    plot_confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), ["a", "b"], tmp_path / "matrix.png")
    assert sorted(written) == [(0, 0, "1"), (0, 1, "0"), (1, 0, "1"), (1, 1, "1")]  # predicted, true, count


def test_results_stand_in_a_table():
    rows = {"model": {"f1": (0.5, 0.01), "mse": float("nan")}, "baseline": {"accuracy": 0.25}}
    assert results_table(rows) == (
        "| | f1 | mse | accuracy |\n| --- | --- | --- | --- |\n"
        "| model | 0.5000 ± 0.0100 |  |  |\n| baseline |  |  | 0.2500 |"
    )


def test_a_picture_that_is_killed_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "curve.png"
    plot_curves([[{"epoch": 1.0, "loss": 2.0}]], None, path)
    before = path.read_bytes()

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    for draw in (
        lambda: plot_pretraining([{"step": 5, "loss": 3.5}], path),
        lambda: plot_confusion(np.array([0, 1]), np.array([0, 0]), ["a", "b"], path),
    ):
        with pytest.raises(KeyboardInterrupt):
            draw()
        assert path.read_bytes() == before
