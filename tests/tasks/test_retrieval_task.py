"""Retrieval in the script."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import chunk_similarity
from nextlevelbert.evaluation.retrieval import RetrievalTask, rank_by_scores, rank_documents
from nextlevelbert.finetuning.other_encoders import LateChunkingEncoder, OtherEncoder
from nextlevelbert.finetuning.vector_models import VectorModelOptions, load
from nextlevelbert.fitting import fit_whitening
from nextlevelbert.tasks.retrieval import search as module
from nextlevelbert.tasks.retrieval.search import row_vectors, search

from ..finetuning_toys import BREAD, SEA, predictions, refusal, sea_rows, start, write


def test_retrieval_by_the_script(toy_checkpoint, tmp_path):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 9} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs)}
    for model in ("bm25", "tfidf", toy_checkpoint):
        start(tmp_path / Path(model).name, model, task="retrieval", **options)
    scores = json.loads((tmp_path / "bm25" / "results.json").read_text())["scores"]
    assert scores["mrr"] == 1.0
    assert scores["queries"] == 10
    [line, *_] = predictions(tmp_path / "toy" / "predictions.jsonl")
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    query = model.encode(pairs[0]["query"]).document
    cosines = [torch.cosine_similarity(query, model.encode(pair["document"]).document, dim=0) for pair in pairs]
    assert line == {
        "query": "query-000000",
        "ranks_of_relevant_documents": [1 + sum(bool(other > cosines[0]) for other in cosines)],
    }
    assert (tmp_path / "toy" / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")


def test_any_other_encoder_is_a_baseline(longformer, toy_checkpoint, tmp_path, caplog):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 40} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs)}
    start(tmp_path / "other", longformer, task="retrieval", **options)
    results = json.loads((tmp_path / "other" / "results.json").read_text())
    assert list(results["rows"]) == [Path(longformer).name]
    assert caplog.text.count("reads the first 60 tokens of a text; 10 of 10 texts are longer.") == 1  # not the queries
    reference = SentenceTransformer(longformer)  # the mean of the token vectors
    texts = [pair["document"] for pair in pairs]
    found = torch.stack([book.document for book in OtherEncoder(longformer).encode(texts)])
    with pytest.raises(ValueError, match="neither a NextLevelBERT nor a HATE"):
        load(VectorModelOptions(model=longformer))  # for tasks that need one
    torch.testing.assert_close(found, reference.encode(texts, convert_to_tensor=True), atol=1e-6, rtol=1e-5)


def test_an_other_encoder_gets_a_head(longformer, tmp_path):
    data = {f"--{name}_file": write(tmp_path / f"{name}.jsonl", sea_rows(24, 1)) for name in ("train", "test")}
    start(tmp_path / "head", longformer, "--num_train_epochs", "2", **data)
    results = json.loads((tmp_path / "head" / "results.json").read_text())
    assert results["settings"]["learning_rate"] == 1e-3
    assert not (tmp_path / "head" / "README.md").exists()
    with pytest.raises(ValueError, match="leave out --lora and --freeze_encoder"):
        start(tmp_path / "frozen", longformer, "--freeze_encoder", **data)


def test_the_controls_stand_beside_the_model(toy_checkpoint):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    texts = {f"d{number}": row["text"] * 6 for number, row in enumerate(sea_rows(8, 1))}
    queries = {f"q{name}": text[: len(text) // 2] for name, text in texts.items()}
    task = RetrievalTask("toy", queries, texts, {f"q{name}": {name: 1} for name in texts})
    rows = search(task, "toy", model)
    assert list(rows) == ["toy", "mean of the chunk vectors", "whitened mean"]
    books = model.encode(list(texts.values()))
    mean, weight = fit_whitening(book.plain for book in books)

    def whitened(plain: torch.Tensor) -> torch.Tensor:
        white = (plain - mean) @ weight.T
        return (white / white.norm(dim=1, keepdim=True)).mean(dim=0)

    vectors = [
        torch.stack([whitened(book.plain) for book in model.encode(list(part.values()))]) for part in (queries, texts)
    ]
    by_hand = rank_documents(task, *vectors)
    assert {query: found.ranks.tolist() for query, found in rows["whitened mean"].items()} == {
        query: found.ranks.tolist() for query, found in by_hand.items()
    }
    found = row_vectors(model.encode([texts["d0"]]), "sbert")
    assert list(found) == ["sbert", "mean of the chunk vectors"]
    torch.testing.assert_close(found["sbert"].document[0], books[0].plain[0])


@pytest.mark.parametrize("score", ["chunks", "maxsim", "both"])
def test_rows_by_chunks_stand_above_those_by_document(score, toy_checkpoint, monkeypatch):
    monkeypatch.setattr(module, "_CHUNKS_PER_PART", 10)  # documents come in several parts
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    texts = {f"d{number}": row["text"] * 6 for number, row in enumerate(sea_rows(8, 1))}
    queries = {f"q{name}": text[: len(text) // 2] for name, text in texts.items()}
    task = RetrievalTask("toy", queries, texts, {f"q{name}": {name: 1} for name in texts})
    rows = search(task, "toy", model, score, 2, depth=5)
    name = {"chunks": "2 nearest chunks", "maxsim": "MaxSim of chunks"}.get(
        score, "2 nearest chunks + document vector"
    )
    kinds = ["toy", "mean of the chunk vectors", "whitened mean"]
    assert list(rows) == [*(f"{kind}, {name}" for kind in kinds), *kinds]
    books = [model.encode(list(part.values())) for part in (queries, texts)]
    chunks = [[book.chunks for book in side] for side in books]
    scores = chunk_similarity(*chunks, "maxsim" if score == "maxsim" else "nearest", 2)
    if score == "both":
        one, other = (torch.stack([book.document for book in side]) for side in books)
        scores = scores + torch.cosine_similarity(one[:, None], other[None], dim=2)
    ranking = rows[f"toy, {name}"]
    expected = rank_by_scores(task, scores.numpy().round(6))
    assert {query: found.ranks.tolist() for query, found in ranking.items()} == {
        query: found.ranks.tolist() for query, found in expected.items()
    }
    assert {len(found) for found in (row.best for row in ranking.values())} == {5}
    assert max(ranking["qd0"].best.values()) == pytest.approx(scores[0].max().item(), abs=2e-6)


def test_scores_by_chunks_and_a_run_file_by_the_script(longformer, toy_checkpoint, tmp_path, capsys):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 9} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs), "--score": "chunks", "--top_chunks": "2"}
    start(tmp_path / "toy", toy_checkpoint, task="retrieval", **options, **{"--run_file": str(tmp_path / "toy.run")})
    results = json.loads((tmp_path / "toy" / "results.json").read_text())
    assert results["model"] == "toy, 2 nearest chunks" == next(iter(results["rows"]))
    run: dict[str, dict[str, float]] = {}
    for line in (tmp_path / "toy.run").read_text().splitlines():
        query, _, document, rank, score, tag = line.split(" ")
        run.setdefault(query, {})[document] = float(score)
        assert int(rank) == len(run[query])
        assert tag == "toy,_2_nearest_chunks"
    with pytest.raises(ValueError, match="gives one vector a text"):
        start(tmp_path / "other", longformer, task="retrieval", **options)
    bad = {"bm25": options, toy_checkpoint: {**options, "--top_chunks": "0"}}
    messages = ("bm25 has no chunk vectors to compare", "--top_chunks must be 1 or more, got 0")
    for (model, given), message in zip(bad.items(), messages, strict=True):
        assert message in refusal(capsys, lambda m=model, o=given: start(tmp_path / "bad", m, task="retrieval", **o))


def test_late_chunking_by_hand(minilm_path):
    """The mean of the rows of `last_hidden_state` of each span; MiniLM reads 512 tokens, two of them special."""
    encoder = LateChunkingEncoder(minilm_path, chunk_size=102)  # 100 tokens of text
    assert (encoder.window, encoder.overlap) == (510, 127)
    model, tokenizer = AutoModel.from_pretrained(minilm_path).eval(), AutoTokenizer.from_pretrained(minilm_path)
    words = ["sail", "ship", "whale", "harbour", "captain", "the", "of", "storm"]
    draw = np.random.default_rng(0)
    text = " ".join(draw.choice(words, 950).tolist())
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    assert len(ids) == 950

    def rows(start: int, end: int) -> torch.Tensor:
        """Of one window, without those of [CLS] and [SEP]."""
        whole = torch.tensor([[tokenizer.cls_token_id, *ids[start:end], tokenizer.sep_token_id]])
        with torch.no_grad():
            return model(whole).last_hidden_state[0, 1:-1]

    # Windows from 0, 383 and 766; of the later ones, the vectors of the first 127 tokens are left out.
    states = torch.cat([rows(0, 510), rows(383, 893)[127:], rows(766, 950)[127:]])
    assert len(states) == 950
    expected = torch.stack([states[start : start + 100].mean(dim=0) for start in range(0, 950, 100)])
    expected = expected / expected.norm(dim=1, keepdim=True)
    short = "The ship sailed."  # beside a long document
    [found, one] = encoder.encode([text, short])
    torch.testing.assert_close(found.plain, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.document, expected.mean(dim=0), atol=1e-5, rtol=1e-4)
    starts, ends = found.spans.T
    assert text[starts[1] : ends[1]] == " ".join(text.split()[100:200])
    inside = model(**tokenizer(short, return_tensors="pt")).last_hidden_state[0, 1:-1].mean(dim=0)
    torch.testing.assert_close(one.document, inside / inside.norm(), atol=1e-5, rtol=1e-4)
    [blank] = encoder.encode([" "])
    assert (blank.plain.shape, blank.document.abs().sum()) == ((0, 384), 0)
    with pytest.raises(ValueError, match="overlap must be from 0 to 509, within a window, got 510"):
        LateChunkingEncoder(minilm_path, overlap=510)


def test_late_chunking_in_the_script(longformer, toy_checkpoint, tmp_path):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 40} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs), "--chunk_size": "20"}
    start(tmp_path / "late", longformer, "--late_chunking", task="retrieval", **options)
    results = json.loads((tmp_path / "late" / "results.json").read_text())
    name = f"{Path(longformer).name}, late chunking"
    assert list(results["rows"]) == [name, "whitened mean", "best chunk"]
    encoder = LateChunkingEncoder(longformer, 20)
    texts = [pair["document"] for pair in pairs]
    chunks = [book.plain for book in encoder.encode(texts)]
    queries = [book.document for book in encoder.encode([pair["query"] for pair in pairs])]
    best = [[max(float(torch.dot(query / query.norm(), row)) for row in rows) for rows in chunks] for query in queries]
    ranks = [1 + sum(score > scores[own] + 1e-6 for score in scores) for own, scores in enumerate(best)]
    assert results["rows"]["best chunk"]["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    for model, message in (
        ("avg_sbert", "and --model avg_sbert is none"),
        (toy_checkpoint, "is a nextlevelbert; leave"),
    ):
        with pytest.raises((ValueError, SystemExit), match=message if model == toy_checkpoint else "2"):
            start(tmp_path / "wrong", model, "--late_chunking", task="retrieval", **options)
