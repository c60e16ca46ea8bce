"""The script that pretrains a CDLM: its checkpoint opens, its perplexity is what the model has."""

import math

import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoProcessor, set_seed

from nextlevelbert import (
    CdlmForMaskedLM,
    CdlmModel,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)

from ...toys.finetuning import write
from .scripts import ROOT, pretrain

SUBJECTS = ["rain", "bread", "stars", "trains", "whales", "music", "sugar", "glass"]
NUMBERS = "one two three four five six seven eight nine ten".split()
SETTINGS = (
    "--max_length 48 --attention_window 8 --per_device_train_batch_size 2 --learning_rate 3e-3"
    " --lr_scheduler_type constant --disable_tqdm true --report_to none --save_strategy no"
).split()


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    """Eight sets of five documents, which share a word."""
    counts = [" ".join(NUMBERS[first : first + 5]) for first in range(5)]
    rows = [{"document": [f"{subject} {count}" for count in counts]} for subject in SUBJECTS]
    return write(tmp_path_factory.mktemp("news") / "news.jsonl", rows)


@pytest.fixture
def run(toy_encoder_path):
    def run_script(output, *argv, model=toy_encoder_path):
        words = ["--model", str(model), "--output_dir", str(output), *SETTINGS, *argv]
        return pretrain.main(words)

    return run_script


def test_multi_news_as_its_authors_publish_it(tmp_path):
    path = tmp_path / "train.src.cleaned"
    path.write_text("One. NEWLINE_CHAR Two. ||||| Three.\nFour. ||||| Five. ||||| Six. |||||\n")

    sets = pretrain.read_sets(str(path), options=None)

    assert sets == {"0": ["One. \n Two.", "Three."], "1": ["Four.", "Five.", "Six."]}


def test_rows_of_one_document_are_put_together(tmp_path):
    rows = [
        {"topic": "b", "text": " First. ", "id": 1},
        {"topic": "a", "text": "Other."},
        {"topic": "b", "text": "Second."},
        {"topic": "b", "text": "  "},
        {"topic": 7, "text": "Third."},
    ]
    sets = pretrain.read_table(write(tmp_path / "news.jsonl", rows), "topic")

    assert sets == {"b": ["First.", "Second."], "a": ["Other."], "7": ["Third."]}


def test_rows_of_a_set_are_lists_or_have_the_separator_of_multi_news(tmp_path):
    rows = [{"document": "One.\n|||||Two.|||||  "}, {"document": ["One.", " ", "|||||"]}]
    sets = pretrain.read_table(write(tmp_path / "sets.jsonl", rows))

    assert sets == {"0": ["One.", "Two."], "1": ["One.", "|||||"]}


@pytest.mark.parametrize(
    ("row", "set_column", "word"),
    [
        ({"document": ["One.", None]}, None, "line 2"),
        ({"text": "One."}, "topic", "--cluster_column"),
        ({"topic": None, "text": "One."}, "topic", "topic"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, row, set_column, word):
    good = {"document": ["One.", "Two."], "topic": "a", "text": "One."}
    with pytest.raises(ValueError, match=word):
        pretrain.read_table(write(tmp_path / "news.jsonl", [good, row]), set_column)
    with pytest.raises(ValueError, match="--cluster_column"):
        pretrain.read_table(
            write(tmp_path / "alone.jsonl", [{"document": "One."}, {"document": "Two."}])
        )


def test_a_share_of_the_large_sets_is_put_aside():
    sets = {}
    for index in range(10):
        sets[f"small {index}"] = ["alone"]
        sets[f"large {index}"] = [f"text {index}", "and", "more"]
    rest, aside = pretrain.hold_out_sets(sets, 0.3, 0)

    assert list(map(len, aside.values())) == [3, 3, 3]  # of the ten that are large
    assert rest | aside == sets
    assert len(rest) == 17
    assert pretrain.hold_out_sets(sets, 0.3, 0) == (rest, aside)
    assert pretrain.hold_out_sets(sets, 0.3, 1) != (rest, aside)


def test_pretraining_leaves_a_checkpoint_that_opens(run, news, tmp_path):
    before = run(tmp_path / "start", "--validation_file", news)["validation"]
    files = ("--train_file", news, "--validation_file", news)

    scores = run(tmp_path / "cdlm", *files, "--do_train", "--max_steps", "12")["validation"]

    assert scores["loss"] < before["loss"]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    folder = tmp_path / "cdlm"
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CdlmForMaskedLM
    assert not info["missing_keys"]
    assert not model.config.sparse_prediction
    assert AutoProcessor.from_pretrained(folder).max_length == 48
    assert model.config.max_sequence_length == 48
    again = run(tmp_path / "alone", "--validation_file", news, model=folder)["validation"]
    assert again == pytest.approx(scores, abs=1e-3)


def test_perplexity_without_training_and_on_a_test_set(run, news, toy_encoder_path, tmp_path):
    scores = run(tmp_path, "--global_attention", "none", "--test_file", news)["test"]

    set_seed(42)  # rows of the markers are drawn
    model = CdlmForMaskedLM.from_encoder(toy_encoder_path, max_length=48, attention_window=8)
    processor = CdlmProcessor.from_model(model, 48)
    dataset = ClusterDataset([*pretrain.read_table(news).values()], processor)
    collator = DataCollatorForCrossDocumentMasking(processor, "none")
    expected = model(**collator(list(dataset))).loss.item()
    assert scores["loss"] == pytest.approx(expected, abs=1e-4)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("argv", [["--do_train", "--test_file"], ["--train_file"]])
def test_files_that_do_not_fit_are_refused(run, news, argv, tmp_path):
    with pytest.raises(ValueError, match="--train_file with --do_train"):
        run(tmp_path, *argv, news)


@pytest.mark.parametrize("pattern", ["none", "prefix"])
def test_a_model_is_evaluated_with_the_pattern_it_was_trained_with(run, news, tmp_path, pattern):
    folder = tmp_path / "cdlm"
    files = ("--train_file", news, "--validation_file", news)

    trained = run(folder, *files, "--do_train", "--global_attention", pattern, "--max_steps", "2")

    assert AutoModel.from_pretrained(folder).config.global_attention == pattern
    again = run(tmp_path / "again", "--validation_file", news, model=folder)
    assert again["validation"] == pytest.approx(trained["validation"], abs=1e-4)
    masked = ("--validation_file", news, "--global_attention", "masked")
    assert run(tmp_path / "other", *masked, model=folder) != again


def test_global_projections_that_learn_nothing_end_as_copies(run, news, toy_encoder_path, tmp_path):
    """Local: the projections of global attention are those of local attention in the end."""
    argv = ("--train_file", news, "--do_train", "--global_attention", "none", "--max_steps", "2")

    run(tmp_path, *argv)

    model = AutoModel.from_pretrained(tmp_path)
    for layer in model.encoder.layer:
        attention = layer.attention.self
        for part in ("query", "key", "value"):
            local = getattr(attention, part).state_dict()
            for name, weight in getattr(attention, f"{part}_global").state_dict().items():
                assert torch.equal(weight, local[name])
    before = CdlmModel.from_encoder(toy_encoder_path, max_length=48).encoder.layer[1]
    assert not torch.equal(attention.query.weight, before.attention.self.query.weight)


class Stopped(Exception):
    """The trainer would be made now."""


def test_the_settings_of_the_paper_arrive(toy_encoder_path, news, tmp_path, monkeypatch):
    """By the recipe, with Rand's and Prefix's options: the values of section 2.3 and appendix B."""
    made = {}

    def stop(**parts):
        made.update(parts)
        raise Stopped

    monkeypatch.setattr(pretrain, "Trainer", stop)
    argv = ["--recipe", str(ROOT / "examples" / "recipes" / "cdlm.yaml"), "--do_train"]
    argv += ["--model", toy_encoder_path, "--train_file", news, "--output_dir", str(tmp_path)]
    argv += ["--max_length", "48", "--random_clusters", "--global_attention", "prefix"]
    with pytest.raises(Stopped):
        pretrain.main([*argv, "--mlm_probability", "0.3"])

    args = made["args"]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 64
    assert (args.max_steps, args.warmup_steps, args.learning_rate) == (25_000, 500, 3e-5)
    assert (args.lr_scheduler_type, args.lr_scheduler_kwargs) == ("polynomial", {"power": 3.0})
    assert (args.adam_beta1, args.adam_beta2, args.adam_epsilon) == (0.9, 0.98, 1e-6)
    assert args.weight_decay == 0.01
    assert (made["train_dataset"].related, made["eval_dataset"].related) == (False, True)
    assert (made["data_collator"].pattern, made["data_collator"].mlm_probability) == ("prefix", 0.3)
    assert made["train_dataset"].max_length == 48  # the command line overrides the recipe's 4,096
