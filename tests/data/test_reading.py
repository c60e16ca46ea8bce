"""Documents from files, always in the same order."""

import gzip

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert import Document, read_documents
from nextlevelbert.data import files
from nextlevelbert.data.reading import source_files

from ..toys.books import write_docx, write_epub, write_pdf

WHALE = "Call me Ishmael."
SEA = "The sea & the “whale”."
PAGE = """<!DOCTYPE html>
<html><head><title>A title</title><style>p { color: red }</style>
<script>if (a < b && c) { document.write("<p>no</p>") }</script>
<body class=x><h1>Loomings</h1>
<p>Call me <b>Ish</b>mael. Some
   years   ago&nbsp;&mdash; never mind.<!-- a comment -->
<p>A line,<br>and another &lt;here&gt;.
<ul><li>one<li>two</ul>
<table><tr><td>left<td>right</table>
<pre>
  as it
    stands</pre><template>no</template>
Caf&eacute; &#x1F40B; <![if !IE]>1 < 2<![endif]></body>
</html>
"""
PARAGRAPHS = [
    "A title",
    "Loomings",
    "Call me Ishmael. Some years ago — never mind.",
    "A line,\nand another <here>.",
    "one",
    "two",
    "left",
    "right",
    "  as it\n    stands",
    "Café 🐋 1 < 2",
]


def pairs(documents):
    return [(document.id, document.text) for document in documents]


def test_files_of_texts(tmp_path):
    (tmp_path / "shelf" / ".hidden").mkdir(parents=True)
    (tmp_path / "shelf" / ".hidden" / "c.txt").write_text("hidden")
    (tmp_path / "shelf" / "b.md").write_bytes(b"# Loomings\n\n*Call me*")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n\xe2\x80\xa8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    both = [("a", "one\ntwo\nthree\n\u2028"), ("shelf/b", "# Loomings\n\n*Call me*")]

    assert pairs(read_documents(tmp_path)) == pairs(read_documents(str(tmp_path / "**/*"))) == both
    assert pairs(read_documents([tmp_path / "a.txt", tmp_path / "shelf"])) == [
        both[0],
        ("b", both[1][1]),
    ]

    (tmp_path / "a[1].txt").write_text("x")

    assert pairs(read_documents(tmp_path / "a[1].txt")) == [("a[1]", "x")]

    (tmp_path / "a.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.txt.*0xef"):
        list(read_documents(tmp_path))
    with pytest.raises(ValueError, match=r"supported are \.txt"):
        read_documents(tmp_path / "picture.png")


def test_two_files_of_one_name_keep_their_suffixes(tmp_path):
    """The same in `search` and in `read_documents`: none is refused, none is left out."""
    (tmp_path / "nettle.html").write_text(f"<p>{WHALE}")
    write_pdf(tmp_path / "nettle.pdf", [SEA])
    (tmp_path / "dock.txt").write_text(SEA)
    (tmp_path / "dock.jsonl").write_text('{"text": "a row"}')
    rows = [("0", "a row"), ("dock", SEA), ("nettle.html", WHALE), ("nettle.pdf", SEA)]

    assert pairs(read_documents(tmp_path)) == rows
    assert [name for _, name in source_files(tmp_path)] == [
        None,
        "dock",
        "nettle.html",
        "nettle.pdf",
    ]


def test_rows_are_numbered_through_all_files(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text": "y", "id": 7, "year": 1851}')
    (tmp_path / "a.csv").write_text("text\nz\n")
    (tmp_path / "between.txt").write_text("w")
    Dataset.from_list([{"text": "v"}]).save_to_disk(tmp_path / "saved")
    files = [tmp_path / name for name in ("b.jsonl", "between.txt", "a.csv", "saved")]
    documents = list(read_documents(files))

    assert pairs(documents) == [("0", "x"), ("7", "y"), ("between", "w"), ("2", "z"), ("3", "v")]
    assert documents[1].metadata == {"year": 1851}

    [document] = read_documents(tmp_path / "a.csv", id_column="text", text_column="text")

    assert document == Document("z", "z")

    with pytest.raises(ValueError, match=r"b\.jsonl.*'body'.*text_column"):
        list(read_documents(tmp_path / "b.jsonl", text_column="body"))


def test_the_text_of_books(tmp_path):
    write_pdf(tmp_path / "a.PDF", [f"{WHALE}\nThe leviat-\nhan", "", SEA])
    pages = [
        f"<h1>One</h1><p>{WHALE}<br/>Some</p><script/>",
        "",
        "<p>The sea &amp; the “whale”.</p>",
    ]
    write_epub(tmp_path / "b.epub", pages)
    docx = write_docx(tmp_path / "c.docx", [WHALE, SEA])
    docx.with_suffix(".docx.gz").write_bytes(gzip.compress(docx.read_bytes()))
    docx.unlink()
    (tmp_path / "d.html").write_text(PAGE)
    pdf, *rest = read_documents(tmp_path)

    assert pairs(rest) == [
        ("b", f"One\n\n{WHALE}\nSome\n\n{SEA}"),
        ("c", f"{WHALE}\n\n{SEA}"),
        ("d", "\n\n".join(PARAGRAPHS)),
    ]
    assert pdf.text == f"{WHALE}\nThe leviat-\nhan\n\n\n\n{SEA}"
    assert [pdf.text[start:][:5] for start in pdf.metadata["pages"]] == [
        "Call ",
        f"\n\n{SEA[:3]}",
        SEA[:5],
    ]


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("iso2022_jp", "記録\nfinished\n"),
        ("iso2022_jp_1", "丂記録\nfinished\n"),  # 丂 is in JIS X 0212
        ("iso2022_kr", "기록\nfinished\n"),
    ],
)
def test_a_text_whose_bytes_are_all_ascii_is_decoded(tmp_path, codec, text):
    (tmp_path / "mail.txt").write_bytes(text.encode(codec))

    [document] = read_documents(tmp_path)

    assert document.text == text


def test_a_damaged_text_in_iso_2022_jp_is_named(tmp_path):
    (tmp_path / "mail.txt").write_bytes(b"\x1b$B9\x1b(B")

    with pytest.raises(ValueError, match=r"mail\.txt cannot be read: .*Save it in UTF-8"):
        list(read_documents(tmp_path))


def test_colours_of_a_terminal_are_no_encoding(tmp_path):
    (tmp_path / "log.txt").write_text("\x1b[31mred\x1b(B and \x1b$ text")

    [document] = read_documents(tmp_path)

    assert document.text == "\x1b[31mred\x1b(B and \x1b$ text"


def test_pictures_within_markdown_are_no_text(tmp_path):
    """A short one is an example."""
    long = f"data:image/jpeg;base64,{'QUJD' * 50}=="
    note = f"# Walk\n\n![pond]({long})\n\n[a]: {long}\n\n`data:image/png;base64,AAAA` is one.\n"
    for name in ("a.md", "b.markdown"):
        (tmp_path / name).write_text(note)

    for document in read_documents(tmp_path):
        assert (
            document.text
            == "# Walk\n\n![pond]()\n\n[a]: \n\n`data:image/png;base64,AAAA` is one.\n"
        )


pieces = [
    b'{"text": "',
    b'"}',
    b"\n",
    b"\r",
    b"[",
    b",",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"<script>",
    b"<![",
    b"<!--",
    b'"',
    b"id,text\n",
    b"PAR1",
    b"\x1f\x8b\x08\0",
    b"\xed\xa0\x80",
]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([".txt", ".html", ".jsonl", ".json", ".csv", ".parquet"]),
    st.sampled_from(["", ".gz"]),
    st.lists(st.sampled_from(pieces) | st.binary(max_size=9), max_size=9),
    st.integers(0, 30),
    st.integers(1, 255),
)
def test_no_bytes_raise_an_error_that_does_not_name_the_file(
    tmp_path_factory, kind, packed, parts, at, flip
):
    content = bytearray(b"".join(parts))
    if packed:
        content = bytearray(gzip.compress(content))
        content[min(at, len(content) - 1)] ^= flip
    path = tmp_path_factory.mktemp("bytes") / f"rows{kind}{packed}"
    path.write_bytes(content)
    try:
        list(read_documents(path))
    except ValueError as error:
        assert path.name in str(error)  # noqa: PT017  # either is right


@pytest.mark.parametrize("name", ["a.txt.gz", "a.html.gz", "a.jsonl.gz", "a.csv.gz", "a.json.gz"])
def test_what_takes_too_much_unpacked_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 1000)
    (tmp_path / name).write_bytes(gzip.compress(b"a" * 5000))
    with pytest.raises(ValueError, match=rf"{name}.* takes more than 1,000 bytes"):
        list(read_documents(tmp_path / name))
