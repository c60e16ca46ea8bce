"""The contents of the page of ``nextlevelbert app``: lists, texts and pictures of a library."""

import base64
import csv
import io
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
from jinja2 import DictLoader, Environment
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from PIL import Image
from sklearn.preprocessing import normalize

from ...data.files import TEXTS
from ..library import Library, SearchResult
from ..rerank import Reranker
from .highlights import bold_words, snippet
from .map import NamePlacer, names_in_any_script, overlaps, principal_components
from .sections import Section, overlap, sections_of

_ORANGE = np.array([234, 88, 12])
_BLUE = np.array([37, 99, 235])
_MOST_CELLS = 200  # of a strip
_CONTEXT = 500  # characters that are shown before and after a passage
_LONGEST_HIGHLIGHT = 20_000  # characters
_MAP_SIZE = (1120, 680)  # pixels
_DPI = 160
_MARGIN = 0.06  # around the points of the map, as a share of their extent
_SIMILAR_DOCUMENTS = 5
# Readable on white and on black: the page may be light or dark.
_RING = "#8a8a8a"
_SHOWN = 20  # documents and passages
_MOST_EXAMPLE_DOCUMENTS = 9
# Spreadsheets compute cells that begin like this (OWASP, "CSV injection").
_FORMULA = re.compile(r"\A(?=\s*[=+\-@＝＋－＠]|[\t\r\n])")
_SENTENCE = re.compile(r"(?<![^\s“\"'])[A-Z][^.!?]*[.!?](?=\s|$)")

_TEMPLATES = {
    "picture": """
<img class="nlb-picture nlb-{{ kind }}" data-{{ kind }}="{{ document }}" src="{{ address }}"
  alt="{{ alt }}">""",
    "documents": """
<ol class="nlb-list">
{% for row in rows %}
  <li><button data-document="{{ row.document }}"><span class="nlb-head">
    <strong>{{ row.name }}</strong><span>{{ "%.3f" | format(row.score) }}</span>
  </span></button>{{ row.strip | safe }}</li>
{% endfor %}
</ol>""",
    "passages": """
<ol class="nlb-list">
{% for row in rows %}
  <li><button data-passage="{{ row.passage }}"><span class="nlb-head">
    <span><strong>{{ row.name }}</strong> · {{ row.position }}</span>
    <span>{{ "%.3f" | format(row.score) }}</span>
  </span><span class="nlb-text">{{ row.text }}</span></button></li>
{% endfor %}
</ol>""",
    "text": (
        '<p class="nlb-position">{{ position }}</p>'
        '<div class="nlb-page">… {{ before }}<mark>{{ passage }}</mark>{{ after }} …</div>'
    ),
}
_HTML = Environment(loader=DictLoader(_TEMPLATES), autoescape=True)
_ALTERNATIVE_TEXTS = {
    "strip": "Score along the document: click to read there",
    "map": "Map of the documents: click to open one",
    "square": "Similarity of the parts of the document: click to read two of them",
}


class Page:
    """Computes the contents of the page from a library, as values of Gradio's components.

    Args:
        library: the library.
        rerank: ranks the first passages of each question again, by a second model.
    """

    def __init__(self, library: Library, rerank: Reranker | None = None) -> None:
        self.library = library
        self.rerank = rerank
        self.names = _short_names(library.names)
        points, self.share = principal_components(library.document_vectors)
        extent = np.ptp(points, axis=0)
        shares = (points - points.min(axis=0)) / np.maximum(extent, 1e-6)
        self.points = np.where(extent > 1e-6, shares, 0.5)

        # Drawn once, because names of thousands of documents take seconds.
        figure, axes = _empty_map()
        self._names = NamePlacer(figure, axes, names=self.names, points=self.points)
        self._name_boxes = self._names.write(axes, range(len(self.points)))
        self._names_picture = _draw(figure)
        figure, axes = _empty_map()
        x, y = self.points.T
        axes.scatter(x, y, 28, color=_BLUE / 255, alpha=0.5, linewidths=0)
        self._points_picture = _draw(figure)

    def passages(self, document: int) -> np.ndarray:
        """Returns the indices of a document's passages."""
        start, stop = self.library.starts[document : document + 2]
        return np.arange(start, stop)

    def ask(self, question: str) -> SearchResult | None:
        """Ranks passages and documents; None for a question without words."""
        if question.strip() == "":
            return None
        return self.library.ask(question, documents=_SHOWN, passages=_SHOWN, rerank=self.rerank)

    def ranked(self, document: int, answer: SearchResult | None) -> list[tuple[int, float]]:
        """Returns the nearest documents to a question, else to a document, with their scores."""
        if answer is not None:
            return answer.documents
        vectors = normalize(self.library.document_vectors)
        cosines = vectors @ vectors[document]
        order = np.argsort(-cosines, kind="stable")
        nearest = order[order != document][:_SIMILAR_DOCUMENTS].tolist()
        return [(other, float(cosines[other])) for other in nearest]

    def best_passage(self, document: int, answer: SearchResult | None) -> int:
        """Returns the passage with the highest score; without a question, the first."""
        passages = self.passages(document)
        if answer is None:
            return int(passages[0])
        return int(passages[answer.score[passages].argmax()])

    def map(self, ranked: Sequence[int], selected: int) -> np.ndarray:
        """Draws all documents as points; similar documents are close together.

        Args:
            ranked: documents whose points are orange and have a number.
            selected: the document whose point has a ring.

        Returns:
            Pixels ``[height, width, 4]`` on a transparent ground.
        """
        height = _MAP_SIZE[1]
        figure, axes = _empty_map()
        x, y = self.points.T
        axes.scatter(x[list(ranked)], y[list(ranked)], 110, color=_ORANGE / 255)
        axes.scatter(x[selected], y[selected], 130, facecolors="none", edgecolors=_RING)
        for rank, document in enumerate(ranked, start=1):
            axes.text(
                x[document],
                y[document],
                f"{rank}",
                color="white",
                size=7,
                ha="center",
                va="center",
            )

        boxes = self._names.write(axes, list(dict.fromkeys([*ranked, selected])))
        names = self._names_picture.copy()
        for document, box in self._name_boxes.items():
            if document in boxes or overlaps(box, np.array([*boxes.values()]).reshape(-1, 4)):
                left, bottom, right, top = box.round().astype(int).tolist()
                names[height - top - 1 : height - bottom + 1, left - 1 : right + 1] = 0
        picture = Image.fromarray(self._points_picture)
        for layer in (names, _draw(figure)):
            picture = Image.alpha_composite(picture, Image.fromarray(layer))
        return np.asarray(picture)

    def nearest_point(self, x: float, y: float) -> int:
        """Returns the document that is nearest to a place of the map.

        Args:
            x: the place as a share of the map's width, from the left.
            y: the place as a share of the map's height, from the top.
        """
        shares = np.array([x, 1 - y])
        offsets = self.points - (shares * (1 + 2 * _MARGIN) - _MARGIN)
        return int(np.linalg.norm(offsets * _MAP_SIZE, axis=1).argmin())

    def cells(self, document: int) -> list[np.ndarray]:
        """Returns the passages of a document in at most as many groups as a strip has cells."""
        passages = self.passages(document)
        return np.array_split(passages, min(_MOST_CELLS, len(passages)))

    def strip(self, document: int, answer: SearchResult) -> np.ndarray:
        """Draws a document from left to right, with the best score of each cell as colour.

        Returns:
            ``[1, cells, 4]``, from transparent for the mean score of all passages to orange.
        """
        best = np.array([answer.score[cell].max() for cell in self.cells(document)])
        low = max(float(answer.score.mean()), 0.0)
        high = max(float(answer.score.max()), low + 1e-6)
        shares = np.clip((best - low) / (high - low), 0, 1)
        return _colours(shares[None] ** 1.5)

    def best_in_cell(self, document: int, answer: SearchResult, *, share: float) -> int:
        """Returns the best passage in the cell of a strip at a share of its width."""
        cells = self.cells(document)
        cell = cells[_index_at(share, count=len(cells))]
        return int(cell[answer.score[cell].argmax()])

    def document_list(self, document: int, answer: SearchResult | None) -> str:
        """Returns name, score and strip of the nearest documents as HTML; see `ranked`."""
        rows = []
        for other, score in self.ranked(document, answer):
            row = {
                "document": other,
                "name": self.names[other],
                "score": score,
                "strip": self._strip_picture(other, answer),
            }
            rows.append(row)
        return _HTML.get_template("documents").render(rows=rows)

    def passage_list(self, question: str, answer: SearchResult) -> str:
        """Returns name, position, score and a part of the nearest passages as HTML.

        The words of the question are bold.
        """
        words = self.library.telling_words(question)
        rows = []
        for index in answer.passages:
            passage = self.library.passage(index)
            row = {
                "passage": index,
                "name": self.names[self.library.document_of(index)],
                "position": passage.position,
                "score": answer.score[index],
                "text": bold_words(snippet(passage.text, words), words),
            }
            rows.append(row)
        return _HTML.get_template("passages").render(rows=rows)

    def table(self, question: str, answer: SearchResult) -> str:
        """Returns the nearest passages as CSV, with the question in each row.

        An apostrophe precedes texts that a spreadsheet would compute.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["question", "document", "position", "characters", "score", "passage"])
        for index in answer.passages:
            passage = self.library.passage(index)
            name = self.library.names[self.library.document_of(index)]
            row = [
                _no_formula(question),
                _no_formula(name),
                passage.position,
                passage.characters,
                f"{answer.score[index]:.4f}",
                _no_formula(passage.text),
            ]
            writer.writerow(row)
        return file.getvalue()

    def text(self, index: int, question: str = "", heading: str = "") -> str:
        """Returns a passage, marked in the text around it, as HTML.

        Args:
            index: the passage.
            question: the question, whose words are bold in the passage.
            heading: heading above the passage; the passage's position follows it.
        """
        text = self.library.document(self.library.document_of(index)).text
        passage = self.library.passage(index)
        start = passage.start
        end = min(passage.end, start + _LONGEST_HIGHLIGHT)
        return _HTML.get_template("text").render(
            position=f"{heading}{passage.characters}, {passage.position}",
            before=text[max(0, start - _CONTEXT) : start],
            passage=bold_words(text[start:end], self.library.telling_words(question)),
            after=text[end : end + _CONTEXT],
        )

    def reading(self, index: int, question: str, answer: SearchResult | None) -> str:
        """Returns a passage in the text around it, below the strip of its document, as HTML."""
        document = self.library.document_of(index)
        return self._strip_picture(document, answer) + self.text(index, question)

    def examples(self) -> list[str]:
        """Returns sentences of three documents that lie far apart, as first questions."""
        order = np.argsort(self.points[:, 0], kind="stable")
        places = np.linspace(0, len(order) - 1, _MOST_EXAMPLE_DOCUMENTS).round().astype(int)
        sentences = list[str]()
        for place in [*places[::4], *places[2::4], *places[1::2]]:
            sentence = self._central_sentence(order[place])
            if sentence and sentence not in sentences:
                sentences.append(sentence)
            if len(sentences) == 3:
                break
        return sentences

    def _central_sentence(self, document: int) -> str | None:
        """Returns a sentence of 6 to 16 words in the passage nearest to the document's mean."""
        passages = self.passages(document)
        vectors = self.library.vectors(document)
        central = int(passages[(vectors @ vectors.mean(axis=0)).argmax()])
        for paragraph in self.library.passage(central).text.split("\n\n"):  # a heading is one
            for sentence in _SENTENCE.findall(" ".join(paragraph.split())):
                if 6 <= len(sentence.split()) <= 16:
                    return sentence
        return None

    def _strip_picture(self, document: int, answer: SearchResult | None) -> str:
        """Returns the strip of a document as HTML; empty without a question."""
        if answer is None:
            return ""
        return picture("strip", self.strip(document, answer), document)

    def sections(self, document: int) -> tuple[list[Section], np.ndarray]:
        """Returns the p sections of a document, and how similar they are.

        Returns:
            The sections, and the cosines ``[p, p]`` of the means of their chunk vectors, from which
            the mean of all sections is subtracted.
        """
        spans = self.library.spans(document)
        sections = sections_of(self.library.document(document).text, spans)
        weights = normalize(overlap(spans, sections), norm="l1")
        means = weights @ self.library.vectors(document)  # [p, D]
        if len(means) > 1:
            means -= means.mean(axis=0)
        directions = normalize(means)
        return sections, directions @ directions.T

    def square(self, document: int) -> np.ndarray:
        """Draws sections against each other, ``[p, p, 4]``: orange if similar, blue if not."""
        _, cosines = self.sections(document)
        others = np.abs(cosines - np.diag(np.diag(cosines)))
        return _colours(np.clip(cosines / max(float(others.max()), 1e-6), -1, 1))

    def nearest_pair(self, document: int, x: float, y: float) -> str:
        """Returns the most similar passages of the two sections at a place of the square, as HTML.

        On the diagonal, it is the first passage of the section.

        Args:
            document: the document that the square shows.
            x: the place as a share of the square's width, from the left.
            y: the place as a share of the square's height, from the top.
        """
        sections, _ = self.sections(document)
        row = sections[_index_at(y, count=len(sections))]
        column = sections[_index_at(x, count=len(sections))]
        in_row, in_column = overlap(self.library.spans(document), [row, column])
        passages = self.passages(document)
        ones = passages[in_row > 0]
        others = passages[in_column > 0]
        if row == column:
            return self.text(ones[0], heading=f"{row.heading} · ")

        vectors = self.library.vectors(document)
        cosines = vectors[in_row > 0] @ vectors[in_column > 0].T
        cosines[np.equal.outer(ones, others)] = -np.inf  # a chunk on the border belongs to both
        best = np.unravel_index(cosines.argmax(), cosines.shape)
        first = self.text(ones[best[0]], heading=f"{row.heading} · ")
        second = self.text(others[best[1]], heading=f"{column.heading} · ")
        return first + second


def _empty_map() -> tuple[Figure, Axes]:
    width, height = _MAP_SIZE
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, frameon=False)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False)
    limits = (-_MARGIN, 1 + _MARGIN)
    axes.set(xlim=limits, ylim=limits, xticks=[], yticks=[])
    return figure, axes


def _draw(figure: Figure) -> np.ndarray:
    """Draws a figure on a transparent ground, ``[height, width, 4]``."""
    canvas = FigureCanvasAgg(figure)
    with names_in_any_script():
        canvas.draw()
    return np.array(canvas.buffer_rgba())


def _colours(shares: np.ndarray) -> np.ndarray:
    """Draws shares ``[rows, columns]`` from -1 to 1 as pixels: blue, transparent, orange."""
    colour = np.where(shares[..., None] < 0, _BLUE, _ORANGE)
    opacity = 255 * np.abs(shares)[..., None]
    return np.concatenate([colour, opacity], axis=-1).round().astype(np.uint8)


def _no_formula(text: str) -> str:
    """Puts an apostrophe before a text that spreadsheets would compute."""
    return _FORMULA.sub("'", text)


def _index_at(share: float, *, count: int) -> int:
    """Returns which of equally wide parts of a picture is at a share of its width."""
    return min(int(share * count), count - 1)


def picture(kind: str, pixels: np.ndarray, document: int = 0) -> str:
    """Returns a picture as HTML that holds the pixels, so that no file is written.

    Args:
        kind: `strip`, `map` or `square`.
        pixels: ``[height, width, 4]``.
        document: the document that a strip or a square shows.
    """
    file = io.BytesIO()
    imsave(file, pixels, format="png")
    content = base64.b64encode(file.getvalue()).decode()
    return _HTML.get_template("picture").render(
        kind=kind,
        document=document,
        address=f"data:image/png;base64,{content}",
        alt=_ALTERNATIVE_TEXTS[kind],
    )


def _short_names(names: Sequence[str]) -> list[str]:
    """Returns names without the ending of their file, unless two would be the same."""
    short = []
    for name in names:
        path = PurePosixPath(name)
        if path.suffix in TEXTS:
            path = path.with_suffix("")
        short.append(str(path))
    if len(set(short)) < len(short):
        return list(names)
    return short
