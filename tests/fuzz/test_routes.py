"""Texts of any kind: whatever the route to a vector, it is the same vector, and no token is lost on the way."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from nextlevelbert import CdlmProcessor, Document, VectorCache, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunking import tokenize_document

from ..golden.inputs import CLASSES, FOLDER
from .cases import TEXTS, cases, only_our_errors

DOCUMENTS = st.lists(TEXTS | TEXTS.map(lambda text: (text + " the whale swims.") * 8), min_size=1, max_size=4)


# Functions, not fixtures: hypothesis shows all arguments of a case that fails.
@functools.cache
def model_of(name):
    return CLASSES[name].from_pretrained(FOLDER / name).eval()


@functools.cache
def sentence_model_of(name):
    return SentenceTransformer(str(FOLDER / name), device="cpu")


@functools.cache
def processor_of(name):
    return CdlmProcessor.from_pretrained(FOLDER / name)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with VectorCache(tmp_path_factory.mktemp("cache")) as cache:
        yield cache


@pytest.fixture(scope="module")
def source():
    return load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")


def close(one, other, tolerance=2e-5):
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@cases(0.025)
@given(
    st.sampled_from(["nextlevelbert", "hate"]), DOCUMENTS, st.sampled_from(["fixed", "sentences", "packed_sentences"])
)
@torch.no_grad()
def test_every_route_gives_the_same_vectors(cache, name, texts, chunking):
    model = model_of(name)
    if chunking != "fixed" and not model.config.sentence_token_ids:
        chunking = "fixed"
    model.config.chunking = sentence_model_of(name)[0].auto_model.config.chunking = chunking
    with only_our_errors():
        found = model.encode(texts)
        plans = model.plan(texts)
        rule = model.config.chunking_rule()
        for text, each, plan in zip(texts, found, plans, strict=True):
            ids = tokenize_document(model.tokenizer, text)
            assert (plan.tokens, plan.chunks, plan.windows) == (
                len(ids), len(each.plain), len(model.config.windows_of(len(each.plain))),
            )  # fmt: skip
            assert len(each.chunks) == len(each.plain) == len(each.spans)
            borders = rule.boundaries(ids.input_ids)
            assert borders[-1] == len(ids)  # every token is in a chunk, and no chunk is too long
            assert all(0 < size <= rule.capacity for size in np.diff(borders))
            assert all(0 <= start <= end <= len(text) for start, end in each.spans)
            assert all(one[0] <= other[0] for one, other in itertools.pairwise(each.spans))
            assert torch.isfinite(each.document).all()
        documents = torch.stack([each.document for each in found])
        close(torch.stack([model.encode(text).document for text in texts]), documents)
        output = model(**model.tokenizer(texts, padding=True, return_tensors="pt"))
        close(output.pooler_output, documents)
        close(output.last_hidden_state[output.chunk_mask], torch.cat([each.chunks for each in found]))
        plain = torch.nn.utils.rnn.pad_sequence([each.plain for each in found], batch_first=True)
        if plain.shape[1]:
            mask = torch.arange(plain.shape[1]) < torch.tensor([len(each.plain) for each in found])[:, None]
            close(model(inputs_embeds=plain, attention_mask=mask).pooler_output, documents)
        close(sentence_model_of(name).encode(texts, convert_to_tensor=True), documents)
        for _ in range(2):  # what was in the cache, and what comes out of it
            close(torch.stack([each.document for each in model.encode(texts, cache_dir=cache)]), documents)


@cases(0.02)
@given(DOCUMENTS)
def test_a_corpus_holds_the_vectors_that_encode_gives(source, tmp_path_factory, texts):
    model, folder = model_of("nextlevelbert"), tmp_path_factory.mktemp("corpus")
    model.config.chunking = "fixed"
    with only_our_errors():
        documents = [Document(str(number), text) for number, text in enumerate(texts)]
        corpus = encode_corpus(documents, source, model.config.chunking_rule(), folder / "corpus", progress=False)
        for text, stored in zip(texts, corpus, strict=True):
            found = model.encode(text)
            close(stored.vectors.float(), found.plain, 1e-3)
            assert stored.spans.tolist() == found.spans.tolist()


TOKEN_MODELS = ("chunkbert", "bert-al", "chunkbert-classification", "bert-al-classification")


@cases(0.03)
@given(st.sampled_from(TOKEN_MODELS), DOCUMENTS, st.booleans())
@torch.no_grad()
def test_a_batch_of_tokens_is_its_rows(name, texts, left):
    model = model_of(name)
    with only_our_errors():
        side, model.tokenizer.padding_side = model.tokenizer.padding_side, "left" if left else "right"
        batch = model.tokenizer(texts, padding=True, return_tensors="pt")
        model.tokenizer.padding_side = side
        key = "logits" if "classification" in name else "pooler_output"
        found = model(**batch)[key]
        assert torch.isfinite(found).all()
        for number, text in enumerate(texts):
            close(model(**model.tokenizer([text], return_tensors="pt"))[key][0], found[number])


@cases(0.03)
@given(TEXTS | st.lists(TEXTS, max_size=4), st.integers(-1, 6), st.booleans())
def test_summaries_are_parts_of_their_document(document, count, blocking):
    with only_our_errors():
        summary = model_of("bert-al-summarization").summarize(document, sentences=count, trigram_blocking=blocking)
        text = document if isinstance(document, str) else "\n".join(document)
        assert summary.sentences == [text[start:end] for start, end in summary.spans]
        assert summary.indices == sorted(set(summary.indices))
        assert len(summary.indices) <= count
        assert all(0 <= score <= 1 for score in summary.scores)


NOT_TEXT = st.none() | st.integers() | st.binary() | st.lists(st.none() | TEXTS | st.integers(), max_size=2)


@cases(0.01)
@given(st.sampled_from(["nextlevelbert", "hate"]), NOT_TEXT)
def test_what_is_no_text(name, texts):
    for method in (model_of(name).encode, model_of(name).plan):
        with only_our_errors():
            method(texts)


@cases(0.05)
@given(
    st.lists(TEXTS, max_size=3),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 40), st.integers(-1, 40)), max_size=3),
    st.none() | st.integers(-1, 200),
)
@torch.no_grad()
def test_sets_of_documents_and_mentions(documents, mentions, length):
    processor, model = processor_of("cdlm-coreference"), model_of("cdlm-coreference")
    with only_our_errors():
        pieces = [processor.tokenize(text) for text in documents]
        row = processor.mentions(documents, mentions, max_length=length)
        markers = 2 + 2 * len(documents) + 2 * len(mentions)
        assert len(row["input_ids"]) + sum(row["lost_tokens"]) == markers + sum(len(piece.ids) for piece in pieces)
        if not mentions:
            return
        batch = processor.pad([processor.mentions(documents, mentions, [(0, len(mentions) - 1)], [1], length)])
        output = model(**batch)
        assert torch.isfinite(output.logits).all()
        assert torch.isfinite(output.loss)


@cases(0.03)
@given(TEXTS, st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=3)), max_size=3), st.none() | st.integers(-1, 200))
@torch.no_grad()
def test_questions_and_paragraphs(question, paragraphs, length):
    processor, model = processor_of("cdlm-questions"), model_of("cdlm-questions")
    with only_our_errors():
        row = processor.question(question, paragraphs, max_length=length)
        texts = [text for title, sentences in paragraphs for text in (title, *sentences)]
        read = sum(number >= 0 for number, _, _ in row["token_spans"])
        assert read + sum(row["lost_tokens"]) == sum(len(processor.tokenize(each, blank=True).ids) for each in texts)
        assert all(
            texts[number][start:end] or start == end for number, start, end in row["token_spans"] if number >= 0
        )
        output = model(**processor.pad([row]))
        assert all(
            torch.isfinite(output[name]).all() for name in ("start_logits", "sentence_logits", "paragraph_logits")
        )
