"""``--task coreference``: links mentions of one event or entity across documents.

This is the task of CDLM, section 3.2. Documents come from ECB+ (Cybulska and Vossen, 2014), either
from the original XML or from parsed rows.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import squareform
from scipy.special import expit
from sklearn.cluster import AgglomerativeClustering
from torch.utils.data import Dataset

from ..data.published import ecbplus
from ..data.splits import hold_out
from ..evaluation.coreference import coreference_scores
from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import Scores
from ..models.modeling_cdlm import CdlmForCrossDocumentCoreference
from ..models.processing_cdlm import CdlmProcessor, Piece, warn_of_cuts
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.cards import CardText
from ..training.data import DataArguments
from ..training.options import option, parse
from .cdlm import MEASURED, TAGS, Predicted, train_and_publish

Pair = tuple[int, int]  # indices of mentions, counted through all documents
# For each group the indices of its n mentions, and how probably any two mean the same, ``[n, n]``.
Similarities = list[tuple[list[int], np.ndarray]]

_SNIPPET = """\
from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked

model = CdlmForCrossDocumentCoreference.from_pretrained("{name}")
processor = CdlmProcessor.from_model(model)
marked = ["Apple <m>sued</m> Samsung.", "The <m>lawsuit</m> was filed on Friday."]
texts, spans = zip(*map(read_marked, marked))
mentions = [(index, *span) for index, of_text in enumerate(spans) for span in of_text]
row = processor.mentions(texts, mentions)
probability = model(**processor.pad([row])).logits.sigmoid()
same = probability > model.config.coreference_threshold"""

_CARD = CardText(
    summary=SUMMARY,
    intended_use="It links mentions of the same event or entity within and across documents.",
    measured=MEASURED,
    limits=LIMITS,
    snippet=_SNIPPET,
    pipeline_tag="token-classification",  # the Hub files coreference there
    tags=(*TAGS, "cross-document-coreference"),
)


# --- ECB+


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
    """A document with the spans of its sentences, and its mentions in the order of the text.

    `topic` is the kind of event that the document reports, and `subtopic` one event
    (``<topic>_ecb`` or ``<topic>_ecbplus``).
    """

    id: str
    topic: int
    subtopic: str
    text: str
    sentences: list[tuple[int, int]]
    mentions: list[CoreferenceMention]


def read_ecbplus(
    source: str | Path, mention_kind: str = "event", split: str | None = None
) -> list[CoreferenceDocument]:
    """Reads mentions of events or of entities in ECB+.

    Events are mentions whose type begins with ACTION or NEG_ACTION. Entities are all others:
    participants, places and times. As is usual for this corpus (Cybulska and Vossen, 2015; Barhom
    et al., 2019), only mentions in sentences with a validated annotation are read.

    Args:
        source: folder of the distribution, or a .jsonl of one split, as `ecbplus.load` accepts
            them.
        mention_kind: ``event`` or ``entity``.
        split: ``train``, ``validation`` or ``test`` of a folder; None for all.

    Raises:
        ValueError: a document or row cannot be read, which the message names; or there is no
            mention.
    """
    documents = []
    for row in ecbplus.load(source, split):
        document = CoreferenceDocument(
            row["doc_id"],
            topic=row["topic"],
            subtopic=row["subtopic"],
            text=row["text"],
            sentences=[(start, end) for start, end in row["sentences"]],
            mentions=_mentions_of(row, mention_kind),
        )
        documents.append(document)
    if not any(document.mentions for document in documents):
        raise ValueError(
            f"{Path(source).name} has {len(documents)} documents, but no {mention_kind} mention in"
            " a validated sentence."
        )
    return documents


def _mentions_of(row: Mapping[str, Any], mention_kind: str) -> list[CoreferenceMention]:
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


def mention_groups(documents: Iterable[CoreferenceDocument], group_by: str) -> list[list[int]]:
    """Groups mentions by subtopic or topic.

    Args:
        documents: the documents with their mentions.
        group_by: ``"subtopic"`` or ``"topic"``.

    Returns:
        The indices of the mentions of each group, counted through all documents.
    """
    groups: dict[object, list[int]] = {}
    start = 0
    for document in documents:
        end = start + len(document.mentions)
        if document.mentions:
            groups.setdefault(getattr(document, group_by), []).extend(range(start, end))
        start = end
    return list(groups.values())


# --- Pairs of mentions


class _Sequence(NamedTuple):
    """The pairs to compare in a sequence, and the arguments of `CdlmProcessor.mentions`."""

    length: int  # in tokens, before documents are truncated
    pairs: list[Pair]
    layout: dict[str, Any]


class MentionPairDataset(Dataset):
    """Sequences with marked mentions, shortest first; a row is laid out when it is read.

    Pairs in two documents are read with both documents, pairs within one document with this
    document (CDLM, appendix C.1).

    Args:
        documents: the documents with their mentions.
        processor: processor that makes rows of token ids.
        group_by: ``"subtopic"`` or ``"topic"``, the group within which mentions are compared.
        mentions_at_once: ``"pair"``: two mentions in a sequence (the paper's); ``"all"``: all
            mentions of two documents are marked and all pairs are scored in one pass, which takes a
            small part of the time.
        context: ``"document"``: whole documents; ``"sentence"``: only the sentences with the
            mentions (the paper's Table 3).
        negatives: number of pairs without coreference for each coreferent pair, drawn at random;
            None for all. Only used if `mentions_at_once` is ``"pair"``.

    Attributes:
        pairs: the pairs of each sequence, by the indices of the mentions in all documents.
    """

    def __init__(
        self,
        documents: Sequence[CoreferenceDocument],
        processor: CdlmProcessor,
        group_by: str = "subtopic",
        mentions_at_once: str = "pair",
        context: str = "document",
        negatives: float | None = None,
    ) -> None:
        self._processor = processor
        self._documents = documents
        self._groups = mention_groups(documents, group_by)
        self._context = context
        self._mentions = []
        self._document_of = []
        for index, document in enumerate(documents):
            self._mentions += document.mentions
            self._document_of += [index] * len(document.mentions)
        self._pieces: dict[str, Piece] = {}  # tokenized texts

        pairs_of_sequences = self._group_pairs(mentions_at_once)
        if mentions_at_once == "pair" and negatives is not None:
            pairs_of_sequences = self._draw(pairs_of_sequences, negatives)
        if not pairs_of_sequences:
            raise ValueError(
                f"There are no two mentions in one {group_by}, so there is nothing to compare."
            )
        self._sequences = [self._new_sequence(pairs) for pairs in pairs_of_sequences]
        self._sequences.sort(key=attrgetter("length"))
        self.pairs = [sequence.pairs for sequence in self._sequences]

        # Long sequences are laid out once here, so that mentions that do not fit are an error
        # before training.
        long_rows = []
        for index, sequence in enumerate(self._sequences):
            if sequence.length > processor.max_length:
                long_rows.append(self[index])
        warn_of_cuts(long_rows)

    def _documents_of(self, pair: Pair) -> tuple[int, int]:
        first, second = pair
        return self._document_of[first], self._document_of[second]

    def _group_pairs(self, mentions_at_once: str) -> list[list[Pair]]:
        """Returns all pairs of mentions of one group; pairs of one sequence are together."""
        sequences = []
        for mentions in self._groups:
            pairs = sorted(itertools.combinations(mentions, 2), key=self._documents_of)
            if mentions_at_once == "all":
                for _, same_documents in itertools.groupby(pairs, self._documents_of):
                    sequences.append(list(same_documents))
            else:
                sequences += [[pair] for pair in pairs]
        return sequences

    def _draw(self, sequences: list[list[Pair]], negatives: float) -> list[list[Pair]]:
        """Returns all sequences of a coreferent pair, and some others, in their order."""
        is_coreferent = np.array([self._is_coreferent(pair) for [pair] in sequences], dtype=bool)
        coreferent = np.flatnonzero(is_coreferent)
        others = np.flatnonzero(~is_coreferent)
        count = min(len(others), round(negatives * len(coreferent)))
        drawn = np.random.default_rng(0).choice(others, count, replace=False)
        return [sequences[index] for index in sorted([*coreferent, *drawn])]

    def _new_sequence(self, pairs: list[Pair]) -> _Sequence:
        """Reads the texts of the documents of these pairs, and the spans of the mentions there."""
        mentions = sorted(set(itertools.chain.from_iterable(pairs)))
        pieces: list[Piece] = []
        spans = []
        for index, mentions_of_text in itertools.groupby(mentions, self._document_of.__getitem__):
            document = self._documents[index]
            marked = [self._mentions[mention] for mention in mentions_of_text]
            if self._context == "sentence":
                text, borders = _sentences_only(document, marked)
            else:
                text = document.text
                borders = [(mention.start, mention.end) for mention in marked]
            spans += [(len(pieces), start, end) for start, end in borders]
            if text not in self._pieces:
                self._pieces[text] = self._processor.tokenize(text)
            pieces.append(self._pieces[text])

        position_of = {mention: position for position, mention in enumerate(mentions)}
        layout = {
            "documents": pieces,
            "mentions": spans,
            "pairs": [(position_of[first], position_of[second]) for first, second in pairs],
            "labels": [self._is_coreferent(pair) for pair in pairs],
        }
        length = 2 + 2 * len(pieces) + 2 * len(spans)  # special tokens and marks
        length += sum(len(piece.ids) for piece in pieces)
        return _Sequence(length, pairs, layout)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._processor.mentions(**self._sequences[index].layout)

    def similarities(self, logits: Sequence[np.ndarray] | np.ndarray) -> Similarities:
        """Computes the probability that two mentions corefer, for all pairs in a group.

        Args:
            logits: logits of the pairs of each sequence. All pairs must be there, as with
                ``negatives=None``; padding may follow the logits of a sequence.

        Returns:
            The indices of the mentions of each group, and the probabilities ``[n, n]``.
        """
        probability: dict[Pair, float] = {}
        for pairs, scores in zip(self.pairs, logits, strict=True):
            probability |= zip(pairs, expit(scores[: len(pairs)]), strict=True)

        groups = []
        for mentions in self._groups:
            values = [probability[pair] for pair in itertools.combinations(mentions, 2)]
            groups.append((mentions, squareform(values) + np.eye(len(mentions))))
        return groups

    def _is_coreferent(self, pair: Pair) -> int:
        first, second = pair
        return int(self._mentions[first].cluster == self._mentions[second].cluster)


def _sentences_only(
    document: CoreferenceDocument, marked: list[CoreferenceMention]
) -> tuple[str, list[tuple[int, int]]]:
    """Returns the sentences of these mentions, a line each, and the spans of the mentions there."""
    text = ""
    shifts = {}
    for sentence in sorted({mention.sentence for mention in marked}):
        start, end = document.sentences[sentence]
        shifts[sentence] = len(text) - start
        text += f"{document.text[start:end]}\n"

    spans = []
    for mention in marked:
        shift = shifts[mention.sentence]
        spans.append((mention.start + shift, mention.end + shift))
    return text[:-1], spans


# --- Clusters


def cluster_mentions(groups: Similarities, threshold: float) -> list[str]:
    """Clusters mentions agglomeratively, as long as the mean probability is above the threshold.

    Args:
        groups: groups and probabilities from `MentionPairDataset.similarities`.
        threshold: lowest mean probability for merging two clusters.

    Returns:
        A cluster for every mention, in order.
    """
    clustering = AgglomerativeClustering(
        n_clusters=None,
        metric="precomputed",
        linkage="average",
        distance_threshold=1 - threshold,
    )
    names = {}
    for group, (mentions, probability) in enumerate(groups):
        clusters = [0]
        if len(mentions) > 1:
            clusters = clustering.fit_predict(1 - probability)
        for mention, cluster in zip(mentions, clusters, strict=True):
            names[mention] = f"{group}-{cluster}"
    return [names[mention] for mention in sorted(names)]


def best_threshold(documents: Sequence[CoreferenceDocument], groups: Similarities) -> float:
    """Returns the threshold, in steps of 0.05, with the highest CoNLL F1."""
    gold = clusters_of(documents)

    def conll_f1(threshold: float) -> float:
        return coreference_scores(gold, cluster_mentions(groups, threshold))["conll_f1"]

    return max(np.arange(0.05, 1.0, 0.05).tolist(), key=conll_f1)


def cluster_f1(documents: Sequence[CoreferenceDocument], clusters: Sequence[object]) -> Scores:
    """Returns the F1 of each metric for clusters of all mentions."""
    scores = coreference_scores(clusters_of(documents), clusters)
    return {name: value for name, value in scores.items() if name.endswith("f1")}


def _every_mention_alone(documents: Sequence[CoreferenceDocument]) -> Scores:
    return cluster_f1(documents, range(len(clusters_of(documents))))


# --- The task


@dataclass
class CoreferenceArguments:
    """Chooses the mentions to compare."""

    _argument_group_name = "coreference"

    mention_kind: Literal["event", "entity"] = option("event", "Mentions of ECB+ to link.")
    context: Literal["document", "sentence"] = option(
        "document", "Text around the mentions: whole documents, or only their sentences (Table 3)."
    )
    mentions_at_once: Literal["pair", "all"] = option(
        "pair",
        "Mentions in a sequence: one pair of mentions, as in the paper (pair), or all mentions of"
        " two documents, which is many times faster (all).",
    )
    group_by: Literal["subtopic", "topic"] = option(
        "subtopic", "Compare only mentions in documents of the same subtopic, or of the same topic."
    )
    negatives_per_positive: float = option(
        1.0,
        "With --mentions_at_once pair, number of training pairs that do not corefer for each pair"
        " that does.",
    )


def _records(
    documents: Sequence[CoreferenceDocument], clusters: Sequence[str]
) -> list[dict[str, object]]:
    """Returns each mention with its right and its predicted cluster."""
    records = []
    cluster_of_next = iter(clusters)
    for document in documents:
        for mention in document.mentions:
            record = {
                "document": document.id,
                "start": mention.start,
                "end": mention.end,
                "text": document.text[mention.start : mention.end],
                "gold": mention.cluster,
                "cluster": next(cluster_of_next),
            }
            records.append(record)
    return records


def main(argv: list[str]) -> None:
    """Links mentions across documents with CDLM; the validation set decides the threshold."""
    model_args, args, data_args, options = parse(
        (CdlmModelArguments, FinetuningArguments, DataArguments, CoreferenceArguments),
        argv,
        about=main.__doc__,
        recipes="coreference-",
    )
    if data_args.dataset_name:
        raise ValueError(
            "ECB+ is read from a folder or a file: give it with --train_file, not with"
            " --dataset_name."
        )

    for name in ("train", "validation", "test"):
        source = getattr(data_args, f"{name}_file")
        has_split = getattr(data_args, f"{name}_split") is not None
        if source and Path(source).is_dir() and not has_split:
            raise ValueError(
                f"{source} holds the topics of all splits, test topics too; give --{name}_split as"
                " well."
            )

    def read(source: str, split: str, config: str | None) -> list[CoreferenceDocument]:
        split_of_folder = None
        if Path(source).is_dir():
            split_of_folder = split
        return read_ecbplus(source, mention_kind=options.mention_kind, split=split_of_folder)

    sets = data_args.read_sets(
        read,
        seed=args.seed,
        hold_out=partial(hold_out, key=attrgetter("topic")),  # no cluster of events is in two
    )

    def sequences(name: str, processor: CdlmProcessor) -> MentionPairDataset:
        negatives = None
        if name == "train":
            negatives = options.negatives_per_positive
        return MentionPairDataset(
            sets[name],
            processor,
            group_by=options.group_by,
            mentions_at_once=options.mentions_at_once,
            context=options.context,
            negatives=negatives,
        )

    def choose(rows: MentionPairDataset, logits: np.ndarray) -> Scores:
        groups = rows.similarities(logits)
        return {"coreference_threshold": best_threshold(sets["validation"], groups)}

    def predict(
        name: str, rows: MentionPairDataset, logits: np.ndarray, chosen: Scores
    ) -> Predicted:
        clusters = cluster_mentions(rows.similarities(logits), chosen["coreference_threshold"])
        return cluster_f1(sets[name], clusters), _records(sets[name], clusters)

    train_and_publish(
        CdlmForCrossDocumentCoreference,
        sets,
        sequences=sequences,
        predict=predict,
        choose=choose,
        baseline=("every mention alone", _every_mention_alone),
        card=_CARD,
        metric="conll_f1",
        settings={"task": "coreference", **vars(options)},
        model_args=model_args,
        args=args,
        data_args=data_args,
    )
