"""ROUGE and the greedy oracle: against published numbers and the library rouge-score."""

import gzip
import json

import pytest
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from ..scripts import load_script

rouge = load_script("bert_al/rouge.py")
greedy_oracle = rouge.greedy_oracle
rouge_scores = rouge.rouge_scores


def test_rouge_reproduces_published_numbers():
    """The example in the documentation of Google's `rouge-score`, and the summary-level LCS of Lin
    (2004)."""
    scores = rouge_scores(
        [["The quick brown dog jumps on the log."]],
        [["The quick brown fox jumps over the lazy dog"]],
    )
    # 6 of 8 words and 6 of 9 in common; 2 of 7 bigrams and 2 of 8; the longest common subsequence
    # has 5 words.
    expected = {"rouge1": 2 * 6 / (8 + 9), "rouge2": 2 * 2 / (7 + 8), "rougeL": 2 * 5 / (8 + 9)}

    assert scores == pytest.approx(expected)
    # Section 3.2 of Lin: a reference w1 w2 w3 w4 w5, candidates w1 w2 w6 w7 w8 and w1 w3 w8 w9 w5:
    # the union of the two subsequences has 4 of the 5 words; of the candidates' 10 words.
    assert rouge_scores([["two dogs"]], [["two dog"]])["rouge2"] == 1.0  # stemmed

    broken = rouge_scores([["the cat sat\non the mat today"]], [["the mat today the cat sat"]])

    assert broken == rouge_scores(
        [["the cat sat on the mat today"]], [["the mat today the cat sat"]]
    )

    lin = rouge_scores([["w1 w2 w6 w7 w8", "w1 w3 w8 w9 w5"]], [["w1 w2 w3 w4 w5"]])

    assert lin["rougeL"] == pytest.approx(2 * (4 / 10) * (4 / 5) / (4 / 10 + 4 / 5))
    assert rouge_scores([[]], [["a word"]]) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}

    with pytest.raises(ValueError, match="zip"):
        rouge_scores([["a"]], [["a"], ["b"]])


@pytest.mark.parametrize(
    ("summary", "reference", "overlap"),
    [
        ("Кошка сидела на коврике.", "Кошка спала на коврике.", 3 / 4),
        ("बिल्ली चटाई पर बैठी थी।", "बिल्ली चटाई पर थी।", 2 * 4 / 9),
        ("猫坐在垫子上。", "猫在垫子上。", 2 * 5 / 11),
        ("ネコがすわる", "ネコがねる", 2 * 4 / 11),
        ("แมวนั่ง", "แมวบิน", 2 * 3 / 10),
        ("Die Größe zählt", "Die Größe fehlt", 2 / 3),
        ("Cafe\u0301 Zu\u00adsage", "Café Zusage", 1.0),
        ("ﬁne ｗｏｒｄｓ", "fine words", 1.0),
    ],
)
def test_rouge_of_other_scripts(summary, reference, overlap):
    """Counted by hand: words, or characters where a script has no spaces."""
    assert rouge_scores([[summary]], [[reference]])["rouge1"] == pytest.approx(overlap)
    assert set(rouge_scores([[summary]], [[summary]]).values()) == {1.0}
    assert greedy_oracle(["1 2 3", summary], [reference]) == [1]


def test_words_of_ascii_are_the_library_s():
    text = "They said: it's 3.5% of THE_OTHERS' running-costs (e.g. ponies), isn't it?"

    assert rouge._stemmed_words(text) == DefaultTokenizer(use_stemmer=True).tokenize(text)


def test_the_greedy_oracle_worked_by_hand():
    sentences = ["a b c d", "e f", "x y", "e f g h", "d q"]
    reference = ["e f g h i", "a b z d"]

    # "e f g h" has 4 words in common with the reference; "a b c d" adds 3 more; "e f" and "d q" say
    # nothing new then.
    assert greedy_oracle(sentences, reference) == [0, 3]
    assert greedy_oracle(sentences, reference, limit=1) == [3]
    assert greedy_oracle(sentences, ["nothing of it"]) == []
    assert greedy_oracle(["same words", "same words"], ["same words"]) == [0]
    assert greedy_oracle(["c b a", "a b c"], ["a b c"]) == [1]  # pairs of words count
    assert greedy_oracle(["a b c d e", "a b c"], ["a b c"]) == [1]  # and what is too much


def test_every_round_of_the_oracle_is_the_best_by_the_library(shared):
    """On a real article each step is checked against scores of `rouge-score` on plain text."""
    with gzip.open(shared / "data" / "cnndm_sample" / "sample.jsonl.gz", "rt") as file:
        row = json.loads(file.readline())
    sentences, reference = row["source_sentences"], "\n".join(row["summary_sentences"])
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=True)

    def value(numbers: list[int]) -> float:
        scores = scorer.score(reference, "\n".join(sentences[number] for number in sorted(numbers)))
        return scores["rouge1"].fmeasure + scores["rouge2"].fmeasure

    chosen = greedy_oracle(sentences, row["summary_sentences"])
    assert len(chosen) >= 2
    best: list[int] = []
    others = set(range(len(sentences)))
    while len(best) < len(chosen):
        best.append(max(others, key=lambda number: value([*best, number])))
        others.remove(best[-1])
    assert sorted(best) == chosen
    for number in others:
        assert value([*best, number]) <= value(best) + 1e-9
