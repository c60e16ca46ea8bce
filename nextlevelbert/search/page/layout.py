"""``nextlevelbert app``: serves a page on which a folder is searched and read, by Starlette."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route
    from starlette.templating import Jinja2Templates
except ImportError as error:
    raise ValueError(
        "The page needs Starlette, uvicorn and Jinja2. Run: pip install starlette uvicorn jinja2"
    ) from error

from ..encoders.choice import SearchModel, search_model
from ..library import Library
from ..notes import Notes
from ..reading import ReadingOptions
from ..rerank import Reranker
from ..store import open_store
from .page import Address, Page

if TYPE_CHECKING:
    from ...models.modeling_nextlevelbert import NextLevelBertModel

_PORTS = range(7860, 7960)
_TEMPLATES = Jinja2Templates(Path(__file__).parent)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# What a browser may load for the page: its own style and script, and nothing else.
_POLICY = (
    "default-src 'none'; style-src 'nonce-NONCE'; script-src 'nonce-NONCE'; img-src data:;"
    " form-action 'self'; base-uri 'none'"
)


@dataclass
class Site:
    """Answers the requests of a browser.

    One thread answers all of them, one after the other. Each looks at the folder again. The
    arguments are those of `run`.
    """

    source: str
    model: NextLevelBertModel | SearchModel | None = None
    reading: ReadingOptions | None = None
    rerank: Reranker | None = None
    _notes: Notes = field(default_factory=Notes)

    def library(self) -> Library:
        """Opens the library of the folder as it is now."""
        return Library(open_store(self.source, self.model, self.reading, self._notes))

    async def page(self, request: Request) -> Response:
        """Answers with the page."""
        asked = Address.of(request.query_params)
        library = self.library()
        status = 200
        try:
            page = Page(library, asked, self.rerank)
            message = library.question_note(asked.q)
        except ValueError as error:
            page = Page(library, Address())
            message = str(error)
            status = 400
        nonce = secrets.token_urlsafe()
        shown = {
            "page": page,
            "question": asked.q,
            "message": message,
            "nonce": nonce,
            "rerank": self.rerank,
            "title": Path(self.source).resolve().name,
        }
        policy = {"Content-Security-Policy": _POLICY.replace("NONCE", nonce)}
        return _TEMPLATES.TemplateResponse(request, "page.html", shown, status, policy)

    async def table(self, request: Request) -> Response:
        """Answers with the listed passages as CSV."""
        page = Page(self.library(), Address.of(request.query_params), self.rerank)
        headers = {"Content-Disposition": 'attachment; filename="passages.csv"'}
        return Response(page.table(), headers=headers, media_type="text/csv")

    def app(self, host: str) -> Starlette:
        """Builds the application, which answers to the name of the host, or to all."""
        names = ["127.0.0.1", "localhost", "[::1]", host, f"[{host}]"]
        if host in ("0.0.0.0", "::"):
            names = ["*"]
        return Starlette(
            routes=[Route("/", self.page), Route("/passages.csv", self.table)],
            # A site whose name was rebound to this machine's address still asks by that name.
            middleware=[
                Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False),
                Middleware(BaseHTTPMiddleware, dispatch=_own_requests),
            ],
            exception_handlers={ValueError: _refuse, OSError: _refuse},
        )


async def _own_requests(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Refuses requests that another web site makes, or a page without a site, such as a file."""
    host = request.headers.get("host")
    if request.headers.get("origin", f"http://{host}") not in (f"http://{host}", f"https://{host}"):
        return PlainTextResponse("This page answers no other site.", status_code=403)
    response = await answer(request)
    response.headers.update(_HEADERS)
    return response


async def _refuse(_: Request, error: Exception) -> Response:
    """Answers a request that cannot be answered, such as a folder that holds no text any more."""
    return PlainTextResponse(f"{error}\n", status_code=400)


def _listen(host: str, port: int | None) -> socket.socket:
    """Listens on a port, or else on the first free one from 7860."""
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    ports = _PORTS
    if port is not None:
        ports = range(port, port + 1)
    for number in ports:
        try:
            return socket.create_server((host, number), family=family)
        except (OSError, OverflowError) as error:
            cause = str(error)
    raise OSError(f"--host {host} --port {number} cannot be used: {cause}")


def run(
    source: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    rerank: Reranker | None = None,
) -> None:
    """Serves the page until it is interrupted.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        host: address to listen on, which is also the name that a browser must ask for; other
            machines can reach the page, by any name, at ``"0.0.0.0"``.
        port: port to listen on (default: the first free one from 7860).
        rerank: ranks the first passages of each question again, by a second model.

    Raises:
        OSError: if the address cannot be used.
        ValueError: if the page cannot be served, or no file can be read.
    """
    site = Site(source, search_model(model), reading, rerank)
    site.library()
    listener = _listen(host, port)
    # The host of a request is checked, so headers of a proxy that name another one are not read.
    config = uvicorn.Config(
        site.app(host), log_level="warning", proxy_headers=False, server_header=False
    )
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{listener.getsockname()[1]}/"
    print(f"The page is at {address} (press Ctrl-C to stop).", flush=True)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
