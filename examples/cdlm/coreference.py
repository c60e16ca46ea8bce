"""Links mentions of one event or entity across the documents of ECB+: Tables 2 and 3.

"CDLM: Cross-Document Language Modeling" (Caciularu et al., 2021), section 3.2 and appendix C.1.
Gold mentions are compared pair by pair, and clustered by average linkage; the validation set
decides the threshold. `ecbplus.py` makes the files.

    python examples/cdlm/coreference.py --recipe examples/recipes/cdlm_coreference.yaml \
        --model MODEL --train_file ecbplus/train.jsonl --validation_file ecbplus/validation.jsonl \
        --test_file ecbplus/test.jsonl --output_dir linker

`--mention_kind entity` links entities, and `--context sentence` reads only the sentences with the
mentions (Table 3).
"""

import json
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

import evaluate
import numpy as np
from common import CdlmArguments, about, open_cdlm, parse_arguments
from ecbplus import CoreferenceDocument, clusters_of, read_documents
from mention_pairs import MentionPairDataset, Similarities
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GroupShuffleSplit
from transformers import Trainer, set_seed

from nextlevelbert import CdlmForCrossDocumentCoreference
from nextlevelbert.command import run_command

METRIC = Path(__file__).parents[2] / "metrics" / "conll_coreference"
HELD_OUT = 0.2  # share of the topics to validate on if there is no validation file


@dataclass(kw_only=True)
class CoreferenceArguments(CdlmArguments):
    """Options beside those of `TrainingArguments`."""

    train_file: str = about("Training documents, as ecbplus.py writes them.", default=MISSING)
    validation_file: str | None = about(
        "Documents that decide the threshold (default: 20 % of the topics of --train_file)."
    )
    test_file: str | None = about("Documents to report on.")
    mention_kind: Literal["event", "entity"] = about("Mentions to link.", default="event")
    context: Literal["document", "sentence"] = about(
        "Text around the mentions: whole documents, or only their sentences.", default="document"
    )
    mentions_at_once: Literal["pair", "all"] = about(
        "Mentions in a sequence: one pair of mentions, as in the paper (pair), or all mentions of"
        " two documents, which is many times faster (all).",
        default="pair",
    )
    group_by: Literal["subtopic", "topic", "clusters"] = about(
        "Compare only mentions in documents of the same subtopic, of the same topic, or of the same"
        " cluster of similar documents; then training compares the mentions of a topic.",
        default="subtopic",
    )
    negatives_per_positive: float | None = about(
        "With --mentions_at_once pair, number of training pairs that do not corefer for each pair"
        " that does, drawn at random (default: all pairs)."
    )


# --- Groups of documents, and clusters of mentions


def group_documents(documents: Sequence[CoreferenceDocument], group_by: str) -> list[Any]:
    """Returns the group of each document: its subtopic, its topic, or a cluster of documents.

    As in Barhom et al. (2019), whose clusters Cattan et al. (2020) use, documents are clustered by
    TF-IDF, and the highest silhouette decides their number; the linkage here is the average one. On
    the validation topics of ECB+ this makes 23 clusters of 16 subtopics.
    """
    if group_by != "clusters":
        return [getattr(document, group_by) for document in documents]

    vectorizer = TfidfVectorizer(stop_words="english")
    vectors = vectorizer.fit_transform([document.text for document in documents]).toarray()
    distances = np.maximum(1 - vectors @ vectors.T, 0)
    np.fill_diagonal(distances, 0)
    best_score = -1.0
    best_labels = np.zeros(len(documents), dtype=int)
    for count in range(2, 1 + len(documents) // 2):
        clustering = AgglomerativeClustering(count, metric="precomputed", linkage="average")
        labels = clustering.fit_predict(distances)
        score = silhouette_score(distances, labels, metric="precomputed")
        if score > best_score:
            best_score = score
            best_labels = labels
    return best_labels.tolist()


def cluster_mentions(groups: Similarities, threshold: float) -> list[str]:
    """Clusters mentions by average linkage, while the mean probability is above the threshold.

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


def best_threshold(gold: list[str], groups: Similarities, metric: Any) -> float:
    """Returns the threshold, in steps of 0.05, with the highest CoNLL F1."""

    def conll_f1(threshold: float) -> float:
        predicted = cluster_mentions(groups, threshold)
        return metric.compute(predictions=predicted, references=gold)["conll_f1"]

    return max(np.arange(0.05, 1.0, 0.05).tolist(), key=conll_f1)


def write_predictions(
    path: Path, documents: Sequence[CoreferenceDocument], clusters: Sequence[str]
) -> None:
    """Writes each mention with its right and its predicted cluster."""
    cluster_of_next = iter(clusters)
    with path.open("w", encoding="utf-8") as file:
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
                file.write(json.dumps(record) + "\n")


# --- The experiment


def read_sets(options: CoreferenceArguments, seed: int) -> dict[str, list[CoreferenceDocument]]:
    """Reads the documents of each set, with gold mentions."""
    sets = {}
    for name in ("train", "validation", "test"):
        path = getattr(options, f"{name}_file")
        if path is not None:
            sets[name] = read_documents(path, options.mention_kind)
    if "validation" not in sets:
        # Topics are held out as a whole, so that no cluster of events is in both sets.
        documents = sets["train"]
        topics = [document.topic for document in documents]
        splitter = GroupShuffleSplit(n_splits=1, test_size=HELD_OUT, random_state=seed)
        [(training, validation)] = splitter.split(documents, groups=topics)
        sets["train"] = [documents[index] for index in training]
        sets["validation"] = [documents[index] for index in validation]
    return sets


def main(argv: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Trains and evaluates; returns the scores by the name of a set."""
    options, args = parse_arguments(CoreferenceArguments, argv)
    set_seed(args.seed)

    # 1. Documents with gold mentions.
    sets = read_sets(options, args.seed)

    # 2. The model, and the pairs of mentions that it compares.
    model, processor = open_cdlm(CdlmForCrossDocumentCoreference, options)
    rows = {}
    for name, documents in sets.items():
        group_by = options.group_by
        negatives = None
        if name == "train":
            negatives = options.negatives_per_positive
            group_by = group_by.replace("clusters", "topic")
        rows[name] = MentionPairDataset(
            documents,
            processor,
            groups=group_documents(documents, group_by),
            mentions_at_once=options.mentions_at_once,
            context=options.context,
            negatives=negatives,
        )

    # 3. Training: binary cross-entropy over the pairs.
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=lambda batch: dict(processor.pad(batch)),
        train_dataset=rows.pop("train"),
        eval_dataset=rows["validation"],
        processing_class=processor,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

    # 4. The threshold of the validation set makes the clusters of both sets.
    metric = evaluate.load(str(METRIC))
    scores = {}
    for name, pairs in rows.items():
        gold = clusters_of(sets[name])
        groups = pairs.similarities(trainer.predict(pairs).predictions)
        if name == "validation":
            model.config.coreference_threshold = best_threshold(gold, groups, metric)
        clusters = cluster_mentions(groups, model.config.coreference_threshold)
        scores[name] = metric.compute(predictions=clusters, references=gold)
        alone = metric.compute(predictions=list(map(str, range(len(gold)))), references=gold)
        scores[name]["conll_f1_of_every_mention_alone"] = alone["conll_f1"]
        trainer.log_metrics(name, scores[name])
        trainer.save_metrics(name, scores[name])
        path = Path(args.output_dir) / f"{name}_predictions.jsonl"
        write_predictions(path, sets[name], clusters=clusters)

    # 5. The model, with the threshold in its configuration.
    trainer.save_model()
    if args.push_to_hub:
        trainer.push_to_hub()
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
