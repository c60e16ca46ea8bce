"""Ranks the passages that answer everyday questions, by ``nextlevelbert search`` and by others.

    python -m benchmarks.studies.search_table --packages packages --shared SHARED --output_dir OUT
    python -m benchmarks.studies.search_table ... --kinds novels --encoder minilm

The texts are those of `everyday_questions`, and so are the commands that download them. Each kind
of text is a folder of its own. A passage is right if it is of a right document and holds the whole
quotation, for SQuALITY if it is of the right story; equal texts count once.

======================  ============================================================================
row                     score of a passage
======================  ============================================================================
search                  as the command ranks with ``--rerank none``
without late int.       the order before late interaction ranks its first hundred again
bm25s, TF-IDF           `bm25s` and scikit-learn's `TfidfVectorizer` with their own defaults
search --rerank NAME    as the command ranks, which reads its first passages with the encoder NAME
                        of ``--encoder``; for MiniLM, the default if the extra is installed
search --model NAME     as the command ranks with ``--dtype int8``
NAME alone              the cosine of that encoder alone, over all passages
======================  ============================================================================

All rows rank the passages of the default, but those of ``--model``, whose passages are as long as
its encoder's tokens make them. The cache is in the output folder, so that a run that was
interrupted goes on. Settings were chosen on the questions of ``--half choose`` only; the table in
the documentation is of the other half. All questions about novels, books and stories are in it.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import bm25s
import numpy as np
from scipy.stats import binomtest
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.common.measuring import add_json_option, write_figures, write_rows
from benchmarks.studies import everyday_questions
from benchmarks.studies.everyday_questions import (
    KINDS,
    Question,
    load_questions,
    load_story_questions,
    one_line,
)
from nextlevelbert.search import ReadingOptions, Reranker, open_library
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.library import LATE_WEIGHT, Library, SearchResult, ranking
from nextlevelbert.search.rerank import PASSAGES, named_reranker

DEFAULT = "search"
LONG = ("novels", "books", "stories")
_DRAWS = 10_000


@dataclass(frozen=True)
class Collection:
    """The passages of a kind of text, and its questions.

    Attributes:
        library: the library of `search`.
        texts: text of each of N passages.
        numbers: a number for each text, ``[N]``; equal texts have equal numbers.
        questions: the questions.
        right: the numbers of the texts that answer each question.
    """

    library: Library
    texts: list[str]
    numbers: np.ndarray
    questions: list[Question]
    right: list[set[int]]

    def rank(self, index: int, scores: np.ndarray) -> int:
        """Returns the rank of the first right passage of a question, from 1 on.

        Args:
            index: the question.
            scores: score of each passage, ``[N]``.
        """
        order = list(ranking(np.ravel(scores), self.numbers))
        numbers = self.numbers[order].tolist()
        return 1 + min(numbers.index(number) for number in self.right[index])


def write_documents(kind: str, documents: Iterable[tuple[str, str]], folder: Path) -> Path:
    """Writes the documents of a kind that hold text into a table."""
    path = folder / f"{kind}.jsonl"
    write_rows(path, ({"id": name, "text": text} for name, text in documents if text.strip()))
    return path


def open_collection(
    path: Path, questions: list[Question], model: SearchModel | None = None
) -> Collection:
    """Opens documents as `search` does, and finds the passages that answer the questions.

    Raises:
        ValueError: if no passage holds the whole quotation of a question.
    """
    library = open_library(str(path), model, ReadingOptions(cache_dir=path.parent / "cache"))
    passages = [library.passage_text(index) for index in range(int(library.starts[-1]))]
    number_of = {text.strip(): number for number, text in enumerate(passages)}
    numbers = np.array([number_of[text.strip()] for text in passages])
    lines = list(map(one_line, passages))
    names = [name.partition("#")[2] for name in library.names]
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
    return Collection(library, passages, numbers, questions, right)


def ranks(collection: Collection) -> dict[str, list[int]]:
    """Ranks the first right passage of each question, by row of the table."""
    words = bm25s.BM25()
    words.index(bm25s.tokenize(collection.texts, show_progress=False), show_progress=False)
    tfidf = TfidfVectorizer()
    weights = tfidf.fit_transform(collection.texts)

    table: dict[str, list[int]] = {}
    for index, question in enumerate(collection.questions):
        answer = collection.library.ask(question.question)
        [tokens] = bm25s.tokenize([question.question], return_ids=False, show_progress=False)
        rows = {
            DEFAULT: answer.score,
            "— without late interaction": scores_before(answer),
            "bm25s": words.get_scores(tokens),
            "TF-IDF (scikit-learn)": (weights @ tfidf.transform([question.question]).T).toarray(),
        }
        for row, scores in rows.items():
            table.setdefault(row, []).append(collection.rank(index, scores))
    return table


def scores_before(answer: SearchResult) -> np.ndarray:
    """Returns the scores before late interaction, ``[N]``; those that it did not read come last."""
    if answer.late_interaction is None:
        return answer.score
    before = (answer.score - LATE_WEIGHT * answer.late_interaction) / (1 - LATE_WEIGHT)
    return np.where(np.isnan(before), answer.score - answer.score.max() - 1, before)


def ranks_with_encoder(
    collection: Collection, own: Collection, *, reranker: Reranker, name: str
) -> dict[str, list[int]]:
    """Ranks the first right passages with a sentence encoder.

    Args:
        collection: the passages of the default, of which the first are ranked again.
        own: the same documents, opened with the encoder.
        reranker: reads with the encoder.
        name: its name in the table.
    """
    table: dict[str, list[int]] = {}
    for index, question in enumerate(collection.questions):
        again = collection.library.ask(question.question, rerank=reranker)
        answer = own.library.ask(question.question)
        rows = {
            f"search --rerank {name}": collection.rank(index, again.score),
            f"search --model {name}": own.rank(index, answer.score),
            f"{name} alone": own.rank(index, answer.cosine),
        }
        for row, rank in rows.items():
            table.setdefault(row, []).append(rank)
    return table


def interval(values: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % interval of a mean, by a bootstrap over questions."""
    draws = np.random.default_rng(0).integers(len(values), size=(_DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def figures_of(table: dict[str, np.ndarray]) -> dict[str, dict[str, object]]:
    """Returns the MRR of each row, and the questions won and lost against the default.

    The default minus a row has an interval, and the p of a two-sided sign test. So has the default
    that an encoder ranks again, without a test.
    """
    figures: dict[str, dict[str, object]] = {}
    for row, ranked in table.items():
        low, high = interval(1 / ranked)
        won = int((ranked < table[DEFAULT]).sum())
        lost = int((ranked > table[DEFAULT]).sum())
        mean = float((1 / ranked).mean())
        minus = {}
        for reference in table:
            if reference == DEFAULT or reference.startswith("search --rerank"):
                gains = 1 / table[reference] - 1 / ranked
                minus[f"{reference} minus"] = [float(gains.mean()), *interval(gains)]
        p = ""
        if won + lost > 0:
            p = f"{binomtest(won, won + lost).pvalue:.3f}"
        figures[row] = {
            "mrr": [mean, low, high],
            "won / lost": f"{won} / {lost}",
            **minus,
            "sign test": p,
        }
    return figures


def parse_args() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="unpacked Debian packages")
    parser.add_argument("--shared", type=Path, required=True, help="folder with data")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder for texts, vectors")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, *LONG], default=KINDS)
    parser.add_argument("--half", choices=["choose", "report"], default="report")
    parser.add_argument("--encoder", help="name of a sentence encoder for three further rows")
    add_json_option(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    model = None
    if args.encoder is not None:
        cache = args.output_dir / "cache"
        model = SearchModel(args.encoder, dtype="int8", cache_dir=cache)
        reranker = named_reranker(args.encoder, PASSAGES, cache_dir=cache)

    overall: dict[str, list[int]] = {}
    figures: dict[str, dict[str, object]] = {}
    numbers = {}
    for kind in args.kinds:
        documents = everyday_questions.read_kind(kind, packages=args.packages, shared=args.shared)
        path = write_documents(kind, documents, args.output_dir)
        questions = [
            question
            for question in [*load_questions(), *load_story_questions(args.shared)]
            if question.kind == kind and question.half == args.half
        ]
        collection = open_collection(path, questions)
        table = ranks(collection)
        if model is not None:
            own = open_collection(path, questions, model)
            table |= ranks_with_encoder(collection, own, reranker=reranker, name=args.encoder)
        of_kind = figures_of({row: np.array(values) for row, values in table.items()})
        numbers[kind] = len(collection.texts)
        for row, values in table.items():
            figures.setdefault(row, {})[kind] = of_kind[row]["mrr"]
            overall.setdefault(row, []).extend(values)
    for row, cells in figures_of({row: np.array(overall[row]) for row in overall}).items():
        figures[row].update(cells)
    facts = {"passages": numbers, "questions": len(overall[DEFAULT]), "ranks": overall}
    write_figures(args.json, figures, **facts)


if __name__ == "__main__":
    main()
