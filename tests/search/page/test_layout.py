"""The page of `nextlevelbert app`, without a browser: what it needs, answers and refuses."""

import asyncio
import errno
import gc
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from nextlevelbert.search import Reranker
from nextlevelbert.search.encoders.torch import open_model
from nextlevelbert.search.page import layout
from nextlevelbert.search.page.layout import Site
from nextlevelbert.search.page.page import Page

from .conftest import ROOT, served

FORM = {"files": ("a.bin", b"a file")}
SCRIPT = "<img src=x onerror=alert(1)>"
PAGE = "nextlevelbert.search.page.layout"


@pytest.fixture
def site(books, toy, reading) -> Site:
    return Site(str(books), toy, reading)


def answers(
    site: Site, *paths: str, host: str = "127.0.0.1", method: str = "GET", **options
) -> list[httpx.Response]:
    """Answers requests that are made at the same time, in this process."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(site.app(host))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            requests = [client.request(method, path, **options) for path in paths]
            return await asyncio.gather(*requests)

    return asyncio.run(ask())


def answer(site: Site, path: str, **options) -> httpx.Response:
    [response] = answers(site, path, **options)
    return response


def test_without_starlette(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, PAGE)

    said = command("app", books)

    assert said.status == 1
    assert "pip install starlette uvicorn jinja2" in said.err
    assert encoded == []
    monkeypatch.undo()
    importlib.import_module(PAGE)


def test_the_page_answers_a_question(site):
    response = answer(site, "/", params={"q": "Who hunts a whale?"})

    assert response.status_code == 200
    assert response.text.count('aria-current="true"') == 1
    assert "<b>whale</b>" in response.text
    assert "passages in 3 documents" in re.sub(r"\s+", " ", response.text)
    assert 'href="/passages.csv?q=Who+hunts+a+whale%3F"' in response.text


def test_the_page_names_the_models(books, toy, reading, toy_encoder_path):
    rerank = open_model(toy_encoder_path)

    shown = answer(Site(str(books), toy, reading, Reranker(rerank)), "/?q=whale").text

    name = toy.config.chunk_encoder_name
    again = rerank.config.chunk_encoder_name
    assert f"read by {name}, the first again by {again}" in shown


def test_the_passages_are_a_table(site):
    response = answer(site, "/passages.csv?q=whale")

    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="passages.csv"'
    assert response.text.startswith("question,document,position")


def test_a_question_that_has_no_answer(site):
    note = answer(site, "/?q=xylophone").text
    wrong = answer(site, "/", params={"q": "\u200b"})
    gone = answer(site, "/", params={"q": "whale", "document": "gone.txt"})

    assert "no passage holds a word of the question (xylophone)" in note
    assert wrong.status_code == gone.status_code == 400
    assert "holds no word that the model can read" in wrong.text
    assert "The folder holds no document &#39;gone.txt&#39;" in gone.text
    assert 'value="whale"' in gone.text  # the question is not lost
    assert answer(site, "/passages.csv", params={"q": "\u200b"}).status_code == 400


def test_each_question_looks_at_the_folder_again(site, books, capsys):
    before = answer(site, "/?q=submarine").text

    (books / "new.txt").write_text("The submarine dives below the ice. " * 5)
    (books / "broken.json").write_text("{")
    after = answer(site, "/?q=submarine").text
    (books / "new.txt").unlink()
    at_last = answer(site, "/?q=submarine").text

    for shown, is_there in ((before, False), (after, True), (at_last, False)):
        assert ("<strong>new.txt</strong>" in shown) == is_there
    assert capsys.readouterr().err.count("broken.json") == 1


def test_a_folder_that_is_emptied_is_named(site, books):
    answer(site, "/")

    shutil.rmtree(books)
    books.mkdir()
    response = answer(site, "/?q=whale")

    assert response.status_code == 400
    assert f"{books} holds no file that can be read" in response.text


def test_requests_at_the_same_time_share_no_thread(site, monkeypatch):
    """Nor a library: each has the passages of its own question."""
    threads = set()
    libraries = []
    init = Page.__init__

    def spy(self, library, *args):
        threads.add(threading.get_ident())
        libraries.append(library)
        init(self, library, *args)

    monkeypatch.setattr(Page, "__init__", spy)
    words = {"whale": "sea", "oven": "kitchen", "judge": "court", "ship": "sea"}

    shown = answers(site, *map("/?q={}".format, words))

    assert threads == {threading.get_ident()}
    assert len(set(map(id, libraries))) == len(words)
    for response, (word, document) in zip(shown, words.items(), strict=True):
        first = re.search(
            r'aria-current="true">\s*<span class="names"><strong>(\S+)</', response.text
        )
        assert f"{document}.txt" in first[1], word


def test_a_request_leaves_no_file_open(site):
    answer(site, "/?q=whale")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        answer(site, "/?q=whale")

    assert len(os.listdir("/proc/self/fd")) <= before


def test_names_texts_and_questions_are_no_html(toy, reading, tmp_path):
    """A browser would run the script of a picture that does not exist."""
    folder = tmp_path / "<b>"
    folder.mkdir()
    (folder / f"{SCRIPT.replace('/', '')}.txt").write_text(f"{SCRIPT} The whale swims. " * 40)
    (folder / "b.txt").write_text("The oven is warm. " * 40)
    site = Site(str(folder), toy, reading)
    states = [
        "/?",
        "/?document=b.txt&",
        f"/?document={SCRIPT}&",
        "/?within=b.txt&",
    ]

    for state in states:
        for question in ("", f"q={SCRIPT} whale"):
            shown = answer(site, state + question).text

            assert "<img" not in shown
            assert "<b></title>" not in shown
            assert "&lt;img" in shown


def test_a_browser_loads_nothing_else_for_the_page(site):
    first = answer(site, "/?q=whale")
    second = answer(site, "/?q=whale")

    policy = first.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    nonce = re.search(r"script-src 'nonce-([\w-]{43})'", policy)[1]
    assert nonce not in second.headers["content-security-policy"]
    assert first.text.count(f'nonce="{nonce}"') == 2  # one style and one script
    assert len(re.findall("<script|<style|<link|style=|onclick=", first.text)) == 3
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["referrer-policy"] == "no-referrer"
    assert first.headers["cross-origin-resource-policy"] == "same-origin"
    assert "set-cookie" not in first.headers


@pytest.mark.parametrize("path", ["/", "/passages.csv?q=whale", "/page.html"])
def test_only_the_names_of_this_machine_are_answered(site, path):
    """A site whose name was rebound to 127.0.0.1 asks for that name."""
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        headers = {"Host": f"{name}:7860", "Origin": f"http://{name}:7860"}
        assert answer(site, path, headers=headers).status_code in (200, 404)
    for name in ("evil.example", "evil.example:7860", "127.0.0.1.evil.example", "localhost."):
        response = answer(site, path, headers={"Host": name, "Origin": f"http://{name}"})
        assert (response.status_code, response.text) == (400, "Invalid host header")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://"]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_no_other_site_is_answered(site, origin, host):
    """Neither another server of this machine, nor a page without a site, such as a file."""
    for path in ("/?q=whale", "/passages.csv?q=whale", "/nothing"):
        response = answer(site, path, host=host, headers={"Origin": origin})
        assert (response.status_code, "sea.txt" in response.text) == (403, False)


def test_a_page_for_other_machines_is_reached_by_any_name(site):
    own = {"Host": "library.example", "Origin": "http://library.example"}
    proxied = {"Host": "me-space.hf.space", "Origin": "https://me-space.hf.space"}

    for headers in (own, proxied):
        assert answer(site, "/", host="0.0.0.0", headers=headers).status_code == 200
    assert answer(site, "/", host="10.0.0.5", headers=own).status_code == 400
    assert answer(site, "/", host="10.0.0.5", headers={"Host": "10.0.0.5"}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_taken(site, tmp_path, method):
    """The page has no form that sends anything, and no address that takes a file."""
    for path in ("/", "/passages.csv"):
        assert answer(site, path, method=method, files=FORM).status_code == 405
    for path in ("/upload", "/gradio_api/upload", "/file=/etc/passwd", "/..%2f..%2fetc/passwd"):
        assert answer(site, path, method=method, files=FORM).status_code == 404


@pytest.mark.parametrize(
    "path", ["/page.html", "/books/sea.txt", "/..%2fpage.py", "//etc/passwd", "/?document=../../x"]
)
def test_no_file_is_reached(site, path):
    response = answer(site, path)

    assert response.status_code in (400, 404)
    assert "root:" not in response.text


def test_a_port_that_is_taken_is_named(command, books):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        said = command("app", books, "--port", port)

    assert said.status == 1
    assert f"--host 127.0.0.1 --port {port} cannot be used" in said.err
    assert os.strerror(errno.EADDRINUSE) in said.err
    assert "port must be 0-65535" in command("app", books, "--port", 70_000).err


def test_the_first_free_port_is_used(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(layout, "_PORTS", [port, 0])

        with layout._listen("127.0.0.1", None) as listener:
            assert listener.getsockname()[1] != port


@pytest.mark.parametrize("model", [[], ["--model", "nextlevelbert-static"]])
def test_the_page_reads_the_vectors_that_search_has_stored(
    command, books, encoded, tmp_path, monkeypatch, model
):
    libraries = []
    library = Site.library

    def listen(*_):
        raise OSError("The page is not served.")

    def spy(self):
        libraries.append(library(self))
        return libraries[0]

    monkeypatch.setattr(layout, "_listen", listen)
    monkeypatch.setattr(Site, "library", spy)
    command("search", books, "Who hunts a whale?", *model)
    folders = folders_in(tmp_path / "cache")
    encoded.clear()

    said = command("app", books, *model)

    assert "The page is not served." in said.err
    assert libraries[0].names == ["far/court.txt", "kitchen.txt", "sea.txt"]
    assert encoded == []
    assert folders_in(tmp_path / "cache") == folders  # no second store


def folders_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_dir())


@pytest.mark.long
def test_only_this_machine_reaches_the_page(address):
    """A page that listens on all addresses would be at 127.0.0.2, too."""
    port = urlsplit(address).port

    assert httpx.get(address).status_code == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))


@pytest.mark.long
def test_a_question_is_answered_by_the_server(address):
    response = httpx.get(address, params={"q": "Who hunts a whale?"})

    assert response.status_code == 200
    assert "<strong>sea.txt</strong>" in response.text
    assert "server" not in response.headers
    assert httpx.get(f"{address}docs").status_code == 404


@pytest.mark.long
def test_a_static_model_is_served_without_torch(books, tmp_path):
    code = (
        "import sys\n"
        "sys.argv[0] = 'nextlevelbert'\n"
        "from nextlevelbert.command import main\n"
        "import nextlevelbert.search.page.layout as layout\n"
        "layout._listen = lambda *_: sys.exit(print('torch' in sys.modules))\n"
        f"main(['app', {str(books)!r}, '--cache_dir', {str(tmp_path / 'cache')!r}])\n"
    )

    said = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)

    assert said == "False\n"


def space_command() -> str:
    """The command of the Space's container."""
    return re.search(r"(?m)^CMD (.+)$", (ROOT / "app" / "Dockerfile").read_text())[1]


def test_the_space(tmp_path):
    """A Docker Space, which shows `documents` beside it, or else Python's manual, at its port."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert header["sdk"] == "docker"
    assert header["app_port"] == 7860
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    assert '"nextlevelbert[app,files,minilm]"' in (ROOT / "app" / "Dockerfile").read_text()
    (tmp_path / "nextlevelbert").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "nextlevelbert").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run() -> str:
        return subprocess.check_output(
            ["sh", "-c", space_command()], cwd=tmp_path, env=environment, text=True
        )

    assert run() == "app python-manual --host 0.0.0.0 --port 7860\n"
    (tmp_path / "documents").mkdir()
    assert run() == "app documents --host 0.0.0.0 --port 7860\n"


@pytest.mark.long
def test_a_space_is_public(books, tmp_path):
    """Its name is the Hub's, and other machines reach it."""
    with served(tmp_path, "--host", "0.0.0.0") as address:
        port = urlsplit(address).port
        names = {"Host": "me-space.hf.space", "Origin": "https://me-space.hf.space"}
        assert httpx.get(f"http://127.0.0.2:{port}/", headers=names).status_code == 200
        assert httpx.post(f"http://127.0.0.2:{port}/", files=FORM).status_code == 405
