"""Cross-document coreference with CDLM: pairs of mentions, their clusters, and the task from sets to card."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor
from nextlevelbert.tasks.coreference.data import CoreferenceData, CoreferenceDocument, CoreferenceMention
from nextlevelbert.tasks.coreference.pairs import (
    MentionPairDataset,
    PairOptions,
    best_threshold,
    cluster_mentions,
    similarities,
)

from ..finetuning_toys import SCRIPT, write
from .test_document_matching import TRAINING

pytestmark = pytest.mark.usefixtures("no_pictures")


def document(name: str, subtopic: str, lines: list[str], mentions: list[tuple[str, str]]) -> CoreferenceDocument:
    """A document of lines, and mentions by their words (which stand there once) and clusters."""
    text = "\n".join(lines)
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    sentences = [(start, start + len(line)) for start, line in zip(starts, lines, strict=True)]
    found = []
    for words, cluster in mentions:
        start = text.index(words)
        sentence = max(number for number, (first, _) in enumerate(sentences) if first <= start)
        found.append(CoreferenceMention(start, start + len(words), cluster, sentence))
    return CoreferenceDocument(name, int(subtopic[0]), subtopic, text, sentences, found)


def news() -> CoreferenceData:
    return CoreferenceData(
        [
            document("a", "1_ecb", ["Apple sued Samsung.", "Nothing else.", "A judge ruled."],
                     [("sued", "S"), ("ruled", "R")]),
            document("b", "1_ecb", ["The lawsuit was filed.", "It rained."], [("lawsuit", "S")]),
            document("c", "1_ecb", ["No mention."], []),
            document("d", "2_ecb", ["It burned.", "The fire spread."], [("burned", "F"), ("fire", "F")]),
        ],
        "news",
        "event",
    )  # fmt: skip


def shown(processor: CdlmProcessor, row: dict) -> str:
    return processor.tokenizer.decode(row["input_ids"])


WORDS = ["sued", "ruled", "lawsuit", "burned", "fire"]  # of `news`


def pairs_of(rows: MentionPairDataset) -> dict[tuple[int, int], int]:
    """Label of every pair, by the numbers of the mentions in all documents; none comes twice."""
    found: dict[tuple[int, int], int] = {}
    for number, pairs in enumerate(rows.pairs):
        row = rows[number]
        for key, (one, other), label in zip(pairs, row["mention_pairs"], row["labels"], strict=True):
            assert key not in found
            found[key] = label
            for mention, local in zip(key, (one, other), strict=True):
                start, end = row["mention_spans"][local]
                if len(rows._labels) == len(WORDS):
                    assert rows._processor.tokenizer.decode(row["input_ids"][start:end]) == WORDS[mention]
    return found


@pytest.mark.parametrize("at_once", ["pair", "all"])
def test_every_pair_of_a_subtopic_is_read_once(processor, at_once):
    """Mentions 0 and 1 are of a, 2 of b, 3 and 4 of d: three pairs in the first subtopic, one in the second."""
    data = news()
    rows = MentionPairDataset(data, processor, PairOptions(mentions_at_once=at_once), training=False)
    assert pairs_of(rows) == {(0, 1): 0, (0, 2): 1, (1, 2): 0, (3, 4): 1}
    assert len(rows) == (4 if at_once == "pair" else 3)  # a alone, a and b, d alone
    lengths = [len(rows[number]["input_ids"]) for number in range(len(rows))]
    assert lengths == sorted(lengths)
    texts = {shown(processor, rows[number]) for number in range(len(rows))}
    both = "[CLS] <doc-s> apple <m> sued </m> samsung. nothing else. a judge {} </doc-s> "
    both += "<doc-s> the <m> lawsuit </m> was filed. it rained. </doc-s> [SEP]"
    assert both.format("ruled." if at_once == "pair" else "<m> ruled </m>.") in texts


def test_sentences_only_leave_the_others_out(processor):
    rows = MentionPairDataset(news(), processor, PairOptions(context="sentence"), training=False)
    texts = {shown(processor, rows[number]) for number in range(len(rows))}
    assert "[CLS] <doc-s> apple <m> sued </m> samsung. a judge <m> ruled </m>. </doc-s> [SEP]" in texts
    alone = (
        "[CLS] <doc-s> apple <m> sued </m> samsung. </doc-s> <doc-s> the <m> lawsuit </m> was filed. </doc-s> [SEP]"
    )
    assert alone in texts


def test_mentions_at_the_same_place_of_two_documents_stay_in_their_own(processor):
    """Equal in everything but their document."""
    mentions = [CoreferenceMention(0, 4, "F", 0)]
    texts = ["Fire broke out.", "Fire killed two."]
    documents = [CoreferenceDocument(text, 1, "1_ecb", text, [(0, len(text))], mentions) for text in texts]
    for context in ("document", "sentence"):
        rows = MentionPairDataset(
            CoreferenceData(documents, "two", "event"), processor, PairOptions(context), training=False
        )
        expected = "[CLS] <doc-s> <m> fire </m> broke out. </doc-s> <doc-s> <m> fire </m> killed two. </doc-s> [SEP]"
        assert [shown(processor, rows[0]), len(rows)] == [expected, 1]


def test_topics_put_subtopics_together(processor):
    data = news()
    moved = [document("e", "1_ecbplus", ["They sue."], [("sue", "S")]), *data.documents]
    data = CoreferenceData(moved, "news", "event")
    counted = {
        group_by: len(pairs_of(MentionPairDataset(data, processor, PairOptions(group_by=group_by), training=False)))
        for group_by in ("subtopic", "topic")
    }
    assert counted == {"subtopic": 4, "topic": 4 + 3}


def test_training_draws_as_many_negatives_as_it_is_told(processor):
    data = news()
    for ratio, negatives in ((0.0, 0), (0.5, 1), (1.0, 2), (9.0, 2)):  # two of the four pairs are coreferent
        rows = MentionPairDataset(data, processor, PairOptions(negatives_per_positive=ratio), training=True)
        assert sorted(pairs_of(rows).values()) == [0] * negatives + [1, 1]
    everything = MentionPairDataset(data, processor, PairOptions(mentions_at_once="all"), training=True)
    assert len(pairs_of(everything)) == 4


def test_mentions_are_clustered_by_the_mean_probability(processor):
    """Three mentions: 0 and 2 surely the same, 1 and 2 with probability .6, 0 and 1 with .2; on average .4."""
    data = news()
    rows = MentionPairDataset(data, processor, PairOptions(mentions_at_once="all"), training=False)
    wanted = {(0, 1): 0.2, (0, 2): 0.9, (1, 2): 0.6, (3, 4): 0.5}
    logits = []
    for pairs in rows.pairs:
        odds = np.array([wanted[pair] for pair in pairs])
        logits.append(np.append(np.log(odds / (1 - odds)), -100))  # padding
    found = similarities(data, rows.pairs, logits, "subtopic")
    assert [numbers for numbers, _ in found] == [[0, 1, 2], [3, 4]]
    np.testing.assert_allclose(found[0][1], [[1, 0.2, 0.9], [0.2, 1, 0.6], [0.9, 0.6, 1]])

    def groups(threshold: float) -> list[set[int]]:
        labels = cluster_mentions(found, threshold)
        return [{n for n, label in enumerate(labels) if label == each} for each in dict.fromkeys(labels)]

    assert groups(0.95) == [{0}, {1}, {2}, {3}, {4}]
    assert groups(0.7) == [{0, 2}, {1}, {3}, {4}]
    assert groups(0.45) == [{0, 2}, {1}, {3, 4}]
    assert groups(0.35) == [{0, 1, 2}, {3, 4}]  # (.2 + .6) / 2 = .4
    assert 0.4 <= best_threshold(data, found) < 0.5  # where the clusters are the right ones


@pytest.mark.parametrize(
    ("options", "message"),
    [({"context": "page"}, "context must be one of document, sentence"), ({"mentions_at_once": "two"}, "pair, all"),
     ({"group_by": "day"}, "subtopic, topic"), ({"negatives_per_positive": -1.0}, "must not be negative, got -1.0")],
)  # fmt: skip
def test_options_are_looked_at(options, message):
    with pytest.raises(ValueError, match=message):
        PairOptions(**options)


def test_nothing_to_compare_is_an_error(processor):
    data = CoreferenceData(news().documents[1:3], "two", "event")
    with pytest.raises(ValueError, match="two has no two mentions in one subtopic"):
        MentionPairDataset(data, processor, PairOptions(), training=False)


def test_the_loss_of_pairs_does_not_depend_on_batches(encoder, processor):
    torch.manual_seed(0)
    model = CdlmForCrossDocumentCoreference.from_encoder(encoder, max_length=128, attention_window=32)
    CdlmProcessor.from_model(model)
    rows = [*MentionPairDataset(news(), processor, PairOptions(mentions_at_once="all"), training=False)]
    assert len({len(row["labels"]) for row in rows}) > 1
    with torch.no_grad():
        together = model(**processor.pad(rows)).loss
        apart = torch.stack([model(**processor.pad([row])).loss for row in rows]).mean()
    torch.testing.assert_close(together, apart)


def ecb(folder: Path, name: str, subtopics: tuple[str, ...], documents: int, seed: int) -> str:
    """News about quakes and trials in the parsed form of ECB+: a mention is coreferent with those of the same word."""
    draw, made = np.random.default_rng(seed), []
    for subtopic in subtopics:
        for number in range(documents):
            order = draw.permutation(["quake", "trial"])
            lines = [f"They saw the {word} {filler}." for word, filler in zip(order, ("here", "there"), strict=True)]
            text = "\n".join(lines)
            spans = [(0, len(lines[0])), (len(lines[0]) + 1, len(text))]
            mentions = [
                {"start": text.index(word), "end": text.index(word) + 5, "type": "ACTION_OCCURRENCE", "kind": "event",
                 "cluster": f"{subtopic}-{word}", "descriptor": word, "sentence": sentence}
                for sentence, word in enumerate(order)
            ]  # fmt: skip
            made.append(
                {"doc_id": f"{subtopic}-{number}", "topic": subtopic[:-4], "subtopic": subtopic, "text": text,
                 "sentences": spans, "sentence_ids": [0, 1], "validated_sentences": [0, 1], "mentions": mentions}
            )  # fmt: skip
    return write(folder / name, made)


def linker(run_script, encoder: str, data: Path, output: Path, *more: str) -> str:
    return run_script(
        SCRIPT, "--model_type", "cdlm", "--task", "coreference", "--model", encoder, "--mentions_at_once", "all",
        "--train_file", ecb(data, "train.jsonl", ("1_ecb", "3_ecb", "4_ecb"), 4, 0), "--validation_share", "0.3",
        "--test_file", ecb(data, "test.jsonl", ("2_ecb", "5_ecb"), 3, 1), *TRAINING, "--output_dir", str(output),
        *more,
    )  # fmt: skip


def test_coreference_is_learnt_resumed_and_published(run_script, encoder, tmp_path):
    printed = linker(run_script, encoder, tmp_path, tmp_path / "linker", "--num_train_epochs", "8")
    assert "same head lemma" in printed
    results = json.loads((tmp_path / "linker" / "results.json").read_text())
    rows = results["rows"]
    assert rows["same head lemma"]["conll_f1"] == 1.0  # words decide here
    [ours] = [scores for name, scores in rows.items() if name.startswith("tiny (cdlm)")]
    assert ours["conll_f1"] > rows["every mention alone"]["conll_f1"] + 0.2
    predictions = [json.loads(line) for line in (tmp_path / "linker" / "test_predictions.jsonl").open()]
    assert [row["text"] in ("quake", "trial") for row in predictions] == [True] * 12
    # What was published gives the scores that are told.
    model = CdlmForCrossDocumentCoreference.from_pretrained(tmp_path / "linker").eval()
    processor = CdlmProcessor.from_pretrained(tmp_path / "linker")
    assert processor.max_length == 64
    card = (tmp_path / "linker" / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict = {}
    exec(code.replace('"linker"', repr(str(tmp_path / "linker"))), names)
    assert 0 <= float(names["probability"]) <= 1
    assert str(tmp_path) not in card
    assert "\npipeline_tag: token-classification\n" in card
    assert "chosen on this set" not in card  # there was a test set
    [seed] = results["seeds"].values()
    assert model.config.coreference_threshold == seed["coreference_threshold"]
    assert f"| coreference_threshold | `{seed['coreference_threshold']}` |" in card
    row = processor.mentions(["the quake here.", "a quake."], [(0, 4, 9), (1, 2, 7)])
    assert model(**processor.pad([row])).logits.shape == (1, 1)

    # Killed in the middle and started again: the same weights.
    whole = load_file(tmp_path / "linker" / "seed-0" / "model.safetensors")
    again = tmp_path / "again"
    killer = "import os, sys, runpy, transformers\n"
    killer += "old = transformers.Trainer._save_checkpoint\n"
    killer += "def save(self, *a, **k):\n    old(self, *a, **k)\n"
    killer += "    if self.state.epoch >= 4: os._exit(9)\n"
    killer += "transformers.Trainer._save_checkpoint = save\n"
    killer += "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    files = ["--train_file", str(tmp_path / "train.jsonl"), "--test_file", str(tmp_path / "test.jsonl")]
    command = ["--task", "coreference", "--model", encoder, "--mentions_at_once", "all", *files, *TRAINING]
    command += ["--validation_share", "0.3", "--output_dir", str(again), "--num_train_epochs", "8"]
    killed = subprocess.run([sys.executable, "-c", killer, str(SCRIPT), *command], capture_output=True, text=True)
    assert killed.returncode == 9, killed.stderr
    linker(run_script, encoder, tmp_path, again, "--num_train_epochs", "8")
    for name, weight in load_file(again / "seed-0" / "model.safetensors").items():
        torch.testing.assert_close(weight, whole[name], atol=0, rtol=0)

    with pytest.raises(ValueError, match=r"holds a run with other settings .*context"):
        linker(run_script, encoder, tmp_path, again, "--num_train_epochs", "8", "--context", "sentence")


@pytest.mark.long
def test_two_processes_score_what_one_does(run_script, encoder, tmp_path):
    """Rows of different numbers of pairs, gathered from two processes."""
    linker(run_script, encoder, tmp_path, tmp_path / "one", "--max_steps", "2", "--per_device_eval_batch_size", "1")
    files = ["--train_file", str(tmp_path / "train.jsonl"), "--test_file", str(tmp_path / "test.jsonl")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT)]
    command += ["--task", "coreference", "--model", encoder, "--mentions_at_once", "all", *files, *TRAINING]
    command += ["--validation_share", "0.3", "--output_dir", str(tmp_path / "two"), "--max_steps", "2"]
    command[command.index("--per_device_train_batch_size") + 1] = "2"
    command += ["--per_device_eval_batch_size", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("one", "two"))
    assert two["test"] == pytest.approx(one["test"], abs=1e-6)
    assert two["validation"]["loss"] == pytest.approx(one["validation"]["loss"], abs=1e-3)
