"""Random texts and configurations: some 50 cases, always the same ones; 2,300 others by
`make fuzz`.

Whatever the route to a vector, it is the same vector; no token is lost on the way.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

import nextlevelbert as nlb
from nextlevelbert.models.tokenizing import tokenize_document

from .frozen.cases import backbone, chunk_encoder, filled

# White space, marks, control and unassigned characters, several scripts, what tokenizers treat in
# ways of their own.
PIECES = (
    "the whale",
    "swims. ",
    "Mr. Hill ",
    "3.5 pages ",
    " ",
    "\n",
    "\t",
    "\r\n",
    "\x00",
    "\x1f",
    "\x85",
    "\xa0",
    "\xad",
    "e\u0301",
    "\u200b",
    "\u200d",
    "\u2028",
    "\u202e",
    "\ufeff",
    "\ufffd",
    "\U000e0001",
    "ﬁ",
    "ß",
    "İ",
    "한국어",
    "中文。",
    "ไทย",
    "أهلا",
    "👩\u200d👩\u200d👧",
    "🇩🇪",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[PAD]",
    "[UNK]",
    "##s",
    "<m>",
    "</m>",
    "<doc-s>",
    "“No!” ",
    "a" * 120,
    "?!…",
)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
DOCUMENTS = st.lists(
    TEXTS | TEXTS.map(lambda text: (text + " the whale swims.") * 8), min_size=1, max_size=4
)


def cases(share):
    """A share of 150 cases in the suite, always the same ones; of 20,000 others in the long run."""
    long = settings.get_current_profile_name() == "fuzz"
    return settings(
        max_examples=max(1, round(share * (20_000 if long else 150))),
        deadline=60_000,  # milliseconds for one case: nothing hangs, also beside other work
        derandomize=not long,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


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
    model = kind.from_chunk_encoder(
        encoder(), chunk_size=12, chunking=chunking, max_chunks=9, **fields
    )
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
        nlb.CdlmForCrossDocumentCoreference.from_encoder(
            backbone(folder() / "cdlm"), max_length=700
        )
    )


def close(one, other, tolerance=2e-5):
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@cases(0.025)
@given(
    st.sampled_from(["nextlevelbert", "hate"]),
    DOCUMENTS,
    st.sampled_from(["fixed", "sentences", "packed_sentences"]),
)
@torch.no_grad()
def test_every_route_gives_the_same_vectors(name, texts, chunking):
    model, sentence_transformer = over_vectors(name, chunking)
    rule = model.config.chunking_rule()
    books = model.encode(texts)
    plans = model.plan(texts)
    by_ids = model(**model.tokenizer(texts, padding=True, return_tensors="pt"))
    elsewhere = sentence_transformer.encode(texts, convert_to_tensor=True)
    for row, (text, book, plan) in enumerate(zip(texts, books, plans, strict=True)):
        ids = tokenize_document(model.tokenizer, text)
        assert (plan.tokens, plan.chunks) == (len(ids), len(book.plain))
        assert len(book.chunks) == len(book.plain) == len(book.spans)
        sizes = np.diff(rule.boundaries(ids.input_ids))
        assert sizes.sum() == len(ids)  # every token is in a chunk, and no chunk is too long
        assert ((sizes > 0) & (sizes <= rule.capacity)).all()
        borders = [0, *book.spans[:, 0].tolist(), len(text)]
        assert borders == sorted(borders)
        assert (book.spans[:, 0] <= book.spans[:, 1]).all()
        assert book.spans.max(initial=0) <= len(text)
        assert torch.isfinite(book.document).all()
        assert not book.document.requires_grad
        close(model.encode(text).document, book.document)
        close(by_ids.pooler_output[row], book.document)
        close(by_ids.last_hidden_state[row, : len(book.chunks)], book.chunks)
        close(elsewhere[row], book.document)
    if by_ids.chunk_mask.any():
        with tempfile.TemporaryDirectory() as place:
            corpus = nlb.encode_corpus(texts, encoder(), rule, place, progress=False)
            for index, book in enumerate(books):
                close(corpus[str(index)].plain.float(), book.plain, 1e-3)
                assert corpus[str(index)].spans.tolist() == book.spans.tolist()
        again = model(inputs_embeds=by_ids.chunk_vectors, attention_mask=by_ids.chunk_mask)
        close(again.pooler_output, by_ids.pooler_output)


@cases(0.03)
@given(st.sampled_from(["chunkbert", "bert-al"]), DOCUMENTS, st.sampled_from(["left", "right"]))
@torch.no_grad()
def test_a_batch_of_tokens_is_its_rows(name, texts, side):
    model = over_tokens(name).base_model
    batch = model.tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
    for text, pooled in zip(texts, model(**batch).pooler_output, strict=True):
        alone = model(**model.tokenizer([text], return_tensors="pt"))
        assert torch.isfinite(pooled).all()
        close(alone.pooler_output[0], pooled)


@cases(0.03)
@given(TEXTS, st.integers(1, 6), st.booleans())
def test_summaries_are_parts_of_their_document(text, count, blocking):
    text += " The whale swims."  # a document without a sentence is refused
    summary = over_tokens("bert-al").summarize(text, sentences=count, trigram_blocking=blocking)

    assert summary.sentences == [text[start:end] for start, end in summary.spans]
    assert summary.indices == sorted(set(summary.indices))
    assert len(summary.indices) <= count
    assert 0 <= min(summary.scores) <= max(summary.scores) <= 1


@cases(0.03)
@given(
    TEXTS,
    st.lists(st.tuples(TEXTS.map("on {}".format), st.lists(TEXTS, max_size=3)), max_size=3),
    st.integers(600, 700),
)
def test_questions_and_paragraphs(question, paragraphs, length):
    """Each token is in the sequence, or counted as lost."""
    processor = cdlm()
    paragraphs = [("whale", ["It swims."]), *paragraphs]
    row = processor.question(f"who {question}", paragraphs, max_length=length)
    tokens = 0
    for title, sentences in paragraphs:
        for text in (title, *sentences):
            tokens += len(processor.tokenize(text, blank=True).ids)
    read = sum(number >= 0 for number, _, _ in row["token_spans"])

    assert read + sum(row["lost_tokens"]) == tokens
