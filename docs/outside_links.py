"""For mkdocs: links of a page to files outside docs/ become their paths, because the site lacks
those files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_page_markdown(markdown: str, /, *, page: Any, **kwargs: object) -> str:
    """`[card](../model_cards/x/README.md)` → ``card (`model_cards/x/README.md` in the
    repository)``."""
    folder = (DOCS / page.file.src_uri).parent

    def without_link(link: re.Match[str]) -> str:
        target = link["target"]
        path = (folder / target).resolve()
        if "://" in target or path.is_relative_to(DOCS) or not path.exists():
            return link[0]
        return f"{link['text']} (`{path.relative_to(DOCS.parent)}` in the repository)"

    return _LINK.sub(without_link, markdown)
