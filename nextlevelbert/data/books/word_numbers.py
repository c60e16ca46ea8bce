"""Counts the numbers that Word puts before clauses, headings and list items."""

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ROMAN = {
    1000: "m",
    900: "cm",
    500: "d",
    400: "cd",
    100: "c",
    90: "xc",
    50: "l",
    40: "xl",
    10: "x",
    9: "ix",
    5: "v",
    4: "iv",
    1: "i",
}
_WITHOUT_NUMBER = ("bullet", "none")
_STYLES_AT_MOST = 20  # that one style may be based on
_LEVELS = range(9)
_LONGEST_LABEL = 100  # characters
_LARGEST_SPELLED = 2_600  # a hundred letters; larger numbers are digits
_OFF = ("0", "false", "off")


def value(element: etree._Element, name: str) -> str:
    """Returns an attribute in the namespace of its element, or an empty text."""
    # Equal ids are one object, so that a long one is not compared for each paragraph.
    return sys.intern(element.get(f"{{{etree.QName(element).namespace}}}{name}", ""))


def find_value(element: etree._Element | None, path: str) -> str:
    """Returns the attribute ``val`` of the first element at a path, or an empty text."""
    if element is None:
        return ""
    match = element.find(path)
    if match is None:
        return ""
    return value(match, "val")


def is_on(element: etree._Element, path: str) -> bool | None:
    """Returns whether the property at a path is switched on, or None if there is no such one."""
    match = element.find(path)
    if match is None:
        return None
    return value(match, "val") not in _OFF


def whole_number(text: str, default: int = 0, base: int = 10) -> int:
    """Returns the number that a text holds, or the default if it holds anything else."""
    try:
        return int(text, base)
    except ValueError:
        return default


class Style(NamedTuple):
    """Holds what a style says about its paragraphs or runs, and the style that it is based on."""

    list_id: str
    level: str
    is_hidden: bool | None
    based_on: str


def hidden_styles(styles: Mapping[str, Style]) -> set[str]:
    """Returns the ids of the styles whose text Word does not show."""
    hidden = set()
    for style_id in styles:
        style = styles[style_id]
        for _ in range(_STYLES_AT_MOST):
            if style.is_hidden is not None or style.based_on not in styles:
                break
            style = styles[style.based_on]

        if style.is_hidden:
            hidden.add(style_id)

    return hidden


class _Level(NamedTuple):
    start: int
    number_format: str
    text: str  # such as "%1.%2."
    restart: int  # is counted anew after a paragraph of a level above this one
    is_legal: bool  # writes all numbers as digits
    style: str


class _List(NamedTuple):
    counter: str  # lists with one counter go on counting
    levels: dict[int, _Level]
    starts: dict[int, int]  # of levels that begin anew in this list
    levels_of_styles: dict[str, str]


class ParagraphNumbers:
    """Counts the numbered paragraphs of a document in order."""

    def __init__(
        self, numbering: etree._Element | None = None, styles: etree._Element | None = None
    ) -> None:
        self.styles: dict[str, Style] = {}
        if styles is not None:
            for style in styles.iterfind("{*}style"):
                self.styles[value(style, "styleId")] = Style(
                    list_id=find_value(style, "{*}pPr/{*}numPr/{*}numId"),
                    level=find_value(style, "{*}pPr/{*}numPr/{*}ilvl"),
                    is_hidden=is_on(style, "{*}rPr/{*}vanish"),
                    based_on=find_value(style, "{*}basedOn"),
                )

        self.lists: dict[str, _List] = {}
        if numbering is not None:
            self._read_lists(numbering)

        self.counts: dict[str, dict[int, int]] = {}
        self.begun: set[str] = set()

    def _read_lists(self, numbering: etree._Element) -> None:
        abstract_lists = {
            value(item, "abstractNumId"): item for item in numbering.iterfind("{*}abstractNum")
        }
        all_levels = {abstract_id: _levels(item) for abstract_id, item in abstract_lists.items()}
        abstract_ids = {
            value(item, "numId"): find_value(item, "{*}abstractNumId")
            for item in numbering.iterfind("{*}num")
        }
        for item in numbering.iterfind("{*}num"):
            abstract_id = find_value(item, "{*}abstractNumId")
            linked_style = find_value(abstract_lists.get(abstract_id), "{*}numStyleLink")
            if linked_style in self.styles:
                abstract_id = abstract_ids.get(self.styles[linked_style].list_id, abstract_id)
            if abstract_id not in abstract_lists:
                continue

            levels = dict(all_levels[abstract_id])
            starts = {}
            for override in item.iterfind("{*}lvlOverride"):
                levels.update(_levels(override))
                start = find_value(override, "{*}startOverride")
                if start:
                    starts[whole_number(value(override, "ilvl"))] = whole_number(start)

            by_style = {level.style: str(index) for index, level in levels.items()}
            self.lists[value(item, "numId")] = _List(abstract_id, levels, starts, by_style)

    def next_of(self, paragraph: etree._Element) -> str:
        """Returns the number of the next paragraph with a space after it, or an empty text."""
        if paragraph.find("{*}pPr") is None or not self.lists:
            return ""

        mark = paragraph.find("{*}pPr/{*}rPr")
        is_removed = mark is not None and (
            mark.find("{*}del") is not None or mark.find("{*}moveFrom") is not None
        )
        list_id, level = self._place(paragraph)
        if is_removed or list_id not in self.lists or level not in self.lists[list_id].levels:
            return ""

        numbered_list = self.lists[list_id]
        self._count(list_id, level)
        number = _label(numbered_list, level, self.counts[numbered_list.counter])
        if number:
            return f"{number} "

        return ""

    def _place(self, paragraph: etree._Element) -> tuple[str, int]:
        """Returns the list and the level of a paragraph, its own or those of its style."""
        list_id = find_value(paragraph, "{*}pPr/{*}numPr/{*}numId")
        level = find_value(paragraph, "{*}pPr/{*}numPr/{*}ilvl")
        style_id = find_value(paragraph, "{*}pPr/{*}pStyle")
        for _ in range(_STYLES_AT_MOST):
            if list_id or style_id not in self.styles:
                break
            style = self.styles[style_id]
            list_id = style.list_id
            level = level or style.level
            if list_id in self.lists:
                level = self.lists[list_id].levels_of_styles.get(style_id, level)
            style_id = style.based_on

        return list_id, whole_number(level)

    def _count(self, list_id: str, level: int) -> None:
        numbered_list = self.lists[list_id]
        counts = self.counts.setdefault(numbered_list.counter, {})
        if list_id not in self.begun:
            self.begun.add(list_id)
            for index, start in numbered_list.starts.items():
                counts[index] = start - 1

        if level not in counts:
            counts[level] = numbered_list.levels[level].start - 1

        counts[level] += 1
        for index, list_level in numbered_list.levels.items():
            if index > level and level < list_level.restart:
                counts.pop(index, None)


def _levels(element: etree._Element) -> dict[int, _Level]:
    """Reads the levels of a list, or of what a list changes in another one."""
    levels = {}
    for item in element.iterfind("{*}lvl"):
        index = whole_number(value(item, "ilvl"), default=-1)
        if index not in _LEVELS:
            continue
        levels[index] = _Level(
            start=whole_number(find_value(item, "{*}start")),
            number_format=find_value(item, ".//{*}numFmt"),
            text=find_value(item, "{*}lvlText")[:_LONGEST_LABEL],
            restart=whole_number(find_value(item, "{*}lvlRestart"), default=index),
            is_legal=bool(is_on(item, "{*}isLgl")),
            style=find_value(item, "{*}pStyle"),
        )

    return levels


def _label(numbered_list: _List, level: int, counts: dict[int, int]) -> str:
    list_level = numbered_list.levels[level]
    if list_level.number_format in _WITHOUT_NUMBER:
        return ""

    def written(place: re.Match[str]) -> str:
        index = int(place[1]) - 1
        if index not in numbered_list.levels:
            return ""
        number = counts.get(index, numbered_list.levels[index].start)
        if list_level.is_legal:
            return str(number)
        return _write_number(number, numbered_list.levels[index].number_format)

    return re.sub(r"%([1-9])", written, list_level.text)[:_LONGEST_LABEL]


def _write_number(number: int, number_format: str) -> str:
    """Writes a number in a format of Word; digits stand for the formats that are not known."""
    if number_format == "none":
        return ""
    if number_format == "decimalZero":
        return f"{number:02}"

    text = str(number)
    if not 0 < number <= _LARGEST_SPELLED:
        return text
    if number_format.endswith("Letter"):
        repeats, index = divmod(number - 1, len(_LETTERS))
        text = _LETTERS[index] * (repeats + 1)
    elif number_format.endswith("Roman"):
        text = _roman(number)

    if number_format.startswith("upper"):
        return text.upper()

    return text


def _roman(number: int) -> str:
    letters = ""
    for size, numeral in _ROMAN.items():
        letters += numeral * (number // size)
        number %= size
    return letters
