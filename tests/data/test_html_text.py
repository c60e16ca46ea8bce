"""The text of pages."""

from __future__ import annotations

import pytest

from nextlevelbert import Document, read_documents

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


def test_the_text_of_a_page(tmp_path):
    (tmp_path / "page.html").write_text(PAGE)
    paragraphs = [
        "Loomings",
        "Call me Ishmael. Some years ago\xa0— never mind.",
        "A line,",
        "and another <here>.",
        "one",
        "two",
        "left",
        "right",
        "  as it\n    stands",
        "Café 🐋 1 < 2",
    ]
    assert list(read_documents(tmp_path / "page.html")) == [Document("page", "\n\n".join(paragraphs))]


def test_pages_that_are_refused(tmp_path):
    page = tmp_path / "page.htm"
    page.write_text("<p>Text\n<script>alert(1)\n<p>More text")
    with pytest.raises(
        ValueError, match=r"page\.htm, line 2: <script> is never closed, so the rest of the page has no"
    ):
        list(read_documents(page))
    page.write_text("<p>Text\n<![sea[ text")
    with pytest.raises(
        ValueError, match=r"page\.htm, line \d: the HTML cannot be read \(unknown status keyword 'sea'"
    ):
        list(read_documents(page))
    page.write_bytes(b"<p>na\xefve")
    with pytest.raises(ValueError, match=r"page\.htm, line 1: byte EF is not UTF-8"):
        list(read_documents(page))
