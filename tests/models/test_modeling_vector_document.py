"""`forward` of the models over chunk vectors: any length, any batch, both ways in, and what it does not accept."""

from __future__ import annotations

import pytest
import torch

from nextlevelbert import NextLevelBertForMaskedVectorModeling, NextLevelBertModel
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD, SEP

from ..conftest import toy_config
from ..vector_toys import TEXTS, close, packed_batch


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


def test_a_batch_changes_nothing(toy):
    together = toy.encode(TEXTS)
    for text, embedding in zip(TEXTS, together, strict=True):
        alone = toy.encode(text, tokens_per_batch=1)
        close(alone.document, embedding.document)
        close(alone.chunks, embedding.chunks)


@pytest.mark.parametrize("shorter", [1, 2, 3])
def test_padding_of_a_few_positions_changes_nothing(toy, shorter):
    torch.manual_seed(5)
    long = torch.randn(6, toy.config.chunk_hidden_size)
    with torch.no_grad():
        contextual, pooled = toy.contextualize([long, long[shorter:]])
        alone, expected = toy.contextualize([long[shorter:]])
    close(contextual[1], alone[0])
    close(pooled[1], expected[0])


def test_padding_on_either_side_changes_nothing(toy):
    tokens = toy.tokenizer(TEXTS[2], return_tensors="pt")
    padding = torch.full((1, 5), -100)  # its ids do not matter
    with torch.no_grad():
        expected = toy(**tokens).pooler_output
        for order in ([padding, tokens["input_ids"]], [tokens["input_ids"], padding]):
            ids = torch.cat(order, dim=1)
            close(toy(input_ids=ids, attention_mask=(ids != -100).long()).pooler_output, expected)


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


def test_a_document_is_read_between_cls_and_sep(toy):
    """As a packed sequence of the same vectors; what stands at special positions and padding does not matter."""
    vectors = torch.randn(1, 5, 32)
    packed = torch.nn.functional.pad(vectors, (0, 0, 1, 3), value=float("nan"))
    special_ids = torch.tensor([[CLS, *[NOT_SPECIAL] * 5, SEP, PAD, PAD]])
    with torch.no_grad():
        expected = toy(inputs_embeds=packed, special_ids=special_ids)
        output = toy(inputs_embeds=vectors)
    close(output.last_hidden_state, expected.last_hidden_state[:, 1:6])
    close(output.pooler_output, expected.pooler_output)


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
    toy(inputs_embeds=torch.randn(1, 8, 32))  # as many as fit
    with pytest.raises(ValueError, match=r"Documents \[1\] have \[11\] chunks, more than max_chunks = 8"):
        toy(inputs_embeds=torch.randn(2, 11, 32), attention_mask=torch.tensor([[1] * 3 + [0] * 8, [1] * 11]))


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


def test_documents_without_a_single_id(toy):
    """Nothing to read is the zero vector, as with blank text."""
    with pytest.warns(UserWarning, match=r"Document\(s\) 0, 1 contain no token"):
        output = toy(input_ids=torch.zeros(2, 0, dtype=torch.long))
    assert (output.pooler_output == 0).all()
    assert output.last_hidden_state.shape == (2, 0, 32)
