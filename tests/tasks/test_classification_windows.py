"""Windows of a document, against the tokenizer's own truncation and PageRank by networkx."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
from collections import Counter

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from nextlevelbert.tasks.classification import windows as windows_module
from nextlevelbert.tasks.classification.windows import first_window, random_window, textrank_window

STORY = (
    "The lighthouse stood on a rock far from the harbour. "
    "Every evening the keeper climbed the stairs and lit the lamp. "
    "My aunt prefers tea with lemon. "
    "The keeper of the lighthouse wrote in a book about ships and storms. "
    "Ships that left the harbour could see the lamp of the lighthouse through storms. "
    "Nobody remembers who painted the fence. "
    "In winter storms broke over the rock and the keeper slept beside the lamp. "
    "Prices rose again last month."
)


@pytest.fixture(scope="module")
def tokenizer(minilm_path):
    return AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture(scope="module")
def articles(shared):
    with gzip.open(shared / "data" / "hyperpartisan" / "validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in itertools.islice(lines, 16)]


def byte_level(before=(), after=()):
    """A RoBERTa-like tokenizer, for which the space is part of the word, with any special tokens around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [*before, *after]
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[*special, "<pad>"]
    )
    tokenizer.train_from_iterator([STORY] * 5, trainer)
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after], special_tokens=[(token, tokenizer.token_to_id(token)) for token in special]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")


SPECIAL = {
    "minilm": (["[CLS]"], ["[SEP]"]),
    "roberta": (["<s>"], ["</s>"]),
    "more": (["<s>", "<task>"], ["</s>", "<end>", "<eod>"]),
    "prefix": (["<s>"], []),
    "none": ([], []),
}


@pytest.fixture(scope="module", params=SPECIAL)
def special(request, tokenizer):
    """A tokenizer and the special tokens that it puts before and after a text."""
    before, after = SPECIAL[request.param]
    found = tokenizer if request.param == "minilm" else byte_level(before, after)
    return found, found.convert_tokens_to_ids(before), found.convert_tokens_to_ids(after)


@pytest.mark.parametrize("positions", [6, 64, 512])
def test_the_first_window_is_the_tokenizer_s_own_truncation(articles, special, positions):
    tokenizer, lengths = special[0], set()
    for text in ["", "Short.", *articles]:
        ids = tokenizer(text, verbose=False)["input_ids"]
        expected = tokenizer(text, truncation=True, max_length=positions)["input_ids"]
        assert first_window(ids, tokenizer, positions) == expected
        assert first_window(np.array(ids, dtype=np.int64), tokenizer, positions) == expected
        lengths.add(len(expected))
    assert max(lengths) == positions
    assert len(lengths) > 1


def test_a_random_window_is_a_run_of_the_document(articles, special):
    tokenizer, before, after = special
    rng = np.random.default_rng(0)
    for text in ["Short.", *articles]:
        ids = tokenizer(text, verbose=False)["input_ids"]
        window = random_window(ids, tokenizer, 40, rng)
        assert len(window) == min(40, len(ids))
        inner, run = ids[len(before) : len(ids) - len(after)], window[len(before) : len(window) - len(after)]
        assert window == before + run + after
        assert any(inner[start : start + len(run)] == run for start in range(len(inner) - len(run) + 1))


def test_every_start_of_a_random_window_is_equally_likely(tokenizer):
    ids = tokenizer("one two three four five six seven eight nine ten")["input_ids"]
    rng = np.random.default_rng(3)
    drawn = [tuple(random_window(ids, tokenizer, 6, rng)) for _ in range(1400)]
    expected = [(ids[0], *ids[start : start + 4], ids[-1]) for start in range(1, 8)]  # 10 tokens, 4 in a window
    assert set(drawn) == set(expected)
    assert chisquare([drawn.count(window) for window in expected]).pvalue > 0.01
    assert random_window(ids, tokenizer, 12, rng) == ids
    again = [random_window(ids, tokenizer, 6, np.random.default_rng(8)) for _ in range(2)]
    assert again[0] == again[1]


def test_ids_and_positions_that_do_not_fit(tokenizer):
    rng = np.random.default_rng(0)
    for bare in (tokenizer("no special tokens", add_special_tokens=False)["input_ids"], [101], []):
        with pytest.raises(
            ValueError, match=r"begin with the tokenizer's special tokens \[101\] and end with \[102\]"
        ):
            first_window(bare, tokenizer, 8)
        with pytest.raises(ValueError, match="special tokens"):
            random_window(bare, tokenizer, 8, rng)
    ids = tokenizer("a text")["input_ids"]
    for make in (
        lambda: first_window(ids, tokenizer, 2),
        lambda: random_window(ids, tokenizer, 2, rng),
        lambda: textrank_window("a text", tokenizer, 2),
    ):
        with pytest.raises(ValueError, match=r"window of 2 positions leaves no room .* at least 3"):
            make()


def sentences_of(text):
    return re.findall(r"[^.]+\.", text.replace(". ", "."))


def similarity_graph(sentences):
    """Mihalcea and Tarau, 2004, section 4.1, over open-class words."""
    closed = set("the on a from every and my with of in about that could see through who over nobody last".split())
    words = [set(re.findall("[a-z]+", sentence.lower())) - closed for sentence in sentences]
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(words)))
    for (i, one), (j, other) in itertools.combinations(enumerate(words), 2):
        if one & other:
            graph.add_edge(i, j, weight=len(one & other) / (math.log(len(one)) + math.log(len(other))))
    return graph


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_textrank_picks_the_sentences_of_the_highest_pagerank(tokenizer, count):
    sentences = sentences_of(STORY)
    ranks = networkx.pagerank(similarity_graph(sentences), alpha=0.85, tol=1e-10)
    order = sorted(ranks, key=ranks.get, reverse=True)
    best = sorted(order[:count])
    assert best != list(range(count)) or count == 5
    expected = tokenizer(" ".join(sentences[index] for index in best))["input_ids"]
    longer = tokenizer(" ".join(sentences[index] for index in sorted(order[: count + 1])))["input_ids"]
    for positions in (len(expected), len(longer) - 1):
        assert textrank_window(STORY, tokenizer, positions) == expected


def test_ranks_of_articles_are_those_of_pagerank(articles):
    for text in articles:
        sentences = [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if sentence][:150]
        words = [re.findall(r"\w+", sentence.lower()) for sentence in sentences]
        counts = [Counter(word for word in row if word not in windows_module._STOP_WORDS) for row in words]
        graph = networkx.Graph()
        graph.add_nodes_from(range(len(counts)))
        for (i, one), (j, other) in itertools.combinations(enumerate(counts), 2):
            if common := sum(one[word] * other[word] for word in one):
                norm = math.log(one.total()) + math.log(other.total())
                graph.add_edge(i, j, weight=common / (norm or 1))
        expected = networkx.pagerank(graph, alpha=0.85, tol=1e-12, max_iter=1000)
        ranks = windows_module._sentence_ranks(sentences)
        np.testing.assert_allclose(ranks / ranks.sum(), [expected[place] for place in range(len(ranks))], rtol=1e-6)


def test_equal_ranks_are_taken_in_the_order_of_the_document_whatever_the_rounding():
    exact = np.array([2.0, 5.0, 1.0, 5.0, 2.0, 5.0, 7.0])
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert windows_module._best_first(exact + rng.uniform(-1e-12, 1e-12, 7)) == [6, 1, 3, 5, 0, 4, 2]


def test_textrank_on_articles_takes_sentences_in_the_order_of_the_document(articles, tokenizer):
    longer = 0
    for text in articles:
        whole = tokenizer(text, verbose=False)["input_ids"]
        window, wider = textrank_window(text, tokenizer, 96), textrank_window(text, tokenizer, 192)
        if len(whole) <= 96:
            assert window == whole
            continue
        for positions, found in ((96, window), (192, wider)):
            assert len(found) <= positions
            rest = iter(whole)
            assert all(token in rest for token in found)
        rest = iter(wider)  # what fits a narrow window fits a wide one
        assert all(token in rest for token in window)
        longer += len(wider) > len(window)
    assert longer >= 12  # of 16: in some the next sentence does not fit either


@pytest.mark.parametrize("place", [0, 2, 5])
def test_sentences_that_stand_there_several_times_are_all_taken_in_their_places(tokenizer, place):
    refrain, second = "The keeper lit the lamp of the lighthouse.", "The lamp shines."
    others = ["My aunt prefers tea.", second, "Prices rose again.", "The keeper sleeps.", "Nobody came."]
    sentences = [*others[:place], refrain, *others[place:], refrain, refrain]
    for times in (1, 2, 3):
        expected = tokenizer(" ".join([refrain] * times))["input_ids"]
        assert textrank_window(" ".join(sentences), tokenizer, len(expected)) == expected
    expected = tokenizer(" ".join(s for s in sentences if s in (refrain, second)))["input_ids"]
    assert textrank_window(" ".join(sentences), tokenizer, len(expected)) == expected


def test_a_best_sentence_above_the_window_is_cut_and_stands_alone(tokenizer):
    long = "The keeper of the lighthouse saw ships, storms, the harbour, the lamp, the rock, the stairs and the book."
    expected = tokenizer(long, truncation=True, max_length=12)["input_ids"]
    assert textrank_window(f"{STORY} {long} The end.", tokenizer, 12) == expected


def test_documents_that_fit_are_taken_whole(special):
    tokenizer, before, after = special
    for text in ("", "  \n", STORY):
        ids = tokenizer(text)["input_ids"]
        assert textrank_window(text, tokenizer, max(len(ids), len(before) + len(after) + 1)) == ids
    assert textrank_window(STORY, tokenizer, len(ids) - 1) != ids


PIECES = [
    "Storms came.",
    "The lamp",
    "lamp lamp",
    "Don't!",
    "U.S. ships",
    "\n\n",
    "日本語。",
    "?!",
    "“Go!”",
    "é",
    " ",
    "7.5",
]


@settings(deadline=None, max_examples=40)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join), data=st.data())
def test_every_window_fits_and_is_wrapped(special, text, data):
    tokenizer, before, after = special
    fewest = len(before) + len(after) + 1
    positions = data.draw(st.integers(fewest, fewest + 20))
    ids = tokenizer(text)["input_ids"]
    first = first_window(ids, tokenizer, positions)
    drawn = random_window(ids, tokenizer, positions, np.random.default_rng(0))
    ranked = textrank_window(text, tokenizer, positions)
    for window in (first, drawn, ranked):
        assert window[: len(before)] == before
        assert window[len(window) - len(after) :] == after
        assert all(type(token) is int for token in window)
    assert len(first) == len(drawn) == min(positions, len(ids))
    assert min(len(ids), fewest) <= len(ranked) <= positions
    assert len(ids) > positions or first == drawn == ranked == ids
