"""Finds where sentences end: in a text, in token ids, or by a splitter that a caller passes.

A text shows more sentence ends than its token ids, which lose case and line breaks. Token ids are
all that a model's `forward` sees.

The lists of abbreviations and of words that start sentences are taken from pySBD 0.3.4 (copyright
2019 Nipun Sadvilkar) and syntok 1.4.4 (copyright 2018-2022 Florian Leitner), divided and extended.
Both have the MIT licence, whose text is in the file NOTICE of the package nextlevelbert.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A sentence splitter: from a text to the sentences in it, as (start, end) or as texts, in order.
Splitter = Callable[[str], Sequence[str] | Sequence[tuple[int, int]]]

# After these no sentence ends.
_TITLES = frozenset(
    "adm attys brig capt cmdr col comdr cpl dr drs gen gov insp lt maj messrs mlle mme mr mrs ms"
    " msgr mssrs mt prof pvt rep reps rev sen sens sfc sgt st supt v vs viz cf ca approx incl excl"
    " resp i.e e.g ph www hon".split()
)
# Nor after these before a number, a letter or a bracket.
_BEFORE_NUMBER = frozenset(
    "art arts ch chap cl eq eqs exh ext fig figs fn no nos nr op para pp pt reg sec sect tab tbl"
    " ver vol vols".split()
)
# After these one ends before a word that starts sentences, but not before a name or a small letter.
_OTHERS = frozenset(
    "abs adj adv al apr assn asst attn aug ave bld bldg blvd bros calif co colo conn corp cres ct"
    " dak dec dept dist esp esq est etc expy feb fla ft fwy fy hosp hway hwy inc incorp jan jr jul"
    " jun kan kans ltd max mfg mich minn mont mtn neb nebr nev nov oct okla ont ord penn penna pfc"
    " ph.d pl plc plz que rd sask sep sept sr tce tel tenn tex u.s univ va vt wis wisc wyo"
    " yuk".split()
)
# The same, but these are also words: abbreviations only where a capital shows it.
_ALSO_WORDS = frozenset(
    "Ala Alta Ariz Ark Cal Del Dep Ga Ill Ind La Mar Mass Md Me Med Mex Min Miss Mo Ok Ore Pa Res"
    " Wash".split()
)
_STARTERS = frozenset(
    "a above accordingly additionally admittedly all also although again are as assuredly because"
    " being besides certainly chiefly comparatively consequently conversely coupled correspondingly"
    " did does due especially for furthermore generally granted he hence how however i identically"
    " if in indeed instead it its likewise many moreover nevertheless none no obviously on"
    " ordinarily other otherwise our outside particularly rather she similarly since singularly"
    " some so still subsequently that the their there therefore thereupon these they this those"
    " thus under unquestionably usually we what when where whereas wherefore who why you".split()
)
# The rule for token ids knows these only: its ids are stored in the configurations of models.
_ABBREVIATIONS_OF_IDS = frozenset(
    "mr mrs ms messrs dr st prof rev hon capt col gen lt sgt maj jr sr vol vols fig figs vs "
    "jan feb mar apr jun jul aug sept oct nov dec".split()
)
_ROMAN = frozenset("II III IV VI VII VIII IX XI XII".split())
_SMALL_WORDS = frozenset(
    "a an and as at by de for from in into of on or the to under upon via with without".split()
)

_LINE = re.compile(r"[^\n]+")
# Marks of a list, at the start of a line: • - (a) iv) 2.
_ITEM = re.compile(
    r"[ \t]*(?:[•▪‣◦●■·*–—-][ \t]+|\(?(?:[A-Za-z]|[ivxIVX]{1,5}|[0-9]{1,2})\)[ \t]|[0-9]{1,2}\.["
    r" \t]+(?=[A-Z]))"
)
_NUMBERING = re.compile(
    r"[ \t]*(?:[0-9]{1,3}(?:\.[0-9]{1,3}){0,4}|[A-Za-z]|[ivxIVX]{1,5})[.)][ \t]"
)
_ITEM_NUMBER = re.compile(r"\s*([0-9]{1,2})\.\s")
_SPACE = re.compile(r"\s*")
_WIDE_MARKS = "。！？｡।॥"  # after these no space is needed
# Also those of Devanagari, Arabic, Urdu, Armenian, Ethiopic, Burmese and Khmer.
# Two double dandas around a number close a verse.
_MARKS = re.compile(rf"॥\s?[0-9०-९]{{1,4}}\s?॥|[.!?…{_WIDE_MARKS}؟۔։።፧။។]+")
# After what is quoted, the Japanese sentence goes on with one of these.
_AFTER_QUOTATION = re.compile("と(?!ころ|き)|って|など|を|へ")
# German ordinals: "am 3. Mai", "die 1. Bundesliga".
_BEFORE_ORDINAL = re.compile(
    r"\b(?:am|beim|bis|das|dem|den|der|des|die|im|ins|seit|vom|zum|zur)\s+[0-9]{1,2}\Z",
    flags=re.IGNORECASE,
)
_GERMAN_MONTHS = frozenset(
    "januar jänner februar märz april mai juni juli august september oktober november"
    " dezember".split()
)
# Emoji belong to the sentence before them. Their parts are colours of skin, joiners and selectors.
_EMOJI = "\u2600-\u26ff\u2705\u2728\u274c\u2764\ufe0f\u200d\U0001f000-\U0001faff"
# The marks of one language close what those of another open: French has a space before », which
# opens in German; German closes with « and “.
_CLOSING = re.compile(
    r"(?:[\"'”’)\]»）」』*_]|[«“](?=[\s.,;:!?…)]|\Z)"
    r"|[ \u00a0\u202f]»(?=[\s.,;:!?…)]|\Z)"
    rf"|[ \u00a0\u202f]?[{_EMOJI}]"
    r")*"
)
_LAST_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_MAYBE_CAPITAL = re.compile(r"\b[^\W\d_a-z]")
_BEFORE_WORD = "“‘„«\"'([*_"
_LONGEST_WORD = 24  # characters; words that matter are shorter
_LONGEST_HEADING = 100

# The marks of the rule for token ids.
_TERMINATORS = frozenset(".!?…。！？")
_CLOSERS = frozenset("”’)]»）」』")
_QUOTES = frozenset('"')  # not the apostrophe, which is also part of words
_LONGEST_MARK = 12  # characters of a token that can have a role
# After so many ids without a straight quote none is taken to be open: a missing mark (a speech of
# several paragraphs has more opening than closing ones) would invert every later one. On novels 2 %
# of them are misread.
_LONGEST_QUOTE = 256


def text_sentences(text: str) -> list[tuple[int, int]]:
    r"""Returns the span of each sentence of a text: first character, and one past the last.

    A sentence ends at

    - a blank line,
    - a line break before the mark of a list (•, -, (a), 2.),
    - a line break after a heading (a short line with capitals on all but small words),
    - a line break after . ! ? if the next word would have fitted into the line,
    - and . ! ? with the marks and emoji that close it, unless a small letter follows. In a text without
      capitals a small letter may follow. After an abbreviation, the kind of abbreviation and the next
      word decide.

    Only white space lies between sentences. The time is linear in the length of the text.

    Example:
        >>> text = "ARTICLE II\nFees\n\nAcme Inc. pays the fee, i.e. 2.5%. It is due on Jan. 1."
        >>> [text[start:end] for start, end in text_sentences(text)]
        ['ARTICLE II', 'Fees', 'Acme Inc. pays the fee, i.e. 2.5%.', 'It is due on Jan. 1.']
    """
    uncased = _is_uncased(text)
    spans = []
    for start, end in _blocks(text, uncased):
        first = start
        for border in [*_sentence_ends(text, start, end=end, uncased=uncased), end]:
            piece = text[first:border]
            body = piece.strip()
            if body:
                begin = first + len(piece) - len(piece.lstrip())
                spans.append((begin, begin + len(body)))
            first = border

    return spans


def _is_uncased(text: str) -> bool:
    """Returns whether there are few capitals: one in 500 characters, while prose has five."""
    capitals = (word for word in _MAYBE_CAPITAL.finditer(text) if word.group().isupper())
    enough = len(text) // 500
    return next(itertools.islice(capitals, enough, None), None) is None  # not read to the end


def _blocks(text: str, uncased: bool) -> Iterator[tuple[int, int]]:
    """Yields the ranges that no sentence crosses: paragraphs, headings and items of lists."""
    lines = [line.span() for line in _LINE.finditer(text) if not line.group().isspace()]
    start = 0
    width = 0
    for line, next_line in itertools.pairwise(lines):
        first, end = line
        following, following_end = next_line
        width = max(width, end - first)
        blank_between = text.count("\n", end, following) > 1
        if (
            blank_between
            or _ITEM.match(text, following, following_end)
            or _line_ends_sentence(text, line, following=following, width=width, uncased=uncased)
        ):
            yield start, following
            start = following

        if blank_between:
            width = 0

    if lines:
        yield start, len(text)


def _line_ends_sentence(
    text: str, line: tuple[int, int], *, following: int, width: int, uncased: bool
) -> bool:
    """Returns whether a sentence ends with a line, if the next is neither blank nor a list item.

    Args:
        text: the whole text.
        line: the range of the line.
        following: index at which the next line starts.
        width: number of characters in the longest line of the paragraph so far.
        uncased: true if the text has no capitals.
    """
    first, end = line
    next_start = _match_end(_SPACE, text, start=following, end=len(text))
    next_words = text[next_start : next_start + _LONGEST_WORD]
    if not next_words or (next_words[0].islower() and not uncased):
        return False

    next_word = next_words.split(maxsplit=1)[0]
    if end - first + 1 + len(next_word) <= width:  # the next word would have fitted
        last_characters = text[max(first, end - 3) : end].rstrip(" \u00a0\u202f\r\"'”’)»")
        if last_characters.endswith((".", "!", "?", "…")):
            return True

    return _is_heading(text, first, end)


def _is_heading(text: str, first: int, end: int) -> bool:
    """Returns whether a line is short and has capitals on all but small words."""
    if end - first > _LONGEST_HEADING:
        return False
    line = text[first:end].strip()
    words = _FIRST_WORD.findall(line)
    if not words or not words[0][0].isupper() or line[-1] in ".!?…,;:-":
        return False
    return all(word[0].isupper() or word in _SMALL_WORDS for word in words)


def _sentence_ends(text: str, start: int, *, end: int, uncased: bool) -> Iterator[int]:
    """Yields one past the last character of each sentence within a block, except for the last."""
    if _is_heading(text, start, end) and "\n" not in text[start:end].strip():
        return

    after_numbering = _match_end(_NUMBERING, text, start=start, end=end)
    item = _item_number(text, start, end)
    mark_of_item = -1
    for mark in _MARKS.finditer(text, after_numbering, end):
        if mark.start() == mark_of_item:
            continue
        closed = _match_end(_CLOSING, text, start=mark.end(), end=end)
        following = _match_end(_SPACE, text, start=closed, end=end)
        rest = text[following : min(following + _LONGEST_WORD, end)]
        if not rest:
            continue

        if mark.group()[-1] in _WIDE_MARKS:
            is_quoted = closed > mark.end()
            is_end = not is_quoted or _AFTER_QUOTATION.match(rest) is None
        else:
            before = text[max(mark.start() - _LONGEST_WORD, start) : mark.start()]
            if uncased:  # then case says nothing
                before = before.upper()
                rest = rest.upper()
            is_end = text[closed].isspace() and _mark_ends_sentence(mark.group(), before, rest)

        if is_end:
            yield closed
            # Several items in one line: "1. Wash the jars. 2. Dry them."
            if item is not None and text.startswith(f"{item + 1}. ", following, end):
                item += 1
                mark_of_item = following + len(str(item))


def _item_number(text: str, start: int, end: int) -> int | None:
    """Returns the number of a list item that a block begins with, or None."""
    match = _ITEM_NUMBER.match(text, start, end)
    if match is None:
        return None
    return int(match.group(1))


def _match_end(pattern: re.Pattern[str], text: str, *, start: int, end: int) -> int:
    """Returns the end of the match of a pattern that begins at `start`."""
    match = pattern.match(text, start, end)
    if match is None:
        return start
    return match.end()


def _mark_ends_sentence(mark: str, before: str, rest: str) -> bool:
    """Returns whether a mark ends the sentence, by the characters before and after it."""
    is_opened = rest[0] in _BEFORE_WORD
    rest = rest.lstrip(_BEFORE_WORD)
    if not rest or rest[0].islower() or rest[0] in ",;:":
        return False

    last_word = _LAST_WORD.search(before)
    if mark != "." or last_word is None:
        return True

    word = last_word.group()
    next_word = rest[: _match_end(_FIRST_WORD, rest, start=0, end=len(rest))]
    is_starter = next_word.lower() in _STARTERS
    may_be_ordinal = word.isascii() and word.isdigit() and len(word) <= 2
    is_before_month = next_word.lower() in _GERMAN_MONTHS
    if may_be_ordinal and (is_before_month or _BEFORE_ORDINAL.search(before)):
        return is_starter
    if word.lower() in _BEFORE_NUMBER:
        is_numeral = rest[0].isdigit() or len(next_word) == 1 or next_word in _ROMAN
        return not is_numeral and not is_opened

    return _full_stop_ends_sentence(word, before, is_starter=is_starter)


def _full_stop_ends_sentence(word: str, before: str, *, is_starter: bool) -> bool:
    """Returns whether a full stop after a word ends the sentence."""
    if word.lower() in _TITLES:
        return False
    if len(word) == 1 and word.isalpha():
        # An initial; not "10-K.", nor the pronoun before a word that starts a sentence.
        return before[-2:-1] == "-" or (word == "I" and is_starter)

    parts = word.split(".")
    is_dotted = len(parts) > 1 and all(len(part) == 1 and part.isalpha() for part in parts)  # U.S.
    is_abbreviation = is_dotted or word.lower() in _OTHERS or word in _ALSO_WORDS
    return is_starter or not is_abbreviation


def sentence_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """Finds the ids that have a role in the rule for token ids.

    Returns:
        Sorted ids by role: ``end``, ``close``, ``quote``, ``abbreviation`` and ``number``.

    Raises:
        ValueError: the vocabulary has no mark that ends a sentence.
    """
    roles = ("end", "close", "quote", "abbreviation", "number")
    ids: dict[str, list[int]] = {role: [] for role in roles}
    for token, index in tokenizer.get_vocab().items():
        if token.startswith("##") or len(token) > _LONGEST_MARK:
            continue
        role = _role_of(tokenizer.convert_tokens_to_string([token]).strip().lower())
        if role is not None:
            ids[role].append(index)

    if not ids["end"]:
        raise ValueError(
            f"The vocabulary of {type(tokenizer).__name__} has no token that ends a sentence. Use"
            " chunking='fixed'."
        )

    return {role: sorted(ids_of_role) for role, ids_of_role in ids.items()}


def _role_of(text: str) -> str | None:
    """Returns the role that a token in small letters has in the rule for token ids."""
    if not text:
        return None

    characters = set(text)
    is_initial = len(text) == 1 and text.isalpha() and text != "i"
    if text[0] in _TERMINATORS and characters <= _TERMINATORS | _CLOSERS | _QUOTES:
        return "end"
    if characters <= _CLOSERS:
        return "close"
    if characters <= _QUOTES:
        return "quote"
    if is_initial or text in _ABBREVIATIONS_OF_IDS:
        return "abbreviation"
    if text.isdecimal():
        return "number"

    return None


def sentence_boundaries(input_ids: np.ndarray, roles: dict[str, list[int]]) -> np.ndarray:
    """Finds the sentences in token ids.

    A sentence ends after . ! ? and the brackets and quotes that close it, except after an initial
    or one of a few abbreviations, and inside a decimal number.

    Args:
        input_ids: token ids ``[T]``.
        roles: ids by role, from `sentence_token_ids`.

    Returns:
        ``[sentences + 1]`` int64, from 0 to T, rising; sentence k is ``input_ids[b[k]:b[k + 1]]``.
    """
    is_end = np.isin(input_ids, roles.get("end", []))  # [T], like the next ones
    is_close = np.isin(input_ids, roles.get("close", []))
    is_quote = np.isin(input_ids, roles.get("quote", []))
    is_abbreviation = np.isin(input_ids, roles.get("abbreviation", []))
    is_number = np.isin(input_ids, roles.get("number", []))

    follows_abbreviation = _shift(is_abbreviation, by=1)
    is_decimal_point = _shift(is_number, by=1) & _shift(is_number, by=-1)
    ends = is_end & ~follows_abbreviation & ~is_decimal_point

    # A run of ends and closers belongs to one sentence, as in `?!` or `.)"`; the sentence ends
    # after the run.
    is_in_run = is_end | is_close | closing_quotes(is_quote)
    borders = np.flatnonzero(np.diff(is_in_run, prepend=False, append=False))
    run_starts = borders[0::2]
    run_stops = borders[1::2]
    ends_before = np.append(0, np.cumsum(ends))
    has_end = ends_before[run_stops] > ends_before[run_starts]
    boundaries = np.concatenate([[0], run_stops[has_end], [len(input_ids)]])
    return np.unique(boundaries).astype(np.int64)


def _shift(flags: np.ndarray, by: int) -> np.ndarray:
    """Moves flags to the right (1) or to the left (-1); the free end is false."""
    shifted = np.zeros_like(flags)
    if by == 1:
        shifted[1:] = flags[:-1]
    else:
        shifted[:-1] = flags[1:]
    return shifted


def closing_quotes(quotes: np.ndarray) -> np.ndarray:
    """Decides which straight quotes close a quotation; the others open one.

    Opening and closing marks take turns. Two things restart the count, so that a missing mark does
    not invert all later marks. Of two marks in a row, the first closes and the second opens (one
    speaker stops, the next begins). The first mark after `_LONGEST_QUOTE` ids without a mark opens.

    Args:
        quotes: bool mask ``[T]``, true at straight quotes.

    Returns:
        A bool mask ``[T]``, true at closing quotes.
    """
    positions = np.flatnonzero(quotes)
    distance = np.diff(positions, prepend=-_LONGEST_QUOTE - 1)  # to the previous mark
    surely_opens = distance == 1  # the second of two marks in a row
    surely_closes = _shift(surely_opens, by=-1) & ~surely_opens  # the first of them
    # Opens, unless it is the first of two marks. The first mark of all counts as far.
    is_far = distance > _LONGEST_QUOTE
    is_certain = surely_closes | surely_opens | is_far

    index = np.arange(len(positions))
    last_certain = np.maximum.accumulate(np.where(is_certain, index, 0))
    is_odd = (index - last_certain) % 2 == 1
    closing = np.zeros(len(quotes), bool)
    # Each step from a certain mark changes the role, so that an odd number of steps inverts it.
    closing[positions] = surely_closes[last_certain] ^ is_odd
    return closing


def splitter_sentences(text: str, splitter: Splitter) -> list[tuple[int, int]]:
    """Finds sentences by a splitter.

    Raises:
        ValueError: the sentences are not in the text or not in order, or there is none in a text
            that is not blank.
    """
    if not text.strip():
        return []

    spans: list[tuple[int, int]] = []
    earlier_end = 0
    for sentence in splitter(text):
        if isinstance(sentence, str):
            if not sentence.strip():
                continue
            start = text.find(sentence, earlier_end)
            end = start + len(sentence)
        else:
            start, end = sentence

        if not earlier_end <= start <= end <= len(text):
            raise ValueError(
                f"The splitter returned {(start, end)} as sentence {len(spans)}. It must return"
                " parts of the text in order, unchanged, or their (start, end), between"
                f" {earlier_end} and {len(text)}."
            )

        earlier_end = end
        if text[start:end].strip():
            spans.append((int(start), int(end)))

    if not spans:
        raise ValueError(
            f"The splitter found no sentence in a text of {len(text)} characters. It must return at"
            " least one."
        )

    return spans
