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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.rows import Place, hold_out, open_rows, short

KINDS = ("event", "entity")
SPLITS = {
    "train": frozenset(range(1, 36)) - {2, 5, 12, 18, 21, 23, 34, 35},
    "validation": frozenset({2, 5, 12, 18, 21, 23, 34, 35}),
    "test": frozenset(range(36, 46)),
}
_SENTENCES = "ECBplus_coreference_sentences.csv"
_COLUMNS = ("Topic", "File", "Sentence Number")
_FILE = re.compile(r"(\d+)_(\d+)(ecb|ecbplus)\.xml")


@dataclass(frozen=True)
class CoreferenceMention:
    """A mention in a document.

    Attributes:
        start: its first character in the document's text.
        end: one past its last. The span of a mention in pieces ends with the last piece and includes the text between.
        cluster: a label that mentions of the same event or entity share across documents; a mention in no relation has
            a label of its own.
        sentence: the number of its sentence (of its first piece).
    """

    start: int
    end: int
    cluster: str
    sentence: int


@dataclass(frozen=True)
class CoreferenceDocument:
    """A document and the mentions in it.

    Attributes:
        id: such as ``1_1ecbplus``.
        topic: number of the kind of event it is about.
        subtopic: ``<topic>_ecb`` or ``<topic>_ecbplus``, one event each.
        text: the document, a sentence a line.
        sentences: first character of each sentence and one past the last.
        mentions: in the order of the text; none where no sentence was validated.
    """

    id: str
    topic: int
    subtopic: str
    text: str
    sentences: list[tuple[int, int]]
    mentions: list[CoreferenceMention]


@dataclass(frozen=True)
class CoreferenceData:
    """A set of documents with mentions of one kind.

    Attributes:
        documents: in the order of the rows; of a folder, by topic, subtopic and number.
        source: what it was read from (without folders).
        kind: ``event`` or ``entity``.
    """

    documents: list[CoreferenceDocument]
    source: str
    kind: str

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        yield self.kind
        for each in self.documents:
            mentions = [[mention.start, mention.end, mention.cluster, mention.sentence] for mention in each.mentions]
            yield [each.id, each.topic, each.subtopic, each.text, each.sentences, mentions]

    @property
    def clusters(self) -> list[str]:
        """The cluster of every mention, documents and mentions in order."""
        return [mention.cluster for document in self.documents for mention in document.mentions]


def read_ecbplus(source: str | Path, kind: str = "event", split: str | None = None) -> CoreferenceData:
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
        split: of a folder, the topics of ``validation`` (2, 5, 12, 18, 21, 23, 34, 35), ``test`` (36 to 45) or
            ``train`` (all others), as Cybulska and Vossen (2015) divide them; None for all. A file is one split
            already.

    Raises:
        FileNotFoundError: if there is no such file or folder, or no list of validated sentences with the folder.
        ValueError: for another kind or split, naming the document or row that cannot be read, or where nothing is
            found.
    """
    path = Path(source)
    if kind not in KINDS:
        raise ValueError(f"kind must be {' or '.join(KINDS)}, got {short(kind)}.")
    if split is not None and split not in SPLITS:
        raise ValueError(f"split must be {', '.join(SPLITS)} or None for all topics, got {short(split)}.")
    if path.is_file():
        if split is not None:
            raise ValueError(f"{path.name} is one split already; leave out split (got {split!r}).")
        name, _, rows, _ = open_rows(path, "train", None)
    elif path.is_dir():
        name = path.resolve().name + (f" ({split})" if split else "")
        rows = _xml_rows(path, SPLITS[split] if split else None)
    else:
        raise FileNotFoundError(f"There is no file or folder {str(source)!r}; ECB+ is read from a copy on disk.")
    documents = [_read_document(place, values, kind) for place, values in rows]
    if not any(document.mentions for document in documents):
        raise ValueError(f"{name} has {len(documents)} documents, but no {kind} mention in a validated sentence.")
    ids = Counter(document.id for document in documents)
    if twice := [each for each, count in ids.items() if count > 1]:
        raise ValueError(f"{name} has {len(twice)} documents more than once, such as {twice[0]}; leave one of each.")
    return CoreferenceData(documents, name, kind)


def _read_document(place: Place, values: dict[str, Any], kind: str) -> CoreferenceDocument:
    try:
        name, text = values["doc_id"], values["text"]
        for column in ("doc_id", "topic", "subtopic", "text"):
            if not isinstance(values[column], (str, int) if column == "topic" else str):
                raise TypeError(f"{column} must be text, got {short(values[column])}.")
        sentences = [(start, end) for start, end in values["sentences"]]
        numbers = {sentence: number for number, sentence in enumerate(values["sentence_ids"])}
        validated = {numbers[sentence] for sentence in values["validated_sentences"] if sentence in numbers}
        mentions = []
        for number, mention in enumerate(values["mentions"]):
            start, end, sentence = mention["start"], mention["end"], numbers[mention["sentence"]]
            if not 0 <= start < end <= len(text):
                raise ValueError(
                    f"mention {number} (counted from 0) of document {name} spans characters {start} to {end}, but the "
                    f"text has {len(text)}."
                )
            if sentence in validated and (kind == "event") == mention["type"].startswith(("ACTION", "NEG_ACTION")):
                cluster = mention["cluster"] if mention["cluster"] is not None else f"{name}@{number}"
                mentions.append(CoreferenceMention(start, end, cluster, sentence))
        mentions.sort(key=lambda each: (each.start, each.end))
        return CoreferenceDocument(name, values["topic"], values["subtopic"], text, sentences, mentions)
    except KeyError as error:
        raise ValueError(
            f"{place.source}, {place.row}: there is no {error}; read_ecbplus says what it needs."
        ) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{place.source}, {place.row}: {error}") from error


def _xml_rows(folder: Path, topics: frozenset[int] | None) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Rows as those of a .jsonl, of every document of the topics (None for all)."""
    validated = _validated_sentences(folder)
    found = []
    for path in folder.rglob("*.xml"):
        if (match := _FILE.fullmatch(path.name)) and (topics is None or int(match[1]) in topics):
            found.append((int(match[1]), match[3], int(match[2]), path))
    if not found:
        raise ValueError(
            f"{folder} has no documents of ECB+ (<topic>/<topic>_<number>ecb.xml or ...ecbplus.xml) of topics "
            f"{'1 to 45' if topics is None else ', '.join(map(str, sorted(topics)))}."
        )
    for topic, subtopic, number, path in sorted(found):
        name = f"{topic}_{number}{subtopic}"
        try:
            row = _xml_row(ElementTree.parse(path).getroot(), name)
        except KeyError as error:
            raise ValueError(f"{path.name} is not a document of ECB+: there is no {error}.") from error
        except (ElementTree.ParseError, ValueError) as error:
            raise ValueError(f"{path.name} is not a document of ECB+: {error}") from error
        fields = {"doc_id": name, "topic": topic, "subtopic": f"{topic}_{subtopic}"}
        yield (
            Place(folder.resolve().name, path.name),
            {**fields, **row, "validated_sentences": validated.get(name, ())},
        )


def _validated_sentences(folder: Path) -> dict[str, set[int]]:
    """Numbers of the sentences of each document."""
    there = [place / _SENTENCES for place in (folder, folder.resolve().parent) if (place / _SENTENCES).is_file()]
    if not there:
        raise FileNotFoundError(
            f"No {_SENTENCES} in {folder} or next to it; it comes with ECB+ and says which sentences were validated."
        )
    found: dict[str, set[int]] = {}
    with there[0].open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                topic, name, sentence = (row[column].strip() for column in _COLUMNS)
                found.setdefault(f"{topic}_{name}", set()).add(int(sentence))
            except (AttributeError, KeyError, ValueError) as error:
                raise ValueError(
                    f"Line {reader.line_num} of {_SENTENCES} must have the columns {', '.join(_COLUMNS)}, the last "
                    f"a number; got {row}."
                ) from error
    return found


def _xml_row(root: ElementTree.Element, name: str) -> dict[str, Any]:
    """Text, sentences and mentions of a document."""
    words: dict[int, list[tuple[str, str]]] = {}
    for token in root.iter("token"):
        words.setdefault(int(token.attrib["sentence"]), []).append(
            (token.attrib["t_id"], " ".join((token.text or "").split()))
        )
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


def mention_text(document: CoreferenceDocument, mention: CoreferenceMention) -> str:
    """The characters of a mention."""
    return document.text[mention.start : mention.end]


def hold_out_topics(data: CoreferenceData, share: float, seed: int) -> tuple[CoreferenceData, CoreferenceData]:
    """Training and validation documents of different topics, drawn at random.

    In ECB+'s training and validation splits no cluster of events lies in two topics, and a single one of entities.

    Raises:
        ValueError: as `hold_out`; or where one of the two would have no mentions.
    """
    parts = hold_out(data, "documents", share, seed, key=lambda document: document.topic)
    if not all(part.clusters for part in parts):
        raise ValueError(
            f"A share of {share} of the topics of {data.source} leaves no mention to train on or to validate on; give "
            "--validation_file, or another --validation_share."
        )
    return parts
