"""Documents with coreferent mentions, within and across documents: ECB+, from its own XML or parsed rows.

The distribution of ECB+ (Cybulska and Vossen, 2014)::

    ECBplus_coreference_sentences.csv   columns Topic, File, Sentence Number: which sentences were validated
    ECB+/1/1_1ecb.xml                   topic 1, its first subtopic (an event), document 1
    ECB+/1/1_1ecbplus.xml               its second subtopic: another event of the same kind
"""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..data.rows import Place, open_rows

SPLITS = {
    "train": frozenset(range(1, 36)) - {2, 5, 12, 18, 21, 23, 34, 35},
    "validation": frozenset({2, 5, 12, 18, 21, 23, 34, 35}),
    "test": frozenset(range(36, 46)),
}
_COLUMNS = ("doc_id", "topic", "subtopic", "text", "sentences", "sentence_ids", "validated_sentences", "mentions")
_VALIDATED = "ECBplus_coreference_sentences.csv"
_FILE = re.compile(r"(\d+)_(\d+)(ecb|ecbplus)\.xml")


class CoreferenceMention(NamedTuple):
    """A mention: its first character, one past its last, and the number of its sentence (that of its first piece).

    Mentions of one event or entity have the same `cluster` across documents, one in no relation a label of its own.
    """

    start: int
    end: int
    cluster: str
    sentence: int


class CoreferenceDocument(NamedTuple):
    """A document with its sentences as spans, and the mentions of one kind in it, in the order of the text.

    `topic` is the kind of event that it is about, `subtopic` one event (``<topic>_ecb`` or ``<topic>_ecbplus``).
    """

    id: str
    topic: int
    subtopic: str
    text: str
    sentences: list[tuple[int, int]]
    mentions: list[CoreferenceMention]


def read_ecbplus(source: str | Path, kind: str = "event", split: str | None = None) -> list[CoreferenceDocument]:
    """Reads mentions of events or of entities in ECB+ (Cybulska and Vossen, 2014).

    Events are the mentions whose type begins with ACTION or NEG_ACTION; entities all others: participants, places and
    times. As is usual for this corpus (Cybulska and Vossen, 2015; Barhom et al., 2019), only mentions in sentences
    whose annotation was validated are read. The text of XML is its tokens with spaces between.

    Args:
        source: the folder of the distribution or the ``ECB+`` folder in it; or a .jsonl (also .gz) of one split with
            ``doc_id``, ``topic``, ``subtopic``, ``text``, ``sentences`` (start and end of each), ``sentence_ids``,
            ``validated_sentences`` (of these ids) and ``mentions``: ``start``, ``end``, ``type``, ``sentence`` (id),
            ``cluster`` (null where it is in no relation).
        kind: ``event`` or ``entity``.
        split: of a folder, the topics of ``train``, ``validation`` or ``test`` as Cybulska and Vossen (2015) divide
            them; None for all. A file is one split already.

    Raises:
        ValueError: naming the document or row that cannot be read, or where no mention is there.
    """
    path = Path(source)
    rows = _xml_rows(path, SPLITS[split] if split else None) if path.is_dir() else open_rows(source).rows
    documents = []
    for place, values in rows:
        if missing := [column for column in _COLUMNS if column not in values]:
            raise ValueError(f"{place} has no column {missing[0]!r}; a document has {', '.join(_COLUMNS)}.")
        name, text = values["doc_id"], values["text"]
        numbers = {sentence: number for number, sentence in enumerate(values["sentence_ids"])}
        mentions = []
        for number, mention in enumerate(values["mentions"]):
            start, end, sentence = mention["start"], mention["end"], mention["sentence"]
            if not 0 <= start < end <= len(text) or sentence not in numbers:
                raise place.error("mentions", f"mention {number} (from 0) is no span of a sentence: {mention}.")
            is_event = mention["type"].startswith(("ACTION", "NEG_ACTION"))
            if sentence in values["validated_sentences"] and is_event == (kind == "event"):
                cluster = mention["cluster"] if mention["cluster"] is not None else f"{name}@{number}"
                mentions.append(CoreferenceMention(start, end, cluster, numbers[sentence]))
        mentions.sort(key=lambda mention: mention[:2])
        sentences = [(start, end) for start, end in values["sentences"]]
        documents.append(CoreferenceDocument(name, values["topic"], values["subtopic"], text, sentences, mentions))
    if not any(document.mentions for document in documents):
        raise ValueError(f"{path.name} has {len(documents)} documents, but no {kind} mention in a validated sentence.")
    return documents


def _xml_rows(folder: Path, topics: frozenset[int] | None) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Rows as those of a .jsonl, of every document of the topics (None for all)."""
    validated: dict[str, set[int]] = {}
    lists = [place / _VALIDATED for place in (folder, folder.resolve().parent) if (place / _VALIDATED).is_file()]
    if not lists:
        raise FileNotFoundError(f"No {_VALIDATED} in {folder} or next to it; it comes with ECB+.")
    with lists[0].open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            validated.setdefault(f"{row['Topic']}_{row['File']}", set()).add(int(row["Sentence Number"]))
    matches = [(match, path) for path in folder.rglob("*.xml") if (match := _FILE.fullmatch(path.name))]
    for match, path in sorted(matches, key=lambda item: (int(item[0][1]), item[0][3], int(item[0][2]))):
        topic, number, subtopic = int(match[1]), match[2], match[3]
        if topics is not None and topic not in topics:
            continue
        name = f"{topic}_{number}{subtopic}"
        row = {"doc_id": name, "topic": topic, "subtopic": f"{topic}_{subtopic}"}
        try:
            row |= _xml_row(ElementTree.parse(path).getroot(), name)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise ValueError(f"{path.name} is not a document of ECB+: {error!r}") from error
        yield Place(folder.name, path.name), {**row, "validated_sentences": validated.get(name, ())}


def _xml_row(root: ElementTree.Element, name: str) -> dict[str, Any]:
    """Text, sentences and mentions of a document."""
    words: dict[int, list[tuple[str, str]]] = {}
    for token in root.iter("token"):
        word = " ".join((token.text or "").split())
        words.setdefault(int(token.attrib["sentence"]), []).append((token.attrib["t_id"], word))
    text, sentences, spans = "", [], {}
    for sentence, tokens in words.items():
        first = len(text)
        for token_id, word in tokens:
            spans[token_id] = (len(text), len(text) + len(word), sentence)
            text += f"{word} "
        sentences.append((first, len(text) - 1))
        text = f"{text[:-1]}\n"
    clusters: dict[str, str] = {}
    for tag in ("INTRA_DOC_COREF", "CROSS_DOC_COREF"):  # of a mention in both, the wider counts
        for relation in root.iter(tag):
            cluster = relation.attrib["note"] if tag == "CROSS_DOC_COREF" else f"{name}#{relation.attrib['r_id']}"
            clusters |= {mention.attrib["m_id"]: cluster for mention in relation.findall("source")}
    mentions = []
    for markable in root.iterfind("Markables/*"):
        pieces = sorted(spans[anchor.attrib["t_id"]] for anchor in markable.findall("token_anchor"))
        if pieces:  # those without are the events and entities that mentions are of
            mention = {"start": pieces[0][0], "end": pieces[-1][1], "sentence": pieces[0][2], "type": markable.tag}
            mentions.append({**mention, "cluster": clusters.get(markable.attrib["m_id"])})
    return {"text": text[:-1], "sentences": sentences, "sentence_ids": list(words), "mentions": mentions}
