"""Encoders with adapters, other sizes and other tokenizers; and models that are no encoders."""

import numpy as np
import pytest
import torch
from peft import LoraConfig
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    M2M100Config,
    PreTrainedTokenizerFast,
)

from nextlevelbert import ChunkBertModel, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.tokenizing import special_token_ids

from ..toys.encoders import CONFIGS, TEXT, save_encoder, word_tokenizer
from ..toys.vectors import close

CROSSING = "<s> $A </s>"


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("bert"), CONFIGS["bert"])


def check_plain_vectors(path, text=TEXT):
    """Compares plain chunk vectors with sentence-transformers' vectors; returns the model."""
    model = NextLevelBertModel.from_chunk_encoder(path, chunk_size=10, pooling="plain")
    book = model.encode(text)
    chunks = [text[start:end] for start, end in book.spans.tolist()]
    expected = SentenceTransformer(path, device="cpu").encode(chunks, convert_to_tensor=True)
    assert len(chunks) > 2
    close(book.plain, expected)
    return model


def test_a_wrong_encoder_config_is_answered_with_the_right_size(bert_path):
    narrow = AlbertConfig(hidden_size=32, embedding_size=16, num_attention_heads=2)
    with pytest.raises(ValueError, match="give an encoder_config of hidden_size 32"):
        NextLevelBertModel.from_chunk_encoder(bert_path, chunk_size=10, encoder_config=narrow)


def test_truncate_dim_holds(bert_path, tmp_path):
    path = str(tmp_path / "short")
    SentenceTransformer(bert_path, device="cpu", truncate_dim=16).save(path)
    model = check_plain_vectors(path)
    model.save_pretrained(tmp_path / "model")

    again = load_chunk_encoder(tmp_path / "model")
    book = AutoModel.from_pretrained(tmp_path / "model").encode(TEXT)
    assert book.plain.shape[1] == len(book.document) == again.encoder.hidden_size == 16
    assert again.fingerprint != load_chunk_encoder(bert_path).fingerprint
    layered = NextLevelBertModel.from_chunk_encoder(path, chunk_size=10)
    assert layered.config.pooling == "residual"  # layers of size 16 start at random


def test_an_adapter_is_part_of_the_encoder(bert_path, tmp_path):
    tuned = SentenceTransformer(bert_path, device="cpu")
    tuned.add_adapter(LoraConfig(target_modules=["query", "value"], init_lora_weights=False))
    tuned.save(str(tmp_path / "tuned"))

    model = check_plain_vectors(str(tmp_path / "tuned"))

    other = NextLevelBertModel.from_chunk_encoder(bert_path, chunk_size=10, pooling="plain")
    difference = (model.encode(TEXT).plain - other.encode(TEXT).plain).abs().max()
    assert difference > 1e-3


def test_an_adapter_that_does_not_say_how_it_pools_needs_a_pooling(tmp_path):
    network = AutoModel.from_config(CONFIGS["bert"])
    network.save_pretrained(tmp_path / "plain")
    network = AutoModel.from_pretrained(tmp_path / "plain")
    network.add_adapter(LoraConfig(target_modules=["query"]))
    network.save_pretrained(tmp_path / "tuned")
    with pytest.raises(ValueError, match=r"modules\.json"):
        load_chunk_encoder(tmp_path / "tuned")


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of Cyrillic letters that drops all others."""
    tokens = ["<pad>", "<s>", "</s>", *"внедикмолрсуш"]
    ids = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(ids, []))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=CROSSING, special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def test_special_tokens_of_a_tokenizer_that_does_not_know_the_letter_a(tmp_path):
    config = BertConfig(**{**CONFIGS["bert"].to_dict(), "vocab_size": 16})
    path = save_encoder(tmp_path, config, letter_tokenizer())

    model = check_plain_vectors(path, text="кошки сидели дома кошки сидели дома")

    assert model.config.chunk_prefix_ids == [1]
    assert model.config.chunk_suffix_ids == [2]


def test_special_tokens_of_a_tokenizer_that_takes_one_of_them_for_unknown_words():
    """As in GPT-2: the end of a text stands for an unknown word, too."""
    tokens = {"<end>": 0, "кот": 1}
    backend = Tokenizer(models.WordLevel(tokens, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<end> $A <end>", special_tokens=[("<end>", 0)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<end>", bos_token="<end>", eos_token="<end>"
    )

    assert special_token_ids(tokenizer) == ((0,), (0,))


def test_a_tokenizer_without_any_word_has_no_example():
    backend = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    with pytest.raises(ValueError, match="no token that is not special"):
        special_token_ids(tokenizer)


def save_masked_model(folder):
    BertForMaskedLM(CONFIGS["bert"]).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)


def test_models_that_are_no_sentence_encoders_are_refused(bert_path, tmp_path):
    sparse = str(tmp_path / "sparse")
    SparseEncoder(save_masked_model(tmp_path / "masked"), device="cpu").save_pretrained(sparse)
    cross = str(tmp_path / "cross")
    CrossEncoder(bert_path, num_labels=1, device="cpu").save_pretrained(cross)
    routed = str(tmp_path / "routed")
    steps = list(SentenceTransformer(bert_path, device="cpu"))
    router = modules.Router.for_query_document(query_modules=steps[:2], document_modules=steps[:2])
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(routed)

    with pytest.raises(ValueError, match="is a SparseEncoder: it returns a weight for each word"):
        load_chunk_encoder(sparse)
    with pytest.raises(ValueError, match="is a CrossEncoder: it scores pairs of texts"):
        load_chunk_encoder(cross)
    with pytest.raises(ValueError, match="has a Router, which reads questions and documents with"):
        load_chunk_encoder(routed)
    # As the message says:
    opened = SentenceTransformer(routed, device="cpu")
    SentenceTransformer(modules=[*opened[0].sub_modules["document"]], device="cpu").save_pretrained(
        str(tmp_path / "documents")
    )
    check_plain_vectors(str(tmp_path / "documents"))


def test_a_cross_encoder_of_older_versions_is_refused(tmp_path):
    config = BertConfig(**CONFIGS["bert"].to_dict(), sentence_transformers={"version": "4.1.0"})
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a CrossEncoder"):
        load_chunk_encoder(tmp_path, pooling="cls")


def test_the_encoder_of_another_encoder_decoder_is_refused(tmp_path):
    """sentence-transformers opens M2M-100's encoder without its decoder."""
    config = M2M100Config(
        vocab_size=30, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64
    )
    path = save_encoder(tmp_path, config)
    with pytest.raises(ValueError, match="as a M2M100Encoder, but a chunk encoder would be a M2M"):
        load_chunk_encoder(path)


def test_a_t5_s_encoder_starts_a_token_model(tmp_path):
    path = save_encoder(tmp_path, CONFIGS["t5"])
    model = ChunkBertModel.from_encoder(path, chunk_size=8, num_averaged_layers=2)
    original = SentenceTransformer(path, device="cpu")[0].auto_model.eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    with torch.no_grad():
        expected = original(input_ids=ids).last_hidden_state
        states = model.encoder(input_ids=ids).last_hidden_state
    np.testing.assert_allclose(states, expected, atol=1e-5)
