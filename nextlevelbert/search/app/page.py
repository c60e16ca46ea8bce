"""``nextlevelbert app``: a page on which a folder is searched and looked at, made by Gradio."""

# No `from __future__ import annotations`: Gradio reads the annotations of event handlers, and is
# imported late.

import base64
import html
import io
import os
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from sklearn.preprocessing import normalize

from ...models.modeling_nextlevelbert import NextLevelBertModel
from ..library import Library, SearchResult, open_library
from ..reading import ReadingOptions
from ..search_model import SearchModel
from .map import NamePlacer, names_in_any_script, overlaps, principal_components
from .sections import Section, overlap, sections_of

if TYPE_CHECKING:
    from gradio import Blocks

_ORANGE = np.array([234, 88, 12])
_BLUE = np.array([37, 99, 235])
_MOST_CELLS = 200  # of a strip
_STRIP_SIZE = (1000, 44)  # pixels
_SMALL_STRIP_SIZE = (600, 24)
_SQUARE_SIZE = (640, 640)
_CONTEXT = 700  # characters that are shown before and after a passage
_LONGEST_HIGHLIGHT = 20_000  # characters
_BEGINNING = 220  # characters of a passage in the table
_MAP_SIZE = (1120, 680)  # pixels
_DPI = 160
_MARGIN = 0.06  # around the points of the map, as a share of their extent
_SIMILAR_DOCUMENTS = 5
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_CSS = ".nlb { font-family: Georgia, serif } .nlb * { word-break: normal; overflow-wrap: anywhere }"


class Page:
    """Computes the contents of the page from a library, as values of Gradio's components."""

    def __init__(self, library: Library) -> None:
        self.library = library
        points, self.share = principal_components(library.document_vectors)
        extent = np.ptp(points, axis=0)
        shares = (points - points.min(axis=0)) / np.maximum(extent, 1e-6)
        self.points = np.where(extent > 1e-6, shares, 0.5)

        # Drawn once, because names of thousands of documents take seconds.
        figure, axes = _empty_map()
        self._names = NamePlacer(figure, axes, names=library.names, points=self.points)
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
        return self.library.ask(question)

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
        """
        width, height = _MAP_SIZE
        figure, axes = _empty_map()
        x, y = self.points.T
        axes.scatter(x[list(ranked)], y[list(ranked)], 110, color=_ORANGE / 255)
        axes.scatter(x[selected], y[selected], 130, facecolors="none", edgecolors="black")
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
        picture = np.full((height, width, 3), 255.0)
        for layer in (self._points_picture, names, _draw(figure)):
            opacity = layer[..., 3:] / 255
            picture += opacity * (layer[..., :3] - picture)
        return picture.round().astype(np.uint8)

    def nearest_point(self, x: float, y: float) -> int:
        """Returns the document that is nearest to a pixel of the map."""
        width, height = _MAP_SIZE
        shares = np.array([x / width, 1 - y / height])
        offsets = self.points - (shares * (1 + 2 * _MARGIN) - _MARGIN)
        return int(np.linalg.norm(offsets * _MAP_SIZE, axis=1).argmin())

    def cells(self, document: int) -> list[np.ndarray]:
        """Returns the passages of a document in at most as many groups as a strip has cells."""
        passages = self.passages(document)
        return np.array_split(passages, min(_MOST_CELLS, len(passages)))

    def strip(self, document: int, answer: SearchResult) -> np.ndarray:
        """Draws a document from left to right, with the best score of each cell as colour.

        Returns:
            ``[1, cells, 3]``, from white for the mean score of all passages to orange.
        """
        best = np.array([answer.score[cell].max() for cell in self.cells(document)])
        low = max(float(answer.score.mean()), 0.0)
        high = max(float(answer.score.max()), low + 1e-6)
        shares = np.clip((best - low) / (high - low), 0, 1)
        return _colours(shares[None] ** 1.5)

    def best_in_cell(self, document: int, answer: SearchResult, *, x: int) -> int:
        """Returns the passage with the highest score in the cell at a pixel of the strip."""
        cells = self.cells(document)
        cell = cells[_cell_at(x, _STRIP_SIZE[0], cells=len(cells))]
        return int(cell[answer.score[cell].argmax()])

    def document_rows(self, document: int, answer: SearchResult | None) -> list[list[Any]]:
        """Returns rank, name, score and strip of the nearest documents; see `ranked`."""
        rows = []
        for rank, (other, score) in enumerate(self.ranked(document, answer), start=1):
            picture = ""
            if answer is not None:
                picture = f'<img src="{_data_uri(self.strip(other, answer))}">'
            rows.append([rank, self.library.names[other], f"{score:.3f}", picture])
        return rows

    def passage_rows(self, answer: SearchResult) -> list[list[str]]:
        """Returns name, position, score and beginning of the nearest passages."""
        rows = []
        for index in answer.passages:
            passage = self.library.passage(index)
            name = self.library.names[self.library.document_of(index)]
            beginning = textwrap.shorten(passage.text, _BEGINNING, placeholder=" …")
            rows.append([name, passage.position, f"{answer.score[index]:.3f}", beginning])
        return rows

    def text(self, index: int, heading: str = "") -> list[tuple[str, str | None]]:
        """Returns a passage, highlighted in the text around it.

        Args:
            index: the passage.
            heading: heading above the passage; the passage's position follows it.
        """
        text = self.library.document(self.library.document_of(index)).text
        passage = self.library.passage(index)
        start = passage.start
        end = min(passage.end, start + _LONGEST_HIGHLIGHT)
        before = text[max(0, start - _CONTEXT) : start]
        title = f"{heading}{passage.characters}, {passage.position}"
        return [
            (f"{title}\n\n… {before}", None),
            (text[start:end], "passage"),
            (f"{text[end : end + _CONTEXT]} …\n\n", None),
        ]

    def sections(self, document: int) -> tuple[list[Section], np.ndarray]:
        """Returns the p sections of a document, and how similar they are.

        Returns:
            The sections, and the cosines ``[p, p]`` of the means of their chunk vectors, from which
            the mean of all sections is subtracted.
        """
        passages = self.passages(document)
        spans = self.library.spans[passages]
        sections = sections_of(self.library.document(document).text, spans)
        weights = normalize(overlap(spans, sections), norm="l1")
        means = weights @ self.library.vectors[passages]  # [p, D]
        if len(means) > 1:
            means -= means.mean(axis=0)
        directions = normalize(means)
        return sections, directions @ directions.T

    def square(self, document: int) -> np.ndarray:
        """Draws sections against each other, ``[p, p, 3]``: orange if similar, blue if not."""
        _, cosines = self.sections(document)
        others = np.abs(cosines - np.diag(np.diag(cosines)))
        return _colours(np.clip(cosines / max(float(others.max()), 1e-6), -1, 1))

    def nearest_pair(self, document: int, x: int, y: int) -> list[tuple[str, str | None]]:
        """Returns the most similar passages of the two sections at a pixel of the square.

        On the diagonal, it is the first passage of the section.
        """
        sections, _ = self.sections(document)
        row = sections[_cell_at(y, _SQUARE_SIZE[1], cells=len(sections))]
        column = sections[_cell_at(x, _SQUARE_SIZE[0], cells=len(sections))]
        passages = self.passages(document)
        in_row, in_column = overlap(self.library.spans[passages], [row, column])
        ones = passages[in_row > 0]
        others = passages[in_column > 0]
        if row == column:
            return self.text(ones[0], heading=f"{row.heading} · ")

        cosines = self.library.vectors[ones] @ self.library.vectors[others].T
        cosines[np.equal.outer(ones, others)] = -np.inf  # a chunk on the border belongs to both
        best = np.unravel_index(cosines.argmax(), cosines.shape)
        return [
            *self.text(ones[best[0]], heading=f"{row.heading} · "),
            *self.text(others[best[1]], heading=f"{column.heading} · "),
        ]


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
    """Draws shares ``[rows, columns]`` from -1 to 1 as pixels, from blue over white to orange."""
    shares = shares[..., None]
    colour = np.where(shares < 0, _BLUE, _ORANGE)
    return (255 + np.abs(shares) * (colour - 255)).round().astype(np.uint8)


def _cell_at(pixel: int, pixels: int, *, cells: int) -> int:
    """Returns the cell at a pixel of a picture that `_enlarged` has made."""
    return min(pixel // (pixels // cells), cells - 1)


def _enlarged(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Draws every pixel as a block, so that the picture has about that width and height."""
    rows, columns, _ = pixels.shape
    width, height = size
    tall = pixels.repeat(max(height // rows, 1), axis=0)
    return tall.repeat(max(width // columns, 1), axis=1)


def _data_uri(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    imsave(file, _enlarged(pixels, _SMALL_STRIP_SIZE), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def build(library: Library, title: str) -> "Blocks":
    """Builds the page, which is not yet served."""
    import gradio as gr

    page = Page(library)
    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.HTML(f"<h2>{html.escape(title)} <small>{len(library.names):,} documents</small></h2>")
        components = _lay_out(page)
        _connect_search(page, components)
        _connect_pictures(page, components)
    return blocks


def _lay_out(page: Page) -> SimpleNamespace:
    """Makes the components of the page."""
    import gradio as gr

    picture = {
        "interactive": False,
        "buttons": [],
        "show_label": False,
        "format": "png",
        "container": False,
    }
    table = {
        "interactive": False,
        "buttons": [],
        "visible": False,
        "wrap": True,
        "max_height": 900,
    }
    components = SimpleNamespace(question=gr.State(""))
    with gr.Row(equal_height=True):
        components.search_box = gr.Textbox(
            placeholder="Ask a question, or describe a passage",
            show_label=False,
            container=False,
            scale=5,
            autofocus=True,
        )
        components.search = gr.Button("Search", variant="primary", scale=1, min_width=100)
    with gr.Row():
        with gr.Column(scale=6, min_width=320):
            share = f"{page.share:.0%} of the variance"
            gr.Markdown(
                f"### Map: similar documents are close together (two principal components, {share})"
            )
            components.points = gr.Image(page.map([], selected=0), **picture)
            components.documents = gr.Dataframe(
                label="Nearest documents to the question, or to the selected document",
                headers=["", "document", "score", "score along the document"],
                datatype=["number", "str", "str", "html"],
                column_widths=["8%", "36%", "18%", "38%"],
                **table,
            )
            components.passages = gr.Dataframe(
                label="Nearest passages (scores are relative to the folder)",
                headers=["document", "position", "score", "passage"],
                column_widths=["24%", "18%", "18%", "40%"],
                **table,
            )
        with gr.Column(scale=5, min_width=320):
            choices = [(name, index) for index, name in enumerate(page.library.names)]
            components.selected = gr.Dropdown(choices, value=0, show_label=False, container=False)
            components.strip = gr.Image(visible=False, **picture)
            components.text = gr.HighlightedText(
                color_map={"passage": "orange"},
                elem_classes="nlb",
                show_inline_category=False,
                show_label=False,
                visible=False,
            )
            components.compare = gr.Button(
                "Compare the parts of this document (orange: similar, blue: different)",
                size="sm",
            )
            components.square = gr.Image(visible=False, **picture)
    return components


def _connect_search(page: Page, components: SimpleNamespace) -> None:
    """Connects the question, and the choice of a document or passage, with what they change."""
    import gradio as gr

    shown = [
        components.selected,
        components.points,
        components.documents,
        components.passages,
        components.strip,
        components.text,
        components.square,
    ]

    def show(answer: SearchResult | None, passage: int) -> list[Any]:
        document = page.library.document_of(passage)
        ranked = [other for other, _ in page.ranked(document, answer)]
        passages = None
        strip = None
        if answer is not None:
            passages = page.passage_rows(answer)
            strip = _enlarged(page.strip(document, answer), _STRIP_SIZE)
        return [
            document,
            page.map(ranked, selected=document),
            gr.update(value=page.document_rows(document, answer), visible=True),
            gr.update(value=passages, visible=answer is not None),
            gr.update(value=strip, visible=answer is not None),
            gr.update(value=page.text(passage), visible=True),
            gr.update(value=None, visible=False),
        ]

    def show_document(question: str, document: int) -> list[Any]:
        answer = page.ask(question)
        return show(answer, page.best_passage(document, answer))

    def ask(question: str, document: int) -> list[Any]:
        answer = page.ask(question)
        passage = page.best_passage(document, answer)
        if answer is not None:
            passage = answer.passages[0]
        return [question, *show(answer, passage)]

    def click_point(question: str, event: gr.SelectData) -> list[Any]:
        return show_document(question, page.nearest_point(*event.index))

    def click_document(question: str, document: int, event: gr.SelectData) -> list[Any]:
        other, _ = page.ranked(document, page.ask(question))[event.index[0]]
        return show_document(question, other)

    def click_passage(question: str, event: gr.SelectData) -> list[Any]:
        answer = page.library.ask(question)
        return show(answer, answer.passages[event.index[0]])

    state = [components.question, components.selected]
    gr.on(
        [components.search.click, components.search_box.submit],
        ask,
        inputs=[components.search_box, components.selected],
        outputs=[components.question, *shown],
        **_QUIET,
    )
    components.selected.input(show_document, state, outputs=shown, **_QUIET)
    components.points.select(click_point, components.question, outputs=shown, **_QUIET)
    components.documents.select(click_document, state, outputs=shown, **_QUIET)
    components.passages.select(click_passage, components.question, outputs=shown, **_QUIET)


def _connect_pictures(page: Page, components: SimpleNamespace) -> None:
    """Connects clicks on the pictures of one document with what they change."""
    import gradio as gr

    def click_strip(question: str, document: int, event: gr.SelectData) -> list[Any]:
        answer = page.library.ask(question)
        return page.text(page.best_in_cell(document, answer, x=event.index[0]))

    def compare(document: int) -> dict[str, Any]:
        return gr.update(value=_enlarged(page.square(document), _SQUARE_SIZE), visible=True)

    def click_square(document: int, event: gr.SelectData) -> dict[str, Any]:
        return gr.update(value=page.nearest_pair(document, *event.index), visible=True)

    components.strip.select(
        click_strip, [components.question, components.selected], outputs=components.text, **_QUIET
    )
    components.compare.click(compare, components.selected, outputs=components.square, **_QUIET)
    components.square.select(click_square, components.selected, outputs=components.text, **_QUIET)


def run(
    source: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    host: str | None = "127.0.0.1",
    port: int | None = None,
) -> None:
    """Serves the page until it is interrupted.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        host: address to listen on; other machines can reach the page at ``"0.0.0.0"``. None leaves
            the choice to Gradio, as in a Space.
        port: port to listen on (default: the first free one from 7860).

    Raises:
        OSError: if the port is taken.
        ValueError: if Gradio is not installed.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported
    try:
        import gradio as gr
    except ImportError as error:
        raise ValueError("The page needs Gradio. Run: pip install 'gradio>=6.31,<7'") from error

    library = open_library(source, model, reading)
    blocks = build(library, Path(source).resolve().name)
    _, address, _ = blocks.launch(
        server_name=host,
        server_port=port,
        share=False,
        quiet=True,
        show_error=True,
        ssr_mode=False,
        footer_links=[],
        css=_CSS,
        theme=gr.themes.Soft(
            primary_hue="orange", font=["system-ui", "sans-serif"], font_mono=["system-ui"]
        ),
        prevent_thread_lock=True,
    )
    print(f"The page is at {address} (press Ctrl-C to stop).", flush=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        # This ends the connections of open pages, too, which `block_thread` would wait for.
        blocks.close(verbose=False)
