"""CDLM's tasks: pairs of mentions and their clusters, answers from scores, and `run_finetune.py --model_type cdlm`."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file

from nextlevelbert import (
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
    CdlmProcessor,
)
from nextlevelbert.tasks import cdlm as finetuning_cdlm
from nextlevelbert.tasks.coreference.data import CoreferenceData, CoreferenceDocument, CoreferenceMention
from nextlevelbert.tasks.coreference.pairs import (
    MentionPairDataset,
    PairOptions,
    best_threshold,
    cluster_mentions,
    similarities,
)
from nextlevelbert.tasks.multihop_qa.data import HotpotData, HotpotQuestion, Paragraph, read_hotpotqa
from nextlevelbert.tasks.multihop_qa.questions import QuestionDataset, answer, read_answer

from ..finetuning_toys import SCRIPT, write


@pytest.fixture(scope="module")
def processor(encoder) -> CdlmProcessor:
    return CdlmProcessor.from_model(CdlmModel.from_encoder(encoder, max_length=128, attention_window=32))


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr(finetuning_cdlm, "plot_curves", lambda *arguments: None)


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
        logits.append(np.append(np.log(odds / (1 - odds)), -100))  # filled up behind
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


QUESTION = HotpotQuestion(
    "q",
    "Where was the author born?",
    "New York",
    [
        Paragraph("The book", ["It is by Ann.", "Ann liked New York."]),
        Paragraph("Ann", ["She was born in New York.", "New York is large."]),
        Paragraph("Another", ["New York is far away."]),
    ],
    frozenset({("The book", 0), ("Ann", 0)}),
)


def test_answers_are_found_in_supporting_paragraphs_only(processor):
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), processor)
    places = list(zip(row["start_positions"], row["end_positions"], strict=True))
    texts = [processor.tokenizer.decode(row["input_ids"][start : end + 1]) for start, end in places]
    assert texts == ["new york"] * 3  # once in "The book", twice in "Ann", not in "Another"
    assert row["sentence_labels"] == [1, 0, 1, 0, 0]
    assert row["paragraph_labels"] == [1, 1, 0]
    assert row["type_labels"] == 0
    yes = HotpotQuestion("y", "Is it?", "yes", QUESTION.paragraphs, QUESTION.supporting)
    [row] = QuestionDataset(HotpotData([yes], "here"), processor)
    assert (row["type_labels"], row["start_positions"], row["end_positions"]) == (1, [-1], [-1])


def test_answers_are_words_of_their_own(processor):
    paragraphs = [Paragraph("Party", ["It starts with art.", "A party."])]
    question = HotpotQuestion("q", "What is it?", "art", paragraphs, frozenset({("Party", 0)}))
    row = QuestionDataset(HotpotData([question], "here"), processor)[0]
    assert len(row["start_positions"]) == 1
    assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == "art"
    within = HotpotQuestion("q", "What is it?", "tar", paragraphs, frozenset({("Party", 0)}))
    row = QuestionDataset(HotpotData([within], "here"), processor)[0]
    assert processor.tokenizer.decode(row["input_ids"][row["start_positions"][0]]) == "starts"  # better than nothing


def test_what_is_behind_a_cut_has_no_label_and_is_told(encoder, caplog):
    model = CdlmModel.from_encoder(encoder, max_length=64, attention_window=32)
    small = CdlmProcessor.from_model(model, 48)
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), small)
    assert len(row["input_ids"]) <= 48
    assert -1 in row["sentence_index"]
    for index, label in zip(row["sentence_index"], row["sentence_labels"], strict=True):
        assert (label == -100) == (index == -1)
    assert sum(row["lost_tokens"]) > 0
    assert "paragraphs lose" in caplog.text


def test_the_best_span_stays_within_a_sentence(processor):
    [row] = QuestionDataset(HotpotData([QUESTION], "here"), processor)
    length = len(row["input_ids"])
    spans = row["token_spans"]
    # "Ann liked New York." has the best start, "She was …" behind it the best end: no span goes across.
    first = next(n for n, (text, start, _) in enumerate(spans) if text == 2 and start == len("Ann liked "))
    across = next(n for n, (text, start, _) in enumerate(spans) if text == 4 and start == 0)
    start, end = np.zeros(length), np.zeros(length)
    start[first], end[across], end[first + 1] = 5.0, 9.0, 4.0
    logits = {"start": start, "end": end, "type": np.array([1.0, 0, 0]), "sentence": np.array([-1.0, 2, -1, 3, -1])}
    found = read_answer(row, QUESTION.paragraphs, logits)
    # 9 alone: the one token at `across` (start 0) beats 5 + 4 by nothing; the first found of equals is kept.
    assert found.text == "New York"
    assert found.supporting == [("The book", 1), ("Ann", 1)]
    outside = logits | {"start": np.where(np.arange(length) == 2, 99.0, start)}  # a token of the question
    assert read_answer(row, QUESTION.paragraphs, outside).text == "New York"
    assert read_answer(row, QUESTION.paragraphs, logits | {"type": np.array([0, 0, 1.0])}).text == "no"


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


def test_a_batch_with_labels_for_some_rows_is_refused(processor):
    rows = [processor.cluster(["It rained."]), {**processor.cluster(["Tea."]), "labels": 1}]
    with pytest.raises(ValueError, match="Row 0 of the batch has no labels, but others have"):
        processor.pad(rows)


def test_a_model_learns_questions_by_heart(encoder):
    """Trained on one question it gives its answer and its sentences."""
    torch.manual_seed(1)
    model = CdlmForMultiHopQuestionAnswering.from_encoder(encoder, max_length=128, attention_window=32)
    processor = CdlmProcessor.from_model(model)
    batch = processor.pad([*QuestionDataset(HotpotData([QUESTION], "here"), processor)])
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = answer(model, processor, QUESTION.question, QUESTION.paragraphs)
    assert found.text == "New York"
    assert set(found.supporting) == QUESTION.supporting


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


COMMON = [
    "--max_length",
    "64",
    "--attention_window",
    "16",
    "--learning_rate",
    "3e-3",
    "--lr_scheduler_type",
    "constant",
]
COMMON += ["--warmup_steps", "0", "--per_device_train_batch_size", "4", "--disable_tqdm", "true"]


def linker(run_script, encoder: str, data: Path, output: Path, *more: str) -> str:
    return run_script(
        SCRIPT, "--model_type", "cdlm", "--task", "coreference", "--model", encoder, "--mentions_at_once", "all",
        "--train_file", ecb(data, "train.jsonl", ("1_ecb", "3_ecb", "4_ecb"), 4, 0), "--validation_share", "0.3",
        "--test_file", ecb(data, "test.jsonl", ("2_ecb", "5_ecb"), 3, 1), *COMMON, "--output_dir", str(output), *more,
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
    [seed] = results["seeds"].values()
    assert model.config.coreference_threshold == seed["coreference_threshold"]
    assert f"| coreference_threshold | {seed['coreference_threshold']} |" in card
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
    command = ["--task", "coreference", "--model", encoder, "--mentions_at_once", "all", *files, *COMMON]
    command += ["--validation_share", "0.3", "--output_dir", str(again), "--num_train_epochs", "8"]
    killed = subprocess.run([sys.executable, "-c", killer, str(SCRIPT), *command], capture_output=True, text=True)
    assert killed.returncode == 9, killed.stderr
    linker(run_script, encoder, tmp_path, again, "--num_train_epochs", "8")
    for name, weight in load_file(again / "seed-0" / "model.safetensors").items():
        torch.testing.assert_close(weight, whole[name], atol=0, rtol=0)

    with pytest.raises(ValueError, match=r"holds a run with other settings .*context"):
        linker(run_script, encoder, tmp_path, again, "--num_train_epochs", "8", "--context", "sentence")


def pairs(folder: Path, name: str, count: int, seed: int) -> str:
    """Documents that belong together where both are about the sea."""
    draw, made = np.random.default_rng(seed), []
    for _ in range(count):
        words = draw.choice(["sea", "oven"], 2)
        texts = [" ".join([f"the {word} and the {word}"] * 2) for word in words]
        made.append({"text1": texts[0], "text2": texts[1], "label": int((words == "sea").all())})
    return write(folder / name, made)


def test_adapters_learn_to_match_documents(run_script, encoder, tmp_path):
    base = tmp_path / "base"
    model = CdlmModel.from_encoder(encoder, max_length=64, attention_window=16)
    files = ["--train_file", pairs(tmp_path, "train.jsonl", 48, 0), "--validation_file",
             pairs(tmp_path, "validation.jsonl", 16, 1)]  # fmt: skip
    options = ["--task", "document_matching", *files, *COMMON, "--lora", "--num_train_epochs", "6"]
    with pytest.raises(ValueError, match=r"--lora adapts a saved CDLM .* tiny lacks <doc-s>"):
        run_script(SCRIPT, "--model", encoder, *options, "--output_dir", str(tmp_path / "no"))
    CdlmProcessor.from_model(model)
    model.save_pretrained(base)
    options[options.index("--attention_window") : options.index("--attention_window") + 2] = []
    run_script(SCRIPT, "--model", str(base), *options, "--output_dir", str(tmp_path / "matcher"))
    results = json.loads((tmp_path / "matcher" / "results.json").read_text())["rows"]
    [ours] = [scores for name, scores in results.items() if name.startswith("base (cdlm)")]
    assert ours["accuracy"] > 0.8
    # The adapter on its base gives the probabilities that were written.
    plain = CdlmForDocumentMatching.from_pretrained(base)
    adapted = PeftModel.from_pretrained(plain, tmp_path / "matcher").eval()
    processor = CdlmProcessor.from_pretrained(tmp_path / "matcher")
    card = (tmp_path / "matcher" / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    code = code.replace('"the base checkpoint"', repr(str(base))).replace('"matcher"', repr(str(tmp_path / "matcher")))
    names: dict = {}
    exec(code, names)
    assert names["probability"].shape == (1,)
    assert str(tmp_path) not in card
    told = {row["id"]: row for row in map(json.loads, (tmp_path / "matcher" / "validation_predictions.jsonl").open())}
    rows = [json.loads(line) for line in Path(files[3]).read_text().splitlines()]
    with torch.no_grad():
        found = adapted(**processor([[row["text1"], row["text2"]] for row in rows])).logits.softmax(dim=-1)[:, 1]
    for number, probability in enumerate(found.tolist()):
        assert told[f"row-{number:06d}"]["probability"] == pytest.approx(probability, abs=2e-5)


def test_questions_end_to_end_on_the_real_sample(run_script, encoder, shared, tmp_path):
    sample = shared / "data" / "hotpotqa_sample" / "dev_sample100.jsonl.gz"
    questions = read_hotpotqa(sample).questions
    lines = gzip.open(sample, "rt", encoding="utf-8").readlines()
    (tmp_path / "some.jsonl").write_text("".join(lines[:8]), encoding="utf-8")
    (tmp_path / "others.jsonl").write_text("".join(lines[8:12]), encoding="utf-8")
    printed = run_script(
        SCRIPT, "--task", "multihop_qa", "--model", encoder, "--train_file", str(tmp_path / "others.jsonl"),
        "--max_length", "1024", "--attention_window", "64", "--num_train_epochs", "1", "--disable_tqdm", "true",
        "--per_device_train_batch_size", "2", "--per_device_eval_batch_size", "2", "--output_dir",
        str(tmp_path / "answerer"), "--validation_file", str(tmp_path / "some.jsonl"),
    )  # fmt: skip
    assert "joint_f1" in printed
    records = {
        row["id"]: row for row in map(json.loads, (tmp_path / "answerer" / "validation_predictions.jsonl").open())
    }
    assert sorted(records) == sorted(question.id for question in questions[:8])
    for question in questions[:8]:
        texts = [text for title, sentences in question.paragraphs for text in (title, *sentences)]
        found = records[question.id]["answer"]
        assert found in ("yes", "no") or any(found in text for text in texts)
    model = CdlmForMultiHopQuestionAnswering.from_pretrained(tmp_path / "answerer").eval()
    again = answer(model, CdlmProcessor.from_pretrained(tmp_path / "answerer"), questions[0].question,
                   questions[0].paragraphs)  # fmt: skip
    assert again.text == records[questions[0].id]["answer"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "multihop_qa", "--context", "sentence", "--train_file", "x"), "makes no use of --context"),
        (("--task", "coreference", "--first_column", "a", "--train_file", "x"), "makes no use of --first_column"),
        (("--task", "coreference"), "Give the training set with --train_file"),
        (("--task", "coreference", "--dataset_name", "x"), "ECB\\+ is read from a folder"),
        (("--task", "coreference", "--train_file", "x", "--seeds", "1", "1"), "names a seed twice"),
        (("--task", "document_matching", "--train_file", "x", "--prediction_loss_only"), "every row is scored"),
        (
            ("--task", "document_matching", "--train_file", "x", "--test_split", "test"),
            "are of a --dataset_name or of",
        ),
        (("--task", "coreference", "--train_file", ".", "--test_split", "test"), "Say with --train_split train"),
        (("--task", "coreference", "--train_file", "x", "--lora_r", "64"), "makes no use of --lora_r"),
        (
            (
                "--task",
                "coreference",
                "--train_file",
                "x",
                "--mentions_at_once",
                "all",
                "--negatives_per_positive",
                "3",
            ),
            "every pair is learnt from",
        ),
        (("--task", "multihop_qa", "--train_file", "x", "--dataset_config_name", "y"), "there is no --dataset_name"),
        (("--task", "multihop_qa", "--train_file", "x", "--label_names", "y"), "leave out --label_names"),
    ],
)
def test_options_that_do_not_fit_are_refused(run_script, encoder, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        run_script(SCRIPT, "--model_type", "cdlm", "--model", encoder, "--output_dir", str(tmp_path), *arguments)


def test_sets_are_looked_at_before_training(run_script, encoder, tmp_path):
    train = pairs(tmp_path, "train.jsonl", 8, 0)
    options = ["--task", "document_matching", "--model", encoder, *COMMON, "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="The test set is the training set"):
        run_script(SCRIPT, *options, "--train_file", train, "--validation_file", pairs(tmp_path, "v.jsonl", 4, 1),
                   "--test_file", train)  # fmt: skip
    blind = write(tmp_path / "blind.jsonl", [{"text1": "a", "text2": "b"}])
    with pytest.raises(ValueError, match=r"1 of the test set blind\.jsonl have no label"):
        run_script(SCRIPT, *options, "--train_file", train, "--test_file", blind)


def test_two_processes_score_what_one_does(run_script, encoder, tmp_path):
    """Rows of different numbers of pairs, gathered from two processes."""
    linker(run_script, encoder, tmp_path, tmp_path / "one", "--max_steps", "2", "--per_device_eval_batch_size", "1")
    files = ["--train_file", str(tmp_path / "train.jsonl"), "--test_file", str(tmp_path / "test.jsonl")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT)]
    command += ["--task", "coreference", "--model", encoder, "--mentions_at_once", "all", *files, *COMMON]
    command += ["--validation_share", "0.3", "--output_dir", str(tmp_path / "two"), "--max_steps", "2"]
    command[command.index("--per_device_train_batch_size") + 1] = "2"
    command += ["--per_device_eval_batch_size", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = (json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("one", "two"))
    assert two["test"] == pytest.approx(one["test"], abs=1e-6)
    assert two["validation"]["loss"] == pytest.approx(one["validation"]["loss"], abs=1e-3)
