"""A training per seed, and the report of all."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nextlevelbert.finetuning import seeds
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.training.trainer import CardTrainer

from ..toys.finetuning import arguments


@pytest.fixture
def seeded(tmp_path):
    """Arguments of two seeds, and the call that trains with them; the seeds are counted."""
    args = arguments(tmp_path, seeds=[0, 1], num_train_epochs=3, learning_rate=0.1, warmup_steps=0)
    rows = [{"labels": torch.tensor(2.0)}] * 8
    made = []

    def make_trainer(one: FinetuningArguments) -> CardTrainer:
        made.append(one.seed)
        return CardTrainer(Point(), one, train_dataset=rows, eval_dataset=rows)

    def score(trainer: CardTrainer, folder: Path):
        loss = trainer.evaluate()["eval_loss"]
        (folder / "test_predictions.jsonl").write_text("{}\n")
        return {"validation": {"loss": loss}, "test": {"accuracy": loss / 2, "loss": 7.0}}

    def run(size: int) -> list[seeds.Result]:
        return seeds.run_seeds(args, {"size": size}, make_trainer, score)

    return args, run, made


class Point(nn.Module):
    """One number, drawn at the start, that follows another."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(1))

    def forward(self, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "loss": ((self.place - labels) ** 2).mean(),
            "logits": self.place.expand(len(labels)),
        }


def test_a_training_per_seed(seeded, tmp_path):
    _, run, made = seeded

    results = run(size=1)

    for seed, result in enumerate(results):
        assert (result.steps, result.parameters) == (3, (1, 1))
        assert (tmp_path / f"seed-{seed}" / "model.safetensors").exists()
    assert not list(tmp_path.glob("seed-*/checkpoint-*"))
    for result, again in zip(results, run(size=1), strict=True):
        assert again.scores == result.scores
    assert made == [0, 1]  # not trained again
    with pytest.raises(ValueError, match="size"):
        run(size=2)


def test_a_report_of_all_seeds_and_the_best_one(seeded, tmp_path, capsys):
    args, run, _ = seeded
    results = run(size=1)

    best, table = seeds.report(args, results, "test", "point", {"chance": {"accuracy": 0.25}})

    losses = [result.scores["validation"]["loss"] for result in results]
    assert best.scores["validation"]["loss"] == min(losses)
    assert "| chance | 0.2500 |" in table
    assert table in capsys.readouterr().out
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["seeds"]["1"] == results[1].scores["test"]
    assert list(stored["rows"]) == ["point, 2 seeds, test", "chance"]
    results[0].scores["validation"]["accuracy"] = 0.5
    results[1].scores["validation"]["accuracy"] = 0.75
    highest, _ = seeds.report(args, results, "test", "point", {}, "accuracy")
    assert highest.seed == 1  # of other scores the highest
    assert (tmp_path / "test_predictions.jsonl").read_text() == "{}\n"
    assert not (tmp_path / "README.md").exists()


def test_mean_and_deviation_over_seeds():
    rows = [{"accuracy": 0.5, "loss": 1.0}, {"accuracy": 0.7, "loss": 2.0}]

    assert seeds.mean_and_deviation(rows)["accuracy"] == pytest.approx((0.6, 0.1 * 2**0.5))
    assert seeds.mean_and_deviation(rows[:1]) == {"accuracy": 0.5}
