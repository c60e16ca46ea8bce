"""``nextlevelbert app``: a page on which a folder is searched and looked at, made by Gradio."""

# No `from __future__ import annotations`: Gradio reads the annotations of event handlers, and is
# imported late.

import base64
import html
import io
import os
import re
import textwrap
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from sklearn.preprocessing import normalize

from ..models.modeling_nextlevelbert import NextLevelBertModel
from .map import principal_components, write_names
from .search import Answer, Library, open_library, recent

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
_DOTS_PER_INCH = 160
_MARGIN = 0.06  # around the points of the map, as a share of their extent
_SIMILAR_DOCUMENTS = 5
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_CSS = ".nlb { font-family: Georgia, serif } .nlb * { word-break: normal; overflow-wrap: anywhere }"
_NUMBER = (
    r"(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|twenty)"
)
_KINDS = "act|article|book|canto|chapter|item|letter|part|section|volume"
_HEADING = re.compile(
    rf"^[ \t]*(?:\#{{1,3}}[ \t]\S.{{0,79}}|(?:{_KINDS})[ \t]+(?:the[ \t]+)?{_NUMBER}(?:["
    r" \t.:,—–-].{0,79})?"
    r"|(?-i:[IVXLC]+)\.?|\d{1,3}\.?)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SHORTEST_SECTION = 500  # characters; headings closer together are a table of contents
_FEWEST_SECTIONS = 3
_MOST_SECTIONS = 200
_EQUAL_SECTIONS = 30


class Section(NamedTuple):
    """A chapter, or another part of a document: its heading, and its characters."""

    heading: str
    start: int
    end: int


def overlap(spans: np.ndarray, sections: Sequence[Section]) -> np.ndarray:
    """Counts the characters of each chunk that lie in each section.

    Args:
        spans: the characters of n chunks, ``[n, 2]``.
        sections: p sections of the document.

    Returns:
        ``[p, n]`` in float32.
    """
    starts = np.array([[section.start] for section in sections])
    ends = np.array([[section.end] for section in sections])
    shared = np.minimum(spans[:, 1], ends) - np.maximum(spans[:, 0], starts)
    return shared.clip(min=0).astype(np.float32)


def sections_of(text: str, spans: np.ndarray) -> list[Section]:
    """Divides a document at its headings, or else into equal sections that begin with a chunk.

    Args:
        text: the document.
        spans: the characters of its chunks, ``[n, 2]``.
    """
    chapters = _chapters(text)
    if _FEWEST_SECTIONS <= len(chapters) <= _MOST_SECTIONS:
        return chapters
    groups = np.array_split(spans[:, 0], min(_EQUAL_SECTIONS, len(spans)))
    starts = [int(group[0]) for group in groups]
    starts[0] = 0
    borders = enumerate(pairwise([*starts, len(text)]), start=1)
    return [Section(f"part {number}", start, end) for number, (start, end) in borders]


def _chapters(text: str) -> list[Section]:
    headings = [(match.group(), match.start()) for match in _HEADING.finditer(text)]
    end = ("", len(text))
    chapters = []
    for heading, following in pairwise([*headings, end]):
        if following[1] - heading[1] >= _SHORTEST_SECTION:
            chapters.append(heading)
    if chapters and chapters[0][1] >= _SHORTEST_SECTION:
        chapters.insert(0, ("before the first heading", 0))
    sections = []
    for (line, first), (_, last) in pairwise([*chapters, end]):
        name = " ".join(line.strip("# \t").split())
        sections.append(Section(name, first, last))
    return sections


class Page:
    """Computes what the page shows of a library, as values of Gradio's components."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._answers = dict[str, Answer]()
        points, self.share = principal_components(library.summaries)
        extent = np.ptp(points, axis=0)
        shares = (points - points.min(axis=0)) / np.maximum(extent, 1e-6)
        self.points = np.where(extent > 1e-6, shares, 0.5)

    def answer(self, question: str) -> Answer:
        return recent(self._answers, key=question, make=self.library.ask)

    def chunks(self, number: int) -> slice:
        """Returns the numbers of a document's passages."""
        start, end = self.library.first[number : number + 2].tolist()
        return slice(start, end)

    def similar(self, number: int) -> list[tuple[int, float]]:
        """Returns the documents whose vectors have the highest cosine with a document's."""
        vectors = normalize(self.library.summaries)
        cosines = vectors @ vectors[number]
        order = np.argsort(-cosines, kind="stable")
        nearest = order[order != number][:_SIMILAR_DOCUMENTS]
        return [(other, float(cosines[other])) for other in nearest.tolist()]

    def ranked(self, question: str, number: int) -> list[tuple[int, float]]:
        """Returns the nearest documents to a question; without one, to a document."""
        if question == "":
            return self.similar(number)
        return self.answer(question).documents

    def best_chunk(self, question: str, number: int) -> int:
        """Returns the chunk of a document with the highest score; without a question, the first."""
        if question == "":
            return 0
        return int(self.answer(question).score[self.chunks(number)].argmax())

    def map(self, ranked: Sequence[int], chosen: int) -> np.ndarray:
        """Draws all documents as points; similar documents are close together.

        Args:
            ranked: documents whose points are orange and have a number.
            chosen: the document whose point has a ring.
        """
        width, height = _MAP_SIZE
        figure = Figure(
            figsize=(width / _DOTS_PER_INCH, height / _DOTS_PER_INCH), dpi=_DOTS_PER_INCH
        )
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        limits = (-_MARGIN, 1 + _MARGIN)
        axes.set(xlim=limits, ylim=limits, xticks=[], yticks=[])
        x, y = self.points.T
        axes.scatter(x, y, s=28, color=_BLUE / 255, alpha=0.5, linewidths=0)
        axes.scatter(x[list(ranked)], y[list(ranked)], s=110, color=_ORANGE / 255)
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.5}
        axes.scatter(x[chosen], y[chosen], s=130, **ring)
        style: dict[str, Any] = {"color": "white", "fontsize": 7, "ha": "center", "va": "center"}
        for rank, number in enumerate(ranked, start=1):
            axes.text(x[number], y[number], s=str(rank), **style)

        order = list(dict.fromkeys([*ranked, chosen, *range(len(self.points))]))
        names = [self.library.places[number] for number in order]
        write_names(figure, axes, names=names, points=self.points[order])
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3]

    def nearest_point(self, x: float, y: float) -> int:
        """Returns the document that is nearest to a pixel of the map."""
        shares = np.array([x / _MAP_SIZE[0], 1 - y / _MAP_SIZE[1]])
        position = shares * (1 + 2 * _MARGIN) - _MARGIN
        distances = np.linalg.norm((self.points - position) * _MAP_SIZE, axis=1)
        return int(distances.argmin())

    def cells(self, number: int) -> list[np.ndarray]:
        """Returns the chunks of a document in at most as many groups as a strip has cells."""
        chunks = np.arange(len(self.library.spans[self.chunks(number)]))
        return np.array_split(chunks, min(_MOST_CELLS, len(chunks)))

    def strip(self, question: str, number: int) -> np.ndarray:
        """Draws a document from left to right, with the best score of each cell as colour.

        Returns:
            ``[1, cells, 3]``, from white for the mean score of all passages to orange.
        """
        answer = self.answer(question)
        scores = answer.score[self.chunks(number)].numpy()
        best = np.array([scores[cell].max() for cell in self.cells(number)])
        low = max(float(answer.score.mean()), 0.0)
        high = float(answer.score.max())
        shares = np.clip((best - low) / max(high - low, 1e-6), 0, 1)
        return _colours(shares[None] ** 1.5)

    def best_in_cell(self, question: str, number: int, *, x: float) -> int:
        """Returns the chunk with the highest score in the cell at a pixel of the strip."""
        cells = self.cells(number)
        cell_width = _STRIP_SIZE[0] // len(cells)
        cell = cells[min(int(x) // cell_width, len(cells) - 1)]
        scores = self.answer(question).score[self.chunks(number)].numpy()
        return int(cell[scores[cell].argmax()])

    def document_rows(self, question: str, number: int) -> list[list[Any]]:
        """Returns rank, name, score and strip of the nearest documents; see `ranked`."""
        rows = []
        for rank, (other, score) in enumerate(self.ranked(question, number), start=1):
            strip = ""
            if question != "":
                strip = f'<img src="{_data_uri(self.strip(question, other))}">'
            rows.append([rank, self.library.places[other], f"{score:.3f}", strip])
        return rows

    def passage_rows(self, question: str) -> list[list[str]]:
        """Returns name, position, score and beginning of the nearest passages."""
        answer = self.answer(question)
        rows = []
        for number in answer.passages:
            passage = self.library.passage(number)
            place = self.library.places[self.library.locate(number)[0]]
            beginning = textwrap.shorten(passage.text, _BEGINNING, placeholder=" …")
            rows.append([place, passage.position, f"{answer.score[number]:.3f}", beginning])
        return rows

    def text(self, number: int, chunk: int, heading: str = "") -> list[tuple[str, str | None]]:
        """Returns a passage, highlighted in the text around it.

        Args:
            number: the document.
            chunk: the chunk of the document that the passage belongs to.
            heading: what is written above it, before its position.
        """
        text = self.library.text(number)
        passage = self.library.passage(int(self.library.first[number]) + chunk)
        start = passage.start
        end = min(passage.end, start + _LONGEST_HIGHLIGHT)
        title = f"{passage.characters}, {passage.position}"
        if heading != "":
            title = f"{heading} · {title}"
        return [
            (f"{title}\n\n… {text[max(0, start - _CONTEXT) : start]}", None),
            (text[start:end], "passage"),
            (f"{text[end : end + _CONTEXT]} …\n\n", None),
        ]

    def sections(self, number: int) -> tuple[list[Section], np.ndarray]:
        """Returns the p sections of a document, and how similar they are.

        Returns:
            The sections, and the cosines ``[p, p]`` of the means of their chunk vectors, from which
            the mean of all sections is subtracted.
        """
        spans = self.library.spans[self.chunks(number)]
        vectors = self.library.vectors[self.chunks(number)].numpy()
        sections = sections_of(self.library.text(number), spans)
        means = normalize(overlap(spans, sections), norm="l1") @ vectors  # [p, D]
        if len(means) > 1:
            means -= means.mean(axis=0)
        directions = normalize(means)
        return sections, directions @ directions.T

    def square(self, number: int) -> np.ndarray:
        """Draws sections against each other, ``[p, p, 3]``: orange if similar, blue if not."""
        _, cosines = self.sections(number)
        others = np.abs(cosines[~np.eye(len(cosines), dtype=bool)])
        highest = max(float(others.max(initial=0)), 1e-6)
        return _colours(np.clip(cosines / highest, -1, 1))

    def nearest_pair(self, number: int, *, x: float, y: float) -> list[tuple[str, str | None]]:
        """Returns the most similar passages of the two sections at a pixel of the square.

        On the diagonal, it is the first passage of the section.
        """
        sections, _ = self.sections(number)
        cell_width = _SQUARE_SIZE[0] // len(sections)
        row = sections[min(int(y) // cell_width, len(sections) - 1)]
        column = sections[min(int(x) // cell_width, len(sections) - 1)]
        in_row, in_column = overlap(self.library.spans[self.chunks(number)], [row, column]) > 0
        one = np.flatnonzero(in_row)
        other = np.flatnonzero(in_column)
        if row == column:
            return self.text(number, int(one[0]), heading=row.heading)

        vectors = self.library.vectors[self.chunks(number)].numpy()
        cosines = vectors[one] @ vectors[other].T
        cosines[one[:, None] == other[None, :]] = -np.inf  # a chunk on the border belongs to both
        best_one, best_other = np.unravel_index(cosines.argmax(), cosines.shape)
        return [
            *self.text(number, int(one[best_one]), heading=row.heading),
            *self.text(number, int(other[best_other]), heading=column.heading),
        ]

    def view(self, question: str, number: int, chunk: int) -> dict[str, Any]:
        """Returns the value of each component for a chunk of a document, or None to hide it.

        Args:
            question: a text, or "" to show similar documents.
            number: the document.
            chunk: the chunk of the document that is shown.
        """
        view: dict[str, Any] = {
            "heading": "### Most similar documents, by the cosine of their vectors",
            "documents": self.document_rows(question, number),
            "relative": None,
            "passages": None,
            "strip": None,
            "text": self.text(number, chunk),
            "square": None,
        }
        if question != "":
            view["heading"] = "### Nearest documents"
            view["relative"] = "### Nearest passages (scores are relative to the folder)"
            view["passages"] = self.passage_rows(question)
            view["strip"] = _enlarged(self.strip(question, number), *_STRIP_SIZE)
        return view


def _colours(shares: np.ndarray) -> np.ndarray:
    """Draws shares ``[rows, columns]`` from -1 to 1 as pixels, from blue over white to orange."""
    colour = np.where(shares[..., None] < 0, _BLUE, _ORANGE)
    return (255 + np.abs(shares[..., None]) * (colour - 255)).round().astype(np.uint8)


def _data_uri(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    imsave(file, _enlarged(pixels, *_SMALL_STRIP_SIZE), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _enlarged(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """Draws every pixel as a block, so that the picture has about that size and shape."""
    rows, columns, _ = pixels.shape
    tall = pixels.repeat(max(height // rows, 1), axis=0)
    return tall.repeat(max(width // columns, 1), axis=1)


def build(library: Library, title: str) -> Any:  # gradio.Blocks, which is imported late
    """Builds the page, which is not yet served."""
    import gradio as gr

    page = Page(library)
    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.HTML(f"<h2>{html.escape(title)} <small>{len(library.places):,} documents</small></h2>")
        components = _lay_out(page)
        _connect_search(page, components)
        _connect_pictures(page, components)
    return blocks


def _lay_out(page: Page) -> dict[str, Any]:
    """Makes the components of the page, by name."""
    import gradio as gr

    bare: dict[str, Any] = {"interactive": False, "buttons": [], "show_label": False}
    picture: dict[str, Any] = {**bare, "format": "png", "container": False}
    table: dict[str, Any] = {**bare, "visible": False, "wrap": True, "max_height": 900}
    made: dict[str, Any] = {"question": gr.State("")}
    with gr.Row(equal_height=True):
        made["words"] = gr.Textbox(
            placeholder="Ask, or describe a passage",
            show_label=False,
            container=False,
            scale=5,
            autofocus=True,
        )
        made["search"] = gr.Button("Search", variant="primary", scale=1, min_width=100)
    with gr.Row():
        with gr.Column(scale=6, min_width=320):
            share = f"{page.share:.0%} of the variance"
            gr.Markdown(f"### Map: similar documents are close (two components, {share})")
            made["points"] = gr.Image(page.map([], chosen=0), **picture)
            made["heading"] = gr.Markdown(visible=False)
            made["documents"] = gr.Dataframe(
                headers=["", "document", "score", "the question along it"],
                datatype=["number", "str", "str", "html"],
                column_widths=["8%", "36%", "18%", "38%"],
                **table,
            )
            made["relative"] = gr.Markdown(visible=False)
            made["passages"] = gr.Dataframe(
                headers=["document", "place", "score", "passage"],
                column_widths=["24%", "18%", "18%", "40%"],
                **table,
            )
        with gr.Column(scale=5, min_width=320):
            choices = [(place, number) for number, place in enumerate(page.library.places)]
            made["chosen"] = gr.Dropdown(choices, value=0, show_label=False, container=False)
            made["strip"] = gr.Image(visible=False, **picture)
            made["text"] = gr.HighlightedText(
                color_map={"passage": "orange"},
                elem_classes="nlb",
                show_inline_category=False,
                show_label=False,
                visible=False,
            )
            made["compare"] = gr.Button(
                "Compare the parts of this document (orange: similar, blue: different)",
                size="sm",
            )
            made["square"] = gr.Image(visible=False, **picture)
    return made


def _connect_search(page: Page, components: dict[str, Any]) -> None:
    """Says what a question, and the choice of a document or passage, change."""
    import gradio as gr

    library = page.library
    state = [components["question"], components["chosen"]]
    view_names = ("heading", "documents", "relative", "passages", "strip", "text", "square")
    shown = [*state, components["points"], *(components[name] for name in view_names)]

    def show(question: str, number: int, chunk: int) -> dict[Any, Any]:
        ranked = [other for other, _ in page.ranked(question, number)]
        changes = {
            components["question"]: question,
            components["chosen"]: number,
            components["points"]: page.map(ranked, chosen=number),
        }
        for name, value in page.view(question, number, chunk=chunk).items():
            changes[components[name]] = gr.update(value=value, visible=value is not None)
        return changes

    def show_document(question: str, number: int) -> dict[Any, Any]:
        return show(question, number, chunk=page.best_chunk(question, number))

    def show_passage(question: str, passage: int) -> dict[Any, Any]:
        number, chunk = library.locate(passage)
        return show(question, number, chunk=chunk)

    def ask(words: str, number: int) -> dict[Any, Any]:
        question = words.strip()
        if question == "":
            return show_document(question, number)
        return show_passage(question, page.answer(question).passages[0])

    def click_point(question: str, event: gr.SelectData) -> dict[Any, Any]:
        return show_document(question, page.nearest_point(*event.index))

    def click_document(question: str, number: int, event: gr.SelectData) -> dict[Any, Any]:
        other, _ = page.ranked(question, number)[event.index[0]]
        return show_document(question, other)

    def click_passage(question: str, event: gr.SelectData) -> dict[Any, Any]:
        return show_passage(question, page.answer(question).passages[event.index[0]])

    question, chosen = state
    asked = [components["search"].click, components["words"].submit]
    gr.on(asked, ask, inputs=[components["words"], chosen], outputs=shown, **_QUIET)
    chosen.input(show_document, inputs=state, outputs=shown, **_QUIET)
    components["points"].select(click_point, inputs=question, outputs=shown, **_QUIET)
    components["documents"].select(click_document, inputs=state, outputs=shown, **_QUIET)
    components["passages"].select(click_passage, inputs=question, outputs=shown, **_QUIET)


def _connect_pictures(page: Page, components: dict[str, Any]) -> None:
    """Says what clicks on the pictures of one document change."""
    import gradio as gr

    def click_strip(question: str, number: int, event: gr.SelectData) -> Any:
        return page.text(number, page.best_in_cell(question, number, x=event.index[0]))

    def compare(number: int) -> Any:
        return gr.update(value=_enlarged(page.square(number), *_SQUARE_SIZE), visible=True)

    def click_square(number: int, event: gr.SelectData) -> Any:
        passages = page.nearest_pair(number, x=event.index[0], y=event.index[1])
        return gr.update(value=passages, visible=True)

    chosen = components["chosen"]
    state = [components["question"], chosen]
    components["strip"].select(click_strip, inputs=state, outputs=components["text"], **_QUIET)
    components["compare"].click(compare, inputs=chosen, outputs=components["square"], **_QUIET)
    components["square"].select(click_square, inputs=chosen, outputs=components["text"], **_QUIET)


def run(
    source: str,
    model: NextLevelBertModel,
    *,
    text_column: str,
    splitter: str | None,
    cache_dir: Path,
    public: bool = False,
) -> None:
    """Serves the page until it is interrupted.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.
        cache_dir: the folder of all shelves.
        public: whether other machines can reach the page, as in a Space.

    Raises:
        ValueError: if Gradio is not installed.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when Gradio is imported
    try:
        import gradio as gr
    except ImportError as error:
        raise ValueError("The page needs Gradio: pip install 'nextlevelbert[app]'.") from error

    library = open_library(
        source, model, text_column=text_column, splitter=splitter, cache_dir=cache_dir
    )
    blocks = build(library, Path(source).resolve().name)
    server_name = None  # Gradio reads it from the environment of a Space
    if not public:
        server_name = "127.0.0.1"
    _, address, _ = blocks.launch(
        server_name=server_name,
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
    print(f"The page is at {address} (Ctrl-C ends it).", flush=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        # This ends the connections of open pages, too, which `block_thread` would wait for.
        blocks.close(verbose=False)
