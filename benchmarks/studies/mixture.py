"""Builds long texts of eight kinds from data sets and Debian packages: novels alone make a model for novels.

    python -m benchmarks.studies.mixture --data DATA --output_dir mixture

Writes ``train/KIND.jsonl`` and ``held_out/KIND.jsonl`` with ``id`` and ``text``, and prints what each holds:

- ``novels``: 40,000 characters from the middle of each training novel of `hold_out`; all of those for validation.
- ``stories``: SQuALITY.
- ``news``: BBC News, Hyperpartisan and ECB+.
- ``posts``: 20 Newsgroups without headers.
- ``manuals``: pages in HTML, ``man_pages``: manual pages, and ``docstrings``: those of each module of Python's
  standard library, of packages that `apt-get download` fetches.
- ``rfcs``: internet standards and best practices without the heads and feet of pages, of two packages that are in
  Debian's section non-free because RFCs must not be changed.

Of the kinds from packages, one document in five is held out by the hash of its name. The licences are in the packages'
copyright files, whose paths are printed.
Documents of fewer than 3,000 characters are left out, and counted. Each kind has at most 6 million characters to train
with, so that none drowns the others; documents come in the order of their hash. Needs Debian (apt-get, dpkg-deb, man).
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import re
import subprocess
import urllib.request
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from benchmarks.common.studies import data_folder
from benchmarks.studies.hold_out import BOOKS, in_order
from nextlevelbert.data.html_text import read_html
from nextlevelbert.data.rows import file_rows

PACKAGES = (
    "bash-doc", "debian-policy", "debian-reference-en", "developers-reference", "git-doc", "libpython3.11-minimal",
    "libpython3.11-stdlib", "manpages", "manpages-dev", "postgresql-doc-15", "python3.11-doc",
)  # fmt: skip
NON_FREE = "https://deb.debian.org/debian/pool/non-free/d/doc-rfc/"  # which few machines have among their sources
RFC_PACKAGES = ("doc-rfc-std_20230121-1_all.deb", "doc-rfc-fyi-bcp_20230121-1_all.deb")
PAGE_BREAK = re.compile(r"\n+[^\n]*\[Page [0-9ivx]+\]\n\f[^\n]*\n+")  # its foot and head name the RFC
PLAIN = {"MANWIDTH": "80", "MANPAGER": "cat", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
SHORTEST, OF_NOVELS, IN_ALL = 3_000, 40_000, 6_000_000  # characters

Text = tuple[str, str]  # id, text


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def middle(text: str) -> str:
    start = max(len(text) - OF_NOVELS, 0) // 2
    return text[start : start + OF_NOVELS]


def of_data(data: Path, split: str) -> dict[str, Iterator[Text]]:
    """The kinds that are in the data folder, one split of each."""

    def texts(folder: str) -> Iterator[Text]:
        for row in file_rows(data / f"{folder}/{split}.jsonl.gz"):
            name = row["doc_id"] if "doc_id" in row else row["id"]
            yield f"{folder}/{name}", row["text"][row.get("body_start", 0) :].strip()

    aside = set(in_order(data)[:BOOKS])
    novels = ((name, text) for name, text in texts("novels") if name.removeprefix("novels/") not in aside)
    return {
        "novels": ((name, middle(text)) for name, text in novels) if split == "train" else novels,
        "stories": texts("squality"),
        "news": (text for folder in ("bbc_news", "hyperpartisan", "ecbplus") for text in texts(folder)),
        "posts": texts("newsgroups20"),
    }


def unpacked(folder: Path) -> Path:
    """The packages' files below a folder; they are fetched where they are not there yet."""
    root = folder / "root"
    if not root.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=folder, check=True)
        for package in RFC_PACKAGES:
            urllib.request.urlretrieve(NON_FREE + package, folder / package)
        for package in tqdm(sorted(folder.glob("*.deb")), desc="unpacking", unit=" packages"):
            subprocess.run(["dpkg-deb", "-x", package.name, "root.part"], cwd=folder, check=True)
        (folder / "root.part").rename(root)
    return root


def manuals(root: Path) -> Iterator[Text]:
    share = root / "usr/share"
    pages = [page for page in sorted(share.rglob("*.html")) if page.is_file() and not page.is_symlink()]
    for page in tqdm(pages, desc="manuals", unit=" pages"):
        yield f"manuals/{page.relative_to(share).with_suffix('')}", read_html(page)


def man_pages(root: Path) -> Iterator[Text]:
    pages = [page for page in sorted((root / "usr/share/man").glob("man*/*")) if not page.is_symlink()]
    for page in tqdm(pages, desc="man pages"):
        if page.stat().st_size < 500:  # packed: one line that names another page
            continue
        command = ["man", "--local-file", "--encoding=utf-8", "--no-hyphenation", str(page.resolve())]
        shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=PLAIN)
        yield f"man_pages/{page.name.removesuffix('.gz')}", shown.stdout


def docstrings(root: Path) -> Iterator[Text]:
    library = root / "usr/lib/python3.11"
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module in tqdm(sorted(library.rglob("*.py")), desc="docstrings", unit=" modules"):
        nodes = [node for node in ast.walk(ast.parse(module.read_bytes())) if isinstance(node, documented)]
        nodes.sort(key=lambda node: getattr(node, "lineno", 0))
        found = [(getattr(node, "name", module.stem), ast.get_docstring(node)) for node in nodes]
        text = "\n\n".join(f"{name}\n{text}" for name, text in found if text)
        yield f"docstrings/{module.relative_to(library).with_suffix('')}", text


def rfcs(root: Path) -> Iterator[Text]:
    files = [file for file in sorted((root / "usr/share/doc/RFC").rglob("rfc[0-9]*.txt.gz")) if not file.is_symlink()]
    for file in tqdm(files, desc="rfcs"):
        text = gzip.decompress(file.read_bytes()).decode("utf-8", errors="replace")
        yield f"rfcs/{file.name.removesuffix('.txt.gz')}", PAGE_BREAK.sub("\n\n", text)


def long_enough(texts: Iterable[Text]) -> tuple[list[Text], int]:
    """Texts in the order of their hash, and how many were too short."""
    found = sorted(texts, key=lambda pair: digest(pair[0]))
    kept = [(name, text) for name, text in found if len(text) >= SHORTEST]
    return kept, len(found) - len(kept)


def up_to(texts: Iterable[Text], most: int) -> Iterator[Text]:
    for name, text in texts:
        if (most := most - len(text)) < 0:
            return
        yield name, text


def write(path: Path, texts: list[Text], short: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in texts)
    characters = sum(len(text) for _, text in texts)
    print(f"{path}: {len(texts):,} documents, {characters:,} characters; {short:,} were too short")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=data_folder, required=True, help="folder with novels/, squality/, bbc_news/ …")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    for split, folder in (("train", "train"), ("validation", "held_out")):
        for kind, texts in of_data(args.data, split).items():
            kept, short = long_enough(texts)
            limit = IN_ALL if split == "train" else sum(len(text) for _, text in kept)
            write(args.output_dir / folder / f"{kind}.jsonl", list(up_to(kept, limit)), short)
    root = unpacked(args.output_dir / "packages")
    for read in (manuals, man_pages, docstrings, rfcs):
        kind = read.__name__
        kept, short = long_enough(read(root))
        aside = {name for name, _ in kept if int(digest(name)[:8], 16) % 5 == 0}
        write(args.output_dir / f"held_out/{kind}.jsonl", [pair for pair in kept if pair[0] in aside], short)
        rest = [pair for pair in kept if pair[0] not in aside]
        write(args.output_dir / f"train/{kind}.jsonl", list(up_to(rest, IN_ALL)), short)
    for copyright_file in sorted(root.glob("usr/share/doc/*/copyright")):
        print(f"licence: {copyright_file}")


if __name__ == "__main__":
    main()
