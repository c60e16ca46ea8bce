"""``nextlevelbert app``: a page on which a folder is searched and looked at, made of Gradio's own
parts.
"""

# No `from __future__ import annotations`: Gradio reads the annotations of event handlers, and is
# imported late.

import argparse
import base64
import html
import importlib.util
import io
import itertools
import os
import re
import textwrap
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from sklearn.preprocessing import normalize

from .map import principal_components, write_names
from .search import Answer, Library, open_library
from .shelf import open_model

_WARM = np.array([234, 88, 12])
_COLD = np.array([37, 99, 235])
_CELLS, _CONTEXT = 200, 700  # of a strip at most; characters shown before and after a passage
_LONGEST_HIGHLIGHT = 20_000  # characters
_PIXELS, _MARGIN = (
    (1120, 680),
    0.06,
)  # of the map, and around its points, as a share of their extent
_CSS = ".nlb { font-family: Georgia, serif } .nlb * { word-break: normal; overflow-wrap: anywhere }"
_NUMBER = r"(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty)"
_KINDS = "act|article|book|canto|chapter|item|letter|part|section|volume"
_HEADING = re.compile(
    rf"^[ \t]*(?:\#{{1,3}}[ \t]\S.{{0,79}}|(?:{_KINDS})[ \t]+(?:the[ \t]+)?{_NUMBER}(?:["
    r" \t.:,—–-].{0,79})?"
    r"|(?-i:[IVXLC]+)\.?|\d{1,3}\.?)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_SHORTEST_PART = 500  # characters; headings closer together are a table of contents
_MOST_PARTS = 200
_EQUAL_PARTS = 30
Part = tuple[
    str, int, int
]  # a chapter, or another part of a document: its heading, and its characters


def overlap(spans: np.ndarray, parts: Sequence[Part]) -> np.ndarray:
    """How many characters of each chunk, of spans ``[n, 2]``, lie in each part: ``[p, n]``,
    float32.
    """
    starts, ends = spans.T
    shared = [np.minimum(ends, end) - np.maximum(starts, start) for _, start, end in parts]
    return np.maximum(np.stack(shared), 0).astype(np.float32)


def parts_of(text: str, spans: np.ndarray) -> list[Part]:
    """What stands between headings of the text, else equal parts, which begin with a chunk of the
    spans ``[n, 2]``.
    """
    if 3 <= len(chapters := _between_headings(text)) <= _MOST_PARTS:
        return chapters
    groups = np.array_split(np.arange(len(spans)), min(_EQUAL_PARTS, len(spans)))
    starts = [0] + [int(spans[group[0], 0]) for group in groups[1:]]
    borders = itertools.pairwise([*starts, len(text)])
    return [(f"part {number}", *border) for number, border in enumerate(borders, start=1)]


def _between_headings(text: str) -> list[Part]:
    headings = [
        (" ".join(match.group().strip("# \t").split()), match.start())
        for match in _HEADING.finditer(text)
    ]
    pairs = itertools.pairwise([*headings, ("", len(text))])
    far = [one for one, following in pairs if following[1] - one[1] >= _SHORTEST_PART]
    if far and far[0][1] >= _SHORTEST_PART:
        far.insert(0, ("before the first heading", 0))
    return [(*one, following[1]) for one, following in itertools.pairwise([*far, ("", len(text))])]


class Page:
    """What the page shows of a library, as values of Gradio's parts."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.answer = lru_cache(maxsize=16)(
            library.ask
        )  # the scores of all passages, for the last questions
        points, self.share = principal_components(library.summaries)
        extent = np.ptp(points, axis=0)
        self.points = np.where(
            extent > 1e-6, (points - points.min(axis=0)) / np.maximum(extent, 1e-6), 0.5
        )

    def chunks(self, number: int) -> slice:
        return slice(*self.library.first[number : number + 2].tolist())

    def alike(self, number: int, count: int = 5) -> list[tuple[int, float]]:
        """The documents whose vectors have the highest cosine with that of a document."""
        cosines = (
            normalize(self.library.summaries)
            @ normalize(self.library.summaries[number : number + 1])[0]
        )
        nearest = [
            other for other in np.argsort(-cosines, kind="stable").tolist() if other != number
        ]
        return [(other, float(cosines[other])) for other in nearest[:count]]

    def map(self, ranked: Sequence[int], chosen: int) -> np.ndarray:
        """A picture of all documents as points, near each other where alike; the ranked ones have a
        number.
        """
        figure = Figure(figsize=(_PIXELS[0] / 160, _PIXELS[1] / 160), dpi=160)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-_MARGIN, 1 + _MARGIN), ylim=(-_MARGIN, 1 + _MARGIN), xticks=[], yticks=[])
        x = self.points[:, 0]
        y = self.points[:, 1]
        axes.scatter(x, y, s=28, color=_COLD / 255, alpha=0.5, linewidths=0)
        axes.scatter(x[list(ranked)], y[list(ranked)], s=110, color=_WARM / 255)
        axes.scatter(
            x[chosen], y[chosen], s=130, facecolors="none", edgecolors="black", linewidths=1.5
        )
        for rank, number in enumerate(ranked, start=1):
            axes.text(
                x[number], y[number], str(rank), color="white", fontsize=7, ha="center", va="center"
            )
        order = list(dict.fromkeys([*ranked, chosen, *range(len(self.points))]))
        write_names(
            figure, axes, [self.library.places[number] for number in order], self.points[order]
        )
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3]

    def nearest_point(self, x: float, y: float) -> int:
        """The document that is nearest to a pixel of the map."""
        place = np.array([x / _PIXELS[0], 1 - y / _PIXELS[1]]) * (1 + 2 * _MARGIN) - _MARGIN
        return int(np.linalg.norm((self.points - place) * _PIXELS, axis=1).argmin())

    def cells(self, number: int) -> list[np.ndarray]:
        """The chunks of a document in at most as many groups as a strip has cells."""
        chunks = np.arange(np.diff(self.library.first)[number])
        return np.array_split(chunks, min(_CELLS, len(chunks)))

    def strip(self, number: int, answer: Answer) -> np.ndarray:
        """A document from left to right, ``[1, cells, 3]``: a cell's best score as colour, from the
        mean of all on.
        """
        scores = answer.score[self.chunks(number)].numpy()
        low = max(float(answer.score.mean()), 0.0)
        high = float(answer.score.max())
        best = np.array([scores[cell].max() for cell in self.cells(number)])
        return _colours(np.clip((best - low) / max(high - low, 1e-6), 0, 1)[None] ** 1.5)

    def documents(
        self, ranked: Sequence[tuple[int, float]], answer: Answer | None
    ) -> list[list[Any]]:
        """Rows: rank, name, score, and for a question the strip along the document."""
        strips = [
            f'<img src="{_data_uri(self.strip(number, answer))}">' if answer else ""
            for number, _ in ranked
        ]
        facts = [(self.library.places[number], f"{score:.3f}") for number, score in ranked]
        return [
            [rank, *row, strip]
            for rank, (row, strip) in enumerate(zip(facts, strips, strict=True), start=1)
        ]

    def passages(self, answer: Answer) -> list[list[str]]:
        """Rows: name, position, score and beginning of the nearest passages."""
        rows = []
        for number in answer.passages:
            passage = self.library.passage(number)
            position = ", ".join(passage.position()[1:])
            place = self.library.places[self.library.locate(number)[0]]
            beginning = textwrap.shorten(passage.text, 220, placeholder=" …")
            rows.append([place, position, f"{answer.score[number]:.3f}", beginning])
        return rows

    def text(
        self, number: int, chunks: Sequence[int], headings: Sequence[str] = ("",)
    ) -> list[Any]:
        """Passages of a document, each highlighted in the text around it."""
        text = self.library.text(number)
        pieces = list[tuple[str, str | None]]()
        for chunk, heading in zip(chunks, headings, strict=True):
            passage = self.library.passage(int(self.library.first[number]) + chunk)
            start = passage.start
            end = min(passage.end, start + _LONGEST_HIGHLIGHT)
            title = " · ".join(filter(None, (heading, ", ".join(passage.position()))))
            before = text[max(0, start - _CONTEXT) : start]
            after = text[end : end + _CONTEXT]
            pieces += [
                (f"{title}\n\n… {before}", None),
                (text[start:end], "passage"),
                (f"{after} …\n\n", None),
            ]
        return pieces

    def parts(self, number: int) -> tuple[list[Part], np.ndarray]:
        """The parts of a document and their similarity ``[p, p]``: cosines of the means of their
        chunk vectors, from which the mean of all parts is subtracted.
        """
        spans = self.library.spans[self.chunks(number)]
        vectors = self.library.vectors[self.chunks(number)].numpy()
        parts = parts_of(self.library.text(number), spans)
        means = normalize(overlap(spans, parts), norm="l1") @ vectors  # [p, D]
        directions = normalize(means - means.mean(axis=0)) if len(means) > 1 else normalize(means)
        return parts, directions @ directions.T

    def square(self, number: int) -> np.ndarray:
        """Parts against each other, ``[p, p, 3]``: orange where alike, blue where unlike."""
        _, cosines = self.parts(number)
        off = np.abs(cosines[~np.eye(len(cosines), dtype=bool)])
        return _colours(np.clip(cosines / max(float(off.max(initial=0)), 1e-6), -1, 1))

    def nearest_pair(self, number: int, row: int, column: int) -> tuple[list[int], list[str]]:
        """Of two parts of a document, the two chunks that are most alike, and the headings; of one
        part, its first.
        """
        pair = [self.parts(number)[0][place] for place in (row, column)]
        one, other = map(np.flatnonzero, overlap(self.library.spans[self.chunks(number)], pair))
        if row == column:
            return [int(one[0])], [pair[0][0]]
        vectors = self.library.vectors[self.chunks(number)].numpy()
        cosines = vectors[one] @ vectors[other].T
        cosines[one[:, None] == other[None, :]] = -np.inf  # a chunk on the border belongs to both
        best = np.unravel_index(cosines.argmax(), cosines.shape)
        return [int(one[best[0]]), int(other[best[1]])], [heading for heading, _, _ in pair]


def _colours(shares: np.ndarray) -> np.ndarray:
    """Shares ``[rows, columns]`` from -1 to 1 as pixels, from blue over white to orange."""
    colour = np.where(shares[..., None] < 0, _COLD, _WARM)
    return (255 + np.abs(shares[..., None]) * (colour - 255)).round().astype(np.uint8)


def _data_uri(pixels: np.ndarray) -> str:
    imsave(file := io.BytesIO(), _enlarged(pixels, 600, 24), format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _enlarged(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """Every pixel as a block, so that the picture has about that size and shape."""
    return pixels.repeat(max(height // len(pixels), 1), 0).repeat(
        max(width // pixels.shape[1], 1), 1
    )


def build(library: Library, title: str):
    """The page as `gradio.Blocks`, not yet served."""
    import gradio as gr

    page = Page(library)

    def show(question: str, number: int, chunk: int | None = None) -> list[Any]:
        """All that changes with a question or a document; without a chunk, its best one is
        shown.
        """
        answer = page.answer(question) if question else None
        if chunk is None:
            chunk = int(answer.score[page.chunks(number)].argmax()) if answer else 0
        ranked = answer.documents if answer else page.alike(number)
        strip = _enlarged(page.strip(number, answer), 1000, 44) if answer else None
        heading = (
            "### Nearest documents"
            if answer
            else "### Most similar documents, by the cosine of their vectors"
        )
        return [
            question,
            number,
            page.map([other for other, _ in ranked], number),
            gr.update(value=heading, visible=True),
            gr.update(value=page.documents(ranked, answer), visible=True),
            gr.update(visible=answer is not None),
            gr.update(value=page.passages(answer) if answer else None, visible=answer is not None),
            gr.update(value=strip, visible=answer is not None),
            gr.update(value=page.text(number, [chunk]), visible=True),
            gr.update(visible=False),
        ]

    def ask(words: str, number: int) -> list[Any]:
        if not words.strip():
            return show("", number)
        return show(words.strip(), *library.locate(page.answer(words.strip()).passages[0]))

    def choose(question: str, number: int, event: gr.SelectData) -> list[Any]:
        if event.target is points:
            return show(question, page.nearest_point(*event.index))
        if event.target is passages:
            return show(question, *library.locate(page.answer(question).passages[event.index[0]]))
        return show(
            question,
            (page.answer(question).documents if question else page.alike(number))[event.index[0]][
                0
            ],
        )

    def click_strip(question: str, number: int, event: gr.SelectData) -> Any:
        cells = page.cells(number)
        scores = page.answer(question).score[page.chunks(number)].numpy()
        cell = cells[min(event.index[0] // (1000 // len(cells)), len(cells) - 1)]
        return page.text(number, [int(cell[scores[cell].argmax()])])

    def click_square(number: int, event: gr.SelectData) -> Any:
        parts = len(page.parts(number)[0])
        column, row = (min(at // (640 // parts), parts - 1) for at in event.index)
        return gr.update(
            value=page.text(number, *page.nearest_pair(number, row, column)), visible=True
        )

    bare: dict[str, Any] = {"interactive": False, "buttons": [], "show_label": False}
    picture: dict[str, Any] = {**bare, "format": "png", "container": False}
    table: dict[str, Any] = {**bare, "visible": False, "wrap": True, "max_height": 900}
    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.HTML(f"<h2>{html.escape(title)} <small>{len(library.places):,} documents</small></h2>")
        question = gr.State("")
        with gr.Row(equal_height=True):
            hint = "Ask, or describe a passage"
            words = gr.Textbox(
                placeholder=hint, show_label=False, container=False, scale=5, autofocus=True
            )
            button = gr.Button("Search", variant="primary", scale=1, min_width=100)
        with gr.Row():
            with gr.Column(scale=6, min_width=320):
                gr.Markdown(
                    f"### Map: similar documents are close (two components, {page.share:.0%} of the"
                    " variance)"
                )
                points = gr.Image(page.map([], 0), **picture)
                heading = gr.Markdown(visible=False)
                columns = ["", "document", "score", "the question along it"]
                widths = ["8%", "36%", "18%", "38%"]
                kinds = ["number", "str", "str", "html"]
                documents = gr.Dataframe(
                    headers=columns, datatype=kinds, column_widths=widths, **table
                )
                relative = gr.Markdown(
                    "### Nearest passages (scores are relative to the folder)", visible=False
                )
                columns = ["document", "place", "score", "passage"]
                widths = ["24%", "18%", "18%", "40%"]
                passages = gr.Dataframe(headers=columns, column_widths=widths, **table)
            with gr.Column(scale=5, min_width=320):
                choices = [(place, number) for number, place in enumerate(library.places)]
                chosen = gr.Dropdown(choices, value=0, show_label=False, container=False)
                strip = gr.Image(visible=False, **picture)
                hidden: dict[str, Any] = {
                    "show_inline_category": False,
                    "show_label": False,
                    "visible": False,
                }
                text = gr.HighlightedText(
                    color_map={"passage": "orange"}, elem_classes="nlb", **hidden
                )
                alike = gr.Button(
                    "Which parts are alike? From top and left; orange: alike, blue: unlike",
                    size="sm",
                )
                square = gr.Image(visible=False, **picture)
        everything = [
            question,
            chosen,
            points,
            heading,
            documents,
            relative,
            passages,
            strip,
            text,
            square,
        ]
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        gr.on([button.click, words.submit], ask, [words, chosen], everything, **quiet)
        chosen.input(show, [question, chosen], everything, **quiet)
        clicks = [points.select, documents.select, passages.select]
        gr.on(clicks, choose, [question, chosen], everything, **quiet)
        strip.select(click_strip, [question, chosen], text, **quiet)

        def draw_square(number: int) -> Any:
            return gr.update(value=_enlarged(page.square(number), 640, 640), visible=True)

        alike.click(draw_square, chosen, square, **quiet)
        square.select(click_square, chosen, text, **quiet)
    return blocks


def run(arguments: argparse.Namespace, public: bool = False) -> None:
    """Serves the page until it is interrupted. Only this machine reaches it, unless it is
    public.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when it is imported
    if importlib.util.find_spec("gradio") is None:
        raise ValueError("The page needs Gradio: pip install 'nextlevelbert[app]'.")
    import gradio as gr

    model = open_model(arguments)
    library = open_library(model, arguments)
    blocks = build(library, Path(arguments.source).resolve().name)
    blocks._queue.sleep_when_free = (
        0.05  # seconds; Gradio looks for work a thousand times a second otherwise
    )
    theme = gr.themes.Soft(
        primary_hue="orange", font=["system-ui", "sans-serif"], font_mono=["system-ui"]
    )
    options: dict[str, Any] = {
        "share": False,
        "quiet": True,
        "ssr_mode": False,
        "footer_links": [],
        "css": _CSS,
    }
    name = None if public else "127.0.0.1"  # a Space says in its environment
    _, address, _ = blocks.launch(
        theme=theme, server_name=name, show_error=True, prevent_thread_lock=True, **options
    )
    print(f"The page is at {address} (Ctrl-C ends it).", flush=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        blocks.close(
            verbose=False
        )  # ends the connections of open pages, too, which block_thread would wait for
