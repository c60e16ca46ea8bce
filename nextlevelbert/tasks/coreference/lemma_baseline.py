"""The baseline of cross-document coreference: mentions with the same head lemma."""

from __future__ import annotations

import re
from functools import lru_cache

from .data import CoreferenceData, mention_text

_WORD = re.compile(r"[^\W_]+(?:[-.’'][^\W_]+)*|,")
_POSSESSIVE = re.compile(r"\s?[’']\s?s\b")  # also where a tokenizer has put spaces
# What follows the head of an English phrase: prepositions and particles, relative words, and, after verbs, pronouns.
_AFTER_HEAD = frozenset(
    ", about above across after against along alongside among around as at away back before behind below beneath "
    "beside besides between beyond by despite down during except for from in inside into like near of off on onto out "
    "outside over past per since through throughout till to toward towards under until up upon via with within "
    "without that which who whom whose where when him it them himself herself itself themselves".split()
)


def same_head_lemma(data: CoreferenceData) -> list[str]:
    """Predicted clusters by head lemma, the baseline of Cybulska and Vossen (2015) and Barhom et al. (2019).

    Mentions are coreferent when their documents are of one subtopic and their heads, by `head_word`, have the same
    lemma in the word lists of `simplemma`. The papers find heads and lemmas with a parser, and Barhom et al. group the
    documents automatically; here, the subtopics are the given ones. English only.

    Returns:
        A label for every mention, in the order of `CoreferenceData.clusters`.
    """
    return [
        f"{document.subtopic}:{_lemma(head_word(mention_text(document, mention)))}"
        for document in data.documents
        for mention in document.mentions
    ]


def head_word(phrase: str) -> str:
    """The head of an English phrase by a rule on words, without a parser; upper case is folded.

    It is the last word before the first preposition, particle, relative word, object pronoun or comma that has a word
    before it, and the last of all where there is none. Where the head is a verb with an object, as in "opened fire",
    the rule takes the object.

    Example:
        >>> [head_word(phrase) for phrase in ("took over", "the Gulf of Aden", "in the crosswalk", "Seth's")]
        ['took', 'gulf', 'crosswalk', 'seth']
    """
    folded = phrase.casefold()
    head = ""
    for word in _WORD.findall(_POSSESSIVE.sub("", folded)):
        if word not in _AFTER_HEAD:
            head = word
        elif head:
            break
    return head or " ".join(folded.split())


@lru_cache(maxsize=100_000)
def _lemma(word: str) -> str:
    try:
        import simplemma
    except ImportError as error:
        raise ImportError('Head lemmas need simplemma: pip install "nextlevelbert[coreference]"') from error
    return simplemma.lemmatize(word, lang="en").casefold()
