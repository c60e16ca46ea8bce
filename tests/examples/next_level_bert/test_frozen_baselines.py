"""The baselines of NextLevelBERT's tables: mean of the chunks, first chunk, another encoder."""

import json

import pytest
import torch
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel

from ...toys.finetuning import sea_rows, write
from ...toys.vectors import close
from ..scripts import load_script

script = vars(load_script("next_level_bert/frozen_baselines.py"))
SETS = {"train": (32, 1), "validation": (8, 2), "test": (11, 3)}


def run(folder, rows_of, *argv):
    files = []
    for name, (count, seed) in SETS.items():
        files += [f"--{name}_file", write(folder / f"{name}.jsonl", rows_of(count, seed))]
    return script["main"]([*argv, *files, "--output_dir", str(folder / "table")])


def rows_with_equal_starts(count, seed):
    """Rows whose first 14 tokens are the same."""
    rows = sea_rows(count, seed)
    for row in rows:
        row["text"] = "In the year that all of this happened to us nothing was. " + row["text"]
    return rows


def questions(count, seed):
    """Rows whose right choice is the subject of the text."""
    subjects = ["the sea", "bread"]
    rows = []
    for row in sea_rows(count, seed):
        label = ["sea", "bread"].index(row["label"])
        question = "What is it about?"
        rows.append({**row, "question": question, "choices": subjects, "label": label})
    return rows


@pytest.mark.parametrize(
    ("baseline", "least", "most"), [("avg_sbert", 0.8, 1.0), ("sbert", 0.0, 0.7)]
)
def test_chunks_of_a_text(toy_encoder_path, tmp_path, baseline, least, most):
    argv = [baseline, "--encoder", toy_encoder_path, "--chunk_size", "14", "--seeds", "0", "1"]

    scores = run(tmp_path, rows_with_equal_starts, *argv)

    assert least <= scores["accuracy"]["mean"] <= most
    stored = json.loads((tmp_path / "table" / "results.json").read_text())
    assert stored["macro_f1"] == scores["macro_f1"]


def test_choices(toy_encoder_path, tmp_path):
    argv = ["avg_sbert", "--encoder", toy_encoder_path, "--chunk_size", "16"]

    scores = run(tmp_path, questions, *argv)

    assert scores["accuracy"]["mean"] > 0.6


def test_vectors_of_chunks_are_the_models(toy_encoder_path, tmp_path):
    argv = "avg_sbert --chunk_size 16 --train_file a --validation_file a --test_file a".split()
    argv += ["--encoder", toy_encoder_path, "--output_dir", str(tmp_path)]
    args = script["make_parser"]().parse_args(argv)
    text = "The whale and the sea. " * 20

    [vector] = script["chunk_vectors"](args)([text])

    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    close(vector, model.encode(text).plain.mean(dim=0), atol=1e-3)


def test_another_encoder_reads_the_beginning(encoder, tmp_path, caplog):
    argv = "other --train_file a --validation_file a --test_file a --output_dir b".split()
    args = script["make_parser"]().parse_args([*argv, "--encoder", encoder])
    long = "the whale and the sea " * 40

    vectors = script["vectors_of_other_encoder"](args)([long, "short"])

    assert "first 64 tokens of each text are read; 1 of 2" in caplog.text
    expected = SentenceTransformer(encoder, device="cpu").encode([long], convert_to_tensor=True)
    close(vectors[0], expected[0])


def test_the_classifier_by_hand():
    torch.manual_seed(0)
    model = script["Classifier"](4, 1)
    features = torch.randn(3, 2, 4)  # of two choices each

    logits = model(features)

    hidden = model.layers[0](features).clamp(min=0)
    close(logits, model.layers[2](hidden).squeeze(-1))


def test_a_list_of_classes_is_refused(tmp_path):
    path = write(tmp_path / "rows.jsonl", [{"text": "the sea", "label": ["a", "b"]}])

    with pytest.raises(ValueError, match="must be one class"):
        script["read_rows"](path)
