"""``nextlevelbert app``: a page on which a folder is searched and looked at, made by Gradio."""

# No `from __future__ import annotations`: Gradio reads the annotations of event handlers, and is
# imported late.

import base64
import html
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...models.modeling_nextlevelbert import NextLevelBertModel
from ..encoders.choice import SearchModel
from ..library import Library, SearchResult, open_library
from ..reading import ReadingOptions
from ..rerank import Reranker
from .page import Page, picture

if TYPE_CHECKING:
    from gradio import Blocks
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = ["127.0.0.1", "localhost", "[::1]"]
_ALL_ADDRESSES = ("0.0.0.0", "[::]")
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_CSS = """
.nlb { overflow-wrap: anywhere; word-break: normal }
.nlb-list { list-style: none; margin: 0; padding: 0 }
.nlb-list li { border-bottom: 1px solid var(--border-color-primary); padding: .6rem 0 }
.nlb-list button { display: block; width: 100%; padding: 0; text-align: left; cursor: pointer;
  background: none; border: none; color: inherit; font: inherit }
.nlb-list button:hover strong { text-decoration: underline }
.nlb-head { display: flex; gap: 1rem; justify-content: space-between; font-size: .9rem }
.nlb-head > :last-child { flex: none; font-variant-numeric: tabular-nums; opacity: .7 }
.nlb-text { display: -webkit-box; -webkit-line-clamp: 4; -webkit-box-orient: vertical;
  overflow: hidden; font-family: Georgia, serif; line-height: 1.45; margin-top: .2rem }
.nlb-page { font-family: Georgia, serif; line-height: 1.55; white-space: pre-wrap }
.nlb-page mark { background: rgba(234, 88, 12, .22); color: inherit }
.nlb-position { font-size: .9rem; opacity: .8; margin: .4rem 0 }
.nlb-picture { width: 100%; cursor: crosshair; image-rendering: pixelated }
.nlb-strip { height: 18px; border-radius: 3px; border: 1px solid var(--border-color-primary);
  margin: .3rem 0 }
.nlb-map { image-rendering: auto }
.nlb-square { max-width: 640px }
@media (min-width: 701px) {
  .nlb-reading { position: sticky; top: 0; align-self: flex-start; max-height: 100vh;
    overflow: auto }
}
@media (max-width: 700px) { .nlb-reading { order: -1 } }
"""
# A click anywhere in a list or a picture tells the server what was clicked, and where.
_CLICKS = """
element.addEventListener('click', (event) => {
  const target = event.target.closest('[data-passage], [data-document], img');
  if (target === null) return;
  const box = target.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const y = (event.clientY - box.top) / box.height;
  trigger('click', {...target.dataset, x, y});
});
"""
_WRITE_ADDRESS = """
(question) => {
  const address = new URL(window.location);
  address.searchParams.set('q', question);
  window.history.replaceState(null, '', address);
}
"""
# On a phone the text is above the lists.
_SHOW_TEXT = "() => document.querySelector('mark')?.scrollIntoView({block: 'center'})"
# The components that a question and a click change.
_SHOWN = "selected points documents passages note table text reading square".split()


def build(library: Library, title: str, rerank: Reranker | None = None) -> "Blocks":
    """Builds the page, which is not yet served."""
    import gradio as gr

    page = Page(library, rerank)
    with gr.Blocks(title=title, analytics_enabled=False) as blocks:
        gr.HTML(f"<h2>{html.escape(title)} <small>{len(library.names):,} documents</small></h2>")
        components = _lay_out(page)
        _connect(page, components, blocks)
        _connect_square(page, components)
    return blocks


def _lay_out(page: Page) -> SimpleNamespace:
    """Makes the components of the page: the question, the lists and the map, the open text."""
    import gradio as gr

    components = SimpleNamespace(question=gr.State(""))
    with gr.Row(equal_height=True):
        components.search_box = gr.Textbox(
            placeholder="Ask a question",
            show_label=False,
            container=False,
            scale=5,
            autofocus=True,
        )
        components.search = gr.Button("Search", variant="primary", scale=1, min_width=100)
    with gr.Row():
        components.examples = []
        for sentence in page.examples():
            components.examples.append(gr.Button(sentence, size="sm"))
    components.note = gr.HTML(visible=False)

    with gr.Row():
        with gr.Column(scale=6, min_width=320):
            with gr.Tab("Passages"):
                components.passages = _clickable(
                    "<p>Ask a question, or try one of the sentences above.</p>"
                )
                components.table = gr.HTML(visible=False)
            with gr.Tab("Documents"):
                components.documents = _clickable("<p>The nearest documents are shown here.</p>")
            with gr.Tab("Map"):
                gr.Markdown(
                    "Similar documents are close together (two principal components,"
                    f" {page.share:.0%} of the variance). A click opens a document."
                )
                components.points = _clickable(picture("map", page.map([], selected=0)))
        with gr.Column(
            scale=5, min_width=320, visible=False, elem_classes="nlb-reading"
        ) as components.reading:
            choices = [(name, index) for index, name in enumerate(page.names)]
            components.selected = gr.Dropdown(choices, value=0, show_label=False, container=False)
            components.text = _clickable("")
            with gr.Accordion("Compare the parts of this document", open=False):
                gr.Markdown(
                    "Each row and each column is a chapter or another part: orange where two are"
                    " similar, blue where they differ. A click shows their nearest passages."
                )
                components.compare = gr.Button("Draw", size="sm")
                components.square = _clickable("")
    return components


def _clickable(content: str) -> Any:
    """Makes a part of the page whose passages, documents and strips can be clicked."""
    import gradio as gr

    return gr.HTML(content, js_on_load=_CLICKS, elem_classes="nlb", apply_default_css=False)


class _Answers:
    """Computes new values of all components that a question or a click changes."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def ask(self, question: str) -> list[Any]:
        """Returns the question, twice, and what answers it; nothing changes without words."""
        import gradio as gr

        answer = self.page.ask(question)
        if answer is None:
            return [gr.skip()] * (2 + len(_SHOWN))
        return [question, question, *self.show(question, answer.passages[0], is_open=False)]

    def show(self, question: str, passage: int, *, is_open: bool = True) -> list[Any]:
        """Returns what is shown of a question and a passage, in the order of `_SHOWN`."""
        import gradio as gr

        page = self.page
        answer = page.ask(question)
        document = page.library.document_of(passage)
        ranked = [other for other, _ in page.ranked(document, answer)]
        passages = gr.skip()
        note = gr.skip()
        table = gr.skip()
        if answer is not None:
            passages = page.passage_list(question, answer)
            text = page.library.question_note(question)
            note = gr.update(value=html.escape(text or ""), visible=text is not None)
            table = gr.update(value=_download(page, question, answer), visible=True)
        return [
            document,
            picture("map", page.map(ranked, selected=document)),
            page.document_list(document, answer),
            passages,
            note,
            table,
            page.reading(passage, question, answer),
            gr.update(visible=is_open),
            "",
        ]

    def open_document(self, question: str, document: int) -> list[Any]:
        """Returns what is shown of a document: its best passage."""
        answer = self.page.ask(question)
        return self.show(question, self.page.best_passage(document, answer))

    def open_clicked(self, question: str, clicked: dict[str, Any]) -> list[Any]:
        """Returns what is shown after a click on a passage, a document or a picture."""
        if "passage" in clicked:
            return self.show(question, int(clicked["passage"]))
        if "document" in clicked:
            return self.open_document(question, int(clicked["document"]))
        if "map" in clicked:
            nearest = self.page.nearest_point(clicked["x"], clicked["y"])
            return self.open_document(question, nearest)
        answer = self.page.ask(question)
        assert answer is not None  # a strip shows an answer
        cell = self.page.best_in_cell(int(clicked["strip"]), answer, share=clicked["x"])
        return self.show(question, cell)


def _connect(page: Page, components: SimpleNamespace, blocks: "Blocks") -> None:
    """Connects the question, and the choice of a document or passage, with what they change."""
    import gradio as gr

    answers = _Answers(page)
    shown = [getattr(components, name) for name in _SHOWN]
    asked = [components.search_box, components.question, *shown]

    def open_address(request: gr.Request) -> list[Any]:
        return answers.ask(request.query_params.get("q", ""))

    def click(question: str, event: gr.EventData) -> list[Any]:
        return answers.open_clicked(question, event._data)

    triggers = [components.search.click, components.search_box.submit]
    answered = [gr.on(triggers, answers.ask, components.search_box, asked, **_QUIET)]
    for example in components.examples:
        event = example.click(answers.ask, example, asked, **_QUIET)
        answered.append(event)
    for event in answered:
        event.then(None, components.search_box, js=_WRITE_ADDRESS)
    blocks.load(open_address, outputs=asked, **_QUIET)

    state = [components.question, components.selected]
    components.selected.input(answers.open_document, state, outputs=shown, **_QUIET)
    for name in ("passages", "documents", "text", "points"):
        part = getattr(components, name)
        event = part.click(click, components.question, outputs=shown, **_QUIET)
        event.then(None, js=_SHOW_TEXT)


def _download(page: Page, question: str, answer: SearchResult) -> str:
    """Returns a link that holds the nearest passages as a table."""
    content = base64.b64encode(page.table(question, answer).encode()).decode()
    address = f"data:text/csv;charset=utf-8;base64,{content}"
    return f'<a download="passages.csv" href="{address}">Download these passages as CSV</a>'


def _connect_square(page: Page, components: SimpleNamespace) -> None:
    """Connects the comparison of a document's parts with what a click on it shows."""
    import gradio as gr

    def compare(document: int) -> str:
        return picture("square", page.square(document), document)

    def click_square(event: gr.EventData) -> str:
        clicked = event._data
        return page.nearest_pair(int(clicked["square"]), clicked["x"], clicked["y"])

    components.compare.click(compare, components.selected, outputs=components.square, **_QUIET)
    components.square.click(click_square, outputs=components.text, **_QUIET)


class _OwnRequests:
    """Answers requests of the page itself: none with files, and none of other web sites.

    Gradio would store the files, and at an address of a network it would answer all sites.

    Args:
        app: answers all other requests.
        is_public: whether requests of other sites are answered.
    """

    def __init__(self, app: "ASGIApp", *, is_public: bool) -> None:
        self.app = app
        self.is_public = is_public

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answers a request of ASGI."""
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        answer = self.app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "")
            is_own = headers.get("origin", f"http://{host}").endswith(f"://{host}")
            if "multipart" in headers.get("content-type", "").lower():
                answer = PlainTextResponse("This page takes no files.", status_code=415)
            elif not (is_own or self.is_public):
                answer = PlainTextResponse("This page answers no other site.", status_code=403)
        await answer(scope, receive, send)


def _middleware(host: str | None) -> list["Middleware"]:
    """Returns what decides which requests are answered; a Space, without a host, is public."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    names = ["*"]
    if host is not None and host not in _ALL_ADDRESSES:
        # A site whose name was rebound to this machine's address still asks by that name.
        names = [*_LOOPBACK_NAMES, host]
    return [
        Middleware(TrustedHostMiddleware, allowed_hosts=names),
        Middleware(_OwnRequests, is_public=host is None),
    ]


def run(
    source: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    host: str | None = "127.0.0.1",
    port: int | None = None,
    rerank: NextLevelBertModel | SearchModel | None = None,
) -> None:
    """Serves the page until it is interrupted.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        host: address to listen on, which is also the name that a browser must ask for; other
            machines can reach the page, by any name, at ``"0.0.0.0"``. None leaves the choice to
            Gradio, as in a Space.
        port: port to listen on (default: the first free one from 7860).
        rerank: model that reads the first passages of each question again, see `Reranker`.

    Raises:
        OSError: if the port is taken.
        ValueError: if Gradio is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Both are read when Gradio is imported. It has one folder for all users of a machine.
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            import gradio as gr
        except ImportError as error:
            raise ValueError("The page needs Gradio. Run: pip install 'gradio>=6.31,<7'") from error

        library = open_library(source, model, reading)
        reranker = None
        if rerank is not None:
            reranker = Reranker(rerank)
        blocks = build(library, Path(source).resolve().name, reranker)
        _, address, _ = blocks.launch(
            app_kwargs={"middleware": _middleware(host)},
            run_history=False,  # which keeps questions and answers in the browser
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
