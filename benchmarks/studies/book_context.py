"""Passages that need their book: questions whose cue stands elsewhere in it, and scores that know the book.

    python -m benchmarks.studies.book_context --data DATA --pool validation --output_dir RESULTS [--attention]

A question is made from a passage without a model: one of its sentences without names and without the passage's three
rarest words, and a cue that the passage lacks: a main character or a place of the book, a word of its title, or a name
that is rare in it. Three forms: *kept*, *half* of the other words dropped, and *common*, without any word of the
passage's rarer half. The older judge, a sentence that is cut out of its passage, stands beside them. *Hard* are the
questions whose passage is not among the first ten by BM25, *easy* the others.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch import nn
from tqdm import tqdm
from transformers import AutoModel, BertConfig, BertModel

import nextlevelbert
from benchmarks.studies.hold_out import BOOKS

WORD = re.compile(r"\w+")
BOOK_WORDS, NEIGHBOURS, CANDIDATES, HIDDEN = 40, 0.6, 50, 128
K1, B = 1.5, 0.75  # of BM25, as in bm25s
FORMS, CUES = ("kept", "half", "common"), ("person", "place", "title", "rare")


@dataclass
class Book:
    id: str
    title: str
    passages: list[str]
    names: Counter[str]  # words that are nearly always capitalised, in small letters
    places: set[str]


@dataclass
class Pool:
    """Passages of several books, and questions with their right passage.

    Attributes:
        counts: ``[N, V]`` words of each passage.
        owner, place: ``[N]`` the book of each passage, and where in it, from 0 to 1.
        vectors: ``[N, D]`` whitened chunk vectors of length 1.
    """

    books: list[Book]
    counts: csr_matrix
    vocabulary: dict[str, int]
    owner: np.ndarray
    place: np.ndarray
    vectors: np.ndarray
    questions: list[list[str]] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    kinds: list[tuple[str, str]] = field(default_factory=list)  # form and cue


def words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def rows(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def texts_of(data: Path, pool: str) -> list[tuple[str, str, str]]:
    """Id, title and text of each document."""
    if pool == "stories":
        return [(row["id"], "", row["text"]) for row in rows(data / "squality" / "validation.jsonl.gz")]
    if pool == "rfcs":
        files = sorted((data / "rfcs").glob("*.txt.gz"), key=lambda f: hashlib.sha256(f.name.encode()).hexdigest())
        made = [(file.name, "", gzip.decompress(file.read_bytes()).decode("utf-8", "replace")) for file in files]
        return [row for row in made if len(row[2]) > 100_000][:25]
    novels = list(rows(data / "novels" / f"{'validation' if pool == 'validation' else 'train'}.jsonl.gz"))
    by_hash = sorted((row["id"] for row in novels), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    aside = set(by_hash[:BOOKS])  # as in hold_out
    if pool != "validation":
        novels = [row for row in novels if (row["id"] in aside) == (pool == "aside")]
    return [(row["id"], row["title"], row["text"]) for row in novels]


def names_of(text: str) -> tuple[Counter[str], set[str]]:
    """Words mostly capitalised within sentences; those of them that mostly stand after "in", "at" and the like."""
    capital: Counter[str] = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}", text))
    small = Counter(re.findall(r"\b[a-z]{3,}\b", text))
    after = Counter(re.findall(r"\b(?:in|at|from|to|near|towards) ([A-Z][a-z]{2,})", text))
    names = Counter({word.lower(): n for word, n in capital.items() if n >= 3 and n > 9 * small[word.lower()]})
    places = {word.lower() for word, n in after.items() if n > 0.4 * capital[word] and word.lower() in names}
    return names, places


def encoded(documents: list[tuple[str, str, str]], model) -> Pool:
    books, vectors, vocabulary = [], [], {}
    data, indices, starts = [], [], [0]
    for (name, title, text), embedding in zip(documents, model.encode([text for *_, text in documents]), strict=True):
        passages = [text[start:end] for start, end in embedding.spans.tolist()]
        books.append(Book(name, title, passages, *names_of(text)))
        vectors.append(nn.functional.normalize(model.prepare_chunks(embedding.plain), dim=-1).numpy())
        for passage in passages:
            counted = Counter(words(passage))
            indices += [vocabulary.setdefault(word, len(vocabulary)) for word in counted]
            data += counted.values()
            starts.append(len(indices))
    counts = csr_matrix((np.array(data, np.float32), indices, starts), (len(starts) - 1, len(vocabulary)))
    owner = np.repeat(np.arange(len(books)), [len(book.passages) for book in books])
    place = np.concatenate([np.linspace(0, 1, len(book.passages)) for book in books])
    return Pool(books, counts, vocabulary, owner, place, np.concatenate(vectors))


def book_words(pool: Pool) -> csr_matrix:
    """``[books, V]``, 1 at the first words of each book by TF-IDF over books."""
    membership = csr_matrix((np.ones(len(pool.owner), np.float32), (pool.owner, np.arange(len(pool.owner)))))
    counts = (membership @ pool.counts).toarray()
    share = (pool.counts > 0).mean(
        axis=0
    ).A1 + 1e-9  # of passages: words of many books and words of one passage count less
    weights = (
        np.log1p(counts) * np.log(1 / share) * (counts > 2) * (np.log(len(counts) + 1) - np.log1p((counts > 0).sum(0)))
    )
    chosen = np.zeros_like(counts)
    np.put_along_axis(chosen, np.argsort(-weights, axis=1)[:, :BOOK_WORDS], 1, axis=1)
    return csr_matrix(chosen)


def ask(pool: Pool, count: int, seed: int) -> None:
    """Adds questions, spread evenly over the books."""
    draw, rarity = np.random.default_rng(seed), (pool.counts > 0).sum(axis=0).A1
    firsts = book_words(pool)
    starts = np.searchsorted(pool.owner, np.arange(len(pool.books)))
    for number, book in enumerate(pool.books):
        common = {word for word, index in pool.vocabulary.items() if firsts[number, index]}
        made = 0
        for passage in draw.permutation(len(book.passages)):
            inside = set(words(book.passages[passage]))
            question = _question(book, book.passages[passage], inside, rarity, pool.vocabulary, common, draw, made)
            if question is not None:
                pool.questions.append(question[0])
                pool.kinds.append(question[1])
                pool.right.append(int(starts[number] + passage))
                made += 1
            if made == count // len(pool.books):
                break


def _question(book, text, inside, rarity, vocabulary, common, draw, number):
    form, cue = FORMS[number % 3], CUES[number // 3 % 4]
    candidates = {
        "person": [name for name, _ in book.names.most_common(12) if name not in book.places][:5],
        "place": [name for name, _ in book.names.most_common(60) if name in book.places][:5],
        "title": [word for word in words(book.title) if word not in ENGLISH_STOP_WORDS],
        "rare": [name for name, n in book.names.items() if n <= 12 and name not in common],
    }[cue]
    missing = [word for word in candidates if word not in inside and word in vocabulary]
    if not missing:
        return None
    ranked = sorted(inside, key=lambda word: (rarity[vocabulary[word]], word))
    dropped = {*ranked[:3], *book.names}
    if form == "common":
        dropped |= set(ranked[: len(ranked) // 2])
    sentences = [words(text[start:end]) for start, end in nextlevelbert.text_sentences(text)]
    kept = [[word for word in sentence if word not in dropped] for sentence in sentences]
    kept = [sentence for sentence in kept if len(set(sentence)) >= 8]
    if not kept:
        return None
    sentence = kept[draw.integers(len(kept))][:40]
    if form == "half":
        content = [word for word in dict.fromkeys(sentence) if word not in ENGLISH_STOP_WORDS]
        gone = set(draw.permutation(content)[: (len(content) + 1) // 2].tolist())
        sentence = [word for word in sentence if word not in gone]
    return [*sentence, missing[draw.integers(len(missing))]], (form, cue)


def cut_out(pool: Pool, count: int, seed: int, model) -> Pool:
    """The older judge: a sentence is taken out of its passage and looks for it."""
    draw, documents, without = np.random.default_rng(seed), pool.counts.tolil(copy=True), []
    starts = np.searchsorted(pool.owner, np.arange(len(pool.books)))
    other = Pool(pool.books, pool.counts, pool.vocabulary, pool.owner, pool.place, pool.vectors)
    for number, book in enumerate(pool.books):
        for passage in draw.permutation(len(book.passages))[: count // len(pool.books)]:
            text = book.passages[passage]
            spans = [(start, end) for start, end in nextlevelbert.text_sentences(text) if end - start > 60]
            if len(spans) < 3:
                continue
            start, end = spans[draw.integers(len(spans))]
            row = int(starts[number] + passage)
            for word, times in Counter(words(text[start:end])).items():
                if word in pool.vocabulary:
                    documents[row, pool.vocabulary[word]] -= times
            other.questions.append(words(text[start:end]))
            other.kinds.append(("cut out", "none"))
            other.right.append(row)
            without.append(text[:start] + text[end:])
    other.counts = documents.tocsr().maximum(0)
    other.counts.eliminate_zeros()
    other.vectors = pool.vectors.copy()
    other.vectors[other.right] = unit_vectors(model, without)
    return other


def bm25(counts: csr_matrix, questions: list[list[str]], vocabulary: dict[str, int]) -> np.ndarray:
    """``[Q, N]`` Lucene's BM25, as bm25s has it."""
    documents = (counts > 0).sum(axis=0).A1
    idf = np.log(1 + (counts.shape[0] - documents + 0.5) / (documents + 0.5))
    lengths = counts.sum(axis=1).A1
    norm = K1 * (1 - B + B * lengths / lengths.mean())
    weights = counts.tocoo()
    values = idf[weights.col] * weights.data / (weights.data + norm[weights.row])
    table = csr_matrix((values.astype(np.float32), (weights.col, weights.row)), (counts.shape[1], counts.shape[0]))
    pairs = [
        (row, vocabulary[word]) for row, question in enumerate(questions) for word in question if word in vocabulary
    ]
    asked = csr_matrix((np.ones(len(pairs), np.float32), tuple(np.array(pairs).T)), (len(questions), counts.shape[1]))
    return (asked @ table).toarray()


def scaled(scores: np.ndarray) -> np.ndarray:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return (scores - low) / np.maximum(high - low, 1e-9)


def with_neighbours(values, owner: np.ndarray):
    """The sum of the passages before and after, within a book."""
    n = len(owner)
    same = (owner[1:] == owner[:-1]).astype(np.float32)
    index = np.arange(n - 1)
    shift = csr_matrix((same, (index, index + 1)), (n, n))
    return shift + shift.T if values is None else values @ (shift + shift.T)


def parts_of(pool: Pool, queries: np.ndarray) -> dict[str, np.ndarray]:
    """The scores that rows are made of, ``[Q, N]`` each."""
    membership = csr_matrix((np.ones(len(pool.owner), np.float32), (pool.owner, np.arange(len(pool.owner)))))
    books, firsts = membership @ pool.counts, membership.T @ book_words(pool)
    other = membership.T @ book_words(pool)[np.roll(np.arange(len(pool.books)), 1)]
    around = with_neighbours(None, pool.owner) @ pool.counts
    centre = np.stack([pool.vectors[pool.owner == number].mean(axis=0) for number in range(len(pool.books))])
    score = lambda counts: bm25(counts.tocsr(), pool.questions, pool.vocabulary)  # noqa: E731
    return {
        "bm25": score(pool.counts), "vectors": queries @ pool.vectors.T,
        "book bm25": score(books)[:, pool.owner], "book vector": (queries @ centre.T)[:, pool.owner],
        "context": score(pool.counts + firsts), "half context": score(pool.counts + 0.5 * firsts),
        "other context": score(pool.counts + other), "context and around": score(pool.counts + firsts + 0.2 * around),
    }  # fmt: skip


def rows_of(pool: Pool, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows of the table, nothing trained."""
    s = {name: scaled(values) for name, values in parts.items()}
    both, context = (s["bm25"] + s["vectors"]) / 2, (s["context"] + s["vectors"]) / 2
    return {
        "BM25": parts["bm25"],
        "vectors": parts["vectors"],
        "both (search today)": both,
        "— + 0.6 of the neighbours": both + NEIGHBOURS * with_neighbours(both, pool.owner),
        "BM25 + 0.2 of the book's": s["bm25"] + 0.2 * s["book bm25"],
        "BM25 + 0.4 of the book's": s["bm25"] + 0.4 * s["book bm25"],
        "both + 0.2 of the book's BM25": both + 0.2 * s["book bm25"],
        "both + 0.2 of the book's vector": both + 0.2 * s["book vector"],
        "BM25 with the book's 40 words": parts["context"],
        "— at half weight": parts["half context"],
        "— of another book (control)": parts["other context"],
        "— and 0.2 of the neighbours' words": parts["context and around"],
        "both, with the book's 40 words": context,
        "— and 0.2 of the book's BM25": context + 0.2 * s["book bm25"],
    }


def ranks(scores: np.ndarray, right: list[int]) -> np.ndarray:
    """Pessimistic: what scores the same stands above."""
    target = scores[np.arange(len(right)), right][:, None]
    return (scores >= target).sum(axis=1)


def report(pool: Pool, table: dict[str, np.ndarray], title: str, out: dict) -> None:
    """MRR and recall at 10; differences to search's score with an interval over books."""
    owner, hard = pool.owner[pool.right], table["BM25"] > 10
    groups = {"all": np.ones(len(hard), bool), "hard": hard, "easy": ~hard}
    today = 1 / table["both (search today)"]
    print(f"\n{title}: {len(hard)} questions, {len(pool.owner)} passages, {hard.sum()} hard")
    for name, ranked in table.items():
        cells = []
        for group, mask in groups.items():
            gain = 1 / ranked - today
            sums = np.array(
                [[gain[mask & (owner == b)].sum(), (mask & (owner == b)).sum()] for b in range(len(pool.books))]
            )
            draws = np.random.default_rng(0).integers(len(sums), size=(2_000, len(sums)))
            low, high = np.quantile(sums[draws, 0].sum(1) / np.maximum(sums[draws, 1].sum(1), 1), (0.025, 0.975))
            cells += [(1 / ranked[mask]).mean(), (ranked[mask] <= 10).mean(), low, high]
            out.setdefault(title, {}).setdefault(name, {})[group] = [round(float(v), 4) for v in cells[-4:]]
        print(f"{name:36}" + " ".join(f"{v:7.3f}" for v in cells), flush=True)


class Judge(nn.Module):
    """Two layers over the candidates' vectors and the question's; a bounded addition to a base score."""

    def __init__(self, hidden_size: int, features: int, documents: bool, places: bool) -> None:
        super().__init__()
        self.documents, self.places = documents, places
        sizes = {
            "hidden_size": HIDDEN,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 2 * HIDDEN,
        }
        config = BertConfig(**sizes, vocab_size=1, max_position_embeddings=CANDIDATES + 1)
        config.attention_probs_dropout_prob = 0.0
        self.bert = BertModel(config, add_pooling_layer=False)
        self.bert.embeddings.position_embeddings.weight.data.zero_().requires_grad_(False)
        self.read, self.ask = nn.Linear(hidden_size + features, HIDDEN), nn.Linear(hidden_size, HIDDEN)
        self.document, self.place = nn.Embedding(CANDIDATES, HIDDEN), nn.Linear(2, HIDDEN)
        self.out, self.scale = nn.Linear(HIDDEN, 1), nn.Parameter(torch.tensor(0.1))

    def forward(self, question, vectors, features, owner, place):
        hidden = self.read(torch.cat([vectors, features], dim=-1))  # [Q, C, H]
        if self.documents:
            hidden = hidden + self.document(owner)
        if self.places:
            hidden = hidden + self.place(torch.stack([place, place**2], dim=-1))
        states = self.bert(inputs_embeds=torch.cat([self.ask(question)[:, None], hidden], dim=1)).last_hidden_state
        return features[..., 0] + self.scale * torch.tanh(self.out(states[:, 1:]).squeeze(-1))


def candidates(pool: Pool, parts: dict[str, np.ndarray], queries: np.ndarray, base: np.ndarray):
    """Tensors for the `Judge`: the first candidates by the base score, and which of them is right (-1: none)."""
    order = np.argsort(-base, axis=1, kind="stable")[:, :CANDIDATES]
    names = ("context", "vectors", "bm25", "book bm25")
    s = [np.take_along_axis(base, order, 1)] + [np.take_along_axis(scaled(parts[name]), order, 1) for name in names]
    owner = pool.owner[order]
    slots = np.array([[{b: i for i, b in enumerate(dict.fromkeys(row))}[b] for b in row] for row in owner.tolist()])
    label = np.where(
        (order == np.array(pool.right)[:, None]).any(1), (order == np.array(pool.right)[:, None]).argmax(1), -1
    )
    to = lambda values, kind=torch.float32: torch.as_tensor(np.ascontiguousarray(values)).to(kind)  # noqa: E731
    inputs = (to(queries), to(pool.vectors[order]), to(np.stack(s, -1)), to(slots, torch.long), to(pool.place[order]))
    return inputs, torch.as_tensor(label), order


def train(inputs, labels, seed: int, documents=True, places=True, shuffled=False, linear=False, epochs: int = 2):
    torch.manual_seed(seed)
    width = inputs[2].shape[-1]
    model: nn.Module = nn.Linear(width, 1) if linear else Judge(inputs[1].shape[-1], width, documents, places)
    score = (lambda *x: model(x[2]).squeeze(-1)) if linear else model
    kept = (labels >= 0).nonzero().squeeze(-1)
    steps = epochs * (len(kept) // 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2 if linear else 3e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2 if linear else 3e-4, steps)
    for _ in range(steps):
        rows = kept[torch.randint(len(kept), (32,))]
        batch = [values[rows] for values in inputs]
        if shuffled:  # the vectors of other candidates
            batch[1] = batch[1][:, torch.randperm(CANDIDATES)]
        loss = nn.functional.cross_entropy(10 * score(*batch), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    @torch.no_grad()
    def ranked(pool, parts, queries, base):
        test, _, order = candidates(pool, parts, queries, base)
        new = base - 10.0  # what is no candidate comes after them, in its order
        values = torch.cat([score(*[v[i : i + 64] for v in test]) for i in range(0, len(order), 64)]).numpy()
        np.put_along_axis(new, order, values, 1)
        return ranks(new, pool.right)

    return ranked


def attention_rows(data: Path, model, pool: Pool, parts, queries, best: str) -> dict[str, np.ndarray]:
    """Trained on questions of the other novels, twenty a pool; three seeds."""
    novels, sets = texts_of(data, "train"), []
    for start in tqdm(range(0, len(novels) - 19, 20), desc="training questions"):
        some = encoded(novels[start : start + 20], model)
        ask(some, 600, seed=start)
        asked = asked_vectors(some, model)
        pieces = parts_of(some, asked)
        sets.append(candidates(some, pieces, asked, scaled(rows_of(some, pieces)[best]))[:2])
    inputs = [torch.cat([values[0][place] for values in sets]) for place in range(5)]
    labels, base = torch.cat([values[1] for values in sets]), scaled(rows_of(pool, parts)[best])
    kinds = {"attention": {}, "— no document": {"documents": False}, "— no position": {"places": False},
             "— vectors shuffled": {"shuffled": True}, "linear": {"linear": True}}  # fmt: skip
    return {
        f"{name}, seed {seed}": train(inputs, labels, seed, **options)(pool, parts, queries, base)
        for name, options in tqdm(kinds.items())
        for seed in range(3)
    }


def asked_vectors(pool: Pool, model) -> np.ndarray:
    return unit_vectors(model, [" ".join(question) for question in pool.questions])


def unit_vectors(model, texts: list[str]) -> np.ndarray:
    """``[T, D]`` means of whitened chunk vectors, of length 1."""
    books = model.encode(texts)
    rows = [nn.functional.normalize(model.prepare_chunks(b.plain).mean(0), dim=0).numpy() for b in books]
    return np.nan_to_num(np.stack(rows))  # a text without a token has no chunk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, squality/ and perhaps rfcs/")
    parser.add_argument("--pool", choices=["validation", "aside", "stories", "rfcs"], required=True)
    parser.add_argument("--model", default=nextlevelbert.static_checkpoint())
    parser.add_argument("--questions", type=int, default=1_500)
    parser.add_argument("--attention", action="store_true", help="also train layers over the candidates")
    parser.add_argument("--base", default="— and 0.2 of the book's BM25", help="the row that layers add to")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    model, out = AutoModel.from_pretrained(args.model).eval(), {}
    pool = encoded(texts_of(args.data, args.pool), model)
    ask(pool, args.questions, seed=0)
    with torch.no_grad():
        queries = asked_vectors(pool, model)
        parts = parts_of(pool, queries)
    table = {name: ranks(scores, pool.right) for name, scores in rows_of(pool, parts).items()}
    if args.attention:
        table |= attention_rows(args.data, model, pool, parts, queries, args.base)
    report(pool, table, f"{args.pool}: a cue from elsewhere", out)
    for form in FORMS:
        chosen = np.array([kind[0] == form for kind in pool.kinds])
        part = Pool(pool.books, pool.counts, pool.vocabulary, pool.owner, pool.place, pool.vectors,
                    right=[r for r, c in zip(pool.right, chosen, strict=True) if c])  # fmt: skip
        report(part, {name: ranked[chosen] for name, ranked in table.items()}, f"{args.pool}: {form}", out)
    with torch.no_grad():
        older = cut_out(pool, args.questions, 1, model)
        older_parts = parts_of(older, asked_vectors(older, model))
    report(
        older, {k: ranks(v, older.right) for k, v in rows_of(older, older_parts).items()}, f"{args.pool}: cut out", out
    )
    args.output_dir.mkdir(parents=True, exist_ok=True)
    (args.output_dir / f"{args.pool}.json").write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
