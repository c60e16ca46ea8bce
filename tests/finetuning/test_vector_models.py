"""Models by name: texts encoded once, and the chunk encoder handed back."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

from nextlevelbert import NextLevelBertModel
from nextlevelbert.finetuning.options import VectorModelArguments
from nextlevelbert.finetuning.vector_models import VectorModels

from ..toys.finetuning import arguments
from ..toys.vectors import close


def test_texts_are_encoded_once_and_as_encode_does(toy_checkpoint, tmp_path, monkeypatch):
    options = VectorModelArguments(model=toy_checkpoint, cache_dir=str(tmp_path / "cache"))
    texts = ["The whale and the sea. " * 20, "Short.", "Short."]
    models = VectorModels.open(options, ())
    vectors = models.encode(arguments(tmp_path), texts)
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    for text, book in zip(texts, model.encode(texts), strict=True):
        assert vectors[text].dtype == torch.float16
        close(vectors[text].float(), book.plain, atol=1e-3)
    monkeypatch.setattr(type(models.encoder.encoder), "encode", None)
    again = VectorModels.open(options).encode(arguments(tmp_path), texts)
    assert all(torch.equal(again[text], vectors[text]) for text in texts)
    options.encoder_dtype = "bfloat16"  # another precision is another corpus
    with pytest.raises(TypeError, match="not callable"):
        VectorModels.open(options).encode(arguments(tmp_path), texts)
    monkeypatch.undo()

    halves = VectorModels.open(options).encode(arguments(tmp_path), texts)

    for text in texts:
        assert not torch.equal(halves[text], vectors[text])
        close(halves[text], vectors[text], atol=2e-2)
    with pytest.raises(ValueError, match="no token"):
        models.encode(arguments(tmp_path), ["\u200b", "word"])


def test_a_model_gets_its_chunk_encoder_back(
    toy_checkpoint, toy_encoder_path, minilm_path, tmp_path
):
    options = VectorModelArguments(model=toy_checkpoint)
    models = VectorModels.open(options, ())

    model = models.new_model("classification")

    assert model.base_model.chunk_encoder is None
    model.save_pretrained(tmp_path / "seed")
    whole = models.open_trained(tmp_path / "seed", "classification").base_model
    text = "The whale and the sea. " * 20
    expected = NextLevelBertModel.from_pretrained(toy_checkpoint).encode(text)
    close(whole.encode(text).document, expected.document)
    # A checkpoint without its chunk encoder takes the one that made its vectors, and no other.
    alone = VectorModelArguments(model=str(tmp_path / "seed"), chunk_encoder=toy_encoder_path)
    assert VectorModels.open(alone, ()).encoder.fingerprint == models.encoder.fingerprint
    with pytest.raises(ValueError, match="chunk"):
        VectorModels.open(
            VectorModelArguments(model=str(tmp_path / "seed"), chunk_encoder=minilm_path), ()
        )


def test_chunks_of_a_new_model_are_no_longer_than_its_encoder_reads(encoder, tmp_path, caplog):
    steps = [modules.Transformer(encoder), modules.Pooling(32, "mean")]
    small = SentenceTransformer(modules=steps, device="cpu")
    small.max_seq_length = 32
    small.save(str(tmp_path / "small"))
    options = VectorModelArguments(model=str(tmp_path / "small"), model_type="hate")

    rule = VectorModels.open(options).rule

    assert (rule.chunk_size, rule.mode) == (32, "sentences")
    assert options.model == "untrained"
    with pytest.raises(ValueError, match="is a second one"):
        VectorModels.open(VectorModelArguments(model=encoder, chunk_encoder=encoder))


@pytest.mark.parametrize("name", ["no-such-model", "bm25"])
def test_a_wrong_name_is_in_the_error(name):
    with pytest.raises(ValueError, match=name):
        VectorModels.open(VectorModelArguments(model=name), ("tfidf",))


def test_a_card_names_what_a_model_was_made_of(toy_checkpoint, minilm_path):
    """The model on the Hub, else its chunk encoder, never a folder or the word untrained."""
    name = "sentence-transformers/all-MiniLM-L6-v2"

    new = VectorModelArguments(
        model="untrained", chunk_encoder=minilm_path, chunk_encoder_name=name
    )

    assert VectorModels.open(new).base_model == name
    alone = VectorModelArguments(model="untrained", chunk_encoder=minilm_path)
    assert VectorModels.open(alone).base_model is None
    assert VectorModels.open(VectorModelArguments(model=toy_checkpoint)).base_model is None
