"""Models by name: texts encoded once, and the chunk encoder handed back."""

import pytest
import torch

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.finetuning.arguments import VectorModelArguments
from nextlevelbert.finetuning.vector_source import VectorSource

from ..toys.finetuning import arguments
from ..toys.vectors import close


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
