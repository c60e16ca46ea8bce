"""The page of `nextlevelbert app`, without a browser: what it needs, answers and refuses."""

import runpy
import shutil
import socket
import sys
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from nextlevelbert.search.app import layout

from .conftest import ROOT, served

FORM = {"files": ("a.bin", b"a file")}
SPACE = "import runpy\nrunpy.run_path('app/app.py', run_name='__main__')\n"


def test_without_gradio(command, books, encoded, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    said = command("app", books)

    assert said.status == 1
    assert "pip install 'gradio>=6.31,<7'" in said.err
    assert encoded == []


def test_the_space(tmp_path):
    """Its header names the release of Gradio that the tests run with; it shows `documents`, or
    Python's manual."""
    header = yaml.safe_load(
        (ROOT / "app" / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    )
    assert f"gradio=={header['sdk_version']}" in (ROOT / "constraints.txt").read_text().split()
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert (ROOT / "app" / "requirements.txt").read_text() == "nextlevelbert[app]\n"
    assert len(header["short_description"]) <= 60  # the Hub refuses more
    shutil.copytree(ROOT / "app", tmp_path / "app")
    documents = runpy.run_path(str(tmp_path / "app" / "app.py"))["documents"]

    assert documents() == "python-manual"
    (tmp_path / "app" / "documents").mkdir()
    assert documents() == str(tmp_path / "app" / "documents")


@pytest.mark.long
def test_only_this_machine_reaches_the_page(address):
    """A page that listens on all addresses would be at 127.0.0.2, too."""
    port = urlsplit(address).port

    assert httpx.get(address).status_code == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))


@pytest.mark.long
@pytest.mark.parametrize("path", ["", "config", "gradio_api/info", "theme.css"])
def test_only_the_names_of_this_machine_are_answered(address, path):
    """A site whose name was rebound to 127.0.0.1 asks for that name."""
    port = urlsplit(address).port

    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        headers = {"Host": f"{name}:{port}", "Origin": f"http://{name}:{port}"}
        assert httpx.get(address + path, headers=headers).status_code == 200
    for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost."):
        response = httpx.get(address + path, headers={"Host": name, "Origin": f"http://{name}"})
        assert (response.status_code, response.text) == (400, "Invalid host header")


@pytest.mark.long
def test_no_other_site_is_answered(address):
    """Neither another server of this machine, nor a page without a site, such as a file."""
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://localhost",
        "file://",
    ):
        response = httpx.get(f"{address}config", headers={"Origin": origin})
        assert (response.status_code, "books" in response.text) == (403, False)
        response = httpx.post(f"{address}gradio_api/queue/join", headers={"Origin": origin})
        assert response.status_code == 403


@pytest.mark.long
def test_files_are_refused(address):
    """Whatever the site that sends them, and however the kind of the form is written."""
    own = address.removesuffix("/")
    for path in ("upload", "process_recording", "component_server"):
        url = f"{address}gradio_api/{path}"
        for headers in ({}, {"Origin": own}, {"Origin": "http://evil.example"}):
            assert httpx.post(url, files=FORM, headers=headers).status_code == 415
        form = httpx.Request("POST", url, files=FORM)
        kind = form.headers["Content-Type"].replace("multipart", "MultiPart")
        response = httpx.post(url, content=form.read(), headers={"Content-Type": kind})
        assert response.status_code == 415


@pytest.mark.long
def test_questions_are_not_kept_in_the_browser(address):
    assert httpx.get(f"{address}config").json()["run_history"] is False
    assert httpx.get(f"{address}gradio_api/runs").status_code == 404


@pytest.mark.long
def test_a_page_for_other_machines(books, tmp_path):
    """It is reached by any name; still no other site is answered, and no file is taken."""
    with served(tmp_path, "--host", "0.0.0.0") as address:
        own = {"Host": "library.example", "Origin": "http://library.example"}
        other = {"Host": "library.example", "Origin": "http://evil.example"}
        assert httpx.get(f"{address}config", headers=own).status_code == 200
        assert httpx.get(f"{address}config", headers=other).status_code == 403
        assert httpx.post(f"{address}gradio_api/upload", files=FORM).status_code == 415


@pytest.mark.long
def test_a_space_is_public(books, tmp_path):
    """Its name is the Hub's, and other sites may embed it."""
    with served(tmp_path, program=SPACE) as address:
        names = {"Host": "me-space.hf.space", "Origin": "https://huggingface.co"}
        assert httpx.get(f"{address}config", headers=names).status_code == 200
        assert httpx.post(f"{address}gradio_api/upload", files=FORM).status_code == 415


@pytest.mark.long
@pytest.mark.parametrize("model", [[], ["--model", "nextlevelbert-static"]])
def test_the_page_reads_the_vectors_that_search_has_stored(
    command, books, encoded, tmp_path, monkeypatch, model
):
    pages = []

    def build(library, *_):
        pages.append(library)
        raise OSError("The page is not served.")

    monkeypatch.setattr(layout, "build", build)
    command("search", books, "Who hunts a whale?", *model)
    folders = folders_in(tmp_path / "cache")
    encoded.clear()

    said = command("app", books, *model)

    assert "The page is not served." in said.err
    assert pages[0].names == ["far/court.txt", "kitchen.txt", "sea.txt"]
    assert encoded == []
    assert folders_in(tmp_path / "cache") == folders  # no second store


def folders_in(cache):
    return sorted(path for path in cache.rglob("*") if path.is_dir())
