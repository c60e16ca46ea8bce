"""Random rows, texts and configurations: some 170 cases, always the same ones; 8,700 others by
`make fuzz`.

What is read is what was written; whatever the route to a vector, it is the same vector; no token is
lost on the way.
"""

from __future__ import annotations

import csv
import functools
import gzip
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

import nextlevelbert as nlb
from nextlevelbert.models.chunking import tokenize_document

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
    """A share of 400 cases in the suite, always the same ones; of 20,000 others in the long run."""
    long = settings.get_current_profile_name() == "fuzz"
    return settings(
        max_examples=max(1, round(share * (20_000 if long else 400))),
        deadline=10_000,  # milliseconds for one case: nothing hangs
        derandomize=not long,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


IDS = st.sampled_from(["2024-01-01", "007", "1e5", "null", "NA", "9" * 30, "a b", "é"])
ROWS = st.lists(
    st.tuples(IDS, TEXTS.filter(lambda text: "\0" not in text)),
    min_size=1,
    max_size=5,
    unique_by=lambda r: r[0],
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


@cases(0.3)
@given(ROWS, st.sampled_from(["jsonl", "json", "csv", "parquet"]), st.booleans())
def test_rows_come_back(rows, kind, packed):
    path, values = folder() / f"x.{kind}", [{"id": name, "text": text} for name, text in rows]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(values), path)
    else:
        path = path.with_name(f"x.{kind}.gz") if packed else path
        with (gzip.open if packed else open)(path, "wt", encoding="utf-8", newline="") as file:
            if kind == "csv":
                writer = csv.DictWriter(file, ["id", "text"])
                writer.writeheader()
                writer.writerows(values)
            else:
                lines = "\n".join(json.dumps(row) for row in values)
                file.write(lines if kind == "jsonl" else json.dumps(values))
    documents = list(nlb.read_documents(path))
    path.unlink()
    assert [(document.id, document.text) for document in documents] == rows


@cases(0.025)
@given(
    st.sampled_from(["nextlevelbert", "hate"]),
    DOCUMENTS,
    st.sampled_from(["fixed", "sentences", "packed_sentences"]),
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
    for states, book in zip(output.last_hidden_state, books, strict=True):
        close(states[: len(book.chunks)], book.chunks)
    plain = torch.nn.utils.rnn.pad_sequence([book.plain for book in books], batch_first=True)
    if plain.shape[1]:
        with tempfile.TemporaryDirectory() as place:
            corpus = nlb.encode_corpus(texts, encoder(), rule, place, progress=False)
            for number, book in enumerate(books):
                close(corpus[str(number)].vectors.float(), book.plain, 1e-3)
                assert corpus[str(number)].spans.tolist() == book.spans.tolist()
        mask = (
            torch.arange(plain.shape[1])
            < torch.tensor([len(book.plain) for book in books])[:, None]
        )
        close(model(inputs_embeds=plain, attention_mask=mask).pooler_output, documents)
    close(sentence_transformer.encode(texts, convert_to_tensor=True), documents)


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
        close(
            model(**model.tokenizer([text], return_tensors="pt")).pooler_output[0], pooled[number]
        )


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
@given(
    TEXTS,
    st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=3)), max_size=3),
    st.integers(600, 700),
)
def test_questions_and_paragraphs(question, paragraphs, length):
    """Each token is in the sequence, or counted as lost."""
    processor = cdlm()
    paragraphs = [
        ("whale", ["It swims."]),
        *((f"on {title}", sentences) for title, sentences in paragraphs),
    ]
    row = processor.question(f"who {question}", paragraphs, max_length=length)
    texts = [text for title, sentences in paragraphs for text in (title, *sentences)]
    read = sum(number >= 0 for number, _, _ in row["token_spans"])
    assert read + sum(row["lost_tokens"]) == sum(
        len(processor.tokenize(text, blank=True).ids) for text in texts
    )
