"""The task ``coreference``: which mentions in a set of documents are of one event or entity? (CDLM,
section 3.2).

Documents are those of ECB+ (Cybulska and Vossen, 2014), from its own XML or parsed rows.
"""

from __future__ import annotations

import csv
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import squareform
from scipy.special import expit
from sklearn.cluster import AgglomerativeClustering
from torch.utils.data import Dataset

from ..data.rows import Place, hold_out, open_rows
from ..evaluation.coreference import coreference_scores
from ..finetuning.seeds import DataArguments, FinetuningArguments, option
from ..models.modeling_cdlm import CdlmForCrossDocumentCoreference
from ..models.processing_cdlm import CdlmProcessor, Piece, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.trainer import parse
from .cdlm import Logits, Predicted, train_and_publish

SPLITS = {
    "train": frozenset(range(1, 36)) - {2, 5, 12, 18, 21, 23, 34, 35},
    "validation": frozenset({2, 5, 12, 18, 21, 23, 34, 35}),
    "test": frozenset(range(36, 46)),
}
_COLUMNS = (
    "doc_id",
    "topic",
    "subtopic",
    "text",
    "sentences",
    "sentence_ids",
    "validated_sentences",
    "mentions",
)
_VALIDATED = "ECBplus_coreference_sentences.csv"
_FILE = re.compile(r"(\d+)_(\d+)(ecb|ecbplus)\.xml")

Pair = tuple[int, int]  # of mentions, numbered through all documents
# For each group the numbers of its n mentions, and how probably any two mean the same, ``[n, n]``.
Similarities = list[tuple[list[int], np.ndarray]]


class CoreferenceMention(NamedTuple):
    """A mention: its first character, one past its last, and the number of its sentence (that of
    its first piece).

    Mentions of one event or entity have the same `cluster` across documents, one in no relation a
    label of its own.
    """

    start: int
    end: int
    cluster: str
    sentence: int


class CoreferenceDocument(NamedTuple):
    """A document with its sentences as spans, and the mentions of one kind in it, in the order of
    the text.

    `topic` is the kind of event that it is about, `subtopic` one event (``<topic>_ecb`` or
    ``<topic>_ecbplus``).
    """

    id: str
    topic: int
    subtopic: str
    text: str
    sentences: list[tuple[int, int]]
    mentions: list[CoreferenceMention]


def read_ecbplus(
    source: str | Path, kind: str = "event", split: str | None = None
) -> list[CoreferenceDocument]:
    """Reads mentions of events or of entities in ECB+.

    Events are the mentions whose type begins with ACTION or NEG_ACTION; entities all others:
    participants, places and times. As is usual for this corpus (Cybulska and Vossen, 2015; Barhom
    et al., 2019), only mentions in sentences whose annotation was validated are read. The text of
    XML is its tokens with spaces between.

    Args:
        source: the folder of the distribution, or the ``ECB+`` folder in it (``1/1_3ecb.xml`` is
            document 3 of the first event of topic 1, ``1/1_3ecbplus.xml`` of the second); or a
            .jsonl (also .gz) of one split with ``doc_id``, ``topic``, ``subtopic``, ``text``,
            ``sentences`` (start and end of each), ``sentence_ids``, ``validated_sentences`` (of
            these ids) and ``mentions``: ``start``, ``end``, ``type``, ``sentence`` (id),
            ``cluster`` (null where it is in no relation).
        kind: ``event`` or ``entity``.
        split: of a folder, the topics of ``train``, ``validation`` or ``test`` as Cybulska and
            Vossen (2015) divide them; None for all. A file is one split already.

    Raises:
        ValueError: naming the document or row that cannot be read, or where no mention is there.
    """
    path = Path(source)
    rows = (
        _xml_rows(path, SPLITS[split] if split else None)
        if path.is_dir()
        else open_rows(source).rows
    )
    documents: list[CoreferenceDocument] = []
    for place, values in rows:
        if missing := [column for column in _COLUMNS if column not in values]:
            raise place.error(missing[0], f"is missing; a document has {', '.join(_COLUMNS)}.")
        name, text = values["doc_id"], values["text"]
        if any(
            document.id == name for document in documents
        ):  # mentions in no relation would be of one cluster
            raise place.error("doc_id", f"the id {name!r} is taken; ids must differ.")
        numbers = {sentence: number for number, sentence in enumerate(values["sentence_ids"])}
        mentions = []
        for number, mention in enumerate(values["mentions"]):
            start, end, sentence = mention["start"], mention["end"], mention["sentence"]
            if not 0 <= start < end <= len(text) or sentence not in numbers:
                raise place.error(
                    "mentions", f"mention {number} (from 0) is no span of a sentence: {mention}."
                )
            is_event = mention["type"].startswith(("ACTION", "NEG_ACTION"))
            if sentence in values["validated_sentences"] and is_event == (kind == "event"):
                cluster = (
                    mention["cluster"] if mention["cluster"] is not None else f"{name}@{number}"
                )
                mentions.append(CoreferenceMention(start, end, cluster, numbers[sentence]))
        mentions.sort(key=lambda mention: mention[:2])
        sentences = [(start, end) for start, end in values["sentences"]]
        documents.append(
            CoreferenceDocument(
                name, values["topic"], values["subtopic"], text, sentences, mentions
            )
        )
    if not any(document.mentions for document in documents):
        raise ValueError(
            f"{path.name} has {len(documents)} documents, but no {kind} mention in a validated"
            " sentence."
        )
    return documents


def _xml_rows(
    folder: Path, topics: frozenset[int] | None
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Rows as those of a .jsonl, of every document of the topics (None for all)."""
    lists = [
        place / _VALIDATED
        for place in (folder, folder.resolve().parent)
        if (place / _VALIDATED).is_file()
    ]
    if not lists:
        raise FileNotFoundError(f"No {_VALIDATED} in {folder} or next to it; it comes with ECB+.")
    with lists[0].open(encoding="utf-8-sig", newline="") as file:
        validated = {
            (f"{row['Topic']}_{row['File']}", int(row["Sentence Number"]))
            for row in csv.DictReader(file)
        }
    matches = [
        (match, path) for path in folder.rglob("*.xml") if (match := _FILE.fullmatch(path.name))
    ]
    for match, path in sorted(
        matches, key=lambda item: (int(item[0][1]), item[0][3], int(item[0][2]))
    ):
        topic, number, subtopic = int(match[1]), match[2], match[3]
        if topics is not None and topic not in topics:
            continue
        name = f"{topic}_{number}{subtopic}"
        try:
            row = _xml_row(ElementTree.parse(path).getroot(), name)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise ValueError(f"{path.name} is not a document of ECB+: {error!r}") from error
        row |= {"doc_id": name, "topic": topic, "subtopic": f"{topic}_{subtopic}"}
        row["validated_sentences"] = [
            number for number in row["sentence_ids"] if (name, number) in validated
        ]
        yield Place(folder.name, path.name), row


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
            cluster = (
                relation.attrib["note"]
                if tag == "CROSS_DOC_COREF"
                else f"{name}#{relation.attrib['r_id']}"
            )
            clusters |= {mention.attrib["m_id"]: cluster for mention in relation.findall("source")}
    mentions = []
    for markable in root.iterfind("Markables/*"):
        pieces = sorted(spans[anchor.attrib["t_id"]] for anchor in markable.findall("token_anchor"))
        if pieces:  # those without are the events and entities that mentions are of
            mention = {
                "start": pieces[0][0],
                "end": pieces[-1][1],
                "sentence": pieces[0][2],
                "type": markable.tag,
            }
            mentions.append({**mention, "cluster": clusters.get(markable.attrib["m_id"])})
    return {
        "text": text[:-1],
        "sentences": sentences,
        "sentence_ids": list(words),
        "mentions": mentions,
    }


def clusters_of(documents: Iterable[CoreferenceDocument]) -> list[str]:
    """The cluster of every mention, documents and mentions in order."""
    return [mention.cluster for document in documents for mention in document.mentions]


def mention_groups(documents: Iterable[CoreferenceDocument], group_by: str) -> list[list[int]]:
    """The numbers of the mentions of each subtopic or topic, counted through all documents."""
    names = np.array(
        [str(getattr(document, group_by)) for document in documents for _ in document.mentions]
    )
    return [np.flatnonzero(names == name).tolist() for name in dict.fromkeys(names.tolist())]


class MentionPairDataset(Dataset):
    """Sequences with marked mentions, shortest first, laid out when they are asked for.

    Pairs in two documents are read with both, pairs within one with that one (paper, appendix C.1).

    Args:
        group_by: mentions of one ``"subtopic"`` or ``"topic"`` are compared.
        mentions_at_once: ``"pair"``: two mentions in a sequence (the paper's); ``"all"``: all
            mentions of two documents are marked and all pairs are scored in one pass, which takes a
            small part of the time.
        context: ``"document"``: whole documents; ``"sentence"``: of each only the sentences with
            the mentions (the paper's Table 3).
        negatives: with ``"pair"``, pairs that are not coreferent drawn for each that is; None for
            all.

    Attributes:
        pairs: the pairs of each sequence, by number of the mentions in all documents.
    """

    def __init__(
        self,
        documents: Sequence[CoreferenceDocument],
        processor: CdlmProcessor,
        group_by: str = "subtopic",
        mentions_at_once: str = "pair",
        context: str = "document",
        negatives: float | None = None,
        seed: int = 0,
    ) -> None:
        self._processor, self._documents, self._group_by = processor, documents, group_by
        mentions = [
            (at, mention) for at, document in enumerate(documents) for mention in document.mentions
        ]
        self._clusters = clusters_of(documents)
        sequences: list[list[Pair]] = []
        for numbers in mention_groups(documents, group_by):
            pairs = sorted(
                itertools.combinations(numbers, 2), key=lambda pair: [mentions[n][0] for n in pair]
            )
            together = (
                (lambda pair: [mentions[n][0] for n in pair]) if mentions_at_once == "all" else None
            )
            sequences += [list(same) for _, same in itertools.groupby(pairs, together)]
        if mentions_at_once == "pair" and negatives is not None:
            same = np.array([self._same(pair) for [pair] in sequences], dtype=bool)
            count = min(int((~same).sum()), round(negatives * int(same.sum())))
            drawn = np.random.default_rng(seed).choice(np.flatnonzero(~same), count, replace=False)
            sequences = [sequences[number] for number in sorted([*np.flatnonzero(same), *drawn])]
        if not sequences:
            raise ValueError(
                f"There are no two mentions in one {group_by}, so there is nothing to compare."
            )
        self._pieces: dict[str, Piece] = {}
        self._sequences = []
        for pairs in sequences:
            numbers = sorted({number for pair in pairs for number in pair})
            texts: list[str] = []
            spans: list[tuple[int, int, int]] = []
            for side, at in enumerate(sorted({mentions[number][0] for number in numbers})):
                marked = [mentions[number][1] for number in numbers if mentions[number][0] == at]
                text, places = documents[at].text, [mention[:2] for mention in marked]
                if context == "sentence":
                    text, places = _sentences_only(documents[at], marked)
                texts.append(text)
                spans += [(side, *place) for place in places]
            self._pieces |= {
                text: processor.tokenize(text) for text in texts if text not in self._pieces
            }
            length = (
                sum(len(self._pieces[text].ids) for text in texts)
                + 2
                + 2 * len(texts)
                + 2 * len(spans)
            )
            self._sequences.append((length, texts, spans, numbers, pairs))
        self._sequences.sort(key=itemgetter(0))
        self.pairs = [pairs for *_, pairs in self._sequences]
        # What is longer than a sequence is laid out once: mentions that do not fit are an error
        # before training.
        long = (
            number
            for number, (length, *_) in enumerate(self._sequences)
            if length > processor.max_length
        )
        warn_of_cuts(map(self.__getitem__, long))

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        _, texts, spans, numbers, pairs = self._sequences[index]
        compared = [(numbers.index(one), numbers.index(other)) for one, other in pairs]
        labels = [self._same(pair) for pair in pairs]
        return self._processor.mentions(
            [self._pieces[text] for text in texts], spans, compared, labels
        )

    def similarities(self, logits: Sequence[np.ndarray] | np.ndarray) -> Similarities:
        """How probably any two mentions of a group mean the same, by the logits of the pairs of
        each sequence.

        All pairs must be there, as with ``negatives=None``; padding may follow the logits of a
        sequence.
        """
        probability: dict[Pair, float] = {}
        for pairs, scores in zip(self.pairs, logits, strict=True):
            probability |= zip(pairs, expit(scores[: len(pairs)]), strict=True)
        groups: Similarities = []
        for numbers in mention_groups(self._documents, self._group_by):
            values = [probability[pair] for pair in itertools.combinations(numbers, 2)]
            groups.append((numbers, squareform(values) + np.eye(len(numbers))))
        return groups

    def _same(self, pair: Pair) -> int:
        return int(self._clusters[pair[0]] == self._clusters[pair[1]])


def _sentences_only(
    document: CoreferenceDocument, marked: list[CoreferenceMention]
) -> tuple[str, list[tuple[int, int]]]:
    """The sentences of these mentions, a line each, and where the mentions are in them."""
    text, moved = "", {}
    for number in sorted({mention.sentence for mention in marked}):
        start, end = document.sentences[number]
        moved[number] = len(text) - start
        text += f"{document.text[start:end]}\n"
    return text[:-1], [
        (start + moved[sentence], end + moved[sentence]) for start, end, _, sentence in marked
    ]


def cluster_mentions(groups: Similarities, threshold: float) -> list[str]:
    """A cluster for every mention: agglomerative, joined while the mean probability is above the
    threshold."""
    labels: dict[int, str] = {}
    for group, (numbers, probability) in enumerate(groups):
        parts = np.zeros(len(numbers), int)
        if len(numbers) > 1:
            rule = {"n_clusters": None, "metric": "precomputed", "linkage": "average"}
            parts = AgglomerativeClustering(**rule, distance_threshold=1 - threshold).fit_predict(
                1 - probability
            )
        labels |= {number: f"{group}-{part}" for number, part in zip(numbers, parts, strict=True)}
    return [labels[number] for number in sorted(labels)]


def best_threshold(documents: Sequence[CoreferenceDocument], groups: Similarities) -> float:
    """The threshold, in steps of 0.05, with the highest CoNLL F1."""
    gold, thresholds = clusters_of(documents), np.arange(0.05, 1.0, 0.05).tolist()
    return max(
        thresholds,
        key=lambda value: coreference_scores(gold, cluster_mentions(groups, value))["conll_f1"],
    )


@dataclass
class CoreferenceArguments:
    """What is compared; the training set is ECB+'s folder, or a .jsonl of it."""

    _argument_group_name = "coreference"

    mention_kind: Literal["event", "entity"] = option("event", "Mentions of ECB+ to link.")
    context: Literal["document", "sentence"] = option(
        "document", "Text around the mentions: whole documents, or only their sentences (Table 3)."
    )
    mentions_at_once: Literal["pair", "all"] = option(
        "pair",
        "pair: a sequence per pair of mentions (the paper's); all: per pair of documents, many"
        " times faster.",
    )
    group_by: Literal["subtopic", "topic"] = option(
        "subtopic", "Only mentions within the same one are compared."
    )
    negatives_per_positive: float = option(
        1.0, "Non-coreferent pairs for each coreferent one in training on pairs."
    )


def f1_scores(
    documents: Sequence[CoreferenceDocument], clusters: Sequence[object]
) -> dict[str, float]:
    """F1 by each metric of clusters of all mentions."""
    scores = coreference_scores(clusters_of(documents), clusters)
    return {name: value for name, value in scores.items() if name.endswith("f1")}


_SNIPPET = """\
from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked

model = CdlmForCrossDocumentCoreference.from_pretrained("{name}")
processor = CdlmProcessor.from_model(model)
texts, spans = zip(*map(read_marked, ["Apple <m>sued</m> Samsung.", "The <m>lawsuit</m> was filed on Friday."]))
row = processor.mentions(texts, [(number, *span) for number, marked in enumerate(spans) for span in marked])
probability = model(**processor.pad([row])).logits.sigmoid()
same = probability > model.config.coreference_threshold"""


def main(words: list[str]) -> None:
    """Cross-document coreference with CDLM; the threshold of the clusters is chosen on the
    validation set."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments, CoreferenceArguments)
    model_args, args, data_args, options = parse(
        classes, words, "", main.__doc__ or "", "coreference-"
    )
    if data_args.dataset_name:
        raise ValueError(
            "ECB+ is read from a folder or a file: give it with --train_file, not with"
            " --dataset_name."
        )

    def read(name: str, source: str, split: str) -> list[CoreferenceDocument]:
        named = getattr(data_args, f"{name}_split")
        if named is None and Path(source).is_dir():
            raise ValueError(
                f"{source} holds the topics of all splits, test topics too; give --{name}_split as"
                " well."
            )
        return read_ecbplus(source, options.mention_kind, named)

    # No cluster of events lies in two topics.
    sets = data_args.read_sets(read, args.seed, partial(hold_out, key=attrgetter("topic")))

    def sequences(name: str, processor: CdlmProcessor) -> MentionPairDataset:
        negatives = options.negatives_per_positive if name == "train" else None
        at_once = options.mentions_at_once
        return MentionPairDataset(
            sets[name], processor, options.group_by, at_once, options.context, negatives
        )

    def choose(rows: MentionPairDataset, logits: Logits) -> dict[str, float]:
        return {
            "coreference_threshold": best_threshold(
                sets["validation"], rows.similarities(logits[0])
            )
        }

    def predict(
        name: str, rows: MentionPairDataset, logits: Logits, chosen: dict[str, float]
    ) -> Predicted:
        clusters = cluster_mentions(rows.similarities(logits[0]), chosen["coreference_threshold"])
        mentions = [(document, mention) for document in sets[name] for mention in document.mentions]
        records = [
            {
                "document": document.id,
                "start": mention.start,
                "end": mention.end,
                "text": document.text[mention.start : mention.end],
                "gold": mention.cluster,
                "cluster": cluster,
            }
            for (document, mention), cluster in zip(mentions, clusters, strict=True)
        ]
        return f1_scores(sets[name], clusters), records

    tags = ["cross-document-coreference"]  # the Hub has coreference under token classification
    card = {
        "snippet": _SNIPPET,
        "pipeline_tag": "token-classification",
        "tags": tags,
        "scores": "conll_f1",
    }
    alone = (
        "every mention alone",
        lambda documents: f1_scores(documents, range(len(clusters_of(documents)))),
    )
    settings, model_class = (
        {"task": "coreference", **vars(options)},
        CdlmForCrossDocumentCoreference,
    )
    train_and_publish(
        model_class, model_args, args, sets, sequences, predict, alone, card, settings, choose
    )
