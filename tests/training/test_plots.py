"""Pictures of a training: every seed is in them."""

from matplotlib.figure import Figure
from PIL import Image

from nextlevelbert.training.plots import plot_curves, save_figure


def test_pictures_show_every_seed(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(
        "nextlevelbert.training.plots.save_figure", lambda figure, path: figures.append(figure)
    )
    log = [
        {"loss": 2.0, "epoch": 1, "step": 10},
        {"eval_loss": 1.5, "eval_f1": 0.5, "epoch": 1, "step": 10},
    ]
    plot_curves([log, log], ["f1"], tmp_path / "curve.png")
    plot_curves([log], [], tmp_path / "curve.png", x="step")
    loss, score = figures[0].axes

    assert heights(loss) == [[2.0], [2.0], [1.5], [1.5]]
    assert heights(score) == [[0.5], [0.5]]
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["loss", "eval_loss"]

    [by_step] = figures[1].axes

    assert by_step.lines[0].get_xdata().tolist() == [10]


def heights(axes):
    return [line.get_ydata().tolist() for line in axes.lines]


def test_a_picture_is_written_as_a_png(tmp_path):
    save_figure(Figure(figsize=(2, 1)), tmp_path / "picture")
    with Image.open(tmp_path / "picture") as picture:
        assert (picture.format, picture.size) == ("PNG", (240, 120))
