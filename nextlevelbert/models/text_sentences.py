"""Finds where sentences end in a text.

A text shows more sentence ends than its token ids, which lose case and line breaks.

The lists of abbreviations and of words that start sentences are taken from pySBD 0.3.4 (copyright
2019 Nipun Sadvilkar) and syntok 1.4.4 (copyright 2018-2022 Florian Leitner), divided and extended.
Both have the MIT licence, whose text is in the file NOTICE of the package nextlevelbert.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

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
