"""ECB+ (Cybulska and Vossen, 2014): news with mentions of events and entities in clusters."""

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset

from ..tables import RowLocation, Rows, open_rows

# Topics, as Cybulska and Vossen (2015) divide them.
SPLITS = {
    "train": frozenset(range(1, 36)) - {2, 5, 12, 18, 21, 23, 34, 35},
    "validation": frozenset({2, 5, 12, 18, 21, 23, 34, 35}),
    "test": frozenset(range(36, 46)),
}
COLUMNS = (
    "doc_id",
    "topic",
    "subtopic",
    "text",
    "sentences",
    "sentence_ids",
    "validated_sentences",
    "mentions",
)
_MENTION = {"start", "end", "type", "sentence", "cluster"}
_VALIDATED = "ECBplus_coreference_sentences.csv"
_FILE = re.compile(r"(?P<topic>\d+)_(?P<number>\d+)(?P<event>ecb|ecbplus)\.xml")


def load(source: str | Path, split: str | None = None) -> Dataset:
    """Loads the documents of ECB+ from its XML or from parsed rows.

    The text of XML is its tokens with spaces between them.

    Args:
        source: the folder of the distribution, or the ``ECB+`` folder in it (``1/1_3ecb.xml`` is
            document 3 of the first event of topic 1, ``1/1_3ecbplus.xml`` of the second); or a
            .jsonl (also .gz) of one split with the columns below.
        split: ``train``, ``validation`` or ``test`` of a folder, by topics as Cybulska and Vossen
            (2015) divide them; None for all. A file is one split already.

    Returns:
        A row for each document: ``doc_id``; ``topic``, the kind of event that the document
        reports; ``subtopic``, one event (``<topic>_ecb`` or ``<topic>_ecbplus``); ``text``;
        ``sentences`` (start and end of each); ``sentence_ids``; ``validated_sentences`` (of these
        ids); and ``mentions``: ``start``, ``end``, ``type``, ``sentence`` (id), ``cluster`` (null
        if the mention is in no relation).

    Raises:
        ValueError: a document or row cannot be read; the message names it.
    """
    path = Path(source)
    if path.is_dir():
        rows = _xml_rows(path, split)
    else:
        rows = open_rows(source).rows

    documents = {}
    for location, values in rows:
        for column in COLUMNS:
            if column not in values:
                raise location.error(column, f"is missing; a document has {', '.join(COLUMNS)}.")
        name = values["doc_id"]
        if name in documents:  # mentions in no relation would be of one cluster
            raise location.error(
                "doc_id", f"the id {name!r} is there twice. Give every document its own id."
            )
        _check_mentions(location, values)
        documents[name] = {column: values[column] for column in COLUMNS}
    return Dataset.from_list(list(documents.values()))


def _check_mentions(location: RowLocation, values: Mapping[str, Any]) -> None:
    for index, mention in enumerate(values["mentions"]):
        absent = _MENTION - mention.keys()
        if absent:
            raise location.error("mentions", f"mention {index} (from 0) has no {min(absent)!r}.")
        is_span = 0 <= mention["start"] < mention["end"] <= len(values["text"])
        if not is_span or mention["sentence"] not in values["sentence_ids"]:
            raise location.error(
                "mentions",
                f"mention {index} (from 0) must be the span of a sentence, got {mention}.",
            )


# --- XML


def _xml_rows(folder: Path, split: str | None) -> Rows:
    """Yields rows with the columns of the .jsonl, for every document of a split (None for all)."""
    validated = _validated_sentences(folder)
    files = []
    for path in folder.rglob("*.xml"):
        match = _FILE.fullmatch(path.name)
        if match is not None:
            files.append((int(match["topic"]), match["event"], int(match["number"]), path))

    for topic, event, number, path in sorted(files):
        if split is not None and topic not in SPLITS[split]:
            continue
        name = f"{topic}_{number}{event}"
        try:
            row = _xml_row(ElementTree.parse(path).getroot(), name)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise ValueError(f"{path.name} is not a document of ECB+: {error!r}") from error
        row |= {"doc_id": name, "topic": topic, "subtopic": f"{topic}_{event}"}
        row["validated_sentences"] = validated.get(name, [])
        yield RowLocation(folder.name, path.name), row


def _validated_sentences(folder: Path) -> dict[str, list[int]]:
    """Returns the ids of the sentences with a validated annotation, by document."""
    path = folder / _VALIDATED
    if not path.is_file():
        path = folder.resolve().parent / _VALIDATED
    if not path.is_file():
        raise FileNotFoundError(f"No {_VALIDATED} in {folder} or next to it; it comes with ECB+.")

    validated: dict[str, list[int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            sentences = validated.setdefault(f"{row['Topic']}_{row['File']}", [])
            sentences.append(int(row["Sentence Number"]))
    return validated


class _Token(NamedTuple):
    start: int
    end: int
    sentence: int


def _xml_row(root: ElementTree.Element, name: str) -> dict[str, Any]:
    """Returns the text, sentences and mentions of a document."""
    words_of: dict[int, list[tuple[str, str]]] = {}
    for element in root.iter("token"):
        word = " ".join((element.text or "").split())
        sentence = int(element.attrib["sentence"])
        words_of.setdefault(sentence, []).append((element.attrib["t_id"], word))

    text = ""
    sentences = []
    tokens = {}
    for sentence, words in words_of.items():
        first = len(text)
        for token_id, word in words:
            tokens[token_id] = _Token(len(text), len(text) + len(word), sentence)
            text += f"{word} "
        sentences.append((first, len(text) - 1))
        text = f"{text[:-1]}\n"
    return {
        "text": text[:-1],
        "sentences": sentences,
        "sentence_ids": list(words_of),
        "mentions": list(_xml_mentions(root, tokens, clusters=_xml_clusters(root, name))),
    }


def _xml_mentions(
    root: ElementTree.Element, tokens: Mapping[str, _Token], clusters: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for markable in root.iterfind("Markables/*"):
        anchors = markable.findall("token_anchor")
        pieces = sorted(tokens[anchor.attrib["t_id"]] for anchor in anchors)
        if pieces:  # else it is the event or entity to which mentions refer
            yield {
                "start": pieces[0].start,
                "end": pieces[-1].end,
                "sentence": pieces[0].sentence,
                "type": markable.tag,
                "cluster": clusters.get(markable.attrib["m_id"]),
            }


def _xml_clusters(root: ElementTree.Element, name: str) -> dict[str, str]:
    """Returns the cluster of each mention that is in a relation, by its id."""
    clusters = {}
    for relation in root.iter("INTRA_DOC_COREF"):
        for mention in relation.findall("source"):
            clusters[mention.attrib["m_id"]] = f"{name}#{relation.attrib['r_id']}"
    # If a mention is in both kinds of relation, the wider one counts.
    for relation in root.iter("CROSS_DOC_COREF"):
        for mention in relation.findall("source"):
            clusters[mention.attrib["m_id"]] = relation.attrib["note"]
    return clusters
