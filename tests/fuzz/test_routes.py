"""Texts of any kind: whatever the route to a vector, it is the same vector, and no token is lost on the way."""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

import nextlevelbert as nlb
from nextlevelbert.models.chunking import tokenize_document

from ..frozen.cases import backbone, chunk_encoder, filled
from .cases import DOCUMENTS, TEXTS, cases


# Functions, not fixtures: hypothesis shows all arguments of a case that fails.
@functools.cache
def folder():
    return Path(tempfile.mkdtemp())


@functools.cache
def encoder():
    return chunk_encoder(folder())


@functools.cache
def over_vectors(name, chunking):
    kind = {"nextlevelbert": nlb.NextLevelBertModel, "hate": nlb.HateModel}[name]
    fields = {"num_hidden_layers": 2} if name == "hate" else {}
    model = kind.from_chunk_encoder(encoder(), chunk_size=12, chunking=chunking, max_chunks=9, **fields)
    filled(model.encoder), filled(model.special_embeddings)
    model.save_pretrained(folder() / f"{name}-{chunking}")
    return model.eval(), SentenceTransformer(str(folder() / f"{name}-{chunking}"), device="cpu")


@functools.cache
def over_tokens(name):
    source = backbone(folder() / "tokens")
    if name == "chunkbert":
        return filled(nlb.ChunkBertModel.from_encoder(source, chunk_size=12, num_averaged_layers=2))
    return filled(nlb.BertAlForExtractiveSummarization.from_encoder(source, segment_length=12))


@functools.cache
def cdlm():
    return nlb.CdlmProcessor.from_model(
        nlb.CdlmForCrossDocumentCoreference.from_encoder(backbone(folder() / "cdlm"), max_length=700)
    )


def close(one, other, tolerance=2e-5):
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@cases(0.025)
@given(
    st.sampled_from(["nextlevelbert", "hate"]), DOCUMENTS, st.sampled_from(["fixed", "sentences", "packed_sentences"])
)
@torch.no_grad()
def test_every_route_gives_the_same_vectors(name, texts, chunking):
    model, sentence_transformer = over_vectors(name, chunking)
    books, rule = model.encode(texts), model.config.chunking_rule()
    for text, book, plan in zip(texts, books, model.plan(texts), strict=True):
        ids = tokenize_document(model.tokenizer, text)
        assert (plan.tokens, plan.chunks) == (len(ids), len(book.plain))
        assert len(book.chunks) == len(book.plain) == len(book.spans)
        borders = rule.boundaries(ids.input_ids)
        assert borders[-1] == len(ids)  # every token is in a chunk, and no chunk is too long
        assert all(0 < size <= rule.capacity for size in np.diff(borders))
        assert all(0 <= start <= end <= len(text) for start, end in book.spans)
        assert all(one[0] <= other[0] for one, other in itertools.pairwise(book.spans))
        assert torch.isfinite(book.document).all()
    documents = torch.stack([book.document for book in books])
    close(torch.stack([model.encode(text).document for text in texts]), documents)
    output = model(**model.tokenizer(texts, padding=True, return_tensors="pt"))
    close(output.pooler_output, documents)
    plain = torch.nn.utils.rnn.pad_sequence([book.plain for book in books], batch_first=True)
    if plain.shape[1]:
        mask = torch.arange(plain.shape[1]) < torch.tensor([len(book.plain) for book in books])[:, None]
        close(model(inputs_embeds=plain, attention_mask=mask).pooler_output, documents)
    close(sentence_transformer.encode(texts, convert_to_tensor=True), documents)
    cached = nlb.CachedEncoder(model.chunk_encoder, folder() / "cache")
    for _ in range(2):  # what is in the cache, and what comes out of it
        close(torch.stack([book.document for book in model.encode(texts, chunk_encoder=cached)]), documents)


@cases(0.02)
@given(DOCUMENTS)
def test_a_corpus_holds_the_vectors_that_encode_gives(texts):
    model, _ = over_vectors("nextlevelbert", "fixed")
    with tempfile.TemporaryDirectory() as place:
        rule = model.config.chunking_rule()
        if not any(len(tokenize_document(model.tokenizer, text)) for text in texts):
            return  # no token at all: refused, see the tests of the corpus
        corpus = nlb.encode_corpus(texts, encoder(), rule, Path(place) / "corpus", progress=False)
        for number, text in enumerate(texts):
            stored, book = corpus[str(number)], model.encode(text)
            close(stored.vectors.float(), book.plain, 1e-3)
            assert stored.spans.tolist() == book.spans.tolist()


@cases(0.03)
@given(st.sampled_from(["chunkbert", "bert-al"]), DOCUMENTS, st.booleans())
@torch.no_grad()
def test_a_batch_of_tokens_is_its_rows(name, texts, left):
    model = over_tokens(name).base_model
    side, model.tokenizer.padding_side = model.tokenizer.padding_side, "left" if left else "right"
    batch = model.tokenizer(texts, padding=True, return_tensors="pt")
    model.tokenizer.padding_side = side
    pooled = model(**batch).pooler_output
    assert torch.isfinite(pooled).all()
    for number, text in enumerate(texts):
        close(model(**model.tokenizer([text], return_tensors="pt")).pooler_output[0], pooled[number])


@cases(0.03)
@given(TEXTS, st.integers(1, 6), st.booleans())
def test_summaries_are_parts_of_their_document(text, count, blocking):
    text += " The whale swims."  # a document without a sentence is refused
    summary = over_tokens("bert-al").summarize(text, sentences=count, trigram_blocking=blocking)
    assert summary.sentences == [text[start:end] for start, end in summary.spans]
    assert summary.indices == sorted(set(summary.indices))
    assert len(summary.indices) <= count
    assert all(0 <= score <= 1 for score in summary.scores)


@cases(0.03)
@given(TEXTS, st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=3)), max_size=3), st.integers(600, 700))
def test_questions_and_paragraphs(question, paragraphs, length):
    """Each token is in the sequence, or counted as lost."""
    processor = cdlm()
    paragraphs = [("whale", ["It swims."]), *((f"on {title}", sentences) for title, sentences in paragraphs)]
    row = processor.question(f"who {question}", paragraphs, max_length=length)
    texts = [text for title, sentences in paragraphs for text in (title, *sentences)]
    read = sum(number >= 0 for number, _, _ in row["token_spans"])
    assert read + sum(row["lost_tokens"]) == sum(len(processor.tokenize(text, blank=True).ids) for text in texts)
