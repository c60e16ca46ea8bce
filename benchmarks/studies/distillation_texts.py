"""Gathers the texts for distilling a static table, from books, news and manuals.

    mkdir packages && cd packages
    apt-get download apache2-doc ...  # the Debian packages that `MANUALS` names, of Debian 12
    for package in *.deb; do dpkg-deb -x "$package" .; done
    cd .. && python -m benchmarks.studies.distillation_texts \
        --packages packages --shared SHARED --output texts.jsonl.gz

A text is a sentence, or sentences in a row of 24 to 90 words in all; an entry of WordNet or of the
fortunes is a text as a whole. All texts have free licences. None of them comes from a source of the
everyday questions (`everyday_questions`), or from novels, stories or news that scores are measured
on: only training splits are read.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from nextlevelbert import read_documents, text_sentences

_SENTENCE_SHARE = 0.35  # of the texts are one sentence
_FEWEST_WORDS = 24
_MOST_WORDS = 90
_SHORTEST_SENTENCE = 6  # words; headings and items of menus are shorter
_TEXTS_OF_DOCUMENT = 12
_LETTERS = re.compile(r"[^\W\d_]")

# Debian package: pages below /usr/share, licence, number of texts.
MANUALS = {
    "apache2-doc": ("doc/apache2-doc/manual/en/**/*.html", "Apache-2.0", 1_200),
    "debian-faq": ("doc/debian/FAQ/*.en.html", "GPL-2.0-or-later", 300),
    "debian-handbook": ("doc/debian-handbook/html/en-US/*.html", "CC-BY-SA-3.0", 2_000),
    "debian-reference-en": ("debian-reference/*.en.html", "GPL-2.0-or-later", 600),
    "developers-reference": ("developers-reference/*.html", "GPL-2.0-or-later", 400),
    "exim4-doc-html": ("doc/exim4-doc-html/spec_html/*.html", "GPL-2.0-or-later", 600),
    "gimp-help-en": ("gimp/2.0/help/en/*.html", "GFDL-1.2-or-later", 3_000),
    "grass-doc": ("doc/grass-doc/html/*.html", "GPL-2.0-or-later", 1_000),
    "libreoffice-help-en-us": ("libreoffice/help/en-US/text/**/*.html", "MPL-2.0", 3_500),
    "lilypond-doc-html": ("doc/lilypond/html/Documentation/**/*.html", "GFDL-1.3", 1_500),
    "maxima-doc": ("doc/maxima-doc/html/*.html", "GPL-2.0-or-later", 800),
    "mutt": ("doc/mutt/html/*.html", "GPL-2.0-or-later", 300),
    "nodejs-doc": ("doc/nodejs/api/*.html", "MIT", 600),
    "octave-doc": ("doc/octave/octave.html/*.html", "GPL-3.0-or-later", 1_000),
    "postgresql-doc-15": ("doc/postgresql-doc-15/html/*.html", "PostgreSQL", 1_500),
    "python-django-doc": ("doc/python-django-doc/html/**/*.html", "BSD-3-Clause", 1_500),
    "r-doc-html": ("doc/r-doc-html/manual/*.html", "GPL-2.0-or-later", 500),
    "rust-doc": ("doc/rust-doc/html/book/*.html", "MIT or Apache-2.0", 1_200),
    "sphinx-doc": ("doc/sphinx-doc/html/**/*.html", "BSD-2-Clause", 400),
    "sqlite3-doc": ("doc/sqlite3/*.html", "public domain", 1_500),
    "zsh-doc": ("doc/zsh-common/html/*.html", "MIT", 500),
}
# Python package: licence, number of texts from its docstrings.
DOCSTRINGS = {
    "networkx": ("BSD-3-Clause", 500),
    "nltk": ("Apache-2.0", 400),
    "pandas": ("BSD-3-Clause", 500),
    "sklearn": ("BSD-3-Clause", 600),
    "sympy": ("BSD-3-Clause", 600),
}
# Folder of the shared data: number of texts from its training split.
SHARED = {"hyperpartisan": 4_000, "novels": 5_000, "squality": 1_500}
ENTRIES = {"wordnet-base": 5_000, "fortunes": 1_000}


def passages(text: str, rng: random.Random) -> list[str]:
    """Draws sentences, and sentences in a row, that do not overlap."""
    drawn = []
    held = list[str]()
    is_single = rng.random() < _SENTENCE_SHARE
    for start, end in text_sentences(text):
        sentence = " ".join(text[start:end].split())
        count = len(sentence.split())
        letters = len(_LETTERS.findall(sentence))
        if not _SHORTEST_SENTENCE <= count <= _MOST_WORDS or letters < len(sentence) / 2:
            held = []  # a heading, code or a table
            continue
        held.append(sentence)
        words = sum(len(part.split()) for part in held)
        if words > _MOST_WORDS:
            held = [sentence]
        elif is_single or words >= _FEWEST_WORDS + rng.randrange(40):
            drawn.append(" ".join(held))
            held = []
            is_single = rng.random() < _SENTENCE_SHARE
    rng.shuffle(drawn)
    return drawn[:_TEXTS_OF_DOCUMENT]


def from_documents(documents: Iterable[str], count: int, rng: random.Random) -> list[str]:
    """Draws up to `count` different texts, and opens no more documents than it needs."""
    texts = dict[str, None]()
    for document in documents:
        texts.update(dict.fromkeys(passages(document, rng)))
        if len(texts) >= count:
            break
    return list(texts)[:count]


def pages(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        for document in read_documents(path, on_error=print):
            yield document.text


def docstrings(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield ast.get_docstring(node) or ""


def training_split(folder: Path, rng: random.Random) -> Iterator[str]:
    documents = [document.text for document in read_documents(folder / "train.jsonl.gz")]
    rng.shuffle(documents)
    for text in documents:
        start = rng.randrange(max(len(text) - 40_000, 1))
        yield text[start : start + 40_000]


def wordnet(packages: Path) -> Iterator[str]:
    """Yields each meaning with its words, its definition and its examples."""
    for path in sorted((packages / "wordnet").glob("data.*")):
        for line in path.read_text(encoding="latin-1").splitlines():
            facts, bar, meaning = line.partition(" | ")
            if bar:
                fields = facts.split()
                names = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
                yield f"{', '.join(names).replace('_', ' ')}: {meaning.strip()}"


def fortunes(packages: Path) -> Iterator[str]:
    for path in sorted((packages / "games/fortunes").glob("*[!.][!du]*")):
        if path.suffix == "" and path.is_file():
            for entry in path.read_text(encoding="utf-8", errors="replace").split("\n%\n"):
                text = " ".join(entry.split())
                if _SHORTEST_SENTENCE <= len(text.split()) <= _MOST_WORDS:
                    yield text


def gather(packages: Path, shared: Path, seed: int) -> Iterator[tuple[str, str, list[str]]]:
    """Yields each source with its licence and texts."""
    rng = random.Random(seed)
    for name, (pattern, licence, count) in MANUALS.items():
        paths = sorted(packages.glob(pattern))
        rng.shuffle(paths)
        yield name, licence, from_documents(pages(paths), count, rng)
    for name, (licence, count) in DOCSTRINGS.items():
        spec = find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError(f"{name} is not installed, whose docstrings are read")
        [root] = spec.submodule_search_locations
        paths = [path for path in sorted(Path(root).rglob("*.py")) if "tests" not in path.parts]
        rng.shuffle(paths)
        yield name, licence, from_documents(docstrings(paths), count, rng)
    for name, count in SHARED.items():
        licence = "CC-BY-4.0"
        if name != "hyperpartisan":
            licence = "public domain"
        documents = training_split(shared / "data" / name, rng)
        yield name, licence, from_documents(documents, count, rng)
    for name, reader in (("wordnet-base", wordnet), ("fortunes", fortunes)):
        entries = list(dict.fromkeys(reader(packages)))
        licence = "public domain"
        if name == "wordnet-base":
            licence = "WordNet-3.0"
        yield name, licence, rng.sample(entries, min(ENTRIES[name], len(entries)))


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, help="the unpacked packages")
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/novels")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of texts")
    args = parser.parse_args()
    rows = []
    for name, licence, texts in gather(args.packages / "usr/share", args.shared, args.seed):
        words = sum(len(text.split()) for text in texts)
        print(f"{name}, {licence}: {len(texts):,} texts, {words:,} words", flush=True)
        rows += [{"source": name, "licence": licence, "text": text} for text in texts]
    random.Random(args.seed).shuffle(rows)
    with gzip.open(args.output, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
