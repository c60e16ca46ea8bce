"""Writes ECB+ as JSON lines, a file for each split, and reads mentions from such files.

ECB+ (Cybulska and Vossen, 2014) has news with mentions of events and entities in clusters. Unpack
the distribution, then write its splits:

    python examples/cdlm/ecbplus.py ECB+_LREC2014 --output_dir ecbplus

A row is a document: `doc_id`; `topic`, the kind of event that it reports; `subtopic`, one event
(`<topic>_ecb` or `<topic>_ecbplus`); `text`, tokens with spaces between them; `sentences` (start
and end of each); `sentence_ids`; `validated_sentences` (of these ids); and `mentions`: `start`,
`end`, `type`, `sentence` (id), and `cluster` (null if the mention is in no relation). Files of your
own with these columns can be read, too.
"""

import argparse
import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from nextlevelbert.command import run_command
from nextlevelbert.data import RowLocation, open_rows

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
MENTION_FIELDS = {"start", "end", "type", "sentence", "cluster"}
VALIDATED = "ECBplus_coreference_sentences.csv"
FILE = re.compile(r"(?P<topic>\d+)_(?P<number>\d+)(?P<event>ecb|ecbplus)\.xml")


# --- From XML to rows


def xml_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields a row for every document of the distribution, in the order of topics.

    Args:
        folder: the folder of the distribution, or the ``ECB+`` folder in it (``1/1_3ecb.xml`` is
            document 3 of the first event of topic 1, ``1/1_3ecbplus.xml`` of the second).

    Raises:
        ValueError: a document cannot be read; the message names it.
    """
    validated = validated_sentences(folder)
    files = []
    for path in folder.rglob("*.xml"):
        match = FILE.fullmatch(path.name)
        if match is not None:
            files.append((int(match["topic"]), match["event"], int(match["number"]), path))

    for topic, event, number, path in sorted(files):
        name = f"{topic}_{number}{event}"
        try:
            row = xml_row(ElementTree.parse(path).getroot(), name)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise ValueError(f"{path.name} is not a document of ECB+: {error!r}") from error
        row |= {"doc_id": name, "topic": topic, "subtopic": f"{topic}_{event}"}
        row["validated_sentences"] = validated.get(name, [])
        yield row


def validated_sentences(folder: Path) -> dict[str, list[int]]:
    """Returns the ids of the sentences with a validated annotation, by document."""
    path = folder / VALIDATED
    if not path.is_file():
        path = folder.resolve().parent / VALIDATED
    if not path.is_file():
        raise FileNotFoundError(f"No {VALIDATED} in {folder} or next to it; it comes with ECB+.")

    validated: dict[str, list[int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            sentences = validated.setdefault(f"{row['Topic']}_{row['File']}", [])
            sentences.append(int(row["Sentence Number"]))
    return validated


class Token(NamedTuple):
    """The characters of a token, and the id of its sentence."""

    start: int
    end: int
    sentence: int


def xml_row(root: ElementTree.Element, name: str) -> dict[str, Any]:
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
            tokens[token_id] = Token(len(text), len(text) + len(word), sentence)
            text += f"{word} "
        sentences.append((first, len(text) - 1))
        text = f"{text[:-1]}\n"
    return {
        "text": text[:-1],
        "sentences": sentences,
        "sentence_ids": list(words_of),
        "mentions": list(xml_mentions(root, tokens, clusters=xml_clusters(root, name))),
    }


def xml_mentions(
    root: ElementTree.Element, tokens: Mapping[str, Token], clusters: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yields the mentions of a document; one in pieces runs from its first to its last token."""
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


def xml_clusters(root: ElementTree.Element, name: str) -> dict[str, str]:
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


# --- From rows to mentions


class CoreferenceMention(NamedTuple):
    """A mention: its first character, one past its last, its cluster, and its sentence.

    Mentions of one event or entity have the same `cluster` across documents; a mention in no
    relation has a cluster of its own. `sentence` is the index of the sentence of its first piece.
    """

    start: int
    end: int
    cluster: str
    sentence: int


class CoreferenceDocument(NamedTuple):
    """A document with the spans of its sentences, and its mentions in the order of the text."""

    id: str
    topic: int
    subtopic: str
    text: str
    sentences: list[tuple[int, int]]
    mentions: list[CoreferenceMention]


def read_documents(source: str | Path, mention_kind: str = "event") -> list[CoreferenceDocument]:
    """Reads mentions of events or of entities.

    Events are mentions whose type begins with ACTION or NEG_ACTION. Entities are all others:
    participants, places and times. As is usual for this corpus (Cybulska and Vossen, 2015; Barhom
    et al., 2019), only mentions in sentences with a validated annotation are read.

    Args:
        source: a table with the columns above, such as a ``.jsonl`` or ``.jsonl.gz``.
        mention_kind: ``event`` or ``entity``.

    Raises:
        ValueError: a row cannot be read, which the message names; or there is no mention.
    """
    documents: dict[str, CoreferenceDocument] = {}
    for location, row in open_rows(source).rows:
        check_row(location, row)
        if row["doc_id"] in documents:  # mentions in no relation would be of one cluster
            raise location.error(
                "doc_id",
                f"the id {row['doc_id']!r} is there twice. Give every document its own id.",
            )
        documents[row["doc_id"]] = CoreferenceDocument(
            row["doc_id"],
            topic=row["topic"],
            subtopic=row["subtopic"],
            text=row["text"],
            sentences=[(start, end) for start, end in row["sentences"]],
            mentions=mentions_of(row, mention_kind),
        )
    if not any(document.mentions for document in documents.values()):
        raise ValueError(
            f"{Path(source).name} has {len(documents)} documents, but no {mention_kind} mention in"
            " a validated sentence."
        )
    return list(documents.values())


def check_row(location: RowLocation, row: Mapping[str, Any]) -> None:
    """Raises an error for a row without a column, or with a mention that is no span."""
    for column in COLUMNS:
        if column not in row:
            raise location.error(column, f"is missing; a document has {', '.join(COLUMNS)}.")
    for index, mention in enumerate(row["mentions"]):
        absent = MENTION_FIELDS - mention.keys()
        if absent:
            raise location.error("mentions", f"mention {index} (from 0) has no {min(absent)!r}.")
        is_span = 0 <= mention["start"] < mention["end"] <= len(row["text"])
        if not is_span or mention["sentence"] not in row["sentence_ids"]:
            raise location.error(
                "mentions",
                f"mention {index} (from 0) must be the span of a sentence, got {mention}.",
            )


def mentions_of(row: Mapping[str, Any], mention_kind: str) -> list[CoreferenceMention]:
    """Returns the mentions of events, or of entities, in the validated sentences of a document."""
    mentions = []
    for index, mention in enumerate(row["mentions"]):
        is_event = mention["type"].startswith(("ACTION", "NEG_ACTION"))
        is_validated = mention["sentence"] in row["validated_sentences"]
        if not is_validated or is_event != (mention_kind == "event"):
            continue

        cluster = mention["cluster"]
        if cluster is None:
            cluster = f"{row['doc_id']}@{index}"
        mentions.append(
            CoreferenceMention(
                start=mention["start"],
                end=mention["end"],
                cluster=cluster,
                sentence=row["sentence_ids"].index(mention["sentence"]),
            )
        )
    return sorted(mentions, key=attrgetter("start", "end"))


def clusters_of(documents: Iterable[CoreferenceDocument]) -> list[str]:
    """Returns the cluster of every mention, documents and mentions in order."""
    return [mention.cluster for document in documents for mention in document.mentions]


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the splits of the distribution."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the distribution")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args(argv)

    lines: dict[str, list[str]] = {split: [] for split in SPLITS}
    for row in xml_rows(args.folder):
        for split, topics in SPLITS.items():
            if row["topic"] in topics:
                lines[split].append(json.dumps(row, ensure_ascii=False))

    args.output_dir.mkdir(parents=True, exist_ok=True)
    for split, rows in lines.items():
        path = args.output_dir / f"{split}.jsonl"
        path.write_text("".join(f"{line}\n" for line in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} documents")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
