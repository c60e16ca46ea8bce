"""The contracts of a document model: any length, any batch, both ways in, saved and loaded without a change."""

from __future__ import annotations

import copy
import shutil
import warnings

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

from nextlevelbert import NextLevelBertConfig, NextLevelBertForMaskedVectorModeling, NextLevelBertModel
from nextlevelbert.models.configuration_vector_document import CLS, MASK, NOT_SPECIAL, PAD, SEP

from ..conftest import toy_config

CLASSES = [NextLevelBertModel, NextLevelBertForMaskedVectorModeling]


@pytest.fixture
def toy(minilm):
    torch.manual_seed(3)
    model = NextLevelBertModel(toy_config()).eval()
    # Weights large enough that a wrong step shows.
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3) if parameter.ndim > 1 else parameter.data.add_(0.1)
    model.tokenizer = minilm.tokenizer
    return model


def packed_batch(hidden_size=32, length=10, rows=2):
    torch.manual_seed(5)
    special_ids = torch.full((rows, length), NOT_SPECIAL)
    special_ids[:, 0], special_ids[:, 4], special_ids[:, -1] = CLS, SEP, SEP
    positions = torch.zeros(rows, length, dtype=torch.bool)
    positions[:, 2] = positions[:, 6] = True
    special_ids[:, 2] = MASK
    vectors = torch.randn(rows, length, hidden_size)
    return {
        "inputs_embeds": vectors,
        "special_ids": special_ids,
        "mask_positions": positions,
        "labels": vectors.clone(),
    }


def close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


# --- saving and loading


def settings_of(config):
    """A configuration without the dtype that saving writes into it and into what is nested in it."""
    values = {key: value for key, value in config.to_diff_dict().items() if key not in ("dtype", "architectures")}
    return {k: {a: b for a, b in v.items() if a != "dtype"} if isinstance(v, dict) else v for k, v in values.items()}


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("include", [True, False])
def test_save_and_load_change_nothing(cls, include, tmp_path):
    model = cls(toy_config(include_chunk_encoder=include))
    for tensor in model.state_dict().values():
        tensor.copy_(torch.randn(tensor.shape))  # also what no initialisation gives, such as a nonzero [PAD] row
    model.save_pretrained(tmp_path)
    again, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = model.state_dict()
    assert state.keys() == again.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())
    assert settings_of(again.config) == settings_of(model.config)
    frozen = {name for name, parameter in again.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name in state if "chunk_encoder." in name and name in dict(again.named_parameters())}


def test_the_auto_classes(tmp_path):
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), NextLevelBertConfig)
    assert isinstance(AutoModelForPreTraining.from_pretrained(tmp_path), NextLevelBertForMaskedVectorModeling)
    base, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(base, NextLevelBertModel)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]  # the head is dropped without a word
    assert all(torch.equal(base.state_dict()[name], tensor) for name, tensor in model.model.state_dict().items())


def test_a_loaded_model_without_a_head_gets_a_new_one_only(tmp_path):
    model = NextLevelBertModel(toy_config())
    model.save_pretrained(tmp_path)
    again, info = NextLevelBertForMaskedVectorModeling.from_pretrained(tmp_path, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"head"}
    assert all(torch.equal(again.model.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    assert all(torch.isfinite(parameter).all() for parameter in again.parameters())


def test_new_special_vectors_have_length_one_and_padding_is_zero():
    table = NextLevelBertModel(toy_config()).special_embeddings.weight
    assert (table[PAD] == 0).all()
    assert 0.5 < table[1:].norm(dim=-1).mean() < 1.5


def test_half_precision_round_trip(tmp_path):
    NextLevelBertModel(toy_config()).to(torch.bfloat16).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path)
    assert model.dtype == torch.bfloat16
    output = model(inputs_embeds=torch.randn(1, 3, 32))
    assert output.pooler_output.dtype == torch.bfloat16
    assert (
        AutoModel.from_pretrained(tmp_path, dtype=torch.float32)(
            inputs_embeds=torch.randn(1, 3, 32)
        ).pooler_output.dtype
        == torch.float32
    )


def test_it_starts_from_the_encoders_own_layers(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm)
    source = minilm.encoder.model.state_dict()
    ours = model.encoder.state_dict()
    assert set(source) - set(ours) == {"embeddings.word_embeddings.weight"}
    assert all(torch.equal(tensor, source[name]) for name, tensor in ours.items())
    assert model.config.max_chunks == 510
    with pytest.raises(ValueError, match="no weights for 16 tensors of encoder_config"):
        NextLevelBertModel.from_chunk_encoder(
            minilm, encoder_config={**minilm.encoder.model.config.to_dict(), "num_hidden_layers": 7}
        )
    shorter = NextLevelBertModel.from_chunk_encoder(
        minilm, encoder_config={**minilm.encoder.model.config.to_dict(), "max_position_embeddings": 34}
    )
    assert shorter.config.max_chunks == 32
    name = "embeddings.position_embeddings.weight"
    assert torch.equal(shorter.encoder.state_dict()[name], source[name][:34])


SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SPECIALS = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(**SIZE, max_position_embeddings=12),
        RobertaConfig(**SIZE, max_position_embeddings=14, pad_token_id=1),
        MPNetConfig(**SIZE, max_position_embeddings=14, pad_token_id=1),
        DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=12),
        ModernBertConfig(**SIZE, **SPECIALS, max_position_embeddings=12, vocab_size=99),
    ],
    ids=lambda config: config.model_type,
)
def test_any_backbone_that_takes_vectors(config, tmp_path):
    model = NextLevelBertModel(toy_config(encoder_config=config.to_dict())).eval()
    assert model.config.max_chunks == 10
    vectors = torch.randn(2, 25, 32)
    with torch.no_grad():
        expected = model(inputs_embeds=vectors).pooler_output
        model.save_pretrained(tmp_path)
        close(AutoModel.from_pretrained(tmp_path)(inputs_embeds=vectors).pooler_output, expected)
        close(model(inputs_embeds=vectors[:1]).pooler_output, expected[:1])


# --- documents


TEXTS = ["the whale and the sea " * 30, "one short text", "it was the best of times " * 9, "call me ishmael"]


def test_text_and_vectors_give_the_same(toy):
    batch = toy.tokenizer(TEXTS, padding=True, return_tensors="pt", verbose=False)
    with torch.no_grad():
        from_text = toy(**batch)
        from_vectors = toy(inputs_embeds=from_text.chunk_vectors, attention_mask=from_text.chunk_mask)
    embeddings = toy.encode(TEXTS)
    for name in ("last_hidden_state", "pooler_output", "chunk_vectors"):
        close(from_vectors[name], from_text[name])
    for row, embedding in enumerate(embeddings):
        chunks = int(from_text.chunk_mask[row].sum())
        assert len(embedding.chunks) == len(embedding.plain) == len(embedding.spans) == chunks
        close(embedding.document, from_text.pooler_output[row])
        close(embedding.chunks, from_text.last_hidden_state[row, :chunks])
        close(embedding.plain, from_text.chunk_vectors[row, :chunks])
        assert (from_text.last_hidden_state[row, chunks:] == 0).all()


def test_sentences_are_the_same_from_text_and_from_ids(toy_encoder_path, tmp_path):
    text = 'Mr. Brown came. "Go away!" It cost 3.50 dollars. ' * 30
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking="sentences", chunk_size=16)
    embedding = model.encode(text)
    assert [text[a:b] for a, b in embedding.spans[:3]] == ["Mr. Brown came.", '"Go away!"', "It cost 3.50 dollars."]
    assert len(embedding.chunks) == 90
    model.save_pretrained(tmp_path)
    for other in (model, AutoModel.from_pretrained(tmp_path)):
        with torch.no_grad():
            output = other(**model.tokenizer(text, return_tensors="pt", verbose=False))
        close(output.pooler_output[0], embedding.document)
        close(output.chunk_vectors[0], embedding.plain)


def test_a_batch_changes_nothing(toy):
    together = toy.encode(TEXTS)
    for text, embedding in zip(TEXTS, together, strict=True):
        alone = toy.encode(text, tokens_per_batch=1)
        close(alone.document, embedding.document)
        close(alone.chunks, embedding.chunks)


def test_padding_on_either_side_changes_nothing(toy):
    tokens = toy.tokenizer(TEXTS[2], return_tensors="pt")
    padding = torch.zeros(1, 5, dtype=torch.long)
    with torch.no_grad():
        expected = toy(**tokens).pooler_output
        for order in ([padding, tokens["input_ids"]], [tokens["input_ids"], padding]):
            ids = torch.cat(order, dim=1)
            close(toy(input_ids=ids, attention_mask=(ids != 0).long()).pooler_output, expected)


def test_more_text_and_other_text_give_another_vector(toy):
    preface = "the same preface for both books " * 12
    first, second = toy.encode([preface + "whale " * 40, preface + "times " * 40])
    longer = toy.encode(preface + "whale " * 40 + "an afterword")
    assert (first.document - second.document).abs().max() > 1e-3
    assert (first.document - longer.document).abs().max() > 1e-4


def test_mean_max_and_cls(toy):
    vectors = torch.randn(1, 5, 32)
    with torch.no_grad():
        raw = toy(inputs_embeds=vectors, output_hidden_states=True)
        chunks = raw.last_hidden_state[0]
        close(raw.pooler_output[0], chunks.mean(dim=0))
        assert raw.hidden_states[-1].shape == (1, 7, 32)
        toy.config.pooling = "max"
        close(toy(inputs_embeds=vectors).pooler_output[0], chunks.amax(dim=0))
        toy.config.pooling = "cls"
        close(toy(inputs_embeds=vectors).pooler_output[0], raw.hidden_states[-1][0, 0])


def test_windows_are_averaged_where_they_overlap(toy):
    """11 chunks, 8 in a window, 2 shared: windows 0-8 and 3-11, worked out one by one."""
    vectors = torch.randn(11, 32)
    with torch.no_grad():
        left = toy(inputs_embeds=vectors[None, :8]).last_hidden_state[0]
        right = toy(inputs_embeds=vectors[None, 3:]).last_hidden_state[0]
        output = toy(inputs_embeds=vectors[None])
    expected = torch.cat([left[:3], (left[3:] + right[:5]) / 2, right[5:]])
    close(output.last_hidden_state[0], expected)
    close(output.pooler_output[0], expected.mean(dim=0))


def test_truncation_keeps_the_first_window_and_says_so(toy, caplog):
    vectors = torch.randn(2, 11, 32)
    toy.config.long_documents = "truncate"
    with torch.no_grad():
        output = toy(inputs_embeds=vectors)
        first = toy(inputs_embeds=vectors[:, :8])
    assert "6 chunks of document(s) [0, 1] are cut off" in caplog.text
    close(output.pooler_output, first.pooler_output)
    close(output.last_hidden_state[:, :8], first.last_hidden_state)
    assert output.chunk_mask.sum(dim=1).tolist() == [8, 8]
    assert torch.equal(output.chunk_vectors, vectors)


def test_too_long_is_an_error_where_asked(toy):
    toy.config.long_documents = "error"
    with pytest.raises(ValueError, match=r"Documents \[1\] have \[11\] chunks, more than max_chunks = 8"):
        toy(inputs_embeds=torch.randn(2, 11, 32), attention_mask=torch.tensor([[1] * 3 + [0] * 8, [1] * 11]))


def test_the_plan_counts_what_encoding_will_do(toy):
    text = "word " * 60 + "tail"
    plan = toy.plan(text)
    embedding = toy.encode(text)
    assert (plan.tokens, plan.chunks, plan.windows) == (61, 11, 2)
    assert len(embedding.chunks) == plan.chunks
    assert plan.lost_chunks == 3
    assert plan.lost_tokens == 61 - 8 * 6
    assert text[-plan.lost_characters :] == "word " * 12 + "tail"
    assert toy.plan(["short", ""])[1].windows == 0


def test_gradients_reach_everything_but_the_frozen_encoder():
    model = NextLevelBertForMaskedVectorModeling(toy_config()).train()
    model(**packed_batch()).loss.backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in model.named_parameters() if "chunk_encoder" in name}


def test_gradients_flow_through_whole_documents(toy):
    toy.train()
    assert not toy.chunk_encoder.training
    batch = toy.tokenizer(TEXTS, padding=True, return_tensors="pt", verbose=False)
    toy(**batch).pooler_output.sum().backward()
    assert toy.encoder.state_dict().keys() == {n for n, p in toy.encoder.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_gives_the_same_gradients(reentrant):
    model = NextLevelBertForMaskedVectorModeling(toy_config(include_chunk_encoder=False)).train()
    model.model.encoder.eval()  # no dropout, so that two passes can be compared
    model(**packed_batch()).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    model(**packed_batch()).loss.backward()
    for name, parameter in model.named_parameters():
        close(parameter.grad, expected[name])


def test_a_tuple_on_request(toy):
    output = toy(inputs_embeds=torch.randn(1, 3, 32), return_dict=False)
    assert isinstance(output, tuple)
    assert output[1].shape == (1, 32)


# --- the chunk encoder that is not in the checkpoint


def test_a_checkpoint_without_its_encoder_borrows_it_when_text_arrives(minilm, minilm_path, tmp_path):
    whole = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16)
    small = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16, include_chunk_encoder=False)
    small.special_embeddings.load_state_dict(whole.special_embeddings.state_dict())
    small.config.chunk_encoder_name = minilm_path
    small.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 50e6
    again = NextLevelBertModel.from_pretrained(tmp_path)
    close(again.encode(TEXTS[2]).document, whole.encode(TEXTS[2]).document)
    assert not any("chunk_encoder" in name for name in again.state_dict())
    rough = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16).encode(TEXTS[2]).document
    assert torch.cosine_similarity(rough, whole.encode(TEXTS[2]).document, dim=0) > 0.999
    again.config.chunk_encoder_name = "no/such-model"
    again._borrowed_chunk_encoder = None
    with pytest.raises(ValueError, match="holds no chunk encoder, and 'no/such-model'"):
        again.encode(TEXTS[2])


def test_another_encoder_than_the_models_is_refused(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm, include_chunk_encoder=False)
    other = copy.copy(minilm)
    other.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.attach_chunk_encoder(other)
    model.attach_chunk_encoder(minilm)
    assert model.config.include_chunk_encoder
    assert model.chunk_encoder.fingerprint() == minilm.fingerprint


# --- bad input


def test_blank_text_has_the_zero_vector_and_a_warning(toy):
    with pytest.warns(UserWarning, match=r"Document\(s\) 1, 3 contain no token"):
        found = toy.encode(["words", "", "more words", " \n\t"])
    assert (found[1].document == 0).all()
    assert found[1].chunks.shape == found[3].plain.shape == (0, 32)
    assert found[1].spans.shape == (0, 2)
    batch = toy.tokenizer(["words", ""], padding=True, return_tensors="pt")
    with pytest.warns(UserWarning, match=r"Document\(s\) 1 contain"), torch.no_grad():
        output = toy(**batch)
    assert (output.pooler_output[1] == 0).all()
    close(output.pooler_output[0], found[0].document)


@pytest.mark.parametrize(("texts", "error"), [([], ValueError), (["a", None], TypeError), (7, TypeError)])
def test_encode_refuses_what_is_not_text(toy, texts, error):
    with pytest.raises(error):
        toy.encode(texts)
    with pytest.raises(error):
        toy.plan(texts)


def test_bad_vectors(toy):
    vectors = torch.randn(3, 4, 32)
    vectors[1, 2, 5] = float("nan")
    with pytest.raises(ValueError, match=r"document\(s\) \[1\] contain NaN"):
        toy(inputs_embeds=vectors)
    mask = torch.ones(3, 4)
    mask[1, 2:] = 0
    assert torch.isfinite(toy(inputs_embeds=vectors, attention_mask=mask).pooler_output).all()
    with pytest.raises(ValueError, match=r"must be \[documents, chunks, 32\].*got \(3, 4, 31\)"):
        toy(inputs_embeds=vectors[..., 1:])
    with pytest.raises(ValueError, match=r"must be \[documents, chunks, 32\].*got \(4, 32\)"):
        toy(inputs_embeds=vectors[0])
    with pytest.raises(ValueError, match=r"attention_mask must be \(3, 4\)"):
        toy(inputs_embeds=vectors, attention_mask=torch.ones(3, 5))
    with pytest.raises(ValueError, match="either input_ids"):
        toy()
    with pytest.raises(ValueError, match="either input_ids"):
        toy(input_ids=torch.ones(1, 3, dtype=torch.long), inputs_embeds=vectors)
    with pytest.raises(TypeError, match="inputs_embed"):
        toy(inputs_embed=vectors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"special_ids": torch.zeros(2, 9, dtype=torch.long)}, r"got \(2, 10, 32\) and \(2, 9\)"),
        ({"special_ids": torch.full((2, 10), 9)}, "got 9 to 9"),
        ({"special_ids": torch.full((2, 10), -5)}, "got -5 to -5"),
        ({"inputs_embeds": torch.zeros(2, 10, 1)}, r"got \(2, 10, 1\)"),
        ({"inputs_embeds": torch.full((2, 10, 32), float("nan"))}, r"sequence\(s\) \[0, 1\] contain NaN"),
        ({"labels": torch.zeros(2, 10, 1)}, r"labels must be \(2, 10, 32\), got \(2, 10, 1\)"),
        ({"mask_positions": torch.zeros(2, 9)}, r"mask_positions must be \(2, 10\)"),
    ],
)
def test_a_packed_batch_whose_parts_do_not_fit(change, message):
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    with pytest.raises(ValueError, match=message):
        model(**{**packed_batch(), **change})


def test_a_packed_batch_that_is_too_long_or_has_a_mask_of_its_own():
    model = NextLevelBertModel(toy_config())
    batch = packed_batch(length=11)
    with pytest.raises(ValueError, match="may have at most 10 positions, got 11"):
        model(inputs_embeds=batch["inputs_embeds"], special_ids=batch["special_ids"])
    with pytest.raises(ValueError, match="without an attention_mask"):
        model(inputs_embeds=batch["inputs_embeds"], special_ids=batch["special_ids"], attention_mask=torch.ones(2, 11))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.ones(5, dtype=torch.long)}, r"got torch.int64 \(5,\)"),
        ({"input_ids": torch.ones(1, 5)}, "got torch.float32"),
        ({"input_ids": torch.ones(0, 5, dtype=torch.long)}, "at least one document"),
        ({"input_ids": torch.full((1, 5), 99_999)}, "from 0 to 30521.*got 99999"),
        ({"input_ids": torch.full((1, 5), -100)}, "got -100"),
        ({"input_ids": torch.ones(2, 5, dtype=torch.long), "attention_mask": torch.ones(1, 5)}, r"must be \(2, 5\)"),
        ({"inputs_embeds": torch.ones(0, 3, 32)}, "at least one document"),
    ],
)
def test_bad_batches(toy, inputs, message):
    with pytest.raises(ValueError, match=message):
        toy(**inputs)


def test_contextualize_looks_at_what_it_gets(toy):
    for documents in ([], [torch.ones(3, 31)], [torch.ones(32)]):
        with pytest.raises(ValueError, match=r"Give at least one document, each as chunk vectors \[n, 32\]"):
            toy.contextualize(documents)
    half, whole = (toy.contextualize([torch.ones(3, 32, dtype=dtype)])[1] for dtype in (torch.float16, torch.float32))
    close(half, whole)


def test_a_narrower_window_set_afterwards(toy):
    """The overlap follows `max_chunks`, so that no chunk falls between two windows."""
    vectors = torch.randn(1, 20, 32)
    toy.config.max_chunks = 1
    with torch.no_grad():
        single = torch.stack([toy(inputs_embeds=vectors[:, i : i + 1]).pooler_output[0] for i in range(20)])
        close(toy(inputs_embeds=vectors).last_hidden_state[0], single)
    toy.config.max_chunks = 20
    with pytest.raises(ValueError, match="give 1 to 8"):
        toy(inputs_embeds=vectors)


def test_messages_count_documents_across_groups(toy, monkeypatch, caplog):
    monkeypatch.setattr("nextlevelbert.models.document_encoding._CHUNKS_PER_GROUP", 1)
    texts = ["short", "short", "word " * 60]
    toy.config.long_documents = "truncate"
    toy.encode(texts)
    assert "2 chunks of document(s) [2] are cut off" in caplog.text
    toy.config.long_documents = "error"
    with pytest.raises(ValueError, match=r"Documents \[2\] have \[10\] chunks"):
        toy.encode(texts)


def test_a_batch_in_which_nothing_is_selected_has_loss_zero():
    model = NextLevelBertForMaskedVectorModeling(toy_config())
    output = model(**{**packed_batch(), "mask_positions": torch.zeros(2, 10, dtype=torch.bool)})
    assert output.loss == 0
    output.loss.backward()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk_size": 2}, "leaves no room"),
        ({"chunk_size": 65}, "limit of 64"),
        ({"max_chunks": 9}, "give 1 to 8"),
        ({"max_chunks": 0}, "give 1 to 8"),
        ({"window_overlap": 8}, "from 0 to max_chunks - 1 = 7"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"encoder_config": AlbertConfig(hidden_size=32, num_attention_heads=4).to_dict()}, "embedding_size of 128"),
        ({"chunk_encoder_config": BertConfig(hidden_size=64).to_dict()}, "hidden sizes must be equal"),
    ],
)
def test_configurations_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        toy_config(**values)


def test_choices_are_checked_when_set():
    with pytest.raises(StrictDataclassError, match="long_documents"):
        toy_config().long_documents = "cut"
    with pytest.raises(StrictDataclassError, match="chunk_size"):
        toy_config(chunk_size="many")


def test_a_model_whose_folder_is_gone_can_still_be_saved(minilm, tmp_path):
    NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=16).save_pretrained(tmp_path / "first")
    model = NextLevelBertModel.from_pretrained(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    with pytest.warns(UserWarning, match="Saved without a tokenizer"):
        model.save_pretrained(tmp_path / "second")
    NextLevelBertModel.from_pretrained(tmp_path / "second").save_pretrained(tmp_path / "third")  # vectors only


def test_no_tokenizer_and_no_word_embeddings(tmp_path):
    model = NextLevelBertModel(toy_config())
    with pytest.raises(ValueError, match="Found no tokenizer"):
        model.encode("text")
    with pytest.raises(ValueError, match="no word embeddings"):
        model.resize_token_embeddings(10)


def test_ordinary_use_warns_of_nothing(toy, tmp_path, transformers_log):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        toy.encode(TEXTS)
        toy.save_pretrained(tmp_path)
        NextLevelBertModel.from_pretrained(tmp_path).encode(TEXTS)
    assert not [record for record in transformers_log.records if record.levelname == "WARNING"]
