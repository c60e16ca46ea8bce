"""Texts and files from strangers, built to take long: twice the size costs about twice the time.

To add a row, add a line to `TEXTS`, `USES` or `FILES`. Sizes are found by themselves: each row is
doubled until it takes long enough to be measured.
"""

import gc
import gzip
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nextlevelbert import read_documents, text_sentences
from nextlevelbert.data.words import search_words, split_words
from nextlevelbert.messages import readable_text
from nextlevelbert.search.page.highlights import bold_words, marked_text, running_lines, snippet
from nextlevelbert.search.passages import join_lines

from ..toys.books import write_epub, write_word

MOST = 2.3  # times the time, for twice the size
SHORTEST = 0.004  # CPU-seconds that are measured
LARGEST = 2**22  # characters; what takes less time at this size is fast enough
SIZES = 4

# Texts of about n characters.
TEXTS: dict[str, Callable[[int], str]] = {
    "letters": lambda n: "a" * n,
    "words": lambda n: "harbour " * (n // 8),
    "capitals": lambda n: "Aa " * (n // 3),
    "spaces between letters": lambda n: "a" + " " * n + "b",
    "lines": lambda n: "a" + "\n" * n + "b",
    "lines of spaces": lambda n: (" " * 999 + "\n") * (n // 1_000),
    "carriage returns": lambda n: "a\r" * (n // 2),
    "quotation marks that never close": lambda n: '"a ' * (n // 3),
    "a full stop and quotation marks": lambda n: "A." + '"' * n,
    "brackets that never close": lambda n: "([{«“" * (n // 5),
    "full stops": lambda n: "a." * (n // 2),
    "full stops and spaces": lambda n: ("." + " " * 999) * (n // 1_000),
    "full stops and emoji": lambda n: "." + "\u00a0\u2600" * (n // 2),
    "a divided word": lambda n: "a" * n + "-\n",
    "hyphens": lambda n: "a-" * (n // 2),
    "hyphens at ends of lines": lambda n: "a-\n" * (n // 3),
    "a hyphen and spaces": lambda n: "a-\n" + " " * n,
    "versions": lambda n: "1." * (n // 2),
    "digits": lambda n: "1" * n + " .",
    "items of a list": lambda n: "(a) x\n" * (n // 6),
    "headings": lambda n: "Chapter 1\n" * (n // 10),
    "a heading and spaces": lambda n: "# a" + " " * n + "x",
    "characters without spaces": lambda n: "港ก" * (n // 2),
    "double dandas": lambda n: "॥ 1" * (n // 3),
    "marks in the wrong order": lambda n: "a" + "\u0345" * (n // 2) + "\u0327" * (n // 2),
    "signs that are marks": lambda n: "a" + "\u0345" * (n // 2) + "\uff9e" * (n // 2),
    "marks around tatweels": lambda n: "\u20d0\u0640" * (n // 4) + "\u302a\u0640" * (n // 4),
    "marks around joiners": lambda n: "\u0345\u200d" * (n // 4) + "\u0327\u200d" * (n // 4),
    "invisible characters": lambda n: "\u00ad\u200c" * (n // 2),
    "characters that decompose": lambda n: "\ufdfa" * (n // 18),
    "tags": lambda n: "<b>&amp;" * (n // 8),
    "data links": lambda n: "data:a/a;a=a" * (n // 12),
}
QUESTION = {"a", "aa", "harbour"}


def marked_pages(text: str) -> object:
    """Marks all of a text with a hundred pages."""
    whole = (0, len(text))
    starts = [len(text) * page // 100 for page in range(100)]
    running = running_lines(text, starts)
    return marked_text(text, whole, marked=whole, running=running, words=QUESTION)


# What is done with a text that was read.
USES: dict[str, Callable[[str], object]] = {
    "search_words": search_words,
    "split_words": split_words,
    "text_sentences": text_sentences,
    "join_lines": join_lines,
    "marked_pages": marked_pages,
    "bold_words": partial(bold_words, words=QUESTION),
    "snippet": partial(snippet, words=QUESTION),
    "readable_text": readable_text,
}

Writer = Callable[[Path, int], object]


def table(line: str, header: str = "id,text") -> Writer:
    """A table of n characters of such lines."""
    return lambda path, n: path.write_text(f"{header}\n" + f"{line}\n" * (n // (len(line) + 1)))


def wide_table(row: str, column: str) -> Writer:
    """A table whose header has half of n characters, and short rows the other half."""

    def write(path: Path, n: int) -> None:
        columns = [f"{column}{index}" for index in range(n // 2 // len(column))]
        path.write_text(",".join(columns) + f"\n{row}" * (n // 2 // (len(row) + 1)))

    return write


def long_name(path: Path, n: int) -> None:
    path.write_text("a" * n + "\n1" * n)


def packed(write: Writer) -> Writer:
    """The same file, packed line by line."""

    def write_packed(path: Path, n: int) -> None:
        write(path, n // 30)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(map(gzip.compress, lines)))

    return write_packed


def page(piece: str, before: str = "<body>", after: str = "") -> Writer:
    """A page of n characters of such pieces."""
    return lambda path, n: path.write_text(
        before + piece * (n // len(piece)) + after, errors="surrogateescape"
    )


def write_deep(path: Path, n: int) -> None:
    """Tags in each other, and then as many end tags; declared late, and so read twice."""
    path.write_text("<b>" * n + "</i>" * n + "a<meta charset=l1>\udcff", errors="surrogateescape")


def book(piece: str) -> Writer:
    """An EPUB whose page has n characters of such pieces."""
    return lambda path, n: write_epub(path, [piece * (n // len(piece))])


def word(piece: str, before: str = "", after: str = "") -> Writer:
    """A Word file of n characters of such pieces of its body."""
    return lambda path, n: write_word(path, before + piece * (n // len(piece)) + after)


def pdf(piece: str, before: str = "", move: str = "0 -9 Td") -> Writer:
    """A PDF whose page shows n characters of such pieces."""
    drawing = f"({piece}) Tj {move} "
    return lambda path, n: write_pdf(path, before + drawing * (n // len(piece)))


def write_pdf(path: Path, drawing: str) -> None:
    """One page with a drawing in PDF's own language; readers rebuild the missing table of objects."""
    path.write_text(
        "%PDF-1.4\n1 0 obj <</Type/Catalog/Pages 2 0 R>> endobj\n"
        "2 0 obj <</Type/Pages/Count 1/Kids[3 0 R]>> endobj\n"
        "3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 5 0 R"
        "/Resources<</Font<</F 4 0 R>>>>>> endobj\n"
        "4 0 obj <</Type/Font/Subtype/Type1/BaseFont/Helvetica>> endobj\n"
        f"5 0 obj <</Length {len(drawing) + 20}>> stream\nBT /F 9 Tf 9 780 Td {drawing} ET\n"
        "endstream endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n"
    )


# Files of about n characters, each with a reader of its own.
FILES: list[tuple[str, str, Writer]] = [
    ("a.txt", "words", page("harbour ")),
    ("a.md", "data links", page("data:image/png;base64,")),
    ("a.html", "words", page("<p>harbour <b>wall</b>")),
    ("a.html", "lines of code", page("<span class='k'>word</span> <b>x</b>\n", before="<pre>")),
    ("a.html", "deep tags", page("<div>")),
    ("a.html", "deep tags of a line", page("<b>a")),
    ("a.html", "end tags without a start", page("<b></i>")),
    ("a.html", "ends of blocks without a start", page("<div></section></p>")),
    ("a.html", "end tags in deep tags", lambda path, n: write_deep(path, n // 8)),
    ("a.html", "scripts that seem to close themselves", page("<script/>")),
    ("a.html", "scripts that end", page("<script/></script")),
    ("a.html", "no script", page("<noscript>a</noscript>b")),
    ("a.html", "no script that never ends", page("<noscript>")),
    ("a.html", "drawings that never end", page("<svg/>")),
    (
        "a.html",
        "spaces of a declaration",
        page(" ", "<meta http-equiv=content-type content='charset=", ";'>\udcff"),
    ),
    ("a.html", "damaged characters", page("\udcff", "<meta charset=utf-8>")),
    ("a.html", "paragraphs in tags of a line", page("<b><p>a")),
    ("a.html", "tables in tables", page("<table><tr><td>a")),
    ("a.html", "templates", page("<template>a")),
    ("a.html", "titles", page("<title>a")),
    ("a.html", "drawings", page("<svg><title>a")),
    ("a.html", "comments that never end", page("<!-- ")),
    ("a.html", "tags that never end", page("<p class='")),
    ("a.html", "declarations that never end", page("<![CDATA[")),
    ("a.html", "entities that never end", page("&amp")),
    ("a.html", "entities without a name", page("&a;")),
    ("a.html", "what may be XHTML", page("<!a>", before="")),
    ("a.html", "spaces before a declaration", page(" ", before="", after="<?xml")),
    ("a.html", "a page that may be XHTML", page("&a;<p/>", before="<html xmlns='x'>")),
    ("a.html", "attributes", page(" a=b", before="<p", after=">a")),
    ("a.html", "no script that ends", page("<script>a")),
    ("a.html", "declarations of an encoding", page("<meta charset=x>", after="\udcff")),
    ("a.xhtml", "deep tags", page("<p>", before='<?xml version="1.0"?><html>')),
    ("a.epub", "words", book("<p>harbour <b>wall</b></p>")),
    ("a.epub", "deep tags", book("<div>")),
    ("a.docx", "words", word("<w:p><w:r><w:t>harbour</w:t></w:r></w:p>")),
    ("a.docx", "runs of a paragraph", word("<w:r><w:t>a</w:t></w:r>", "<w:p>", "</w:p>")),
    ("a.docx", "tabs", word("<w:tab/>", "<w:p><w:r>", "</w:r></w:p>")),
    ("a.docx", "versions", word("<w:Choice><w:r/></w:Choice>", "<w:p>", "</w:p>")),
    ("a.docx", "versions in versions", word("<w:Choice>" * 99 + "</w:Choice>" * 99)),
    ("a.docx", "sections", word("<w:p><w:pPr><w:sectPr><w:titlePg/></w:sectPr></w:pPr></w:p>")),
    ("a.docx", "fields", word("<w:fldChar w:fldCharType='begin'/>", "<w:p>", "</w:p>")),
    ("a.docx", "notes", word("<w:footnoteReference w:id='1'/>", "<w:p>", "</w:p>")),
    ("a.docx", "deleted marks", word("<w:p><w:pPr><w:rPr><w:del/></w:rPr></w:pPr></w:p>")),
    ("a.docx", "rows", word("<w:tr><w:tc><w:p/></w:tc></w:tr>", "<w:tbl>", "</w:tbl>")),
    ("a.pdf", "words", pdf("harbour")),
    ("a.pdf", "letters", pdf("a")),
    ("a.pdf", "letters of a turned line", pdf("a", "0 1 -1 0 9 9 Tm", "5 0 Td")),
    ("a.pdf", "turned letters at one place", pdf("a", "0 1 -1 0 9 9 Tm", "0 0 Td")),
    ("a.pdf", "turned lines of a letter", pdf("a", "0 1 -1 0 9 9 Tm")),
    ("a.pdf", "letters on layers", pdf("a", move="0 -9 Td EMC /OC <</Name(a)>> BDC")),
    ("a.pdf", "letters with a shadow", pdf("a", move="1 0 Td (a) Tj 4 0 Td")),
    ("a.csv", "words", table("1,harbour wall")),
    ("a.csv", "quoted words", table('1,"harbour ""wall"""')),
    ("a.csv", "fields", table("a" + "," * 99, header="text" + "," * 99)),
    ("a.csv", "one quotation mark that never closes", table("1,a", header='id,text\n0,"')),
    ("a.csv", "quotation marks that never close", table('harbour","wall')),
    ("a.csv", "quotation marks that close in the next line", table('1,"a')),
    ("a.csv", "lines without a field", table("")),
    ("a.csv", "commas at the end", table("1,a" + "," * 99)),
    ("a.csv", "rows of less fields than columns", wide_table("a", "column")),
    ("a.csv", "rows of a column with a long name", long_name),
    ("a.csv.gz", "members of one line", packed(table("1,harbour wall"))),
    ("a.tsv", "words", table("1\tharbour wall", header="id\ttext")),
    ("a.tsv", "speech", table('1\t"harbour," he said', header="id\ttext")),
    ("a.tsv", "speech that never closes", table('1\t"harbour', header="id\ttext")),
    ("a.jsonl", "words", table('{"text": "harbour wall"}', header="")),
    ("a.jsonl", "deep lists", page("[", before='{"text": ')),
    ("a.jsonl", "lines that are no JSON", table('{"text": "')),
    ("a.json", "words", table('{"text":\n"harbour wall"}', header="")),
    ("a.json", "values that are no JSON", table('{"text":', header="")),
    ("a.json", "values that are broken", page("{x\n", before='{"text":\n"a"}\n')),
    ("a.json", "lists that never close", table('{"a":[\n1,' + "0," * 999, header='{\n"a": 1}')),
    ("a.json", "lines of which the first is damaged", table('{"text": "a"}', header="{")),
]


@pytest.fixture(autouse=True)
def no_collection_of_garbage():
    """It takes longer than what is measured, whenever it comes."""
    gc.disable()
    yield
    gc.enable()


def time_of(function: Callable[[], object]) -> float:
    """CPU-seconds of one call, the shortest of three: other work on the machine only adds to it."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def growth(prepare: Callable[[int], Callable[[], object]]) -> float:
    """How many times longer twice the size takes.

    What is quadratic takes four times as long at each size; what is linear may seem to take longer
    at one size, at which the text leaves the processor's cache.
    """
    size = 2_048
    before = 0.0
    ratios = list[float]()
    while len(ratios) < SIZES and (size <= LARGEST or ratios):
        seconds = time_of(prepare(size))
        if before >= SHORTEST:
            ratios.append(seconds / before)
            if ratios[-1] <= MOST:
                break
        before = seconds
        size *= 2
    return min(ratios, default=0.0)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("use", USES)
def test_twice_the_text_takes_about_twice_the_time(use, text):
    def prepare(size: int) -> Callable[[], object]:
        return partial(USES[use], TEXTS[text](size))

    assert growth(prepare) <= MOST


@pytest.mark.parametrize(("name", "kind", "write"), FILES)
def test_twice_the_file_takes_about_twice_the_time(tmp_path, name, kind, write):
    errors: list[ValueError] = []

    def prepare(size: int) -> Callable[[], object]:
        path = tmp_path / f"{size}-{name}"
        write(path, size)
        return lambda: list(read_documents(path, on_error=errors.append))

    assert growth(prepare) <= MOST
