"""What fine-tuning shares: options, texts encoded once, a training per seed, adapters, the command
line of tasks."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nextlevelbert import NextLevelBertForMultipleChoice, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.finetuning import classification, multiple_choice, seeds
from nextlevelbert.finetuning.arguments import (
    FinetuningArguments,
    LoraArguments,
    VectorModelArguments,
)
from nextlevelbert.finetuning.tasks import TASKS, main
from nextlevelbert.finetuning.vector_reader import with_lora
from nextlevelbert.finetuning.vector_source import VectorSource, require_layers
from nextlevelbert.training.data_arguments import DataArguments
from nextlevelbert.training.trainer import CardTrainer

from ..vector_toys import close


def arguments(folder: Path, **more) -> FinetuningArguments:
    return FinetuningArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, **more
    )


# --- Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--train_file or with --dataset_name"),
        ({"train_file": "x", "test_split": "t"}, "give a file with --test_file"),
        (
            {"dataset_name": "y", "validation_file": "v"},
            "names all sets: use --validation_split instead of --validation_file",
        ),
    ],
)
def test_sets_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DataArguments(**options)


def test_where_sets_are(tmp_path):
    data = DataArguments(train_file="a.jsonl", test_file="b.jsonl")

    sets = data.read_sets(
        lambda source, split, config: [source, split], 3, lambda rows, *how: (rows, how)
    )

    assert sets == {
        "train": ["a.jsonl", "train"],
        "test": ["b.jsonl", "train"],
        "validation": (0.15, 3),
    }
    folder = DataArguments(train_file=str(tmp_path), validation_split="dev")
    assert (folder.location("train"), folder.location("validation")) == (
        (str(tmp_path), "train"),
        (str(tmp_path), "dev"),
    )
    assert DataArguments(dataset_name="me/books", test_split="test").location("test") == (
        "me/books",
        "test",
    )


def test_the_metric_of_the_best_evaluation_is_one_of_its_scores(tmp_path):
    arguments(tmp_path, metric_for_best_model="eval_f1").check_best_metric(["accuracy", "f1"])
    with pytest.raises(ValueError, match="give one of loss, accuracy, f1"):
        arguments(tmp_path, metric_for_best_model="acc").check_best_metric(["accuracy", "f1"])


def test_an_untrained_model_has_layers_to_train():
    require_layers("untrained")


def test_seeds_twice(tmp_path):
    with pytest.raises(ValueError, match="--seeds"):
        arguments(tmp_path, seeds=[3, 3])


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--task", "clasification"], "clasification"),
        (["--model", "x"], "--task"),
        (["{folder}/options.yaml"], "--seed_count"),
    ],
)
def test_a_task_or_an_option_that_is_not_there(words, culprit, tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("task: classification\nmodel: x\nseed_count: 3\n")

    with pytest.raises(SystemExit):
        main([word.format(folder=tmp_path) for word in words])
    assert culprit in capsys.readouterr().err


def test_the_list_of_tasks(capsys):
    main(["--help"])
    assert f"\n  {next(iter(TASKS))} " in capsys.readouterr().out


@pytest.mark.parametrize("module", [classification, multiple_choice])
def test_the_configuration_of_a_dataset_is_read(module, toy_checkpoint, monkeypatch, tmp_path):
    monkeypatch.setattr(
        module, "open_rows", lambda source, split, config: pytest.fail(f"{source} {config}")
    )
    words = f"--model {toy_checkpoint} --dataset_name me/pairs --dataset_config_name small"

    with pytest.raises(pytest.fail.Exception, match="me/pairs small"):
        module.main([*words.split(), "--output_dir", str(tmp_path)])


# --- Models by name, texts encoded once


def test_texts_are_encoded_once_and_as_encode_does(toy_checkpoint, tmp_path, monkeypatch):
    options = VectorModelArguments(model=toy_checkpoint, cache_dir=str(tmp_path / "cache"))
    texts = ["The whale and the sea. " * 20, "Short.", "Short."]
    source = VectorSource.open(options, ())
    vectors = source.encode(arguments(tmp_path), texts)
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for text, book in zip(texts, model.encode(texts), strict=True):
        assert vectors[text].dtype == torch.float16
        close(vectors[text].float(), book.plain, atol=1e-3)
    monkeypatch.setattr(type(source.encoder.encoder), "encode", None)
    again = VectorSource.open(options).encode(arguments(tmp_path), texts)
    assert all(torch.equal(again[text], vectors[text]) for text in texts)
    options.encoder_dtype = "bfloat16"  # another precision is another corpus
    with pytest.raises(TypeError, match="not callable"):
        VectorSource.open(options).encode(arguments(tmp_path), texts)
    monkeypatch.undo()

    halves = VectorSource.open(options).encode(arguments(tmp_path), texts)

    for text in texts:
        assert not torch.equal(halves[text], vectors[text])
        close(halves[text], vectors[text], atol=2e-2)
    with pytest.raises(ValueError, match="no token"):
        source.encode(arguments(tmp_path), ["\u200b", "word"])


def test_a_model_gets_its_chunk_encoder_back(
    toy_checkpoint, toy_encoder_path, minilm_path, tmp_path
):
    options = VectorModelArguments(model=toy_checkpoint)
    source = VectorSource.open(options, ())

    model = source.new_model("classification")

    assert model.base_model.chunk_encoder is None
    model.save_pretrained(tmp_path / "seed")
    whole = source.open_trained(tmp_path / "seed", "classification").base_model
    text = "The whale and the sea. " * 20
    expected = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(text)
    close(whole.encode(text).document, expected.document)
    # A checkpoint without its chunk encoder takes the one that made its vectors, and no other.
    alone = VectorModelArguments(model=str(tmp_path / "seed"), chunk_encoder=toy_encoder_path)
    assert VectorSource.open(alone, ()).encoder.fingerprint == source.encoder.fingerprint
    with pytest.raises(ValueError, match="chunk"):
        VectorSource.open(
            VectorModelArguments(model=str(tmp_path / "seed"), chunk_encoder=minilm_path), ()
        )


def test_any_other_encoder_gives_one_vector_of_what_it_reads(
    encoder, toy_encoder_path, tmp_path, caplog
):
    options = VectorModelArguments(model=encoder, cache_dir=str(tmp_path))
    source = VectorSource.open(options, ())
    long = "the whale and the sea " * 40

    vectors = source.encode(arguments(tmp_path), [long, "short"])

    assert (source.family, vectors[long].shape) == ("other", (1, 32))
    assert "first 64 tokens of each text are read; 1 of 2" in caplog.text
    ids = source.encoder.encoder.tokenizer(
        long, truncation=True, max_length=64, return_tensors="pt"
    )
    states = source.encoder.encoder[0].auto_model(**ids).last_hidden_state  # [1, 64, 32]
    close(vectors[long].float(), states.mean(dim=1), atol=2e-3)
    for name, culprit in (("no-such-model", "no-such-model"), ("bm25", "bm25")):
        with pytest.raises(ValueError, match=culprit):
            VectorSource.open(VectorModelArguments(model=name), ("sbert",))
    # As many tokens as it reads; sentences are of HATE, and not of its baseline.
    sbert = VectorModelArguments(model="sbert", model_type="hate", chunk_encoder=toy_encoder_path)
    rule = VectorSource.open(sbert, ("sbert",)).rule
    assert (rule.chunk_size, rule.mode) == (512, "fixed")
    assert load_chunk_encoder(toy_encoder_path).max_chunk_size == 512
    mean = VectorModelArguments(
        model="avg_sbert", model_type="hate", chunk_encoder=toy_encoder_path
    )
    rule = VectorSource.open(mean, ("avg_sbert",)).rule
    assert (rule.chunk_size, rule.mode) == (256, "sentences")


def test_a_card_names_what_a_model_was_made_of(toy_checkpoint, minilm_path):
    """The model on the Hub, else its chunk encoder, never a folder or the word untrained."""
    name = "sentence-transformers/all-MiniLM-L6-v2"

    new = VectorModelArguments(
        model="untrained", chunk_encoder=minilm_path, chunk_encoder_name=name
    )

    assert VectorSource.open(new).base_model == name
    alone = VectorModelArguments(model="untrained", chunk_encoder=minilm_path)
    assert VectorSource.open(alone).base_model is None
    assert VectorSource.open(VectorModelArguments(model=toy_checkpoint)).base_model is None


# --- Adapters


def test_a_mean_of_chunk_vectors_has_no_layers_to_train(
    sea_files, toy_encoder_path, tmp_path, capsys
):
    plain = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16, pooling="plain")
    plain.save_pretrained(tmp_path / "plain")
    words = f"--task classification --lora --model {tmp_path}/plain --output_dir {tmp_path}/out"

    with pytest.raises(SystemExit):
        main([*words.split(), "--train_file", sea_files["--train_file"]])

    assert "no layers to train" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_adapters_train_less_than_a_tenth(minilm):
    """Of the real size, the frozen chunk encoder not counted; the head is trained whole."""
    model = NextLevelBertForMultipleChoice.from_chunk_encoder(minilm, include_chunk_encoder=False)
    adapted = with_lora(model, LoraArguments(lora=True))

    trainable, total = adapted.get_nb_trainable_parameters()

    assert total > 10_000_000
    assert 0.02 < trainable / total < 0.10
    for name, parameter in adapted.named_parameters():
        assert not parameter.requires_grad or "lora" in name or "classifier" in name


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


# --- Seeds


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
