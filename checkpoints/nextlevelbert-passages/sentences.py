"""Where sentences end: decided from token ids alone, or, with more to go by, from a text.

The rules for ids see what a model's `forward` sees: so text, stored ids and a batch from a stock collator all give the
same sentences. Many tokenizers drop case and line breaks, so on a text `text_sentences` sees more. No rule carries a
mistake on for long: an edit moves the boundaries near it, and those after them soon fall where they were.

The lists of abbreviations and of words that start sentences are taken from pySBD 0.3.4 (copyright 2019 Nipun
Sadvilkar) and syntok 1.4.4 (copyright 2018-2022 Florian Leitner), divided and extended. Both have the MIT licence,
whose text is in the file NOTICE of the package nextlevelbert.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator

import numpy as np
from transformers import PreTrainedTokenizerBase

# The newest rule; new models get it. A saved model keeps the one in its configuration, and 1 if it names none.
SENTENCE_RULE = 2

# Rule 1.
_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs dr st prof rev hon capt col gen lt sgt maj jr sr vol vols fig figs vs "
    "jan feb mar apr jun jul aug sept oct nov dec".split()
)
_TERMINATORS = frozenset(".!?…。！？")
_CLOSERS = frozenset("”’)]»）」』")
_QUOTES = frozenset('"')  # not the apostrophe, which is also part of words

# After so many token ids without a straight quote none is taken to be open. A missing mark (a speech of several
# paragraphs has more opening than closing ones) would otherwise invert every later one. On novels 2 % of the marks
# after a sentence are misread, hardly fewer with longer stretches (31 % if marks are only counted).
_LONGEST_QUOTE = 256

# Rule 2 and `text_sentences`. After these no sentence ends.
_TITLES = (
    "adm attys brig capt cmdr col comdr cpl dr drs gen gov insp lt maj messrs mlle mme mr mrs ms msgr mssrs mt prof "
    "pvt rep reps rev sen sens sfc sgt st supt v vs viz cf ca approx incl excl resp i.e e.g ph www hon"
)
# Nor after these before a number, a letter or a bracket.
_BEFORE_NUMBER = (
    "art arts ch chap cl eq eqs exh ext fig figs fn no nos nr op p para pp pt reg sec sect tab tbl ver vol vols"
)
# After these one ends before a word that starts sentences, but not before a name or a small letter.
_OTHERS = (
    "abs adj adv al apr assn asst attn aug ave bld bldg blvd bros calif co colo conn corp cres ct dak dec dept dist "
    "esp esq est etc expy feb fla ft fwy fy hosp hway hwy inc incorp jan jr jul jun kan kans ltd max mfg mich minn "
    "mont mtn neb nebr nev nov oct okla ont ord penn penna pfc ph.d pl plc plz que rd sask sep sept sr "
    "tce tel tenn tex univ va vt wis wisc wyo yuk"
)
# The same, but these are also words: abbreviations only where a capital shows it.
_ALSO_WORDS = "ala alta ariz ark cal del dep ga ill ind la mar mass md me med mex min miss mo ok ore pa res wash"
_STARTERS = (
    "a above accordingly additionally admittedly all also although again are as assuredly because being besides "
    "certainly chiefly comparatively consequently conversely coupled correspondingly did does due especially for "
    "furthermore generally granted he hence how however i identically if in indeed instead it its likewise many "
    "moreover nevertheless none no obviously on ordinarily other otherwise our outside particularly rather she "
    "similarly since singularly some so still subsequently that the their there therefore thereupon these they this "
    "those thus under unquestionably usually we what when where whereas wherefore who why you"
)
# Of these, the ones that hardly follow an abbreviation within a sentence: for vocabularies without capitals.
_SURE_STARTERS = (
    "accordingly additionally consequently conversely furthermore he hence however indeed it likewise moreover "
    "many nevertheless none our she similarly subsequently the their there therefore these they this those thus we you"
)
_DOMAINS = "com edu gov net org"
_ROMAN = "ii iii iv vi vii viii ix xi xii"
_BULLETS = "•▪‣◦●■"
_OTHER_MARKS = {"mid": ",;:", "opening": "[(", "open_quote": "“‘„«", "hyphen": "-", "relation": "<>=≤≥±~($",
                "bullet": _BULLETS}  # fmt: skip
_LONGEST_ABBREVIATION = 3  # token ids
_ROLES = (
    "end", "close", "quote", "digits", "dot", "mid", "opening", "open_quote", "letter", "pronoun", "numeral", "bullet",
    "line", "paragraph", "starter", "domain", "hyphen", "relation", "figure",
)  # fmt: skip


def sentence_token_ids(tokenizer: PreTrainedTokenizerBase, rule: int = SENTENCE_RULE) -> dict[str, list[int]]:
    """Vocabulary ids by their role in a sentence rule.

    Args:
        tokenizer: whose vocabulary it is.
        rule: 1 or 2. The classes of 1 are end, close, quote, abbreviation and number. Those of 2 are named in
            `_second_classes`.

    Raises:
        ValueError: for a vocabulary without marks that end a sentence.
    """
    classes = _first_classes(tokenizer)
    if not classes["end"]:
        raise ValueError(
            f"The vocabulary of {type(tokenizer).__name__} has no sentence-final punctuation; use chunking='fixed'."
        )
    return classes if rule == 1 else _second_classes(tokenizer, classes)


def _first_classes(tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    classes: dict[str, list[int]] = {"end": [], "close": [], "quote": [], "abbreviation": [], "number": []}
    for token, index in tokenizer.get_vocab().items():
        if token.startswith("##") or len(token) > 12:
            continue
        text = tokenizer.convert_tokens_to_string([token]).strip().lower()
        characters = set(text)
        if not text:
            continue
        if text[0] in _TERMINATORS and characters <= _TERMINATORS | _CLOSERS | _QUOTES:
            classes["end"].append(index)
        elif characters <= _CLOSERS:
            classes["close"].append(index)
        elif characters <= _QUOTES:
            classes["quote"].append(index)
        elif text in _ABBREVIATIONS or (len(text) == 1 and text.isalpha() and text != "i"):
            classes["abbreviation"].append(index)
        elif text.isdecimal():
            classes["number"].append(index)
    return {name: sorted(ids) for name, ids in classes.items()}


def _second_classes(tokenizer: PreTrainedTokenizerBase, first: dict[str, list[int]]) -> dict[str, list[int]]:
    """The classes of rule 2.

    end, close, quote: as in rule 1. dot: the ends that abbreviations may have. mid: commas and the like. opening:
    brackets. open_quote. hyphen. relation: what comes before .05. digits, figure: ending, beginning with a digit.
    letter: single letters; pronoun: the letter i. numeral: Roman ones. bullet. line, paragraph: one line break,
    several. starter, domain: words. title_n, before_number_n, other_n: abbreviations of n ids, one after the other.
    """
    classes = {name: first[name] for name in ("end", "close", "quote")}
    roles = {**_OTHER_MARKS, "dot": ".", "pronoun": "i"}
    found: dict[str, set[int]] = {name: set() for name in (*roles, "letter", "digits", "figure", "line", "paragraph")}
    for token, index in tokenizer.get_vocab().items():
        if token[-1:].isdecimal():
            found["digits"].add(index)
        if token.startswith("##") or len(token) > 12:
            continue
        text = tokenizer.convert_tokens_to_string([token])
        mark = text.strip().lower()
        if len(mark) == 1:
            for name in [name for name, marks in roles.items() if mark in marks]:
                found[name].add(index)
            if mark.isalpha():
                found["letter"].add(index)
        if mark[:1].isdecimal():
            found["figure"].add(index)
        if "\n" in text:
            found["line" if text.count("\n") == 1 else "paragraph"].add(index)
    small, capital = ([*tokenizer(word, add_special_tokens=False)["input_ids"]] for word in ("the", "The"))
    cased = small != capital
    words = {"title": _TITLES, "before_number": _BEFORE_NUMBER, "other": _OTHERS, "domain": _DOMAINS}
    words["numeral"] = _ROMAN
    lists = {
        name: [form for word in text.split() for form in (word, word.capitalize(), word.upper())]
        for name, text in words.items()
    }
    lists["starter"] = [word.capitalize() for word in _STARTERS.split()] if cased else _SURE_STARTERS.split()
    for name, forms in lists.items():
        texts = [space + form for form in forms for space in ("", " ")]
        pieces = {tuple(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]}
        single = name in ("domain", "numeral", "starter")
        for size in range(1, 2 if single else _LONGEST_ABBREVIATION + 1):
            known = sorted(ids for ids in pieces if len(ids) == size and tokenizer.unk_token_id not in ids)
            classes[name if single else f"{name}_{size}"] = [*itertools.chain(*known)]
    return classes | {name: sorted(ids) for name, ids in found.items()}


def cached_sentence_token_ids(tokenizer: PreTrainedTokenizerBase, rule: int = SENTENCE_RULE) -> dict[str, list[int]]:
    """`sentence_token_ids` for callers with many texts: reading the vocabulary takes longer than reading a text."""
    return _kept_token_ids(tokenizer, rule, len(tokenizer))


@functools.lru_cache(maxsize=4)
def _kept_token_ids(tokenizer: PreTrainedTokenizerBase, rule: int, size: int) -> dict[str, list[int]]:
    return sentence_token_ids(tokenizer, rule)


def sentence_boundaries(input_ids: np.ndarray, classes: dict[str, list[int]], rule: int = SENTENCE_RULE) -> np.ndarray:
    """Sentence k is ``input_ids[b[k]:b[k + 1]]``.

    Args:
        input_ids: ``[T]`` ids of a whole document, without special tokens.
        classes: the result of `sentence_token_ids` for the same rule.
        rule: 1 or 2.

    Returns:
        ``[sentences + 1]`` int64, from 0 to T, strictly increasing; ``[0]`` for an empty document.
    """
    if len(input_ids) == 0:
        return np.zeros(1, np.int64)
    stops = _first_rule(input_ids, classes) if rule == 1 else _second_rule(input_ids, classes)
    return np.unique(np.concatenate([[0], stops, [len(input_ids)]])).astype(np.int64)


def _first_rule(input_ids: np.ndarray, classes: dict[str, list[int]]) -> np.ndarray:
    """Where sentences of ``[T]`` ids end, int64.

    A sentence ends after . ! ? and the brackets and quotes that close it, except after an initial or a
    known abbreviation and inside a decimal number. `closing_quotes` decides which straight quotes close.
    """
    names = ("end", "close", "quote", "abbreviation", "number")
    kinds = {name: np.isin(input_ids, classes.get(name, [])) for name in names}  # each [T]
    after = {name: np.append(False, kinds[name][:-1]) for name in ("abbreviation", "number")}
    in_number = after["number"] & np.append(kinds["number"][1:], False)
    ends = kinds["end"] & ~after["abbreviation"] & ~in_number
    # A run of ends and closers belongs to one sentence, as in `?!` or `.)"`; the sentence ends after the run.
    joined = kinds["end"] | kinds["close"] | closing_quotes(kinds["quote"])
    run_starts, run_stops = np.flatnonzero(np.diff(joined, prepend=False, append=False)).reshape(-1, 2).T
    ends_before = np.append(0, np.cumsum(ends))
    return run_stops[ends_before[run_stops] > ends_before[run_starts]]


def _second_rule(input_ids: np.ndarray, classes: dict[str, list[int]]) -> np.ndarray:
    """Where sentences of ``[T]`` ids end, int64.

    A sentence ends after . ! ? and the brackets and quotes that close it, before a bullet, and after a blank line if
    the vocabulary has line breaks. It does not end before a comma, semicolon or colon, inside a number or the name of
    a website, nor after an initial. After an abbreviation its kind and the next word decide.
    """
    ids, total = input_ids.astype(np.int64), len(input_ids)
    is_a = _roles(ids, classes)  # each [T + 2], false after the end
    dots = np.flatnonzero(is_a["dot"])
    newline = is_a["line"] | is_a["paragraph"]
    closing = np.append(closing_quotes(is_a["quote"][:total]), [False, False])
    # A run of ends and closers belongs to one sentence, as in `?!` or `.)"`, with the line breaks after it.
    joined = is_a["end"] | is_a["close"] | closing | newline
    starts, stops = np.flatnonzero(np.diff(joined, prepend=False, append=False)).reshape(-1, 2).T  # [R]
    lines_before = np.append(0, np.cumsum(newline.astype(np.int64) + is_a["paragraph"]))
    breaks = lines_before[stops] - lines_before[starts] > 1  # [R], at blank lines
    opened = is_a["quote"][stops] | is_a["open_quote"][stops]
    final = breaks | (stops == total) | is_a["bullet"][stops]
    starter = final | is_a["starter"][stops] | (opened & is_a["starter"][stops + 1])

    # Of every dot: the token before it, and what follows its run of marks.
    run = np.searchsorted(starts, dots, side="right") - 1
    following, adjacent = stops[run], dots + 1
    letter = _before(is_a["letter"], dots, 1)
    goes_on = is_a["letter"][adjacent] & is_a["dot"][adjacent + 1]  # the first dots of U.S.C.
    # Not "10-K."
    letter &= ~_before(is_a["hyphen"], dots, 2)
    dotted = letter & _before(is_a["dot"], dots, 2) & _before(is_a["letter"], dots, 3)
    pronoun = _before(is_a["pronoun"], dots, 1) & ~dotted & ~goes_on
    initial = letter & ~dotted & ~pronoun
    numbered = is_a["figure"][following] | is_a["letter"][following] | is_a["numeral"][following]
    in_number = (_before(is_a["digits"], dots, 1) | _before(is_a["relation"], dots, 1)) & is_a["figure"][adjacent]
    abbreviated = (
        _abbreviated(ids, dots, classes, "title")
        | initial
        | (_abbreviated(ids, dots, classes, "before_number") & (numbered | is_a["opening"][following]))
        | ((_abbreviated(ids, dots, classes, "other") | dotted) & ~starter[run])
    )
    ends = is_a["end"].copy()
    ends[dots] = ~(in_number | is_a["domain"][adjacent] | (letter & goes_on) | (abbreviated & ~final[run]))
    ends_before = np.append(0, np.cumsum(ends))
    ended = (ends_before[stops] > ends_before[starts]) & ~is_a["mid"][stops]
    return np.concatenate([stops[ended | (breaks & (starts > 0))], np.flatnonzero(is_a["bullet"])])


def _roles(ids: np.ndarray, classes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Which of ``[T]`` ids are in each class: ``[T + 2]`` bool, the last two false."""
    names = [name for name in _ROLES if name in classes]
    table = np.zeros((max(max(classes[name], default=0) for name in names) + 2, len(_ROLES)), bool)
    for column, name in enumerate(_ROLES):
        table[classes.get(name, []), column] = True
    rows = np.append(np.minimum(ids, len(table) - 1), [len(table) - 1] * 2)
    return {name: table[rows, column] for column, name in enumerate(_ROLES)}


def _before(role: np.ndarray, places: np.ndarray, distance: int) -> np.ndarray:
    """Whether the token so far before each place has a role; false before the start."""
    return role[np.maximum(places - distance, 0)] & (places >= distance)


def _abbreviated(ids: np.ndarray, dots: np.ndarray, classes: dict[str, list[int]], name: str) -> np.ndarray:
    """Which dots come after an abbreviation of that kind."""
    found = np.zeros(len(dots), bool)
    for size in range(1, _LONGEST_ABBREVIATION + 1):
        known = np.reshape(classes.get(f"{name}_{size}", []), (-1, size)).astype(np.int64)
        places = np.flatnonzero(dots >= size)
        here = np.stack([ids[dots[places] - size + step] for step in range(size)], axis=1)  # [p, size]
        base = max(known.max(initial=0), here.max(initial=0)) + 1  # three ids below two million fit into 63 bits
        weights = base ** np.arange(size)
        found[places] |= np.isin(here @ weights, known @ weights)
    return found


def closing_quotes(quotes: np.ndarray) -> np.ndarray:
    """Which straight quotes close a quotation; the others open one.

    Opening and closing ones take turns. Two things restart the count, so that a missing mark does not invert all later
    ones: of two marks in a row the first closes and the second opens (one speaker stops, the next begins), and the
    first mark after `_LONGEST_QUOTE` ids without any opens.

    Args:
        quotes: ``[T]`` bool, where the straight quotes are.

    Returns:
        ``[T]`` bool, true for those that close.
    """
    closing = np.zeros(len(quotes), bool)
    positions = np.flatnonzero(quotes)
    if len(positions) == 0:
        return closing
    distance = np.diff(positions, prepend=positions[0] - _LONGEST_QUOTE - 1)  # to the previous mark
    second = distance == 1
    first = np.append(second[1:], False) & ~second
    known = first | second | (distance > _LONGEST_QUOTE)
    index = np.arange(len(positions))
    anchor = np.maximum.accumulate(np.where(known, index, 0))  # the last known mark; the very first one is known
    closing[positions] = first[anchor] ^ ((index - anchor) % 2 == 1)
    return closing


_LINE = re.compile(r"[^\n]+")
# Marks of a list, at the start of a line: • - (a) iv) 2.
_ITEM = re.compile(
    r"[ \t]*(?:[•▪‣◦●■·*–—-][ \t]+|\(?(?:[A-Za-z]|[ivxIVX]{1,5}|[0-9]{1,2})\)[ \t]|[0-9]{1,2}\.[ \t]+(?=[A-Z]))"
)
_NUMBERING = re.compile(r"[ \t]*(?:[0-9]{1,3}(?:\.[0-9]{1,3}){0,4}|[A-Za-z]|[ivxIVX]{1,5})[.)][ \t]")
_SPACE = re.compile(r"\s*")
_MARKS = re.compile(r"[.!?…。！？]+")
_CLOSING = re.compile(r"[\"'”’)\]»）」』*_]*")
_LAST_WORD = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_MAYBE_CAPITAL = re.compile(r"\b[^\W\d_a-z]")
_BEFORE_WORD = "“‘„«\"'([*_"
_LONGEST_WORD = 24  # characters; words that matter are shorter
_LONGEST_HEADING = 100
_SMALL_WORDS = frozenset("a an and as at by de for from in into of on or the to under upon via with without".split())
_TEXT_TITLES, _TEXT_NUMBERED, _TEXT_OTHERS, _TEXT_STARTERS = (
    frozenset(words.split()) for words in (_TITLES, _BEFORE_NUMBER, f"{_OTHERS} u.s", _STARTERS)
)
_TEXT_CAPITALS = frozenset(word.capitalize() for word in _ALSO_WORDS.split())
_TEXT_ROMAN = frozenset(_ROMAN.upper().split())


def text_sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text, as the first character of each and one past its last.

    A blank line ends a sentence; so does a line break before the mark of a list (•, -, (a), 2.), after a heading, and
    after a mark that ends sentences if the next word would still have fitted into the line. A heading is a line in
    capitals, or one with a capital on every word but the small ones, of at most 100 characters, without a mark that
    ends sentences. Otherwise a sentence ends after . ! ? and what closes it, unless a small letter follows (in a text
    without capitals, one may begin with it); after an abbreviation its kind and the next word decide, as for ids.

    Without white space around them the sentences and what is between them are the text, in order. The time is linear
    in its length.

    Example:
        >>> text = "ARTICLE II\\nFees\\n\\nAcme Inc. pays the fee, i.e. 2.5%. It is due on Jan. 1."
        >>> [text[start:end] for start, end in text_sentences(text)]
        ['ARTICLE II', 'Fees', 'Acme Inc. pays the fee, i.e. 2.5%.', 'It is due on Jan. 1.']
    """
    found, small = [], _has_no_capitals(text)
    for start, end in _blocks(text, small):
        first = start
        for border in [*_sentence_ends(text, start, end, small), end]:
            piece = text[first:border]
            if body := piece.strip():
                begin = first + len(piece) - len(piece.lstrip())
                found.append((begin, begin + len(body)))
            first = border
    return found


def _has_no_capitals(text: str) -> bool:
    """Whether hardly a word has a capital: one in 500 characters, where prose has five. Others are not read whole."""
    capitals = (word for word in _MAYBE_CAPITAL.finditer(text) if word.group().isupper())
    return next(itertools.islice(capitals, len(text) // 500, None), None) is None


def _blocks(text: str, small: bool) -> Iterator[tuple[int, int]]:
    """Ranges of a text that no sentence crosses: paragraphs, headings, items of lists."""
    start, width, lines = 0, 0, [(line.start(), line.end()) for line in _LINE.finditer(text)]
    lines = [(first, end) for first, end in lines if not text[first:end].isspace()]
    for number, (first, end) in enumerate(lines):
        if number + 1 == len(lines):
            yield start, len(text)
            return
        width = max(width, end - first)
        following, stop = lines[number + 1]
        blank = text.count("\n", end, following) > 1
        if blank or _ITEM.match(text, following, stop) or _ends_line(text, first, end, following, width, small):
            yield start, following
            start = following
        if blank:
            width = 0


def _ends_line(text: str, first: int, end: int, following: int, width: int, small: bool) -> bool:
    """Whether a sentence ends with the line ``text[first:end]``, before a line that is neither blank nor an item."""
    indent = _SPACE.match(text, following).end()  # type: ignore[union-attr]
    start = text[indent : indent + _LONGEST_WORD]
    if not start or (start[0].islower() and not small):
        return False
    fits = end - first + 1 + len(start.split(maxsplit=1)[0]) <= width
    ended = fits and text[max(first, end - 3) : end].rstrip(" \r\"'”’)").endswith((".", "!", "?", "…"))
    return ended or _is_heading(text, first, end)


def _is_heading(text: str, first: int, end: int) -> bool:
    if end - first > _LONGEST_HEADING:
        return False
    words = _FIRST_WORD.findall(line := text[first:end].strip())
    capitals = [word[0].isupper() or word in _SMALL_WORDS for word in words]
    return all(capitals) and words != [] and words[0][0].isupper() and line[-1] not in ".!?…,;:-"


def _sentence_ends(text: str, start: int, end: int, small: bool) -> Iterator[int]:
    """One past the last character of each sentence within a block, except for the last."""
    if _is_heading(text, start, end) and "\n" not in text[start:end].strip():
        return
    place = numbering.end() if (numbering := _NUMBERING.match(text, start, end)) else start
    while (mark := _MARKS.search(text, place, end)) is not None:
        place = mark.end()
        closed = _CLOSING.match(text, place, end).end()  # type: ignore[union-attr]
        following = _SPACE.match(text, closed, end).end()  # type: ignore[union-attr]
        rest = text[following : min(following + _LONGEST_WORD, end)]
        wide = text[place - 1] in "。！？"
        if closed >= end or not rest or not (wide or text[closed].isspace()):
            continue
        before = text[max(mark.start() - _LONGEST_WORD, start) : mark.start()]
        if small:  # then case says nothing
            before, rest = before.upper(), rest.upper()
        if wide or _is_end(before, mark.group(), rest):
            yield closed
            place = closed


def _is_end(before: str, mark: str, rest: str) -> bool:
    """Whether a mark between words ends the sentence."""
    opened, rest = rest[0] in _BEFORE_WORD, rest.lstrip(_BEFORE_WORD)
    if not rest or rest[0].islower() or rest[0] in ",;:":
        return False
    last = _LAST_WORD.search(before)
    if mark != "." or last is None:
        return True
    word = last.group()
    name = following.group() if (following := _FIRST_WORD.match(rest)) else ""
    starts = name.lower() in _TEXT_STARTERS and not (opened and rest[0].isdigit())
    small = word.lower()
    if small in _TEXT_TITLES:
        return False
    if len(word) == 1 and word.isalpha():  # an initial; not "10-K.", nor the pronoun before a word that starts one
        return before[-2:-1] == "-" or (word == "I" and starts)
    if small in _TEXT_NUMBERED:
        return not (rest[0].isdigit() or opened or len(name) == 1 or name in _TEXT_ROMAN)
    dotted = "." in word and all(len(part) == 1 and part.isalpha() for part in word.split("."))  # U.S.
    return starts or not (dotted or small in _TEXT_OTHERS or word in _TEXT_CAPITALS)
