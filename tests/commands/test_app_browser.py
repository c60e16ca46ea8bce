"""`nextlevelbert app` in a real browser: a question, clicks, and no connection to anywhere else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CHROMIUM = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync",
]  # fmt: skip
TEXTS = {
    "sea": "The whale swims under the ship. The captain hunts it over the waves, far from the harbour. ",
    "kitchen": "The baker lights the oven. Flour and yeast become a crust of bread, and the kitchen is warm. ",
    "court": "The judge reads the law aloud. The lawyers argue, and the jury leaves the court. ",
    "<i>garden ${1}": "Roses ${1} {{x}} grow <b>along</b> the wall. The gardener waters lilies & prunes the hedge. ",
}
# Every address that Python's sockets connect to or look up is written to a file.
PROGRAM = """
import sys
log = open(sys.argv.pop(1), "a", buffering=1)
def hook(event, arguments):
    if event == "socket.connect": print(arguments[1], file=log)
    if event == "socket.getaddrinfo": print(arguments[:2], file=log)
sys.addaudithook(hook)
import nextlevelbert_command
sys.exit(nextlevelbert_command.main())
"""


class Server(NamedTuple):
    address: str
    connections: Path  # the file of the addresses that it connected to
    process: int


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("app")
    (folder / "books").mkdir()
    for name, text in TEXTS.items():
        chapters = (f"CHAPTER {number}\n\n{text * 12}\n\n" for number in ("I", "II", "III"))
        (folder / "books" / f"{name}.txt").write_text("".join(chapters), encoding="utf-8")
    log = folder / "connections"
    command = [sys.executable, "-c", PROGRAM, log, "app", folder / "books", "--cache_dir", folder / "cache"]
    environment = {**os.environ, "GRADIO_SHARE": "True", "GRADIO_SERVER_NAME": "0.0.0.0"}  # must not count
    process = subprocess.Popen(
        [*map(str, command)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline()
        assert "The page is at http://127.0.0.1:" in said, said + (process.communicate()[1] if not said else "")
        yield Server(re.search(r"http://\S+", said)[0], log, process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    assert path, "There is no chromium. Install it (apt-get install chromium), and run this test again."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator:
    """The page, open; it must ask for nothing but this address, and the console must stay free of errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(120_000)  # milliseconds: other work may keep the machine busy
    page = context.new_page()
    requests, errors = [], []
    context.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(server.address)
    page.wait_for_selector(".map .point")
    yield page
    hosts = {urlsplit(url).netloc for url in requests if not url.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(server.address).netloc}
    assert errors == []
    context.close()


def ask(page, question: str) -> None:
    page.get_by_placeholder("Ask, or describe a passage").fill(question)
    page.keyboard.press("Enter")
    page.wait_for_selector(".strip.tall")


def test_a_question_and_clicks(page):
    assert page.locator(".map .point").count() == 4
    assert "<i>garden ${1}.txt" in page.locator(".map").inner_text()  # a name, not HTML

    ask(page, "Who hunts a whale?")
    page.locator(".text mark", has_text="captain hunts it").wait_for()
    assert page.locator("ol .row b").first.inner_text() == "sea.txt"

    page.locator(".map .point[title='kitchen.txt']").click()  # on the map
    page.wait_for_function("document.querySelector('.text').innerText.includes('baker')")
    assert page.locator(".map .point.chosen").get_attribute("title") == "kitchen.txt"

    page.locator("ol .row", has_text="court.txt").first.click()  # in the list; Gradio has rows of its own
    page.wait_for_function("document.querySelector('.text').innerText.includes('judge')")

    strip = page.locator(".strip.tall")
    box = strip.bounding_box()
    strip.click(position={"x": box["width"] - 2, "y": 5})
    page.get_by_text(re.compile(r"^at (7\d|8\d|9\d)% · characters")).wait_for()
    cell = strip.locator(".cell").bounding_box()
    assert cell["x"] + cell["width"] == pytest.approx(box["x"] + box["width"], abs=3)

    heat = page.locator(".heat")
    box = heat.bounding_box()
    heat.click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.5})  # row two, column three
    page.wait_for_function("document.querySelectorAll('.text').length == 2")
    headings = page.locator("h3", has_text="characters").all_inner_texts()
    assert ["CHAPTER II ·" in headings[0], "CHAPTER III ·" in headings[1]] == [True, True]
    assert re.fullmatch(r"CHAPTER II · CHAPTER III: -?\d\.\d\d", heat.get_attribute("title"))
    box, cell = heat.bounding_box(), heat.locator(".cell").bounding_box()  # what was clicked is outlined
    found = [
        (cell["x"] - box["x"]) / box["width"],
        (cell["y"] - box["y"]) / box["height"],
        cell["width"] / box["width"],
    ]
    assert strip.locator(".cell").count() == 0  # nothing else is
    assert found == pytest.approx([2 / 3, 1 / 3, 1 / 3], abs=0.02)


def test_the_list_of_documents(page):
    page.get_by_role("combobox", name="Document").click()
    page.get_by_role("option", name="garden").click()
    page.wait_for_function("document.querySelector('.text').innerText.includes('Roses ${1} {{x}} grow <b>along</b>')")


def test_a_question_that_cannot_be_read(page):
    page.get_by_placeholder("Ask, or describe a passage").fill("\u200b")
    page.keyboard.press("Enter")
    page.get_by_text("holds no word that the model can read").wait_for()


def test_a_phone(page):
    """The text is below what was clicked; the page moves to it, and nothing is wider than the screen."""
    page.set_viewport_size({"width": 390, "height": 844})
    ask(page, "Who bakes bread?")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".map .point[title='sea.txt']").click()
    page.wait_for_function(
        "(() => { const box = document.querySelector('.text mark').getBoundingClientRect();"
        " return box.top > 0 && box.top < innerHeight; })()"
    )


def test_the_browser_is_told_to_load_nothing_from_elsewhere(browser, server):
    page = browser.new_page()
    page.goto(server.address)
    refused = page.evaluate(
        "new Promise((done) => {"
        " document.addEventListener('securitypolicyviolation', (event) => done(event.blockedURI));"
        " fetch('https://example.org/').catch(() => {}); })"
    )
    assert refused == "https://example.org/"
    page.close()


def test_the_server_rests(server):
    """Without work, it wakes some eighty times a second; at Gradio's own pace, hundreds of times."""

    def woken() -> int:
        files = Path(f"/proc/{server.process}/task").glob("*/status")
        return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", file.read_text(), re.M)[1]) for file in files)

    before = woken()
    time.sleep(2)
    assert woken() - before < 350


def test_the_server_connects_to_nothing_else(server):
    """The last test: Python told of every connection since the start."""
    seen = server.connections.read_text().splitlines()
    assert seen  # Gradio asks itself whether the page is there
    assert [line for line in seen if "127.0.0.1" not in line] == []
