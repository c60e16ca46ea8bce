"""Gathers long texts of eight kinds from data sets and Debian packages.

    mkdir packages && cd packages
    apt-get download bash-doc ...  # `PACKAGES`, of Debian 12; the RFCs are in its section non-free
    for package in *.deb; do dpkg-deb -x "$package" .; done
    cd .. && python -m benchmarks.studies.kinds_of_text \
        --data DATA --packages packages --output_dir kinds

Writes ``train/KIND.jsonl`` and ``held_out/KIND.jsonl`` with the columns ``id`` and ``text``:

=============  =====================================================================================
kind           texts
=============  =====================================================================================
novels         40,000 characters from the middle of each training novel that `hold_out` leaves, and
               validation novels as a whole
stories        SQuALITY
news           BBC News, Hyperpartisan and ECB+
posts          20 Newsgroups, without headers
manuals        HTML pages of the packages
man_pages      manual pages of the packages, as ``man`` prints them
docstrings     docstrings of each module of Python's standard library
rfcs           internet standards and best practices, without the heads and feet of their pages
=============  =====================================================================================

One document in five of the packages is held out, by the hash of its name. Documents of fewer than
3,000 characters are left out. Each kind has at most 6 million characters to fit to, in the order of
the hash of their documents. The copyright files of the packages name their licences.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import re
import subprocess
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks.common.measuring import write_rows
from benchmarks.studies.hold_out import held_out_ids
from nextlevelbert import read_documents
from nextlevelbert.data.tables import open_rows

PACKAGES = (
    "bash-doc",
    "debian-policy",
    "debian-reference-en",
    "developers-reference",
    "doc-rfc-fyi-bcp",
    "doc-rfc-std",
    "git-doc",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "manpages",
    "manpages-dev",
    "postgresql-doc-15",
    "python3.11-doc",
)
SHORTEST = 3_000  # characters
OF_NOVEL = 40_000  # characters
MOST = 6_000_000  # characters of a kind
_OF_REDIRECT = 500  # bytes; such packed manual pages only name another page
_PAGE_BREAK = re.compile(r"\n+[^\n]*\[Page [0-9ivx]+\]\n\f[^\n]*\n+")
_MAN_OPTIONS = {"MANWIDTH": "80", "MANPAGER": "cat", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}

Text = tuple[str, str]  # id and text


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def data_texts(data: Path, split: str) -> dict[str, Iterator[Text]]:
    """Returns the texts of each kind that the data folder has."""

    def texts(folder: str) -> Iterator[Text]:
        for _, row in open_rows(data / f"{folder}/{split}.jsonl.gz").rows:
            name = row.get("doc_id", row.get("id"))
            yield f"{folder}/{name}", row["text"][row.get("body_start", 0) :].strip()

    def news() -> Iterator[Text]:
        for folder in ("bbc_news", "hyperpartisan", "ecbplus"):
            yield from texts(folder)

    novels = texts("novels")
    if split == "train":
        novels = middles(list(novels))
    return {
        "novels": novels,
        "stories": texts("squality"),
        "news": news(),
        "posts": texts("newsgroups20"),
    }


def middles(novels: list[Text]) -> Iterator[Text]:
    """Yields the middle of each novel that `hold_out` leaves to train with."""
    names = [name.removeprefix("novels/") for name, _ in novels]
    held_out = held_out_ids(names)
    for name, (key, text) in zip(names, novels, strict=True):
        if name not in held_out:
            start = max(len(text) - OF_NOVEL, 0) // 2
            yield key, text[start : start + OF_NOVEL]


def manuals(root: Path) -> Iterator[Text]:
    share = root / "usr/share"
    for page in sorted(share.rglob("*.html")):
        if page.is_file() and not page.is_symlink():
            for document in read_documents(page, on_error=print):
                yield f"manuals/{page.relative_to(share).with_suffix('')}", document.text


def man_pages(root: Path) -> Iterator[Text]:
    for page in sorted((root / "usr/share/man").glob("man*/*")):
        if page.is_symlink() or page.stat().st_size < _OF_REDIRECT:
            continue
        command = ["man", "--local-file", "--encoding=utf-8", "--no-hyphenation", str(page)]
        shown = subprocess.run(
            command, capture_output=True, check=True, text=True, env=_MAN_OPTIONS
        )
        yield f"man_pages/{page.name.removesuffix('.gz')}", shown.stdout


def docstrings(root: Path) -> Iterator[Text]:
    library = root / "usr/lib/python3.11"
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module in sorted(library.rglob("*.py")):
        tree = ast.walk(ast.parse(module.read_bytes()))
        nodes = [node for node in tree if isinstance(node, documented)]
        nodes.sort(key=lambda node: getattr(node, "lineno", 0))
        paragraphs = []
        for node in nodes:
            text = ast.get_docstring(node)
            if text:
                paragraphs.append(f"{getattr(node, 'name', module.stem)}\n{text}")
        yield f"docstrings/{module.relative_to(library).with_suffix('')}", "\n\n".join(paragraphs)


def rfcs(root: Path) -> Iterator[Text]:
    for path in sorted((root / "usr/share/doc/RFC").rglob("rfc[0-9]*.txt.gz")):
        if not path.is_symlink():
            text = gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")
            yield f"rfcs/{path.name.removesuffix('.txt.gz')}", _PAGE_BREAK.sub("\n\n", text)


PACKAGE_KINDS: tuple[Callable[[Path], Iterator[Text]], ...] = (
    manuals,
    man_pages,
    docstrings,
    rfcs,
)


def long_enough(texts: Iterable[Text]) -> list[Text]:
    """Returns the texts that are not too short, in the order of the hash of their ids."""
    long_texts = [(name, text) for name, text in texts if len(text) >= SHORTEST]
    return sorted(long_texts, key=lambda pair: digest(pair[0]))


def first_texts(texts: Iterable[Text]) -> Iterator[Text]:
    """Yields texts up to `MOST` characters."""
    left = MOST
    for name, text in texts:
        left -= len(text)
        if left < 0:
            return
        yield name, text


def write(path: Path, texts: Iterable[Text]) -> None:
    rows = [{"id": name, "text": text} for name, text in texts]
    write_rows(path, rows)
    characters = sum(len(row["text"]) for row in rows)
    print(f"{path.parent.name}/{path.name}: {len(rows):,} documents, {characters:,} characters")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, bbc_news/ …")
    parser.add_argument("--packages", type=Path, required=True, help="the unpacked packages")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    for kind, texts in data_texts(args.data, "train").items():
        write(args.output_dir / f"train/{kind}.jsonl", first_texts(long_enough(texts)))
    for kind, texts in data_texts(args.data, "validation").items():
        write(args.output_dir / f"held_out/{kind}.jsonl", long_enough(texts))
    for read in PACKAGE_KINDS:
        train = []
        held_out = []
        for name, text in long_enough(read(args.packages)):
            if int(digest(name)[:8], 16) % 5 == 0:
                held_out.append((name, text))
            else:
                train.append((name, text))
        write(args.output_dir / f"held_out/{read.__name__}.jsonl", held_out)
        write(args.output_dir / f"train/{read.__name__}.jsonl", first_texts(train))


if __name__ == "__main__":
    main()
