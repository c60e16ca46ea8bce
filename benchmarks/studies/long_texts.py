"""Gathers long free texts for masked vectors from Debian packages, and counts their chunks.

    mkdir packages && cd packages
    apt-get download anarchism ...  # `PACKAGES`, of Debian 12
    for package in *.deb; do dpkg-deb -x "$package" .; done
    cd .. && python -m benchmarks.studies.long_texts --packages packages --output texts.jsonl

Writes a line for each page of at least 20 chunks, with the columns ``id``, ``text``, ``source`` and
``license``. A paragraph that an earlier page has is left out, and so are all packages that
`kinds_of_text` tests with and the manuals of `everyday_questions`. The book questions of the latter
are about pages of anarchism and jargon-text, too; no shipped model was trained on these pages.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common.measuring import CHARACTERS_PER_TOKEN, print_table

CHUNK = 256 * CHARACTERS_PER_TOKEN  # characters, roughly
FEWEST = 20  # chunks of a page
SHORTEST = 40  # characters of a paragraph that is compared with others
_HIDDEN = re.compile(r"<(script|style|head)\b.*?</\1>", re.DOTALL)
_BLOCK_END = re.compile(r"</(p|div|li|h\d|td|pre)>")
_TAG = re.compile(r"<[^>]+>")

# Debian package: pages below /usr/share, licence.
PACKAGES = {
    "anarchism": ("doc/anarchism/html/*.html", "GPL-2.0"),
    "apache2-doc": ("doc/apache2-doc/manual/en/**/*.html", "Apache-2.0"),
    "debian-handbook": (
        "doc/debian-handbook/html/en-US/*.html",
        "GPL-2.0-or-later or CC-BY-SA-3.0",
    ),
    "jargon-text": ("doc/jargon-text/*.txt.gz", "public domain"),
    "linux-doc-6.1": ("doc/linux-doc-6.1/Documentation/**/*.rst.gz", "GPL-2.0"),
    "maxima-doc": ("doc/maxima-doc/html/*.html", "GPL-2.0"),
    "nodejs-doc": ("doc/nodejs/api/*.html", "MIT"),
    "perl-doc": ("perl/**/*.pod", "Artistic or GPL-1.0-or-later"),
    "python-django-doc": ("doc/python-django-doc/html/**/*.html", "BSD-3-Clause"),
    "r-doc-html": ("R/doc/manual/*.html", "GPL-2.0"),
    "sqlite3-doc": ("doc/sqlite3/**/*.html", "public domain"),
}


def page_text(page: Path) -> str:
    """Returns the text of a page, with an empty line between paragraphs."""
    content = page.read_bytes()
    if page.suffix == ".gz":
        content = gzip.decompress(content)
    text = content.decode("utf-8", errors="replace")
    if page.suffix == ".html":
        text = _BLOCK_END.sub("\n\n", _HIDDEN.sub("", text))
        text = html.unescape(_TAG.sub("", text))
    return text


def new_paragraphs(text: str, seen: set[str]) -> Iterator[str]:
    """Yields the paragraphs that are not in `seen`, and adds the longer ones."""
    for part in re.split(r"\n\s*\n", text):
        paragraph = " ".join(part.split())
        if not paragraph or paragraph in seen:
            continue
        if len(paragraph) >= SHORTEST:
            seen.add(paragraph)
        yield paragraph


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="unpacked Debian packages")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    share = args.packages / "usr/share"
    seen: set[str] = set()
    table = []
    with args.output.open("w", encoding="utf-8") as file:
        for package, (pattern, licence) in PACKAGES.items():
            pages = [page for page in sorted(share.glob(pattern)) if page.is_file()]
            long = 0
            characters = 0
            for page in pages:
                text = "\n\n".join(new_paragraphs(page_text(page), seen))
                if len(text) < FEWEST * CHUNK:
                    continue
                long += 1
                characters += len(text)
                name = str(page.relative_to(share))
                row = {"id": name, "text": text, "source": package, "license": licence}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            table.append([package, licence, len(pages), long, f"{characters // CHUNK:,}"])
    print_table(["package", "licence", "pages", "long pages", "chunks, roughly"], table)


if __name__ == "__main__":
    main()
