"""Sets of documents: how they are read, sampled and masked; and pretraining on them to a checkpoint
that opens."""

import math
import re

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoProcessor

from nextlevelbert import (
    CdlmForMaskedLM,
    CdlmModel,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.pretraining import cdlm
from nextlevelbert.pretraining.document_sets import TokenSequence, hold_out_sets, read_document_sets
from nextlevelbert.training.runs import read_json

from ..finetuning_toys import write

SUBJECTS = ["rain", "bread", "stars", "trains", "whales", "music", "sugar", "glass"]
NUMBERS = "one two three four five six seven eight nine ten".split()


@pytest.fixture(scope="module")
def processor(toy_encoder_path):
    return CdlmProcessor.from_model(CdlmModel.from_encoder(toy_encoder_path, max_length=512))


def test_rows_of_one_document_are_put_together(tmp_path):
    rows = [
        {"topic": "b", "text": " First. ", "id": 1},
        {"topic": "a", "text": "Other."},
        {"topic": "b", "text": "Second."},
        {"topic": "b", "text": "  "},
        {"topic": 7, "text": "Third."},
    ]
    sets = read_document_sets(write(tmp_path / "news.jsonl", rows), "topic")
    assert sets == {"b": ["First.", "Second."], "a": ["Other."], "7": ["Third."]}


def test_rows_of_a_set_are_lists_or_have_the_separator_of_multi_news(tmp_path):
    rows = [{"document": "One.\n|||||Two.|||||  "}, {"document": ["One.", " ", "|||||"]}]
    sets = read_document_sets(write(tmp_path / "sets.jsonl", rows))
    assert sets == {"0": ["One.", "Two."], "1": ["One.", "|||||"]}
    path = tmp_path / "train.src.cleaned"
    path.write_text("One. NEWLINE_CHAR Two. ||||| Three.\nFour. ||||| Five. ||||| Six.\n")
    assert read_document_sets(path) == {
        "0": ["One. \n Two.", "Three."],
        "1": ["Four.", "Five.", "Six."],
    }


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
        read_document_sets(write(tmp_path / "news.jsonl", [good, row]), set_column)
    with pytest.raises(ValueError, match="--cluster_column"):
        read_document_sets(
            write(tmp_path / "alone.jsonl", [{"document": "One."}, {"document": "Two."}])
        )


def test_a_share_of_the_large_sets_is_put_aside():
    sets = {}
    for number in range(10):
        sets[f"small {number}"] = ["alone"]
        sets[f"large {number}"] = [f"text {number}", "and", "more"]
    rest, aside = hold_out_sets(sets, 0.3, 0)
    assert list(map(len, aside.values())) == [3, 3, 3]  # of the ten that are large
    assert rest | aside == sets
    assert len(rest) == 17
    assert hold_out_sets(sets, 0.3, 0) == (rest, aside)
    assert hold_out_sets(sets, 0.3, 1) != (rest, aside)


def sets(words=4, documents=8):
    """Eight sets; every document has the word of its set, a number of its own, and more words that
    count up."""
    made = []
    for subject in SUBJECTS:
        counts = [" ".join((NUMBERS * 9)[n : n + words - 1]) for n in range(documents)]
        made.append([f"{subject} {count}".strip() for count in counts])
    return made


def documents_of(row, processor):
    """The documents of a sequence; the layout around them is looked at."""
    names = processor.tokenizer.convert_ids_to_tokens(row.input_ids.tolist())
    text = " ".join(names)
    assert re.fullmatch(r"\[CLS\]( <doc-s>( [a-z]+)+ </doc-s>)+ \[SEP\]", text)
    assert row.maskable.tolist() == list(map(str.isalpha, names))
    return re.findall(r"<doc-s> (.*?) </doc-s>", text)


@pytest.mark.parametrize(
    ("max_length", "words"), [(14, 40), (15, 1), (28, 4), (29, 40), (30, 4), (60, 4), (60, 40)]
)
def test_at_least_three_related_documents_and_never_too_long(processor, max_length, words):
    data = sets(words)
    dataset = ClusterDataset(data, processor, max_length)
    assert len(dataset) == 8
    share = (max_length - 2) // 3 - 2  # most that one document gives
    for originals, row in zip(data, dataset, strict=True):
        documents = documents_of(row, processor)
        assert 3 <= len(documents) <= 8
        lengths = [len(document.split()) for document in documents]
        length = 2 + sum(lengths) + 2 * len(lengths)
        assert length == len(row.input_ids) <= max_length
        if length < max_length - 2:  # room is left for no other document only where there is none
            assert len(documents) == 8
        assert set(lengths[:-1]) == {min(words, share)}
        assert lengths[-1] <= min(words, share)
        for document in documents:
            assert f" {document} " in f" {' ; '.join(originals)} "  # a stretch of the set


@pytest.mark.parametrize(("share", "length"), [(1 / 3, 8), (0.5, 13), (1.0, 28)])
def test_a_long_document_gives_a_stretch_of_its_share_drawn_anew(processor, share, length):
    """A share is taken of 30 tokens, and two tokens of it are separators."""
    data = [[" ".join(NUMBERS * 4)] * 4]
    starts = set()
    for row in ClusterDataset(data * 60, processor, 32, document_share=share):
        words = documents_of(row, processor)[0].split()
        assert len(words) == length
        starts.add(words[0])
    assert starts == set(NUMBERS)


@pytest.mark.parametrize("share", [0.05, 1.1])
def test_shares_of_a_document_that_cannot_be(processor, share):
    with pytest.raises(ValueError, match="share"):
        ClusterDataset(sets(), processor, 32, document_share=share)


def test_unrelated_documents_come_from_different_sets(processor):
    dataset = ClusterDataset(sets(), processor, 60, related=False)
    orders = set()
    for row in dataset:
        # One of every set, and 8 * 6 + 2 are 50 tokens, in an order of their own.
        subjects = [document.split()[0] for document in documents_of(row, processor)]
        assert sorted(subjects) == sorted(SUBJECTS)
        orders.add(tuple(subjects))
    assert len(orders) == len(dataset) == 8


def test_sets_that_are_too_small_are_counted(processor):
    data = [["one"] * 3, ["two"] * 2, [], ["three"] * 4]
    dataset = ClusterDataset(data, processor, 32)
    seen = [documents_of(row, processor)[0] for row in dataset]
    assert sorted(seen) == ["one", "three"]
    with pytest.raises(ValueError, match="at least 3 are needed"):
        ClusterDataset(data, processor, 32, related=False)
    with pytest.raises(ValueError, match="13 tokens"):
        ClusterDataset(data, processor, 13)


def long_sequence(count=100_000, key=(1, 2, 3)):
    """Ids of BERT's ordinary words, every tenth position not to be masked."""
    ids = np.random.default_rng(0).integers(2000, 30000, count)
    return TokenSequence(ids, np.arange(count) % 10 > 0, key)


def test_the_shares_of_the_paper(processor):
    sequence = long_sequence()
    before = sequence.input_ids.copy()
    batch = DataCollatorForCrossDocumentMasking(processor)([sequence])
    assert (sequence.input_ids == before).all()
    ids = batch["input_ids"][0].numpy()
    labels = batch["labels"][0].numpy()
    selected = labels != -100
    masked = ids == processor.tokenizer.mask_token_id
    assert not (selected & ~sequence.maskable).any()
    assert (labels[selected] == before[selected]).all()
    assert (ids[~selected] == before[~selected]).all()
    random = ids[selected & ~masked & (ids != before)]
    shares = selected.sum() / 90_000, masked.sum() / selected.sum(), len(random) / selected.sum()
    assert shares == pytest.approx((0.15, 0.8, 0.1), abs=0.014)  # four standard deviations
    # Random words are words, of the whole vocabulary.
    special = processor.tokenizer.convert_tokens_to_ids(
        ["[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]", "<doc-s>"]
    )
    assert not np.isin(random, special).any()
    assert np.unique(random).size > 1_200


@pytest.mark.parametrize(
    ("pattern", "first"), [("masked", None), ("prefix", [6, 5]), ("none", [0, 0])]
)
def test_who_has_global_attention(processor, pattern, first):
    rows = [long_sequence(40), long_sequence(31, key=(4, 5, 6))]  # 15 % are 6 and 4.65
    batch = DataCollatorForCrossDocumentMasking(processor, pattern)(rows)
    assert batch["attention_mask"].sum(dim=1).tolist() == [40, 31]
    assert (batch["input_ids"][1, 31:] == processor.tokenizer.pad_token_id).all()
    wide = batch["global_attention_mask"]
    selected = batch["labels"] != -100
    assert selected.any(dim=1).all()
    if pattern == "masked":
        assert torch.equal(wide, selected.long())
    else:
        assert torch.equal(wide, (torch.arange(40) < torch.tensor(first)[:, None]).long())


def test_masks_follow_their_key_alone(processor):
    collator = DataCollatorForCrossDocumentMasking(processor)
    alone = collator([long_sequence(200)])
    np.random.seed(1)
    together = collator([long_sequence(300, key=(7, 7, 7)), long_sequence(200)])
    for name in alone:
        assert torch.equal(together[name][1, :200], alone[name][0])
    assert not torch.equal(collator([long_sequence(200, key=(1, 3, 3))])["labels"], alone["labels"])


# --- Runs


SETTINGS = (
    "--max_length 48 --attention_window 8 --per_device_train_batch_size 2"
    " --gradient_accumulation_steps 1 --warmup_steps 1 --learning_rate 3e-3"
    " --eval_steps 3 --disable_tqdm true --validation_share 0.25"
    " --eval_strategy steps --save_strategy no"
).split()


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("news") / "news.jsonl",
        [{"document": texts} for texts in sets(6, 5)],
    )


@pytest.fixture
def run(toy_encoder_path, news):
    def pretrain(output, *words, model=toy_encoder_path, files=("--train_file", str(news))):
        cdlm.main([*files, "--model", str(model), "--output_dir", str(output), *SETTINGS, *words])
        return read_json(output / "results.json")

    return pretrain


def test_pretraining_leaves_a_checkpoint_that_opens(run, news, tmp_path):
    folder = tmp_path / "cdlm"
    results = run(folder, "--do_train", "--max_steps", "6")
    first, *_, last = [entry for entry in results["log"] if "eval_loss" in entry]
    assert (first["step"], last["step"]) == (0, 6)
    scores = results["rows"]["validation"]
    assert scores["loss"] == pytest.approx(last["eval_loss"])
    assert scores["loss"] < first["eval_loss"]
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    # What is saved opens, and its perplexity on the same sets is the one that was told.
    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CdlmForMaskedLM
    assert not info["missing_keys"]
    assert not model.config.sparse_prediction
    assert AutoProcessor.from_pretrained(folder).max_length == 48
    assert model.config.max_sequence_length == 48
    again = run(tmp_path / "alone", model=folder)["rows"]["validation"]
    assert again == pytest.approx(scores, abs=1e-3)
    card = (folder / "README.md").read_text()
    assert f"| validation | {scores['loss']:.4f} | {scores['perplexity']:.4f} |" in card
    # An evaluation leaves the results of the training as they are.
    with pytest.raises(ValueError, match="do_train"):
        run(folder, "--max_steps", "6")
    assert read_json(folder / "results.json") == results


def test_perplexity_without_training_and_on_a_test_set(run, news, toy_encoder_path, tmp_path):
    files = ("--test_file", str(news))
    results = run(tmp_path, "--global_attention", "none", files=files)
    torch.manual_seed(42)
    model = CdlmForMaskedLM.from_encoder(toy_encoder_path, max_length=48, attention_window=8)
    processor = CdlmProcessor.from_model(model, 48)
    dataset = ClusterDataset([*read_document_sets(news).values()], processor)
    collator = DataCollatorForCrossDocumentMasking(processor, "none")
    expected = model(**collator(list(dataset))).loss.item()
    # The markers' rows are drawn.
    assert results["rows"]["test"]["loss"] == pytest.approx(expected, abs=0.05)
    assert not (tmp_path / "model.safetensors").exists()
    with pytest.raises(ValueError, match="--do_train"):
        run(tmp_path, "--do_train", files=files)
    with pytest.raises(ValueError, match="--metric_for_best_model"):
        run(tmp_path, "--metric_for_best_model", "perplexity")


@pytest.mark.parametrize("pattern", ["none", "prefix"])
def test_a_model_is_evaluated_with_the_pattern_it_was_trained_with(run, tmp_path, pattern):
    folder = tmp_path / "cdlm"
    trained = run(folder, "--do_train", "--global_attention", pattern, "--max_steps", "2")
    assert AutoModel.from_pretrained(folder).config.global_attention == pattern
    again = run(tmp_path / "again", model=folder)
    assert again["rows"]["validation"] == pytest.approx(trained["rows"]["validation"], abs=1e-4)
    other = run(tmp_path / "other", "--global_attention", "masked", model=folder)
    assert other["rows"] != again["rows"]
    assert f"| global_attention | `{pattern}` |" in (folder / "README.md").read_text()


def test_global_projections_that_learn_nothing_end_as_copies(run, toy_encoder_path, tmp_path):
    run(tmp_path, "--do_train", "--global_attention", "none", "--max_steps", "2")
    model = AutoModel.from_pretrained(tmp_path)
    for layer in model.encoder.layer:
        attention = layer.attention.self
        for part in ("query", "key", "value"):
            local = getattr(attention, part).state_dict()
            for name, weight in getattr(attention, f"{part}_global").state_dict().items():
                assert torch.equal(weight, local[name])
    before = CdlmModel.from_encoder(toy_encoder_path, max_length=48).encoder.layer[1]
    assert not torch.equal(attention.query.weight, before.attention.self.query.weight)
