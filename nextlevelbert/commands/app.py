"""``nextlevelbert app``: a page in the browser on which a folder is searched and looked at."""
# No `from __future__ import annotations`: Gradio reads the annotations of event handlers, and is imported late.

import argparse
import html
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from .app_html import (
    CSS,
    JAVASCRIPT,
    SCROLL,
    document_html,
    documents_html,
    heat_html,
    map_html,
    passages_html,
    text_html,
)
from .app_library import Answer, Library
from .opening import open_model
from .printing import Printer, print_unreadable
from .shelf import open_shelf

# Gradio's own page asks for nothing from elsewhere but a script for pages in frames; the browser is told to refuse
# that, and all else that would leave this machine.
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"


class Page:
    """What the page shows, without Gradio: every method gives the HTML of some of its areas."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.answer = lru_cache(maxsize=16)(library.ask)  # the scores of all chunks, for the last questions

    def overview(self, question: str, chosen: int) -> tuple[str, str, str]:
        """Map, nearest documents and nearest passages."""
        answer = self._answer(question)
        ranked = answer.documents if answer else self.library.alike(chosen)
        numbers = [number for number, _ in ranked]
        lists = documents_html(self.library, ranked, answer), passages_html(self.library, answer)
        return map_html(self.library, chosen, numbers), *lists

    def close_up(self, question: str, chosen: int) -> tuple[str, str]:
        """Strip and heat-map of a document."""
        return document_html(self.library, chosen, self._answer(question)), heat_html(self.library, chosen)

    def best_place(self, question: str, chosen: int) -> int:
        """The chunk of a document that is nearest to the question; without one, the first."""
        answer = self._answer(question)
        return int(answer.scores[self.library.chunks(chosen)].argmax()) if answer else 0

    def text(self, question: str, clicked: dict[str, Any]) -> str:
        """The text of what was clicked: of a chunk, of a cell of the heat-map (two), or of the best place."""
        number = clicked["document"]
        if "parts" in clicked:
            parts = [self.library.parts(number)[0][each] for each in clicked["parts"]]
            chunks = self.library.nearest_pair(number, *parts)
            shown = 1 if parts[0] == parts[1] else 2
            return text_html(self.library, number, chunks[:shown], parts, clicked=True)
        chunk = clicked["chunk"] if "chunk" in clicked else self.best_place(question, number)
        return text_html(self.library, number, [chunk], clicked=True)

    def _answer(self, question: str) -> Answer | None:
        return self.answer(question) if question else None


def import_gradio() -> Any:
    """Gradio, told to report nothing.

    Raises:
        SystemExit: with a message, if it is not installed.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when it is imported
    try:
        import gradio
    except ImportError as error:
        raise SystemExit(f"error: the page needs Gradio ({error}). Run pip install 'nextlevelbert[app]'.") from error
    return gradio


def build(library: Library, title: str):
    """The page as `gradio.Blocks`, not yet served."""
    gr = import_gradio()
    page = Page(library)
    names = [(place, number) for number, place in enumerate(library.places)]

    def asked(question: str, chosen: int):
        question = question.strip()
        try:
            answer = page.answer(question) if question else None
        except ValueError as error:
            raise gr.Error(str(error)) from error
        if answer:
            chosen, chunk = answer.passages[0][:2]
        else:
            chunk = 0
        text = text_html(library, chosen, [chunk])
        return question, chosen, *page.overview(question, chosen), *page.close_up(question, chosen), text

    def clicked(question: str, chosen: int, event: gr.EventData):  # type: ignore[name-defined]
        sent = event._data
        number = sent["document"]
        if number == chosen:
            return chosen, *[gr.skip()] * 5, page.text(question, sent)
        return number, *page.overview(question, number), *page.close_up(question, number), page.text(question, sent)

    def picked(question: str, chosen: int):
        text = page.text(question, {"document": chosen})
        return *page.overview(question, chosen), *page.close_up(question, chosen), text

    def area(*values: str, **options: Any):
        return [gr.HTML(value, js_on_load=JAVASCRIPT, **options) for value in values]

    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        question = gr.State("")
        gr.HTML(_header(library, title))
        with gr.Row(equal_height=True):
            words = gr.Textbox(
                placeholder="Ask, or describe a passage", show_label=False, container=False, scale=5, autofocus=True
            )
            ask = gr.Button("Search", variant="primary", scale=1, min_width=100)
        with gr.Row():
            with gr.Column(scale=6, min_width=320):
                overview = area(*page.overview("", 0))
            with gr.Column(scale=5, min_width=320):
                chosen = gr.Dropdown(names, value=0, label="Document", filterable=True, container=False)
                [strip] = area(page.close_up("", 0)[0])
                text = gr.HTML(text_html(library, 0, [0]), js_on_load=SCROLL)
                [heat] = area(page.close_up("", 0)[1])
        shown = [*overview, strip, heat, text]
        private = {"api_visibility": "private", "show_progress": "hidden"}
        gr.on([ask.click, words.submit], asked, [words, chosen], [question, chosen, *shown], **private)
        for each in (*overview, strip, heat):
            each.click(clicked, [question, chosen], [chosen, *shown], **private)
        chosen.input(picked, [question, chosen], shown, **private)
    return blocks


def serve(blocks: Any, public: bool = False, block: bool = True) -> str:
    """Serves a page of `build`; gives its address.

    Args:
        blocks: the page.
        public: take the address from the environment, as a Space on the Hub needs it; by default the page can be
            reached from this machine only, and the browser loads nothing from elsewhere.
        block: until it is interrupted.
    """
    from starlette.middleware import Middleware

    gr = import_gradio()
    sans = ["system-ui", "sans-serif"]  # no font is loaded
    blocks._queue.sleep_when_free = 0.05  # seconds; Gradio looks for work a thousand times a second otherwise
    local: dict[str, Any] = {"app_kwargs": {"middleware": [Middleware(_OnlyHere)]}, "server_name": "127.0.0.1"}
    _, address, _ = blocks.launch(
        theme=gr.themes.Soft(primary_hue="orange", neutral_hue="slate", font=sans, font_mono=["monospace"]),
        css=CSS,
        share=False,
        quiet=True,
        ssr_mode=False,
        footer_links=[],
        prevent_thread_lock=True,
        **({} if public else local),
    )
    Printer().line(f"The page is at {address} (Ctrl-C ends it).")
    if block:
        blocks.block_thread()
    return address


class _OnlyHere:
    """ASGI middleware: answers carry a content security policy."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        async def send_with_policy(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", _POLICY.encode())]
            await send(message)

        await self.app(scope, receive, send_with_policy)


def _header(library: Library, title: str) -> str:
    total = f"{len(library.places):,} documents, {sum(library.characters):,} characters"
    heading = f"<h2>{html.escape(title)} <span class='faint'>{total}</span></h2>"
    left_out = "".join(f"<li>{html.escape(f'{each.place}: {each.reason}')}</li>" for each in library.left_out)
    more = f"<details><summary class='faint'>{len(library.left_out)} left out</summary><ul>{left_out}</ul></details>"
    return f"<div class='nlb'>{heading}{more * bool(left_out)}</div>"


def run(arguments: argparse.Namespace, public: bool = False) -> None:
    import_gradio()  # an error comes before the work
    model = open_model(arguments.model, arguments.chunk_encoder)
    library = Library.open(model, open_shelf(model, arguments.source, arguments.cache_dir))
    print_unreadable(library.left_out)
    serve(build(library, Path(arguments.source).resolve().name), public)
