"""What other libraries write into a checkpoint's folder, before and after the model is saved."""

import importlib
import json
import pickle
import shutil

import numpy as np
import pytest
from huggingface_hub import ModelCard
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments

from nextlevelbert import (
    CdlmForMaskedLM,
    ChunkBertModel,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    static_checkpoint,
)
from nextlevelbert.models.model_names import SETTINGS

from ..faults.harness import tree

TEXT = "The cat sat on the mat. " * 100 + "Stock markets fell on Monday and bonds rose. " * 100


def vector(folder):
    return SentenceTransformer(str(folder), device="cpu").encode(TEXT)


def test_prompts_and_similarity_survive_a_save_through_sentence_transformers(
    toy_checkpoint, tmp_path
):
    prompts = {"query": "query: ", "document": "passage: "}
    model = SentenceTransformer(
        toy_checkpoint,
        prompts=prompts,
        default_prompt_name="document",
        similarity_fn_name="dot",
        device="cpu",
    )
    for _ in range(2):  # into a new folder, and over the checkpoint that is there
        model.save(str(tmp_path))
        opened = SentenceTransformer(str(tmp_path), device="cpu")
        assert opened.prompts == prompts
        assert opened.default_prompt_name == "document"
        assert opened.similarity_fn_name == "dot"
        np.testing.assert_allclose(opened.encode(TEXT), model.encode(TEXT), atol=1e-6)


def test_a_model_does_not_keep_the_token_that_it_was_opened_with(toy_checkpoint):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint, token="hf_secret")

    assert b"hf_secret" not in pickle.dumps(model)
    assert "hf_secret" not in str(vars(model))


def test_modules_over_the_model_survive_a_save_of_the_model_alone(toy_checkpoint, tmp_path):
    model = SentenceTransformer(toy_checkpoint, device="cpu")
    model.append(modules.Dense(32, 8))
    model.save(str(tmp_path))
    config_file = tmp_path / "sentence_bert_config.json"
    stored = json.loads(config_file.read_text(encoding="utf-8"))
    config_file.write_text(json.dumps(stored | {"do_lower_case": True}), encoding="utf-8")
    NextLevelBertModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    stored = json.loads(config_file.read_text(encoding="utf-8"))

    assert stored["do_lower_case"] is True  # as somebody has set it
    assert stored["max_seq_length"] == int(1e30)  # sentence-transformers had dropped it

    np.testing.assert_allclose(vector(tmp_path), model.encode(TEXT), atol=1e-6)


def test_a_folder_of_another_model_becomes_one_of_this_model(
    toy_checkpoint, toy_encoder_path, tmp_path
):
    shutil.copytree(toy_encoder_path, tmp_path, dirs_exist_ok=True)
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    model.save_pretrained(tmp_path)
    np.testing.assert_allclose(vector(tmp_path), model.encode(TEXT).document, atol=1e-5)


def sentence_encoder(folder, bert_path, **settings):
    """Saves an encoder of a saved BERT's weights, with settings of sentence-transformers."""
    steps = [modules.Transformer(str(bert_path)), modules.Pooling(32, "mean")]
    SentenceTransformer(modules=steps, device="cpu", **settings).save(str(folder))
    return str(folder)


@pytest.mark.parametrize("saved_by", ["model", "sentence-transformers"])
def test_prompts_that_were_taken_away_are_not_in_the_next_save(
    toy_encoder_path, tmp_path, saved_by
):
    prompts = {"document": "passage: "}
    path = sentence_encoder(
        tmp_path / "encoder", toy_encoder_path, prompts=prompts, default_prompt_name="document"
    )
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=16)
    model.save_pretrained(tmp_path / "model")
    if saved_by == "sentence-transformers":
        opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
        opened.save(str(tmp_path / "model"))
    model.config.prompts = None
    model.config.default_prompt_name = None

    model.save_pretrained(tmp_path / "model")

    np.testing.assert_allclose(vector(tmp_path / "model"), model.encode(TEXT).document, atol=1e-5)


def test_settings_of_another_encoder_are_not_in_the_next_save(toy_encoder_path, tmp_path):
    first = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    first.save_pretrained(tmp_path / "model")
    wrapped = SentenceTransformer(str(tmp_path / "model"), prompts={"document": "of the first: "})
    wrapped.append(modules.Dense(32, 8))
    wrapped.save(str(tmp_path / "model"))
    path = sentence_encoder(tmp_path / "encoder", toy_encoder_path, prompts={"query": "query: "})
    second = NextLevelBertModel.from_chunk_encoder(path, chunk_size=16)

    second.save_pretrained(tmp_path / "model")

    opened = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert opened.prompts == {"query": "query: ", "document": ""}
    assert len(opened) == 1


def test_settings_of_a_sentence_encoder_are_not_in_the_next_save(
    encoder, toy_encoder_path, tmp_path
):
    path = sentence_encoder(
        tmp_path / "encoder",
        toy_encoder_path,
        prompts={"document": "passage: "},
        default_prompt_name="document",
        similarity_fn_name="dot",
    )
    model = ChunkBertModel.from_encoder(encoder, chunk_size=16, num_averaged_layers=2)

    model.save_pretrained(path)

    opened = SentenceTransformer(path, device="cpu")
    assert opened.default_prompt_name is None
    assert opened.similarity_fn_name == "cosine"


def test_prompts_set_in_sentence_transformers_are_saved_over_another_encoder(
    toy_checkpoint, toy_encoder_path, tmp_path
):
    path = sentence_encoder(tmp_path / "encoder", toy_encoder_path, similarity_fn_name="dot")
    prompts = {"query": "query: ", "document": "passage: "}
    model = SentenceTransformer(toy_checkpoint, prompts=prompts, device="cpu")

    model.save(path)

    opened = SentenceTransformer(path, device="cpu")
    assert opened.prompts == prompts
    assert opened.similarity_fn_name == "cosine"


def test_a_limit_that_is_set_in_sentence_transformers_is_kept(toy_checkpoint, tmp_path):
    model = SentenceTransformer(toy_checkpoint, device="cpu")
    model.max_seq_length = 100
    model.save(str(tmp_path))
    assert SentenceTransformer(str(tmp_path), device="cpu").max_seq_length == 100

    config_file = tmp_path / "sentence_bert_config.json"
    stored = json.loads(config_file.read_text(encoding="utf-8"))
    config_file.write_text(json.dumps(stored | {"max_seq_length": 90}), encoding="utf-8")
    NextLevelBertModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert SentenceTransformer(str(tmp_path), device="cpu").max_seq_length == 90


@pytest.mark.parametrize("tokenizer", ["the model's", "the chunk encoder's"])
def test_a_tokenizer_that_a_trainer_saves_truncates_no_document(
    toy_encoder_path, small_tokenizer, tmp_path, tokenizer
):
    model = NextLevelBertForSequenceClassification.from_chunk_encoder(
        toy_encoder_path, chunk_size=64
    )
    processing_class = model.tokenizer
    if tokenizer == "the chunk encoder's":
        processing_class = small_tokenizer
        assert processing_class.model_max_length == 256
    arguments = TrainingArguments(str(tmp_path / "run"), report_to="none", use_cpu=True)
    trainer = Trainer(model, arguments, processing_class=processing_class)
    trainer.save_model(str(tmp_path / "model"))
    whole = AutoModel.from_pretrained(tmp_path / "model").encode(TEXT).document
    np.testing.assert_allclose(vector(tmp_path / "model"), whole, atol=1e-5)


def test_a_model_has_a_tokenizer_of_its_own(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=64, num_hidden_layers=0)

    assert model.tokenizer.model_max_length == int(1e30)
    assert minilm.tokenizer.model_max_length == 256


def test_the_tokenizer_lines_of_tutorials(toy_encoder_path):
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=64)
    stored = AutoTokenizer.from_pretrained(static_checkpoint())
    texts = ["a b c", "d"]
    for tokenizer in (model.tokenizer, stored):
        rows = tokenizer(texts, padding="max_length", truncation=True)["input_ids"]
        special = tokenizer.num_special_tokens_to_add()
        assert [len(row) for row in rows] == [3 + special, 1 + special]
        batch = tokenizer(
            texts, padding=True, truncation=True, pad_to_multiple_of=8, return_tensors="pt"
        )
        assert batch["input_ids"].shape == (2, 8)
        assert len(tokenizer(TEXT, truncation=True)["input_ids"]) > 1_000


def test_other_libraries_truncate_where_a_family_has_a_limit(encoder, tmp_path):
    CdlmForMaskedLM.from_encoder(encoder, max_length=64).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)

    assert len(tokenizer(TEXT, truncation=True)["input_ids"]) == 64
    assert SentenceTransformer(str(tmp_path), device="cpu").max_seq_length == 64
    assert vector(tmp_path).shape == (32,)


# A user who has transformers and sentence-transformers, and not this package.
MAKE_ANOTHER = """
import json, sys
from transformers import AutoModel
opened = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
model = type(opened).from_chunk_encoder(sys.argv[2], chunk_size=16)
print(json.dumps(model.encode(sys.argv[3]).plain.tolist()))
"""


def test_the_code_of_a_checkpoint_makes_new_models(toy_checkpoint, toy_encoder_path, fresh_process):
    output = fresh_process(MAKE_ANOTHER, toy_checkpoint, toy_encoder_path, TEXT, hidden=True)
    expected = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(TEXT).plain
    np.testing.assert_allclose(json.loads(output.splitlines()[-1]), expected.numpy(), atol=1e-5)


def test_a_folder_gets_a_card_and_keeps_the_one_it_has(toy_checkpoint, tmp_path):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    model.config.chunk_encoder_name = "me/encoder"
    model.save_pretrained(tmp_path)
    card = ModelCard.load(tmp_path / "README.md")

    assert card.data.tags == ["nextlevelbert", "sentence-transformers"]
    assert card.data.base_model == "me/encoder"
    assert "pip install" in card.text
    assert f'SentenceTransformer("{tmp_path.name}")' in card.text

    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    model.save_pretrained(tmp_path)

    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"
    assert Trainer.create_model_card.__module__ == "transformers.trainer"  # nobody's is replaced


@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "sentence_bert_config.json", SETTINGS]
)
def test_a_file_that_a_kill_left_empty_is_written_anew(toy_checkpoint, tmp_path, name):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    model.save_pretrained(tmp_path)
    expected = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    (tmp_path / name).write_text("")

    model.save_pretrained(tmp_path)

    assert json.loads((tmp_path / name).read_text(encoding="utf-8")) == expected


def test_a_save_that_fails_keeps_the_old_model(toy_checkpoint, tmp_path, monkeypatch):
    """transformers would already have written config.json."""
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    model.save_pretrained(tmp_path)
    expected = tree(tmp_path)
    model.config.window_overlap = 1

    def fail(*arguments, **options):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", fail)
    with pytest.raises(OSError, match=f"{tmp_path} cannot be written: No space left on device"):
        model.save_pretrained(tmp_path)

    assert tree(tmp_path) == expected


def test_a_subclass_is_saved_with_the_code_of_the_package(toy_encoder_path, tmp_path, monkeypatch):
    code = (
        "from nextlevelbert import NextLevelBertModel\nclass Weighted(NextLevelBertModel): pass\n"
    )
    (tmp_path / "weighted_model.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    weighted = importlib.import_module("weighted_model").Weighted
    model = weighted.from_chunk_encoder(toy_encoder_path, chunk_size=16)

    model.save_pretrained(tmp_path / "model")

    config = json.loads((tmp_path / "model" / "config.json").read_text())
    for path in config["auto_map"].values():
        assert (tmp_path / "model" / f"{path.partition('.')[0]}.py").exists()
    assert (tmp_path / "model" / "weighted_model.py").exists()
