"""Reads everyday questions about manuals, news, novels and other long books, and checks quotations.

    mkdir packages && cd packages
    apt-get download git-doc=1:2.39.5-0+deb12u3 gnome-user-docs=43.0-2 gnucash-docs=4.13-1
    apt-get download anarchism=15.3-3 bible-kjv=4.38 bible-kjv-text=4.38 debian-history=2.28 \
        harden-doc=3.19+nmu1 installation-guide-amd64=20230508+deb12u1 jargon-text=4.4.7-4.1 \
        nethack-common=3.6.6-3+b2
    for package in *.deb; do dpkg-deb -x "$package" .; done
    cd .. && python -m benchmarks.studies.everyday_questions --packages packages --shared SHARED

``everyday_questions.jsonl`` holds 20 questions of each kind. They were written while reading the
texts, before any search. ``half`` says what a question is for: settings are chosen on ``choose``,
and figures are reported on ``report``. A question never changes its half.

======================  ==========================================  =================  =========
kind                    source                                      licence            documents
======================  ==========================================  =================  =========
``python-manual``       the running Python; counted with 3.11.7     PSF-2.0                  399
``git-manual``          Debian git-doc 1:2.39.5-0+deb12u3           GPL-2.0                  292
``gnome-help``          Debian gnome-user-docs 43.0-2               CC-BY-SA-3.0             348
``gnucash-manual``      Debian gnucash-docs 4.13-1 (145 MB)         GFDL-1.1-or-later        235
``news``                BBC News 2004-2005, ``data/bbc_news``       research only          1,856
======================  ==========================================  =================  =========

``novel_questions.jsonl`` holds 24 questions about six of the 22 novels in ``data/novels``
(validation; public domain), kind ``novels``. They were written from memory before any search, and
their quotations were then looked up in the novels. No setting was chosen on them.

``book_questions.jsonl`` holds 50 questions about 26 long books, kind ``books``. They name people
and things as a reader would who remembers the book. They, too, were written from memory before any
search, all are in the half ``report``, and no setting was chosen on them. 30 are about 13 novels
that no shipped model was fitted to (`NOVELS`), 20 about these books:

================================  ===================================================  =============
documents                         source                                               licence
================================  ===================================================  =============
Genesis, Exodus, Judges,          Debian bible-kjv, bible-kjv-text (the package's own  public domain
1 Samuel, Acts                    program for amd64 prints the books)
the Jargon File                   Debian jargon-text                                   public domain
three parts of An Anarchist FAQ   Debian anarchism                                     GPL-2.0
A Brief History of Debian         Debian debian-history                                GPL-2.0+
Securing Debian Manual            Debian harden-doc                                    GPL-2.0
Debian's installation guide       Debian installation-guide-amd64                      GPL-2.0
NetHack's Guidebook               Debian nethack-common                                NGPL
================================  ===================================================  =============

The 300 questions of kind ``stories`` are SQuALITY's about its 75 stories (``data/squality``), but
for those that ask for the plot. They quote nothing: each passage of the story is right.

A newer version may have other texts, and the check then names the first quotation that is gone.
Debian's snapshot archive keeps these packages. Python 3.11.7, 3.12.1 and 3.13.0 hold all quotations
of their manual.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from nextlevelbert import read_documents

QUESTIONS = Path(__file__).with_suffix(".jsonl")
NOVEL_QUESTIONS = QUESTIONS.with_name("novel_questions.jsonl")
BOOK_QUESTIONS = QUESTIONS.with_name("book_questions.jsonl")
KINDS = ("python-manual", "git-manual", "gnome-help", "gnucash-manual", "news")
# Of the validation split, and of the training novels that `hold_out` sets aside.
NOVELS = {
    "austen_emma",
    "austen_persuasion",
    "buchan_the-thirty-nine-steps",
    "chesterton_the-napoleon-of-notting-hill",
    "collins_the-moonstone",
    "forster_howards-end",
    "haggard_allan-quatermain",
    "hardy_tess-of-the-d-urbervilles",
    "james_the-turn-of-the-screw",
    "stevenson_the-black-arrow",
    "twain_adventures-of-huckleberry-finn",
    "webster_dear-enemy",
    "west_the-return-of-the-soldier",
}
_BIBLE = {
    "genesis": "Genesis 1:1-50:26",
    "exodus": "Exodus 1:1-40:38",
    "judges": "Judges 1:1-21:25",
    "1-samuel": "1Samuel 1:1-31:13",
    "acts": "Acts 1:1-28:31",
}
# Packed texts and HTML pages below usr/share/doc, by the name of the document.
_TEXTS = {
    "jargon-file": "jargon-text/jargon.txt.gz",
    "nethack-guidebook": "nethack-common/Guidebook.txt.gz",
    "debian-history": "debian-history/docs/project-history.en.txt.gz",
    "debian-installation-guide": "installation-guide-amd64/en/install.en.txt.gz",
}
_PAGES = {
    "anarchism/append2": "anarchism/html/append2.html",
    "anarchism/append46": "anarchism/html/append46.html",
    "anarchism/secA5": "anarchism/html/secA5.html",
    "securing-debian": "harden-doc/html/en-US/*.html",
}
# Blocks of text in Mallard, the format of GNOME's help.
_MALLARD = "{http://projectmallard.org/1.0/}"
_BLOCKS = {f"{_MALLARD}{name}" for name in ("title", "desc", "p", "code", "screen")}


@dataclass(frozen=True)
class Answer:
    """A passage that answers a question: a document of the question's kind, and words in it."""

    document: str
    quotation: str


@dataclass(frozen=True)
class Question:
    id: str
    kind: str
    half: str
    question: str
    answers: tuple[Answer, ...]


def load_questions(*paths: Path) -> list[Question]:
    """Reads the questions of files, by default of all three."""
    lines = []
    for path in paths or (QUESTIONS, NOVEL_QUESTIONS, BOOK_QUESTIONS):
        lines.extend(path.read_text(encoding="utf-8").splitlines())
    questions = []
    for line in lines:
        row = json.loads(line)
        answers = tuple(Answer(**answer) for answer in row.pop("answers"))
        questions.append(Question(**row, answers=answers))
    return questions


def load_story_questions(shared: Path) -> list[Question]:
    """Reads the questions of SQuALITY, without the first of each story, which asks for the plot."""
    questions = []
    for story in read_documents(_stories(shared)):
        answers = (Answer(document=story.id, quotation=""),)
        for row in story.metadata["questions"][1:]:
            name = f"{story.id}-{row['number']}"
            questions.append(Question(name, "stories", "report", row["question"], answers))
    return questions


def python_manual() -> Iterator[tuple[str, str]]:
    for document in read_documents("python-manual"):
        yield document.id, document.text


def git_manual(packages: Path) -> Iterator[tuple[str, str]]:
    root = packages / "usr/share/doc/git-doc"
    for path in sorted(root.rglob("*.txt")):
        yield path.relative_to(root).with_suffix("").as_posix(), path.read_text(encoding="utf-8")


def gnome_help(packages: Path) -> Iterator[tuple[str, str]]:
    root = packages / "usr/share/help/C"
    for path in sorted(root.glob("*/*.page")):
        blocks = [
            one_line("".join(element.itertext()))
            for element in ElementTree.parse(path).iter()
            if element.tag in _BLOCKS and "type" not in element.attrib  # other forms of the title
        ]
        yield path.relative_to(root).with_suffix("").as_posix(), "\n\n".join(filter(None, blocks))


def gnucash_manual(packages: Path) -> Iterator[tuple[str, str]]:
    root = packages / "usr/share/doc/gnucash-docs"
    for path in sorted(root.glob("gnucash-*-en/*.html")):
        for document in read_documents(path):
            yield path.relative_to(root).with_suffix("").as_posix(), document.text


def news(shared: Path) -> Iterator[tuple[str, str]]:
    folder = shared / "data/bbc_news"
    for document in read_documents([folder / "train.jsonl.gz", folder / "validation.jsonl.gz"]):
        yield document.id, f"{document.metadata['title']}\n\n{document.text}"


def novels(shared: Path, splits: Sequence[str] = ("validation",)) -> Iterator[tuple[str, str]]:
    for split in splits:
        for document in read_documents(shared / f"data/novels/{split}.jsonl.gz"):
            yield document.id, document.text


def _stories(shared: Path) -> list[Path]:
    folder = shared / "data/squality"
    return [folder / "train.jsonl.gz", folder / "validation.jsonl.gz"]


def stories(shared: Path) -> Iterator[tuple[str, str]]:
    for document in read_documents(_stories(shared)):
        yield document.id, document.text


def books_that_are_novels(shared: Path) -> Iterator[tuple[str, str]]:
    for name, text in novels(shared, ("train", "validation")):
        if name in NOVELS:
            yield name, text


def other_books(packages: Path) -> Iterator[tuple[str, str]]:
    for name, verses in _BIBLE.items():
        command = [f"{packages}/usr/bin/bible", "-p", f"{packages}/usr/lib", "-l80", verses]
        yield name, subprocess.check_output(command, text=True)

    root = packages / "usr/share/doc"
    for name, path in _TEXTS.items():
        yield name, gzip.decompress((root / path).read_bytes()).decode()
    for name, pattern in _PAGES.items():
        pages = [read_documents(path) for path in sorted(root.glob(pattern))]
        yield name, "\n\n".join(document.text for page in pages for document in page)


def books(packages: Path, shared: Path) -> Iterator[tuple[str, str]]:
    yield from books_that_are_novels(shared)
    yield from other_books(packages)


def read_kind(kind: str, *, packages: Path, shared: Path) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each document of a kind."""
    readers: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
        "python-manual": python_manual,
        "git-manual": partial(git_manual, packages),
        "gnome-help": partial(gnome_help, packages),
        "gnucash-manual": partial(gnucash_manual, packages),
        "news": partial(news, shared),
        "novels": partial(novels, shared),
        "books": partial(books, packages, shared),
        "stories": partial(stories, shared),
    }
    return readers[kind]()


def one_line(text: str) -> str:
    """Puts one space in place of all white space, as in the quotations."""
    return " ".join(text.split())


def check_quotations(questions: Iterable[Question], documents: Iterable[tuple[str, str]]) -> int:
    """Returns the number of documents, each of which holds its quotations exactly once.

    Raises:
        ValueError: for a quotation that its document does not hold, or holds several times, or that
            a document holds which is no answer.
    """
    texts = {name: one_line(text) for name, text in documents}
    for question in questions:
        names = {answer.document for answer in question.answers}
        for answer in question.answers:
            count = texts.get(answer.document, "").count(answer.quotation)
            others = [name for name in texts.keys() - names if answer.quotation in texts[name]]
            if count != 1 or others:
                raise ValueError(
                    f"{question.id}: {answer.document} (of {len(texts):,} documents) should hold"
                    f" {answer.quotation!r} once and holds it {count} times; further documents with"
                    f" it: {sorted(others)}. Install the version that the module's docstring names."
                )
    return len(texts)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, help="folder with the unpacked Debian packages")
    parser.add_argument("--shared", type=Path, help="folder with data/bbc_news, data/novels")
    args = parser.parse_args()
    kinds = ["python-manual"]
    if args.packages is not None:
        kinds += ["git-manual", "gnome-help", "gnucash-manual"]
    if args.shared is not None:
        kinds += ["news", "novels"]
    if args.packages is not None and args.shared is not None:
        kinds.append("books")
    for kind in kinds:
        documents = read_kind(kind, packages=args.packages, shared=args.shared)
        questions = [question for question in load_questions() if question.kind == kind]
        count = check_quotations(questions, documents)
        print(f"{kind}: {len(questions)} questions, {count:,} documents")


if __name__ == "__main__":
    main()
