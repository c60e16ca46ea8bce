"""Cross-document coreference with CDLM: ECB+, pairs of mentions, their clusters, and the script
from files to scores."""

import itertools
import json
import shutil
from pathlib import Path

import evaluate
import numpy as np
import pytest
import torch

from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor

from ...toys.finetuning import predictions, write
from .scripts import ROOT, TRAINING, coreference, ecbplus, mention_pairs

# ECB+.


@pytest.fixture
def folder(tmp_path):
    """Three documents of topics 1 and 2 in the layout of ECB+.

    In 1_10ecb, the second sentence was not validated, and the tokens of a mention are not in order.
    """
    files = Path(__file__).with_name("ecbplus")
    return shutil.copytree(files, tmp_path / "ecbplus") / "ECB+"


def shown(document):
    """Words, cluster and sentence of its mentions."""
    mentions: list[tuple[str, str, int]] = []
    for start, end, cluster, sentence in document.mentions:
        mentions.append((document.text[start:end], cluster, sentence))
    return mentions


def written(folder, split):
    """The documents of a split that the script has written beside the distribution."""
    return folder.parent / "rows" / f"{split}.jsonl"


def test_the_distributions_xml(folder):
    ecbplus.main([str(folder), "--output_dir", str(folder.parent / "rows")])

    small, one = ecbplus.read_documents(written(folder, "train"))
    [other] = ecbplus.read_documents(written(folder, "validation"))
    assert written(folder, "test").read_text() == ""
    assert (small.id, small.topic, small.subtopic) == ("1_2ecb", 1, "1_ecb")
    assert (one.id, one.topic, one.subtopic) == ("1_10ecb", 1, "1_ecb")
    assert (other.id, other.topic, other.subtopic) == ("2_1ecbplus", 2, "2_ecbplus")
    assert shown(small) == [("walkout", "ACT5", 0)]
    assert shown(one) == [
        ("walked straight out", "ACT5", 0),
        ("return", "1_10ecb#77", 2),
        ("said", one.mentions[2].cluster, 2),  # in no relation: a label of its own
    ]
    assert shown(other) == [("named", "2_1ecbplus#77", 1)]
    assert len(set(ecbplus.clusters_of([small, one, other]))) == 4
    assert small.text == "A walkout & more"
    assert one.text == "Writers today walked straight out\nIt ended\nThey never return , they said"
    sentences = [one.text[start:end] for start, end in one.sentences]
    assert sentences == one.text.splitlines()
    _, entities = ecbplus.read_documents(written(folder, "train"), "entity")
    writers, today = shown(entities)
    assert writers == ("Writers", "1_10ecb#77", 0)
    assert today[0] == "today"


def test_a_damaged_document_is_named(folder):
    text = (folder / "1" / "1_2ecb.xml").read_text()
    (folder / "1" / "1_3ecb.xml").write_text(text.replace('anchor t_id="2"', 'anchor t_id="9"'))

    with pytest.raises(ValueError, match=r"1_3ecb\.xml"):
        ecbplus.main([str(folder.parent), "--output_dir", str(folder.parent / "rows")])


def test_the_topics_of_the_splits():
    """Cybulska and Vossen (2015): 36 to 45 are the test topics."""
    splits = ecbplus.SPLITS

    assert splits["test"] == frozenset(range(36, 46))
    assert splits["validation"] == {2, 5, 12, 18, 21, 23, 34, 35}
    assert splits["train"] | splits["validation"] == set(range(1, 36))
    assert not splits["train"] & splits["validation"]


def test_parsed_rows(tmp_path):
    fell = {
        "start": 3,
        "end": 7,
        "type": "ACTION_OCCURRENCE",
        "cluster": "ACT1",
        "sentence": 3,
    }
    rose = {
        "start": 12,
        "end": 16,
        "type": "NEG_ACTION_STATE",
        "cluster": None,
        "sentence": 4,
    }
    row = {
        "doc_id": "7_1ecb",
        "topic": 7,
        "subtopic": "7_ecb",
        "text": "It fell.\nIt rose.",
        "sentences": [[0, 8], [9, 17]],
        "sentence_ids": [3, 4],
        "validated_sentences": [4],
    }
    path = write(tmp_path / "rows.jsonl", [{**row, "mentions": [fell, rose]}])
    [document] = ecbplus.read_documents(path)
    # The other sentence was not validated.
    mentions = [ecbplus.CoreferenceMention(12, 16, "7_1ecb@1", 1)]

    assert document == ("7_1ecb", 7, "7_ecb", row["text"], [(0, 8), (9, 17)], mentions)

    late = {**row, "mentions": [{**rose, "end": 18}]}
    good = {**row, "mentions": [rose]}
    for rows, word in (([late], "mention 0"), ([good, good], "7_1ecb")):
        with pytest.raises(ValueError, match=word):
            ecbplus.read_documents(write(tmp_path / "bad.jsonl", rows))
    with pytest.raises(ValueError, match="no entity mention"):
        ecbplus.read_documents(path, "entity")


@pytest.mark.parametrize("changed", [{"mentions": [{"start": 0, "end": 2}]}, {"topic": ...}])
def test_a_malformed_row_is_named_by_file_and_line(tmp_path, changed):
    row = {
        "doc_id": "1_2ecb",
        "topic": 1,
        "subtopic": "1_ecb",
        "text": "It fell.",
        "sentences": [[0, 8]],
        "sentence_ids": [0],
        "validated_sentences": [0],
        "mentions": [],
    }
    malformed = {**row, "doc_id": "1_3ecb", **changed}
    if changed.get("topic") is ...:
        del malformed["topic"]

    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2.*, column '"):
        ecbplus.read_documents(write(tmp_path / "rows.jsonl", [row, malformed]))


# Counts of mentions as published for these splits; of clusters, with a mention in no relation as
# one by itself.
@pytest.mark.parametrize(
    ("split", "kind", "documents", "mentions", "clusters"),
    [("train", "event", 575, 3808, 1527), ("validation", "entity", 197, 1476, 330)],
)
def test_ecbplus_has_the_published_counts(shared, split, kind, documents, mentions, clusters):
    data = ecbplus.read_documents(shared / "data" / "ecbplus" / f"{split}.jsonl.gz", kind)

    assert len(data) == documents
    assert len(ecbplus.clusters_of(data)) == mentions
    assert len(set(ecbplus.clusters_of(data))) == clusters
    for document in data:
        for mention in document.mentions:
            start, end = document.sentences[mention.sentence]
            assert start <= mention.start < mention.end <= end


# Pairs.


def document(name, subtopic, lines, mentions):
    """A document of lines, and mentions by their words (which stand there once) and clusters."""
    text = "\n".join(lines)
    sentences: list[tuple[int, int]] = []
    first = 0
    for line in lines:
        sentences.append((first, first + len(line)))
        first += len(line) + 1
    marked = []
    for words, cluster in mentions:
        start = text.index(words)
        sentence = text.count("\n", 0, start)
        marked.append(ecbplus.CoreferenceMention(start, start + len(words), cluster, sentence))
    return ecbplus.CoreferenceDocument(
        name,
        topic=int(subtopic[0]),
        subtopic=subtopic,
        text=text,
        sentences=sentences,
        mentions=marked,
    )


NEWS = [
    document(
        "a",
        "1_ecb",
        ["Apple sued Samsung.", "Nothing else.", "A judge ruled."],
        [("sued", "S"), ("ruled", "R")],
    ),
    document("b", "1_ecb", ["The lawsuit was filed.", "It rained."], [("lawsuit", "S")]),
    document("c", "1_ecb", ["No mention."], []),
    document("d", "2_ecb", ["It burned.", "The fire spread."], [("burned", "F"), ("fire", "F")]),
]
WORDS = ["sued", "ruled", "lawsuit", "burned", "fire"]


def pairs_dataset(documents, processor, group_by="subtopic", **options):
    groups = coreference.group_documents(documents, group_by)
    return mention_pairs.MentionPairDataset(documents, processor, groups, **options)


def texts_of(rows, processor):
    return {processor.tokenizer.decode(row["input_ids"]) for row in rows}


def pairs_of(rows, processor):
    """Label of every pair, by the words of the mentions; none comes twice."""
    labels: dict[tuple[str, ...], int] = {}
    for pairs, row in zip(rows.pairs, rows, strict=True):
        for numbers, pair, label in zip(pairs, row["mention_pairs"], row["labels"], strict=True):
            for number, local in zip(numbers, pair, strict=True):
                start, end = row["mention_spans"][local]
                assert processor.tokenizer.decode(row["input_ids"][start:end]) == WORDS[number]
            assert numbers not in labels
            labels[numbers] = label
    return labels


@pytest.mark.parametrize(
    ("at_once", "sequences", "end"),
    [("pair", 4, "ruled."), ("all", 3, "<m> ruled </m>.")],  # all: a alone, a and b, d alone
)
def test_every_pair_of_a_subtopic_is_read_once(processor, at_once, sequences, end):
    """Mentions 0 and 1 are of a, 2 of b, 3 and 4 of d: three pairs in the first subtopic, one in
    the second."""
    rows = pairs_dataset(NEWS, processor, mentions_at_once=at_once)

    assert pairs_of(rows, processor) == {(0, 1): 0, (0, 2): 1, (1, 2): 0, (3, 4): 1}
    assert len(rows) == sequences
    lengths = [len(row["input_ids"]) for row in rows]
    assert lengths == sorted(lengths)
    both = f"[CLS] <doc-s> apple <m> sued </m> samsung. nothing else. a judge {end} </doc-s> "
    both += "<doc-s> the <m> lawsuit </m> was filed. it rained. </doc-s> [SEP]"
    assert both in texts_of(rows, processor)


@pytest.mark.parametrize(("group_by", "count"), [("subtopic", 4), ("topic", 4 + 3)])
def test_which_pairs_are_compared(processor, group_by, count):
    moved = [*NEWS, document("e", "1_ecbplus", ["They sue."], [("sue", "S")])]

    assert sum(map(len, pairs_dataset(moved, processor, group_by).pairs)) == count
    with pytest.raises(ValueError, match="nothing is compared"):
        pairs_dataset(NEWS[1:3], processor)


def test_documents_of_a_topic_are_clustered():
    """Documents about storms and about courts, in any order, without their topics."""
    texts = [
        "A storm flooded the coast. Rain and wind from the storm went on.",
        "The court heard the lawsuit. A judge ruled for Apple in the lawsuit.",
        "Wind and rain flooded a town on the coast; the storm passed.",
        "Apple won its lawsuit, the judge of the court ruled.",
        "The coast was flooded by rain, and the storm brought wind.",
        "In the lawsuit, a judge of the court ruled against Apple.",
    ]
    documents = [document(str(index), "1_ecb", [text], []) for index, text in enumerate(texts)]

    storm, court, *others = coreference.group_documents(documents, "clusters")

    assert storm != court
    assert others == [storm, court, storm, court]


@pytest.mark.parametrize(
    ("ratio", "negatives"), [(0.0, 0), (0.5, 1), (1.0, 2), (9.0, 2), (None, 2)]
)
def test_which_pairs_are_drawn(processor, ratio, negatives):
    """Two of the four pairs are coreferent; by default all are read, as in Cattan et al."""
    rows = pairs_dataset(NEWS, processor, negatives=ratio)

    assert sorted(pairs_of(rows, processor).values()) == [0] * negatives + [1, 1]


def test_sentences_only_leave_the_others_out(processor):
    texts = texts_of(pairs_dataset(NEWS, processor, context="sentence"), processor)

    assert (
        "[CLS] <doc-s> apple <m> sued </m> samsung. a judge <m> ruled </m>. </doc-s> [SEP]" in texts
    )
    both = (
        "<doc-s> apple <m> sued </m> samsung. </doc-s> <doc-s> the <m> lawsuit </m> was filed."
        " </doc-s>"
    )
    assert f"[CLS] {both} [SEP]" in texts


def test_no_mention_is_lost_where_documents_are_cut(processor, capsys):
    small = CdlmProcessor(processor.tokenizer, 20)

    rows = pairs_dataset(NEWS, small)

    assert "Documents lose" in capsys.readouterr().out
    assert pairs_of(rows, small) == {(0, 1): 0, (0, 2): 1, (1, 2): 0, (3, 4): 1}
    assert max(len(row["input_ids"]) for row in rows) == 20


# Clusters.


@pytest.fixture
def groups(processor):
    """Three mentions, on average alike with .4 (0 and 2 with .9, 1 and 2 with .6, 0 and 1 with .2),
    and two more."""
    rows = pairs_dataset(NEWS, processor, mentions_at_once="all")
    expected = {(0, 1): 0.2, (0, 2): 0.9, (1, 2): 0.6, (3, 4): 0.5}
    logits = []
    for pairs in rows.pairs:
        odds = np.array([expected[pair] for pair in pairs])
        logits.append(np.append(np.log(odds / (1 - odds)), -100))  # padding
    return rows.similarities(logits)


def test_similarities_are_probabilities_within_a_group(groups):
    (numbers, matrix), (others, _) = groups

    assert (numbers, others) == ([0, 1, 2], [3, 4])

    np.testing.assert_allclose(matrix, [[1, 0.2, 0.9], [0.2, 1, 0.6], [0.9, 0.6, 1]])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.95, "abcde"), (0.7, "abade"), (0.45, "abadd"), (0.35, "aaadd")],
)
def test_mentions_are_clustered_by_the_mean_probability(groups, threshold, expected):
    """Expected is a letter for each mention: that of its cluster."""
    labels = coreference.cluster_mentions(groups, threshold)

    same = np.array(labels)[:, None] == np.array(labels)
    letters = np.array(list(expected))
    np.testing.assert_array_equal(same, letters[:, None] == letters)


@pytest.fixture(scope="module")
def metric():
    return evaluate.load(str(coreference.METRIC))


def test_the_best_threshold(groups, metric):
    """Between 0.4 and 0.5 the clusters are the right ones."""
    gold = ecbplus.clusters_of(NEWS)

    assert 0.4 <= coreference.best_threshold(gold, groups, metric) < 0.5


def test_the_threshold_has_steps_of_a_twentieth(metric):
    """Two pairs of the four mentions belong together, at 0.18; all other pairs score 0.12."""
    probability = np.full((4, 4), 0.12)
    probability[[0, 1, 2, 3], [1, 0, 3, 2]] = 0.18
    np.fill_diagonal(probability, 1)
    groups = [([0, 1, 2, 3], probability)]

    threshold = coreference.best_threshold(["S", "S", "R", "R"], groups, metric)

    assert threshold == pytest.approx(0.15)


# The script.


def stories(topics, rng):
    """Four documents of each topic, with a quake and a trial in either order."""
    rows = []
    for topic, number in itertools.product(topics, range(4)):
        first, second = rng.permutation(["quake", "trial"]).tolist()
        lines = [f"They saw the {first} here.", f"They saw the {second} there."]
        mentions = [(first, f"{topic}-{first}"), (second, f"{topic}-{second}")]
        story = document(f"{topic}-{number}", f"{topic}_ecb", lines, mentions)
        marked = [mention._asdict() | {"type": "ACTION_OCCURRENCE"} for mention in story.mentions]
        row = story._asdict() | {"doc_id": story.id, "mentions": marked}
        rows.append(row | {"sentence_ids": [0, 1], "validated_sentences": [0, 1]})
    return rows


def test_coreference_is_learnt(encoder, tmp_path):
    """Of news about quakes and trials, a mention is coreferent with those of the same word."""
    rng = np.random.default_rng(0)
    output = tmp_path / "linker"
    argv = ["--model", encoder, "--mentions_at_once", "all", "--num_train_epochs", "10"]
    argv += [*TRAINING, "--output_dir", str(output)]
    for name, topics in (("train", (1, 3, 4)), ("validation", (6, 7)), ("test", (2, 5))):
        argv += [f"--{name}_file", write(tmp_path / f"{name}.jsonl", stories(topics, rng))]

    scores = coreference.main(argv)["test"]

    assert scores["conll_f1"] > scores["conll_f1_of_every_mention_alone"] + 0.2
    # The saved model and its threshold make the clusters that were scored.
    model = CdlmForCrossDocumentCoreference.from_pretrained(output).eval()
    processor = CdlmProcessor.from_pretrained(output)
    documents = ecbplus.read_documents(tmp_path / "test.jsonl")
    pairs = pairs_dataset(documents, processor, mentions_at_once="all")
    with torch.no_grad():
        logits = [model(**processor.pad([row])).logits[0].numpy() for row in pairs]
    groups = pairs.similarities(logits)
    clusters = coreference.cluster_mentions(groups, model.config.coreference_threshold)
    for cluster, row in zip(clusters, predictions(output / "test_predictions.jsonl"), strict=True):
        assert cluster == row["cluster"]


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 1), (1.0, 8)])
def test_clusters_are_those_of_the_chosen_threshold(
    threshold, count, encoder, tmp_path, monkeypatch
):
    """At 0 all mentions of a topic are one cluster, and at 1 each mention is one."""
    monkeypatch.setattr(coreference, "best_threshold", lambda *parts: threshold)
    rows = stories((1, 2), np.random.default_rng(0))
    argv = ["--model", encoder, "--train_file", write(tmp_path / "rows.jsonl", rows), *TRAINING]

    coreference.main([*argv, "--max_steps", "1", "--output_dir", str(tmp_path)])

    written_rows = predictions(tmp_path / "validation_predictions.jsonl")
    assert len({row["cluster"] for row in written_rows}) == count


class Stopped(Exception):
    """The trainer would be made now."""


@pytest.fixture
def trainer_parts(encoder, tmp_path, monkeypatch):
    """The arguments, the training and the validation pairs that a command line leads to."""

    def parts_of(rows, *argv):
        made = {}

        def stop(**parts):
            made.update(parts)
            raise Stopped

        monkeypatch.setattr(coreference, "Trainer", stop)
        words = ["--model", encoder, "--train_file", write(tmp_path / "rows.jsonl", rows)]
        words += ["--output_dir", str(tmp_path), *argv, "--max_length", "60"]
        with pytest.raises(Stopped):
            coreference.main(words)
        return made["args"], made["train_dataset"], made["eval_dataset"]

    return parts_of


def test_topics_are_held_out_as_a_whole(trainer_parts):
    """Each topic has two subtopics; a cluster of a topic may be in both."""
    rows = stories(range(1, 6), np.random.default_rng(0))
    for index, row in enumerate(rows):
        row["subtopic"] += "plus" * (index % 2)

    _, training, validation = trainer_parts(rows)

    [topic] = {document.topic for document in validation.documents}  # a fifth of five
    assert len(validation.documents) == 4
    assert len(training.documents) == 16
    for document_to_train_on in training.documents:
        assert document_to_train_on.topic != topic


def test_the_settings_of_the_papers_arrive(trainer_parts):
    """CDLM names epochs and batch; the other values are those of Cattan et al. (2020)."""
    recipe = str(ROOT / "examples" / "recipes" / "cdlm_coreference.yaml")
    rows = stories((1, 2), np.random.default_rng(0))

    args, training, _ = trainer_parts(rows, "--recipe", recipe)

    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 128
    assert (args.num_train_epochs, args.learning_rate, args.weight_decay) == (10, 1e-5, 0.0)
    # One topic of four documents with two mentions each: all pairs, one a sequence.
    assert len(training.documents) == 4
    assert [len(pairs) for pairs in training.pairs] == [1] * (8 * 7 // 2)


TOY_ROWS = json.loads((ROOT / "tests" / "toys" / "rows.json").read_text())["coreference"]


@pytest.mark.parametrize(
    ("argv", "present", "absent"),
    [
        ((), "<m> sued </m>", "<m> apple"),
        (("--context", "sentence"), "apple <m> sued", "rained"),
        (("--mention_kind", "entity"), "<m> apple </m> sued", "<m> sued"),
    ],
)
def test_options_reach_the_pairs(trainer_parts, argv, present, absent):
    _, training, _ = trainer_parts(TOY_ROWS, *argv)

    text = training.processor.tokenizer.decode(training[0]["input_ids"])
    assert present in text
    assert absent not in text


def test_clusters_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    for _ in range(100):
        size, threshold = int(rng.integers(1, 9)), float(rng.uniform(0.2, 0.8))
        matrix = rng.random((size, size))
        matrix = (matrix + matrix.T) / 2
        np.fill_diagonal(matrix, 1)
        clusters = np.arange(size)  # of each mention
        while True:
            means = {}
            for one, other in itertools.combinations(np.unique(clusters).tolist(), 2):
                means[one, other] = matrix[clusters == one][:, clusters == other].mean()
            nearest = max(means, key=means.get, default=None)
            if nearest is None or means[nearest] <= threshold:
                break
            clusters[clusters == nearest[1]] = nearest[0]
        labels = np.array(coreference.cluster_mentions([(list(range(size)), matrix)], threshold))
        np.testing.assert_array_equal(labels[:, None] == labels, clusters[:, None] == clusters)
