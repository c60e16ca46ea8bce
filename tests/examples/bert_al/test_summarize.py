"""BERT-AL's experiment: the data, the baselines of the paper, and the script from files to table."""

import copy
import gzip
import json
import shutil

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    RobertaConfig,
    TrainerState,
    XLNetConfig,
)

from nextlevelbert import BertAlForExtractiveSummarization
from nextlevelbert.models import encode_sentences

from ...toys.finetuning import write
from ...toys.vectors import TINY, close
from ..scripts import EXAMPLES, load_script

script = load_script("bert_al/summarize.py")
RECIPE = EXAMPLES / "recipes" / "bert_al.yaml"


def stories(count: int, seed: int) -> list[dict]:
    """Documents of 4 to 8 sentences; the summary is the two sentences that speak of a storm."""
    draw = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        labels = [1, 1] + [0] * (2 + index % 5)
        draw.shuffle(labels)
        text = []
        for label in labels:
            day = draw.integers(10, 31)
            text.append(f"On day {day} we had {('bread', 'storm')[label]}.")
        summary = [sentence for sentence in text if "storm" in sentence]
        rows.append({"text": text, "summary": " ".join(summary), "labels": labels})
    return rows


def read(file, **options):
    """The documents of a training set, of which one is held out."""
    arguments = script.SummaryArguments(model="a model", train_file=file, **options)
    return script.read_documents(arguments, seed=0)


# --- Data


def test_the_samples_of_cnn_dailymail(shared):
    """Among three sentences the oracle is better than the first ones."""
    path = shared / "data" / "cnndm_sample" / "sample.jsonl.gz"
    with gzip.open(path, "rt") as file:
        rows = list(map(json.loads, file))
    columns = {"text_column": "source_sentences", "summary_column": "summary_sentences"}

    data = read(str(path), validation_file=str(path), **columns)["validation"]
    chosen_by = script.choose_without_model(data, data, count=3)
    oracle = script.score_summaries(data, chosen_by["oracle, at most 3 sentences"])
    first = script.score_summaries(data, chosen_by["first 3 sentences"])

    assert data["sentences"][:] == [row["source_sentences"] for row in rows]
    assert len(data) == 6
    for document, row in zip(data, rows, strict=True):
        chosen = script.greedy_oracle(row["source_sentences"], row["summary_sentences"])
        assert document["reference"] == row["summary_sentences"]
        assert np.flatnonzero(document["labels"]).tolist() == chosen
    assert oracle["rouge2"] > first["rouge2"]


def test_the_columns_of_the_hub(tmp_path):
    """An article is one text, and each of its highlights is a line."""
    row = {"article": "It rained. Dr. Roe came.", "highlights": "It rained .\nA Dr. Roe came"}
    file = write(tmp_path / "hub.jsonl", [row] * 2)

    data = read(file, text_column="article", summary_column="highlights")["train"]

    assert data[0]["sentences"] == ["It rained.", "Dr. Roe came."]
    assert data[0]["reference"] == ["It rained .", "A Dr. Roe came"]
    assert data[0]["labels"] == [1, 1]


def test_a_folder_is_no_data_set_of_the_hub(tmp_path):
    """Its README.md could name addresses, which `datasets` would fetch."""
    arguments = script.SummaryArguments(model="a model", dataset_name=str(tmp_path))

    with pytest.raises(ValueError, match="is on this machine"):
        script.read_documents(arguments, seed=0)


@pytest.mark.parametrize(
    ("row", "culprit"),
    [
        ({"labels": [1]}, "'labels' must be a list of 2 labels"),
        ({"labels": [1, 2]}, "'labels' must be a list of 2 labels"),
        ({"text": ["One.", " "]}, "'text' must be a text with words"),
        ({"summary": " "}, "'summary' must be a text with words"),
        ({"summary": None}, "'summary' must be a text with words"),
    ],
)
def test_rows_that_are_refused(tmp_path, row, culprit):
    good = {"text": ["One.", "Two."], "summary": "One.", "labels": [1, 0]}
    file = write(tmp_path / "rows.jsonl", [good, {**good, **row}])

    with pytest.raises(ValueError, match=rf"Row 1 \(from 0\): column {culprit}"):
        read(file, validation_file=file, label_column="labels")


def test_summaries_without_a_word_of_their_documents(tmp_path, caplog):
    apart = {"text": "It rained. Yes.", "summary": "Tea time."}
    file = write(tmp_path / "apart.jsonl", [apart])
    near = {"text": "It rained. Yes.", "summary": "It rained."}
    mixed = write(tmp_path / "mixed.jsonl", [apart, near])

    with pytest.raises(ValueError, match=r"1 of 1 share no word.*--label_column"):
        read(file, validation_file=file)
    read(mixed, validation_file=mixed)

    assert "train: 1 of 2 share no word with their summary." in caplog.text


@pytest.mark.parametrize(
    ("text", "summary"),
    [("Да. Мама мыла раму.", "Мама мыла окно."), ("下雨了。猫坐在垫子上。", "猫在垫子上。")],
)
def test_other_scripts_are_labelled_and_scored(tmp_path, text, summary):
    file = write(tmp_path / "rows.jsonl", [{"text": text, "summary": summary}] * 2)

    data = read(file)["train"]

    assert data[0]["labels"] == [0, 1]
    assert script.score_summaries(data, [[1]])["rouge1"] > 0.6
    assert script.score_summaries(data, [[0]])["rouge1"] == 0.0


def test_rows_without_a_model_by_hand(tmp_path):
    """The oracle may choose as many sentences as the summary has, and no more."""
    words = "whale ship harbour sail captain".split()
    text = [*(f"A {word} and an oven." for word in words), "Ovens."]
    file = write(tmp_path / "rows.jsonl", [{"text": text, "summary": " ".join(text[2:5])}] * 2)

    data = read(file)["train"]
    two = script.choose_without_model(data, data, count=2)
    oracle = script.score_summaries(data, two["oracle, at most 2 sentences"])

    assert data[0]["labels"] == [0, 0, 1, 1, 1, 0]
    assert oracle["precision"] == 1.0
    # Two of the three sentences of the reference, which have five words each.
    assert oracle["rouge1"] == pytest.approx(2 * 10 / (10 + 15))
    assert two["first 2 sentences"] == [[0, 1]]


@pytest.mark.parametrize(
    ("model_type", "length", "limit"),
    [
        ("truncated", {}, 128),
        ("truncated", {"segment_length": 20}, 20),
        ("bert-al", {"segment_length": 20}, None),
        ("extended", {"segment_length": 20}, None),
    ],
)
def test_documents_in_bertsum_s_format(
    small_tokenizer, tmp_path, caplog, model_type, length, limit
):
    """Baseline-1 loses the tokens behind the first segment, with their labels and a warning."""
    [story] = stories(1, 0)
    story = {**story, "text": story["text"] * 5, "labels": story["labels"] * 5}
    file = write(tmp_path / "rows.jsonl", [story])
    documents = read(file, validation_file=file, label_column="labels")
    options = script.SummaryArguments(
        model="a model", train_file=file, model_type=model_type, **length
    )
    tokenizer = small_tokenizer

    [row] = script.tokenize_documents(documents, tokenizer, options)["train"]

    expected = []
    for sentence in story["text"]:
        expected += tokenizer(sentence)["input_ids"]  # [CLS] words [SEP]
    sentences = expected[:limit].count(tokenizer.cls_token_id)
    assert len(expected) > 128
    assert row["input_ids"] == expected[:limit]
    assert row["labels"] == story["labels"][:sentences]
    assert ("tokens are left out" in caplog.text) == (limit is not None)


@pytest.mark.parametrize(("blocking", "expected"), [(False, [0, 2]), (True, [1, 2])])
def test_the_best_sentences_of_each_document(blocking, expected):
    """Behind the last sentence is padding; with trigram blocking, a repetition is skipped."""
    sentences = ["The match was off.", "Tea was served.", "Again, the match was off."]
    rows = [{"sentences": sentences, "labels": [0, 0, 1]}, {"sentences": ["A."], "labels": [1]}]
    logits = np.array([[1.0, 0.0, 2.0], [0.5, 9.0, 9.0]])
    options = script.SummaryArguments(
        model="a model", train_file="file", summary_sentences=2, trigram_blocking=blocking
    )

    chosen = script.choose_sentences(logits, rows, options)

    assert chosen == [expected, [0]]


# --- Models


@pytest.mark.parametrize(
    ("config_class", "unused"),
    [(BertConfig, 0), (RobertaConfig, 2)],  # RoBERTa's start behind the padding id
)
@torch.no_grad()
def test_extended_positions_keep_what_was_learnt(small_tokenizer, tmp_path, config_class, unused):
    torch.manual_seed(0)
    config = config_class(**TINY, vocab_size=30_522, max_position_embeddings=64 + unused)
    plain = AutoModel.from_config(config, add_pooling_layer=False).eval()
    plain.save_pretrained(tmp_path / "encoder")
    small_tokenizer.save_pretrained(tmp_path / "encoder")
    options = script.SummaryArguments(
        model=str(tmp_path / "encoder"),
        train_file="file",
        model_type="extended",
        segment_length=16,
    )

    model = script.make_model(options, longest=100, folder=str(tmp_path / "longer")).model

    ids = torch.randint(1000, 2000, (1, 100))
    expected = plain(ids[:, :16]).last_hidden_state
    close(model(ids[:, :16]).last_hidden_state, expected, atol=1e-6)
    table = model.encoder.embeddings.position_embeddings.weight[unused:]
    learnt = plain.embeddings.position_embeddings.weight[unused:]
    assert table.shape == (100, 32)
    assert not torch.isclose(table[16:64], learnt[16:64]).any(dim=1).all()
    assert table[16:].std().item() == pytest.approx(0.02, rel=0.1)
    # All tokens see each other, in one segment.
    before = model(ids).last_hidden_state[0, 0]
    ids[0, 99] = 5
    assert not torch.equal(model(ids).last_hidden_state[0, 0], before)


def test_an_encoder_without_a_table_of_positions_is_refused(small_tokenizer, tmp_path):
    config = XLNetConfig(vocab_size=99, d_model=8, n_layer=1, n_head=2, d_inner=8)
    AutoModel.from_config(config).save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="is a xlnet, which has no table of positions"):
        script.save_extended_encoder(str(tmp_path), learnt=4, total=8, folder="none")


@pytest.mark.parametrize(("keep", "dropout"), [(True, 0.1), (False, 0.0)])
def test_the_encoder_s_attention_dropout(minilm_path, keep, dropout):
    options = script.SummaryArguments(
        model=str(minilm_path),
        train_file="file",
        recurrence="replace",
        keep_attention_dropout=keep,
    )

    model = script.make_model(options, longest=99, folder="none")

    assert model.model.encoder.encoder.layer[-1].attention.self.dropout.p == dropout
    assert model.model.recurrences[0].residual is None
    assert model.config.segment_length == 128  # the usual one


def test_the_three_lowest_losses_by_hand():
    log = [
        {"eval_loss": loss, "step": step} for step, loss in enumerate([3, 1, float("nan"), 2, 5])
    ]
    state = TrainerState(log_history=[{"loss": 0.1, "step": 9}, *log])

    assert script.lowest_losses(state) == {1: 1, 3: 2, 0: 3}
    assert list(script.lowest_losses(state)) == [1, 3, 0]


# --- The recipe


def test_options_override_the_recipe(tmp_path):
    """The values of the recipe are compared with the paper's in tests/training/test_options.py."""
    argv = ["--model", "a", "--train_file", "b", "--recipe", str(RECIPE), "--max_steps", "7"]

    options, args = script.parse_arguments([*argv, "--output_dir", str(tmp_path)])

    assert (args.max_steps, args.warmup_steps, args.adam_epsilon) == (7, 10_000, 1e-9)
    assert args.optim.startswith("adamw")  # without decay: Adam
    assert (options.recurrence, options.keep_attention_dropout) == ("replace", True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--summary_sentences", "0"], "--summary_sentences must be 1 or more"),
        (["--dataset_name", "a/b"], "either --train_file or --dataset_name"),
        (["--model_type", "truncated", "--push_to_hub"], "is a baseline, which is not published"),
        (["--save_strategy", "no"], "Every evaluation needs a checkpoint"),
    ],
)
def test_options_that_are_refused(tmp_path, words, message):
    line = ["--model", "a", "--train_file", "b", "--output_dir", str(tmp_path), *words]

    with pytest.raises(ValueError, match=message):
        script.parse_arguments(line)


def test_a_folder_with_checkpoints_is_refused(tmp_path):
    (tmp_path / "checkpoint-5").mkdir()

    with pytest.raises(ValueError, match="has checkpoints of another training"):
        script.parse_arguments(["--model", "a", "--train_file", "b", "--output_dir", str(tmp_path)])


# --- The script


SIZES = {"train": (40, 0), "validation": (6, 1), "test": (7, 2)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summaries")
    argv = []
    for name, size in SIZES.items():
        file = write(folder / f"{name}.jsonl", stories(*size))
        argv += [f"--{name}_file", file]
    return argv


def run(folder, model, *argv):
    """Runs the script, and returns its table."""
    options = "--label_column labels --summary_sentences 2 --disable_tqdm true --use_cpu"
    options += " --learning_rate 1e-2 --lr_scheduler_type constant"
    return script.main(["--model", model, *options.split(), "--output_dir", str(folder), *argv])


WORDS = ["--segment_length", "16", "--max_training_tokens", "40", "--num_train_epochs", "8"]


@pytest.fixture(scope="module")
def trained(encoder, files, tmp_path_factory):
    """The folder of a run, and its table."""
    folder = tmp_path_factory.mktemp("trained")
    table = run(folder, encoder, *files, *WORDS)
    return folder, table


def steps_of(folder):
    """The steps of the checkpoints."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))


def losses_of(folder):
    """The validation losses by step."""
    last = folder / f"checkpoint-{steps_of(folder)[-1]}"
    state = TrainerState.load_from_json(last / "trainer_state.json")
    losses = {}
    for entry in state.log_history:
        if "eval_loss" in entry:
            losses[entry["step"]] = entry["eval_loss"]
    return losses


def test_the_mean_of_the_three_evaluations_with_the_lowest_loss_is_reported(trained, files):
    """The summaries of `summarize`, which reads a text at a time, have the reported scores."""
    folder, table = trained
    losses = losses_of(folder)
    scorer = RougeScorer(["rouge2"], use_stemmer=True)

    rouge2 = []
    for step in sorted(losses, key=losses.get)[:3]:
        model = BertAlForExtractiveSummarization.from_pretrained(folder / f"checkpoint-{step}")
        for row in stories(7, 2):
            summary = model.summarize(row["text"], sentences=2)
            scores = scorer.score(row["summary"], str(summary))
            rouge2.append(scores["rouge2"].fmeasure)

    assert len(losses) == 8
    assert table["bert-al, test"]["rouge2"] == pytest.approx(np.mean(rouge2))
    assert table["bert-al, test"]["precision"] > table["first 2 sentences"]["precision"]


def test_the_sentences_that_each_row_chose_are_written(trained):
    """The model's sentences are the summaries that the saved model makes."""
    folder, table = trained
    model = BertAlForExtractiveSummarization.from_pretrained(folder)
    lines = (folder / "predictions.jsonl").read_text().splitlines()

    for line, story in zip(lines, stories(7, 2), strict=True):
        record = json.loads(line)
        assert record["right"] == np.flatnonzero(story["labels"]).tolist()
        summary = model.summarize(story["text"], sentences=2)
        assert record["chosen"]["bert-al, test"] == summary.indices
        assert record["chosen"]["first 2 sentences"] == [0, 1]
    assert record["chosen"].keys() == table.keys()
    assert json.loads((folder / "results.json").read_text()) == table


def test_the_model_with_the_lowest_loss_is_saved_and_few_checkpoints_stay(trained):
    folder, _ = trained
    losses = losses_of(folder)
    lowest = sorted(losses, key=losses.get)
    text = stories(7, 2)[0]["text"]

    saved = BertAlForExtractiveSummarization.from_pretrained(folder)
    best = BertAlForExtractiveSummarization.from_pretrained(folder / f"checkpoint-{lowest[0]}")

    assert steps_of(folder) == sorted({*lowest[:3], max(losses)})
    assert saved.summarize(text).scores == best.summarize(text).scores


def test_documents_are_read_whole_after_training(trained):
    """A limit on tokens holds in training only: each sentence of a longer document has a score."""
    folder, _ = trained
    longest = max((row["text"] for row in stories(7, 2)), key=len)
    model = BertAlForExtractiveSummarization.from_pretrained(folder)

    summary = model.summarize(longest)

    ids, _ = encode_sentences(longest, model.tokenizer)
    assert len(ids) > 40 == model.config.max_training_tokens
    assert len(summary.scores) == len(longest)


@pytest.mark.parametrize(
    "model_type", ["truncated", pytest.param("extended", marks=pytest.mark.long)]
)
def test_the_paper_s_baselines_read_at_once(model_type, encoder, files, tmp_path):
    """Baseline-2 has a position for each token of the longest document of all sets."""
    argv = ["--model_type", model_type, "--segment_length", "24", "--num_train_epochs", "1"]
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    longest = 0
    for row in stories(*SIZES["train"]) + stories(*SIZES["validation"]):
        ids, _ = encode_sentences(row["text"], tokenizer)
        longest = max(longest, len(ids))

    table = run(tmp_path, encoder, *files[:4], *argv)

    config = BertAlForExtractiveSummarization.from_pretrained(tmp_path).config
    length = {"truncated": 24, "extended": longest}
    assert f"{model_type}, validation" in table
    assert config.segment_length == length[model_type]
    assert config.recurrence == "none"


def test_an_xlnet_is_trained_though_its_tokenizer_pads_on_the_left(
    small_tokenizer, files, tmp_path
):
    encoder = tmp_path / "encoder"
    config = XLNetConfig(vocab_size=30_522, d_model=8, n_layer=1, n_head=2, d_inner=8)
    AutoModel.from_config(config).save_pretrained(encoder)
    tokenizer = copy.deepcopy(small_tokenizer)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(encoder)

    table = run(tmp_path / "model", str(encoder), *files[:4], "--num_train_epochs", "1")

    assert 0 < table["bert-al, validation"]["rouge1"] <= 1


def test_a_stopped_training_resumes_to_the_same_table(trained, encoder, files, tmp_path):
    folder, table = trained
    steps = steps_of(folder)
    for step in steps[:-1]:
        shutil.copytree(folder / f"checkpoint-{step}", tmp_path / f"checkpoint-{step}")
    argv = [*WORDS, "--resume_from_checkpoint", str(tmp_path / f"checkpoint-{steps[-2]}")]

    again = run(tmp_path, encoder, *files, *argv)

    for name, score in again["bert-al, test"].items():
        assert score == pytest.approx(table["bert-al, test"][name])
