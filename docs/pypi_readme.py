"""Writes README.md with absolute links, because PyPI shows the page without the repository.

    python docs/pypi_readme.py

The address is `Repository` in `[project.urls]`; links lead to the tag of the version. The workflow
that publishes the package runs this before it builds.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
# `](path)` of a link or picture, and `src="path"` and `srcset="path"` of a picture in HTML. An
# anchor of the page itself stays.
_TARGET = re.compile(r'(?P<before>\]\(|\bsrc(?:set)?=")(?P<path>(?![a-z]+://|#|mailto:)[^)"\s]+)')
_PICTURES = (".png", ".svg")


def with_absolute_links(text: str, repository: str, version: str) -> str:
    """Returns a page whose links to files lead to a repository.

    Args:
        text: the page, in Markdown.
        repository: address of the repository.
        version: version of the package.
    """

    def lead(match: re.Match[str]) -> str:
        kind = "blob"
        if match["path"].endswith(_PICTURES):
            kind = "raw"
        address = f"{repository.rstrip('/')}/{kind}/v{version}/{match['path']}"
        return f"{match['before']}{address}"

    return _TARGET.sub(lead, text)


def main() -> None:
    """Rewrites README.md."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if "Repository" not in project["urls"]:
        raise SystemExit("Add Repository to [project.urls] in pyproject.toml (RELEASING.md).")
    source = (ROOT / "nextlevelbert" / "__init__.py").read_text(encoding="utf-8")
    [version] = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(with_absolute_links(text, project["urls"]["Repository"], version), "utf-8")


if __name__ == "__main__":
    main()
