"""The benchmarks: every one starts, and what decides their figures is looked at closely."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LongformerConfig, LongformerModel

from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.studies import (
    attention_alignment,
    beside_tfidf,
    compare_runs,
    frozen_heads,
    hybrid_checkpoint,
    hybrid_vectors,
    newsgroups,
    search_scores,
    third_part,
)
from benchmarks.studies import cross_document_context as context
from nextlevelbert import CdlmModel, CdlmProcessor, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.evaluation import RetrievalTask, coreference_scores
from nextlevelbert.pretraining.document_sets import DocumentClusters
from nextlevelbert.tasks.coreference.data import CoreferenceData, CoreferenceDocument, CoreferenceMention

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(f"{path.parent.name}.{path.stem}" for path in FOLDER.glob("s*/*.py") if path.stem != "__init__")
SEA = "The ship sailed out of the harbour into the storm. The captain watched the waves. "
KITCHEN = "The cook kneaded the dough for the bread. The oven was hot and the kitchen smelled sweet. "


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_starts(name, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage:")
    assert " ".join(module.__doc__.splitlines()[0].split()) in " ".join(shown.split())


def test_there_is_a_benchmark_for_every_line_of_make_bench():
    lines = [line for line in (FOLDER.parent / "Makefile").read_text().splitlines() if "-m benchmarks." in line]
    made = {line.split("-m benchmarks.")[1].split()[0] for line in lines}
    assert made
    assert made <= set(NAMES)


def test_newsgroups_as_tasks(tmp_path):
    head = "From: a@b.c\nSubject: Sails\n\n"
    posts = [
        {"id": f"rec.boats/{n}", "label": "rec.boats", "text": f"{head}post {n}", "body_start": len(head)}
        for n in range(3)
    ]
    posts.append({"id": "sci.med/9", "label": "sci.med", "text": "Subject: x\n\n \n", "body_start": 12})
    rows, blank = newsgroups.prepare(posts, None)
    assert blank == 1
    assert sorted(row["text"] for row in rows) == ["post 0", "post 1", "post 2"]
    assert rows[0] | {"id": "", "text": ""} == {"id": "", "text": "", "label": "rec.boats", "levels": ["rec", "boats"]}
    assert newsgroups.prepare(posts[::-1], 2)[0] == rows[:2]  # whatever the order in the file


def test_a_hybrid_checkpoint_is_made_anew_the_same(tmp_path, monkeypatch, capsys):
    """By the command of its card; in fewer dimensions, and with a smaller table, its vectors are nearly the same."""
    texts = [SEA * 40, KITCHEN * 40, (SEA + KITCHEN) * 30]
    (tmp_path / "novels.jsonl").write_text("".join(json.dumps({"id": t[:9], "text": t}) + "\n" for t in texts))
    found = []
    for folder in ("one", "other"):
        options = ["--train_file", str(tmp_path / "novels.jsonl"), "--output_dir", str(tmp_path / folder)]
        monkeypatch.setattr(sys, "argv", ["made", *options, "--places", "64"])
        hybrid_checkpoint.main()
        found.append(NextLevelBertModel.from_pretrained(tmp_path / folder))
    assert "vectors of 448 dimensions" in capsys.readouterr().out
    assert found[0].dtype == torch.float32  # stored in half precision
    vectors, again = (hybrid_vectors.document_vectors(model, texts, parts=True) for model in found)
    torch.testing.assert_close(vectors, again)
    assert {name: rows.shape for name, rows in vectors.items()} == {
        "": (3, 448), ", part 1": (3, 384), ", part 2": (3, 64)
    }  # fmt: skip
    mean, axes = hybrid_vectors.components(vectors[""])
    torch.testing.assert_close((vectors[""] - mean) @ axes @ axes.T + mean, vectors[""], atol=1e-5, rtol=0)
    rounded = hybrid_vectors.document_vectors(hybrid_vectors.in_int8(found[0]), texts)[""]
    assert 0 < (rounded - vectors[""]).abs().max() < 0.02


def test_a_third_part_beside_the_hybrid(tmp_path, monkeypatch, toy_encoder_path):
    """Made by one command, it has the vectors that the study makes from the parts."""
    texts = [SEA * 40, KITCHEN * 40, (SEA + KITCHEN) * 30]
    (tmp_path / "novels.jsonl").write_text("".join(json.dumps({"id": t[:9], "text": t}) + "\n" for t in texts))
    options = [
        "--train_file",
        str(tmp_path / "novels.jsonl"),
        "--output_dir",
        str(tmp_path / "three"),
        "--places",
        "64",
    ]
    monkeypatch.setattr(sys, "argv", ["made", *options, "--third", toy_encoder_path, "--third_share", "0.4"])
    hybrid_checkpoint.main()
    model = NextLevelBertModel.from_pretrained(tmp_path / "three")
    rows = hybrid_vectors.document_vectors(model, texts, parts=True)
    sizes = {"": 480, ", part 1": 384, ", part 2": 64, ", part 3": 32}
    assert {name: found.shape[1] for name, found in rows.items()} == sizes
    one, other = torch.cat([rows[", part 1"], rows[", part 2"]], dim=1), rows[", part 3"]
    assert [(side.norm(dim=1) ** 2 < limit).all() for side, limit in ((one, 0.601), (other, 0.401))] == [True, True]
    whole = third_part.joined(one / 0.6**0.5, other / 0.4**0.5, 0.4)
    torch.testing.assert_close(torch.nn.functional.normalize(whole, dim=1), rows[""], atol=1e-4, rtol=0)
    named = {"whitened mean of static chunk vectors": one[:, :384] / 0.6**0.5}
    named |= {"hybrid's word counts alone": one[:, 384:] / 0.6**0.5, "whitened mean of MiniLM's": other / 0.4**0.5}
    torch.testing.assert_close(frozen_heads.three_parts(named, 0.4), whole)
    counts = beside_tfidf.whole_counts(model, [SEA, SEA + SEA, KITCHEN])  # as in a chunk, where there is one
    encoder = model.get_chunk_encoder().model.parts[1]
    ids = model.tokenizer(SEA, add_special_tokens=False, return_tensors="np")["input_ids"][0].astype(np.int32)
    chunk = encoder.encode(ids, np.array([0, len(ids)]), model.config.chunking_rule())[0].numpy()
    row = beside_tfidf.hashed(model, counts).toarray()[0]
    np.testing.assert_allclose(row / np.linalg.norm(row), chunk, atol=1e-6)
    task = RetrievalTask("toy", {"q": SEA}, {"a": SEA + SEA, "b": KITCHEN}, {"q": {"a": 1}})
    found = beside_tfidf.sparse_cosines(task, counts, {SEA: 0, SEA + SEA: 1, KITCHEN: 2})
    assert found[0, 0] > 0.99 > 0.5 > found[0, 1]
    assert third_part.sum_of(0.25, found, np.zeros((1, 2)))[0, 0] == pytest.approx(found[0, 0] / 4)


def test_some_books_of_a_task():
    keys = [f"{book}#{number}" for book in "abc" for number in range(2)]
    relevant = {key: {other: 1 for other in keys if other[0] == key[0] and other != key} for key in keys}
    task = RetrievalTask("chapters", {key: key for key in keys}, {key: key for key in keys}, relevant)
    books = third_part.chosen({"a", "b", "c"}, 2)
    assert books == set(sorted("abc", key=lambda book: hashlib.sha256(book.encode()).hexdigest())[:2])
    assert third_part.chosen({"a", "b", "c"}, None) == {"a", "b", "c"}
    few = third_part.of_books(task, books)
    assert {key[0] for key in (*few.queries, *few.documents, *few.relevant)} == books
    assert len(few.documents) == 4


def test_the_first_chunk_of_a_text_is_that_of_its_beginning(toy_encoder_path):
    encoder = load_chunk_encoder(toy_encoder_path)
    model = NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=16, num_hidden_layers=0)
    text = SEA * 3
    begun = frozen_heads.cut_to_window(encoder, model, text)
    assert text.startswith(begun)
    assert len(begun) < 100
    whole, part = (retrieval.chunk_vectors(model, [one], None)[0] for one in (text, begun))
    assert len(part) == 1 < len(whole)
    torch.testing.assert_close(part[0], whole[0], atol=1e-5, rtol=0)
    assert frozen_heads.cut_to_window(encoder, model, "The ship.") == "The ship."


def test_words_are_masked_that_only_the_related_partner_shows(encoder):
    """Cases of three conditions, looked at token by token."""
    model = CdlmModel.from_encoder(encoder, max_length=128, attention_window=16)
    tokenizer = CdlmProcessor.from_model(model).tokenizer
    sea, kitchen = SEA.split(". ")[0], KITCHEN.split(". ")[0]
    clusters = DocumentClusters([[SEA, sea + " near the harbour."], [KITCHEN, kitchen + " again."]], ["a", "b"], "two")
    options = argparse.Namespace(max_length=128, words_per_document=2, seed=0, clusters=None)
    cases, _ = context.build_cases(clusters, tokenizer, options)
    assert len(cases) == 4
    for case in cases:
        made = {condition: context.sequence(case, condition, tokenizer) for condition in context.CONDITIONS}
        true = {name: labels[labels != -100].tolist() for name, (_, labels) in made.items()}
        assert true["related"] == true["unrelated"] == true["alone"] != []
        for ids, labels in made.values():
            assert ((labels != -100) == (ids == tokenizer.mask_token_id)).all()
        one, other = (made[name][0] for name in ("related", "unrelated"))
        assert one.shape == other.shape
        for token, kind in zip(true["related"], case.kinds.values(), strict=True):
            shown = [token in made[name][0] for name in context.CONDITIONS]
            assert shown == [context.KINDS[kind] == "shared", False, False]


def mention_topics(topics, wrong):
    """Predictions of mentions; in some topics everything is one cluster."""
    return [
        {"document": f"{topic}_1ecb", "start": place, "end": place + 1, "gold": f"g{topic}-{place % 2}",
         "cluster": 0 if topic in wrong else place % 2}
        for topic in topics for place in range(4)
    ]  # fmt: skip


def test_two_runs_compared(tmp_path):
    right, wrong = mention_topics(range(8), set()), mention_topics(range(8), {1, 2, 3, 4, 5, 6, 7})
    for name, records in (("one", right), ("other", wrong)):
        (tmp_path / name).mkdir()
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / name / "test_predictions.jsonl").write_text(lines)
    name, found = compare_runs.compare_runs(tmp_path / "one", tmp_path / "other", 500)
    assert (name, found.items, found.first) == ("CoNLL F1", 8, 1.0)
    by_hand = coreference_scores([r["gold"] for r in wrong], [(r["document"], r["cluster"]) for r in wrong])
    assert found.second == pytest.approx(by_hand["conll_f1"])
    assert found.permutation_p == pytest.approx(2 / 2**7)  # seven topics differ, all in one direction
    (tmp_path / "other" / "test_predictions.jsonl").write_text(json.dumps(right[1]) + "\n")
    with pytest.raises(ValueError, match="predict other rows"):
        compare_runs.compare_runs(tmp_path / "one", tmp_path / "other")
    assert compare_runs.value({"query": "q", "ranks_of_relevant_documents": [4, 7]}) == 0.25
    assert compare_runs.value({"id": 1, "probability": 0.4, "label": 0}) == 1.0
    assert compare_runs.value({"id": 1, "prediction": "a", "label": "b"}) == 0.0


def test_attention_between_a_token_and_the_source_in_both_directions():
    """Against plain Longformer with one global token, where both directions can be read off its definition."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        attention_window=4, max_position_embeddings=40, pad_token_id=1,
    )  # fmt: skip
    model = LongformerModel(config, add_pooling_layer=False).eval()
    ids = torch.randint(3, 30, (1, 12))
    wide = torch.zeros_like(ids)
    wide[0, 3] = 1
    with torch.no_grad():
        output = model(ids, global_attention_mask=wide, output_attentions=True)
        states = model.embeddings(ids)
        layer = model.encoder.layer[0].attention.self
        shape = (12, 2, 8)
        wide_query = layer.query_global(states)[0].view(shape)[3] / 8**0.5  # [heads, size]
        wide_key = layer.key_global(states)[0].view(shape)
        from_source = torch.einsum("hd,lhd->hl", wide_query, wide_key).softmax(-1)  # of the source, to every token
        query, key = layer.query(states)[0].view(shape) / 8**0.5, layer.key(states)[0].view(shape)
        products = torch.einsum("ihd,jhd->hij", query, key)
        near = (torch.arange(12)[:, None] - torch.arange(12)).abs() <= 2
        near[:, 3] = True
        to_source = products.masked_fill(~near, -torch.inf).softmax(-1)[:, :, 3]
    found = attention_alignment.scores_of(output.attentions[-1], output.global_attentions[-1])
    expected = (from_source + to_source).sum(dim=0)
    others = torch.arange(12) != 3
    torch.testing.assert_close(found[others], expected[others], atol=1e-6, rtol=1e-5)


def test_percentile_ranks():
    scores, inside = np.array([9.0, 0.0, 1.0, 2.0, 2.0, 3.0, 9.0]), np.array([0, 1, 1, 1, 1, 1, 0], dtype=bool)
    target = np.arange(7) == 3
    assert attention_alignment.percentile_rank(scores, inside, target) == pytest.approx(100 * 2.5 / 4)


def test_pairs_of_mentions_are_ranked(encoder):
    model = CdlmModel.from_encoder(encoder, max_length=128, attention_window=16).eval()
    processor = CdlmProcessor.from_model(model)
    mention = [CoreferenceMention(4, 8, "ship", 0)]
    documents = [
        CoreferenceDocument(f"1_{n}ecb", 1, "1_ecb", text, [(0, len(text))], mention)
        for n, text in enumerate([SEA, "The ship came home."])
    ]
    [pair] = attention_alignment.draw_pairs(CoreferenceData(documents, "made", "event"), 5, 0)
    assert pair.positive
    assert [text[start:end] for text, (start, end) in zip(pair.texts, pair[1:3], strict=True)] == ["ship", "ship"]
    assert 0 <= attention_alignment.rank(model, processor, pair) <= 100
    long = pair._replace(texts=(pair.texts[0], pair.texts[1] + " again" * 200))
    assert attention_alignment.rank(model, processor, long) is None


def test_sentences_that_are_searched_for_stand_where_they_were(tmp_path, monkeypatch):
    monkeypatch.setattr(search_scores, "EVERY", 1)
    text = "".join(f"This is the sentence with the number {number}. " for number in range(100))
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "book", "text": text}) + "\n")
    questions = search_scores.removed_sentences(str(tmp_path / "in.jsonl"), tmp_path)
    found = (tmp_path / "book.txt").read_text()
    assert len(questions) == 5  # stretches of 1,000 characters
    for question in reversed(questions):
        assert question.text not in found
        found = found[: question.place] + question.text + found[question.place :]
    assert found == text


def test_scores_of_neighbours_stay_in_their_document():
    scores, first = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0, 2, 3, 5])
    assert search_scores.with_neighbours(scores, first, 0.5).tolist() == [2.0, 2.5, 4.0, 16.0, 20.0]
