"""Sentences from ids, and chunks of whole sentences whose borders come back after an edit."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoModel, PreTrainedTokenizerFast

from nextlevelbert import (
    ChunkingRule,
    Document,
    NextLevelBertModel,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    text_sentences,
)
from nextlevelbert.models.chunking import chunk_spans, pack_sentences, splitter_sentences, tokenize_document
from nextlevelbert.models.sentences import (
    cached_sentence_token_ids,
    closing_quotes,
    sentence_boundaries,
    sentence_token_ids,
)
from tests.models.sentences_gold import border_f1, gold_documents

END, CLOSE, QUOTE, ABBREVIATION, NUMBER = 1, 2, 3, 4, 5
CLASSES = {"end": [END], "close": [CLOSE], "quote": [QUOTE], "abbreviation": [ABBREVIATION], "number": [NUMBER]}
IDS = st.lists(st.sampled_from([END, END, CLOSE, QUOTE, QUOTE, ABBREVIATION, NUMBER, 10, 11, 12]), max_size=60)
LANDMARKS = ([23, END], [38, 39, END], [55, 56, END])  # as `test_landmarks_end_a_chunk` checks of two of them
SENTENCES = st.lists(st.sampled_from([*LANDMARKS, [END], [10, END], [10, 11, 12, END], [13] * 9]), max_size=15)


def rule_of(capacity: int) -> ChunkingRule:
    return ChunkingRule(capacity + 2, "packed_sentences", (101,), (102,), CLASSES)


def equal_sentences(count: int, length: int) -> np.ndarray:
    """Ids of sentences of one length, no two alike."""
    ids = np.random.default_rng(0).integers(100, 30_000, (count, length))
    ids[:, -1] = END
    return ids.ravel()


def greedy(sentences: np.ndarray, capacity: int) -> np.ndarray:
    """Chunks with as many sentences as go in, none above the capacity: what borders that stay are compared to."""
    assert np.diff(sentences).max() <= capacity
    borders = [0]
    while borders[-1] < sentences[-1]:
        borders.append(int(sentences[sentences <= borders[-1] + capacity][-1]))
    return np.array(borders)


def number_of(sentence: Sequence[int] | np.ndarray) -> float:
    """What decides whether a sentence is a landmark, from 0 to 1."""
    digest = hashlib.blake2b(np.array(sentence, "<i4").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def changed(old: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> tuple[int, int]:
    """Chunks of the new (ids, borders) that the old ones do not have, and how many chunks the new ones are."""
    before, after = ([ids[a:b].tobytes() for a, b in itertools.pairwise(borders)] for ids, borders in (old, new))
    return len([chunk for chunk in after if chunk not in set(before)]), len(after)


def read_quotes(quotes: list[bool]) -> list[bool]:
    """The rule of `closing_quotes` in words of one step a mark."""
    closing, is_open, last = [], False, None
    for position, quote in enumerate(quotes):
        closing.append(False)
        if not quote:
            continue
        if last is None or position - last > 256:
            is_open = False
        if last == position - 1:
            is_open = False
        elif position + 1 < len(quotes) and quotes[position + 1]:
            is_open = True
        closing[position] = is_open
        is_open, last = not is_open, position
    return closing


@given(gaps=st.lists(st.sampled_from([1, 1, 2, 3, 9, 255, 256, 257, 300]), max_size=30), end=st.integers(1, 3))
def test_quotes_take_turns_until_something_is_known(gaps, end):
    quotes = np.zeros(sum(gaps) + end, bool)
    quotes[np.cumsum(gaps, dtype=int)] = True
    assert closing_quotes(quotes).tolist() == read_quotes(quotes.tolist())


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('"One." "Two." He went. "Three."', ['"One."', '"Two."', "He went.", '"Three."']),
        ('"One. "Two." "Three." He left. "Four."', ['"One. "', 'Two."', '"Three."', "He left.", '"Four."']),
        ('He said "No." She left.', ['He said "No."', "She left."]),
        ('"Go," he said. "Now!" (He went.)', ['"Go," he said.', '"Now!"', "(He went.)"]),
        ("“One.” “Two.”) Three?!", ["“One.”", "“Two.”)", "Three?!"]),
    ],
)
def test_quotes(minilm, text, sentences):
    """In the second one a mark is missing, so the next is misread; two in a row put all others right."""
    document = tokenize_document(minilm.tokenizer, text)
    rule = ChunkingRule.from_tokenizer(minilm.tokenizer, 64, "sentences")
    spans = chunk_spans(document, rule.boundaries(document.input_ids))
    assert [text[a:b] for a, b in spans] == sentences


def test_a_missing_quote_is_forgotten():
    """Behind 256 ids without a quote all sentences end where they did."""
    quoted = [QUOTE, 10, END, QUOTE, 11, END] * 20  # "10." 11. "10." 11. …
    silence = [12] * 256 + [END]
    with_all = np.array(quoted + silence + quoted)
    without = with_all[1:]
    all_ends, ends = sentence_boundaries(with_all, CLASSES, 1), sentence_boundaries(without, CLASSES, 1) + 1
    far = len(quoted) + len(silence)
    assert ends[ends >= far].tolist() == all_ends[all_ends >= far].tolist()
    assert (
        ends[(ends > 1) & (ends < len(quoted))].tolist()
        != all_ends[(all_ends > 0) & (all_ends < len(quoted))].tolist()
    )


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], [0]),
        ([END], [0, 1]),
        ([10, 11], [0, 2]),
        ([10, END, END, CLOSE, 11, END], [0, 4, 6]),
        ([ABBREVIATION, END, 10, END], [0, 4]),
        ([ABBREVIATION, END, END, 10], [0, 3, 4]),  # an abbreviation, then the end of the sentence
        ([NUMBER, END, NUMBER, END, 10], [0, 4, 5]),  # 3.5.
        ([NUMBER, END, 10, END], [0, 2, 4]),
        ([10, CLOSE, END, 11], [0, 3, 4]),
    ],
)
def test_ends(ids, expected):
    assert sentence_boundaries(np.array(ids, np.int32), CLASSES, 1).tolist() == expected


@settings(deadline=None, max_examples=300)
@given(ids=IDS | SENTENCES.map(lambda sentences: [*itertools.chain(*sentences)]), capacity=st.integers(1, 12))
def test_borders_are_sentence_ends_unless_a_sentence_is_too_long(ids, capacity):
    ids = np.array(ids, np.int32)
    sentences = sentence_boundaries(ids, CLASSES, 1)
    borders = rule_of(capacity).boundaries(ids)
    assert borders.dtype == np.int64
    assert (borders[0], borders[-1]) == (0, len(ids))
    sizes = np.diff(borders)
    assert ((1 <= sizes) & (sizes <= capacity)).all()
    for start, stop in itertools.pairwise(borders.tolist()):
        ends = [end for end in sentences.tolist() if start < end <= start + capacity]
        ids_of = {end: ids[before:end] for before, end in itertools.pairwise(sentences.tolist())}
        landmarks = [end for end in ends if 2 * (end - start) >= capacity and number_of(ids_of[end]) < 1 / 20]
        if len(ids) - start <= capacity:
            assert stop == len(ids)  # the rest goes in
        elif landmarks:
            assert number_of(ids_of[stop]) == min(number_of(ids_of[end]) for end in landmarks)
        else:
            assert stop == (ends[-1] if ends else start + capacity)


def test_landmarks_end_a_chunk():
    """Worked by hand; capacity 8, so that landmarks are looked for 4 to 8 ids behind a chunk's start."""
    sentences = [[55, 56, END], [38, 39, END], [36], [42], [24, 25, END], [26, 27, 28, END], [30, END]]
    numbers = [round(20 * number_of(ids), 2) for ids in sentences]
    assert numbers == [0.64, 0.36, 0.27, 11.04, 9.27, 13.66, 4.16]  # below 1: the first three are landmarks
    ids, borders = np.concatenate(sentences), np.array([0, 3, 6, 7, 8, 11, 15, 17])
    # From 0: the landmark at 3 is too near, of those at 6 and 7 the second is smaller; 8, which fits too, is none.
    # From 7: no landmark, so the last that fits, 15. From 15: the rest.
    assert pack_sentences(ids, borders, 8).tolist() == [0, 7, 15, 17]
    # From 6: none ends at 9, so 8, the last before. From 11: none ends up to 14, so the sentence is cut.
    assert pack_sentences(ids, borders, 3).tolist() == [0, 3, 6, 8, 11, 14, 17]


def test_of_sentences_that_are_alike_the_last_is_taken():
    ids = np.array([10, 11, END] * 10)
    assert rule_of(13).boundaries(ids).tolist() == [0, 12, 24, 30]


def test_every_process_cuts_alike():
    ids = equal_sentences(200, 7)
    code = (
        "import numpy as np; from nextlevelbert.models.chunking import pack_sentences\n"
        f"ids = np.array({ids.tolist()}); print(pack_sentences(ids, np.arange(0, len(ids) + 1, 7), 60).tolist())"
    )
    expected = rule_of(60).boundaries(ids).tolist()
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}  # this process has another seed
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert json.loads(output) == expected


def test_the_type_of_ids_does_not_matter():
    ids = equal_sentences(100, 7)
    borders = [rule_of(60).boundaries(ids.astype(kind)).tolist() for kind in ("<i4", "<i8", ">i4", "<u2")]
    assert borders[0] == borders[1] == borders[2] == borders[3]


def test_an_inserted_sentence_changes_a_few_chunks_only():
    """Equal sentences, so that filled chunks would stay one sentence behind for the whole document."""
    capacity, length = 254, 20
    old = equal_sentences(5_000, length)
    rule = rule_of(capacity)
    for place in (0, 3, 50, 400):
        new = np.insert(old, place * length, equal_sentences(5_001, length)[-length:])
        borders = [rule.boundaries(ids) for ids in (old, new)]
        filled = [greedy(sentence_boundaries(ids, CLASSES, 1), capacity) for ids in (old, new)]
        few, chunks = changed((old, borders[0]), (new, borders[1]))
        most, _ = changed((old, filled[0]), (new, filled[1]))
        assert 1 <= few <= 12 < 0.03 * chunks
        assert most > 0.85 * len(filled[1])


def test_an_edit_of_a_novel_changes_about_one_percent_of_its_chunks(minilm, shared):
    """Sentences of other chapters inserted, taken away and replaced in the first twentieth of a book."""
    rule = ChunkingRule.from_tokenizer(minilm.tokenizer, 256, "packed_sentences")
    random, shares, fills = np.random.default_rng(0), [], []
    with gzip.open(shared / "data" / "novels" / "validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        novels = [json.loads(line)["text"] for line in itertools.islice(lines, 8)]
    for text in novels:
        ids = tokenize_document(minilm.tokenizer, text).input_ids
        sentences = sentence_boundaries(ids, rule.sentence_token_ids)
        borders = rule.boundaries(ids)
        fills.append(len(ids) / (len(borders) - 1) / rule.capacity)
        for number in range(9):
            first = random.integers(len(sentences) // 20)
            other = random.integers(len(sentences) // 20, len(sentences) - 1)
            start, end = sentences[first : first + 2]
            words = ids[sentences[other] : sentences[other + 1]]
            kept = ids[end:] if number % 3 else ids[start:]
            edited = np.concatenate([ids[:start], words[:0] if number % 3 == 1 else words, kept])
            few, chunks = changed((ids, borders), (edited, rule.boundaries(edited)))
            shares.append(few / chunks)
    assert np.mean(shares) <= 0.01
    assert np.mean(fills) > 0.86


def test_packed_chunks_are_the_same_from_text_ids_and_a_corpus(toy_encoder_path, tmp_path):
    text = 'Mr. Brown came. "Go away!" It cost 3.50 dollars. The sea was calm and the sky was blue. ' * 30
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking="packed_sentences", chunk_size=32)
    embedding = model.encode(text)
    assert {text[a:b][-1] for a, b in embedding.spans} <= set('.!"')
    assert 15 < len(embedding.plain) < 120  # sentences are 120
    model.save_pretrained(tmp_path / "model")
    for other in (model, AutoModel.from_pretrained(tmp_path / "model")):
        with torch.no_grad():
            output = other(**model.tokenizer(text, return_tensors="pt", verbose=False))
        torch.testing.assert_close(output.chunk_vectors[0], embedding.plain, atol=1e-5, rtol=0)
        torch.testing.assert_close(output.pooler_output[0], embedding.document, atol=1e-5, rtol=0)

    source, rule = load_chunk_encoder(toy_encoder_path), model.config.chunking_rule()
    encode_corpus([Document("a", text)], source, rule, tmp_path / "corpus", progress=False)
    corpus = VectorCorpus(tmp_path / "corpus")
    corpus.check_model(model.config)
    assert corpus["a"].spans.tolist() == embedding.spans.tolist()
    with pytest.raises(ValueError, match=r"chunking.mode: 'packed_sentences', 'sentences'"):
        corpus.check_model(NextLevelBertModel.from_chunk_encoder(source, 32, chunking="sentences").config)


CONTRACT = (
    "LEASE\n\nAcme Inc., a Delaware corp. (the “Buyer”), and Foo S.A. signed on Jan. 15. It costs 2.5%, i.e. £14.6bn, "
    "see Sec. 5 and Fig. 2 of Roe et al. (2019).\n• one item;\n• another"
)
# What release 0.1.0 made of it, and what models that it saved make of it for ever.
FIRST_RULE = [
    "LEASE\n\nAcme Inc.", ", a Delaware corp.", "(the “Buyer”), and Foo S.A. signed on Jan. 15.", "It costs 2.5%, i.",
    "e. £14.", "6bn, see Sec.", "5 and Fig. 2 of Roe et al.", "(2019).", "• one item;\n• another",
]  # fmt: skip
SECOND_RULE = [
    "LEASE\n\nAcme Inc., a Delaware corp. (the “Buyer”), and Foo S.A. signed on Jan. 15.",
    "It costs 2.5%, i.e. £14.6bn, see Sec. 5 and Fig. 2 of Roe et al. (2019).", "• one item;", "• another",
]  # fmt: skip


def cut(text: str, embedding) -> list[str]:
    return [text[a:b] for a, b in embedding.spans]


def test_a_saved_model_keeps_its_sentence_rule_and_a_new_one_has_the_newest(minilm, tmp_path):
    """A configuration without the field is one of release 0.1.0."""
    new = NextLevelBertModel.from_chunk_encoder(minilm, chunking="sentences", chunk_size=64, num_hidden_layers=0)
    assert new.config.sentence_rule == 2
    old = NextLevelBertModel.from_chunk_encoder(
        minilm, chunking="sentences", chunk_size=64, num_hidden_layers=0, sentence_rule=1,
        sentence_token_ids=sentence_token_ids(minilm.tokenizer, 1),
    )  # fmt: skip
    for model, expected in ((old, FIRST_RULE), (new, SECOND_RULE)):
        assert cut(CONTRACT, model.encode(CONTRACT)) == expected
        folder = tmp_path / str(model.config.sentence_rule)
        model.save_pretrained(folder)
        if model is old:
            values = json.loads((folder / "config.json").read_text())
            del values["sentence_rule"]
            (folder / "config.json").write_text(json.dumps(values))
            (folder / "checksums.json").unlink()
        again = AutoModel.from_pretrained(folder)
        assert cut(CONTRACT, again.encode(CONTRACT)) == expected
        assert again.plan(CONTRACT).chunks == len(expected)
        with torch.no_grad():
            output = again(**minilm.tokenizer(CONTRACT, return_tensors="pt"))
        torch.testing.assert_close(output.chunk_vectors[0], model.encode(CONTRACT).plain, atol=1e-5, rtol=0)


def test_an_unknown_sentence_rule_is_refused(minilm):
    ids = sentence_token_ids(minilm.tokenizer)
    with pytest.raises(ValueError, match="sentence_rule must be from 1 to 2, got 3"):
        ChunkingRule(64, "sentences", sentence_token_ids=ids, sentence_rule=3)
    with pytest.raises(ValueError, match="Sentence chunking needs"):
        ChunkingRule(64, "sentences", sentence_token_ids=sentence_token_ids(minilm.tokenizer, 1), sentence_rule=2)


@pytest.mark.parametrize(
    "text",
    [
        "He works for Acme Inc.|The firm is in the U.S.|It sells to Foo Ltd. in Leeds.",
        "See No. 5, Nos. 3 and Art. VI.|The answer is no.|She left at 5 p.m.|They came at 6 a.m. on Monday.",
        "Vitamin B. is cheap.|So do I.|He went, e.g. to St. Louis vs. Mr. J. R. Roe.",
        "He filed the 10-K.|It is p < .05 or 3.5m.|See www.sec.gov and example.com for it.",
        "“Go!”, he said.|Why?|(We know.)|In 1999.|Then etc., and so on.|Done",
        "Messrs. Roe and Doe live in Calif. near Mich. and Minn.|We do not.",
    ],
)
def test_the_second_rule(minilm, text):
    """Sentences with | between them."""
    rule, plain = ChunkingRule.from_tokenizer(minilm.tokenizer, 128, "sentences"), text.replace("|", " ")
    document = tokenize_document(minilm.tokenizer, plain)
    assert [plain[a:b] for a, b in chunk_spans(document, rule.boundaries(document.input_ids))] == text.split("|")


@functools.cache
def with_line_breaks() -> PreTrainedTokenizerFast:
    """A cased tokenizer of words that keeps line breaks, as byte-level ones do."""
    words = ["?", ".", "\n", "\n\n", "The", "the", "Inc", "In", "in", "Title", "end", "•"]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "?"))
    marks = pre_tokenizers.Split(Regex(r"\n\n|\n|\.|•"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), marks])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?")


@pytest.mark.parametrize(
    "text",
    [
        "Title\n\n|The end.\n|In the end\nthe end",
        "\n\nTitle\n \n|• the\n|• end",
        "The Inc. in the end.| The Inc.| In the end",
        "The Inc.\n\n|end",
    ],
)
def test_a_vocabulary_with_line_breaks_has_paragraphs(text):
    tokenizer, plain = with_line_breaks(), text.replace("|", "")
    tokens = tokenize_document(tokenizer, plain)
    borders = sentence_boundaries(tokens.input_ids, sentence_token_ids(tokenizer))
    starts = [int(tokens.char_starts[place]) for place in borders[:-1]]
    found = [plain[a:b] for a, b in itertools.pairwise([*starts, len(plain)])]
    assert [piece.strip() for piece in found if piece.strip()] == [
        piece.strip() for piece in text.split("|") if piece.strip()
    ]


@settings(deadline=None, max_examples=200)
@given(ids=st.lists(st.integers(0, 11), max_size=60))
def test_the_second_rule_takes_any_ids(ids):
    borders = sentence_boundaries(np.array(ids, np.int32), cached_sentence_token_ids(with_line_breaks()))
    assert (borders[0], borders[-1]) == (0, len(ids))
    assert (np.diff(borders) > 0).all()


@pytest.mark.parametrize(("half", "least"), [("look", 0.98), ("held", 0.97)])
def test_sentences_of_contracts_reports_and_papers(half, least):
    """The rules were made with the first half in sight; docs/results.md has the figures of all splitters."""
    documents = list(gold_documents(half))
    assert sum(len(gold) for _, gold in documents) > 120
    assert border_f1(documents, [text_sentences(text) for text, _ in documents]) > least


@pytest.mark.parametrize(
    "text",
    [
        "LEASE|This is a lease.|It ends.",
        "1. Grant|Acme Inc. President Roe signed.|He left.|• a;|• b",
        "Sold to Acme Inc.|However, the price rose.|She met Dr. Who.",
        "A line that was\nbroken by hand, and\nends here.|Another.",
        "“Go!” he said.|“Why?”|“Because … it is so.”",
        "In the U.S. Senate.|In the U.S.|The Senate.|See p. 5 (Fig. 3).|The answer is no.|We do.",
        "今日は。|明日は！|The end",
        "call me ishmael.|some years ago i went to sea.|dr. who came, i.e. at 2.5 p.m. or so.|"
        "he left vol. ii and so did i.|why?|see fig. 3 and acme inc. stock.|the end",
        "now is the time.|" + "it goes on.|" * 60 + "NATO too.|yes",
    ],
)
def test_sentences_of_a_text(text):
    """Sentences with | between them: a blank line on both sides of headings and items, or a space."""
    pieces = text.split("|")
    apart = [one.isupper() or one[0] in "1•" or other[0] == "•" for one, other in itertools.pairwise(pieces)]
    plain = pieces[0] + "".join(("\n\n" if new else " ") + piece for new, piece in zip(apart, pieces[1:], strict=True))
    assert [plain[a:b] for a, b in text_sentences(plain)] == pieces


HOSTILE = st.lists(
    st.sampled_from(
        [*".?!\"'”“()•-\n\r\t AaIi1。\u2028\x00", "Inc.", "No. ", "i.e.", "U.S.", "\n\n", "(a) ", "1. ", "Title"]
    )
).map("".join)


@settings(deadline=None, max_examples=400)
@given(text=HOSTILE | st.text(max_size=200))
def test_sentences_of_any_text_lose_nothing(text):
    spans = text_sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    borders = [0, *itertools.chain(*spans), len(text)]
    assert borders == sorted(borders)
    assert not "".join(text[a:b] for a, b in zip(borders[::2], borders[1::2], strict=True)).strip()
    assert splitter_sentences(text, text_sentences) == spans


@pytest.mark.parametrize(
    "part", [".", ". ", '."', "A. ", ".\n", "\n ", "U.S.", "Inc. ", "T\n", '("', ")" * 9, "a" * 30 + "."]
)
def test_a_long_text_of_one_kind_is_read_once(part):
    """A rule that read it again for every mark or line would take hours."""
    text = part * (60_000 // len(part))
    assert [end for _, end in text_sentences(text)][-1:] == [len(text.rstrip())][: len(text.strip())]


SPLITTERS = {
    "spans": lambda text: [(0, 9), (10, 24), (25, len(text))],
    "texts": lambda text: [text[:10], text[10:24], " ", text[25:]],
    "gaps": lambda text: [(2, 5), (10, 12), (25, 26)],
    "arrays": lambda text: np.array([(0, 9), (10, 24), (25, len(text))]),
}


PIECES = ["three, four;", "five six."]


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("chunking", ["sentences", "packed_sentences"])
def test_a_splitter_finds_the_sentences_instead_of_the_rule(toy_encoder_path, tmp_path, name, chunking):
    """What it leaves out belongs to the sentence before, or to the first."""
    text = "One. Two; three, four; five six."
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking=chunking, chunk_size=9)
    embedding = model.encode(text, splitter=SPLITTERS[name], cache_dir=tmp_path)
    packed = chunking == "packed_sentences"  # seven tokens a chunk
    assert cut(text, embedding) == ["One. Two;", *(["three, four; five six."] if packed else PIECES)]
    assert model.plan(text, splitter=SPLITTERS[name]).chunks == len(embedding.plain)
    with pytest.warns(UserWarning, match="no token"):
        again = model.encode(["", text, " \n"], splitter=SPLITTERS[name], cache_dir=tmp_path)
    torch.testing.assert_close(again[1].plain, embedding.plain)


def test_sentences_of_a_text_make_the_chunks(minilm):
    """Blank lines and headings, which the ids do not have."""
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunking="sentences", chunk_size=64, num_hidden_layers=0)
    assert cut(CONTRACT, model.encode(CONTRACT, splitter=text_sentences)) == [
        "LEASE", SECOND_RULE[0].removeprefix("LEASE\n\n"), *SECOND_RULE[1:]
    ]  # fmt: skip
    by_rule = model.encode("One is here. Two is there.")
    given = model.encode("One is here. Two is there.", splitter=lambda text: ["One is here.", "Two is there."])
    assert torch.equal(by_rule.document, given.document)


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        ([], ValueError, "splitter found no sentence in a text of 12 characters"),
        ([(0, 5), (4, 12)], ValueError, "sentence 1 is characters 4 to 12, but must .* begin at 5"),
        ([(0, 13)], ValueError, "end at 12 or earlier"),
        ([(3, 3)], ValueError, "at least one character"),
        ([(5, 12), (0, 5)], ValueError, "sentence 1 is characters 0 to 5"),
        (["One.", "Three."], ValueError, r"sentence 1, 'Three\.', is not in the text after character 4"),
        ([(0, 1, 2)], TypeError, "give a text or"),
        ([(0.0, 3.0)], TypeError, "two whole numbers"),
        ([None], TypeError, "sentence 0 is None"),
    ],
)
def test_a_splitter_that_does_not_fit_its_text_is_an_error(toy_encoder_path, found, error, message):
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking="sentences", chunk_size=9)
    for method in (model.encode, model.plan):
        with pytest.raises(error, match=message):
            method("One. Two six", splitter=lambda text: found)


def test_a_splitter_needs_chunks_of_sentences_and_text(toy_encoder_path):
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=9)
    with pytest.raises(ValueError, match="splitter needs a model with chunking='sentences'"):
        model.encode("One. Two.", splitter=text_sentences)
    with pytest.raises(TypeError, match="splitter"):
        model(**model.tokenizer("One. Two.", return_tensors="pt"), splitter=text_sentences)
