"""Draws docs/comparison.svg: speed and quality of the methods that README.md compares.

    python docs/comparison_chart.py

The numbers are those of the table in README.md, in its section "How it compares": its second and
third column, which all methods have. Methods without a measured speed are left out.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
CHART = ROOT / "docs" / "comparison.svg"
# Label of a method, and where it stands beside the point: text-anchor, and pixels to the right and
# down.
LABELS = {
    "nextlevelbert-static": ("nextlevelbert-static", "end", -12, 5),
    "mean of MiniLM's chunk vectors (sentence-transformers)": (
        "MiniLM, mean of chunks",
        "start",
        12,
        5,
    ),
    "mean of static token vectors, by chunk (a model2vec table)": (
        "model2vec table",
        "end",
        -12,
        5,
    ),
    "TF-IDF": ("TF-IDF", "end", -12, 5),
    "BM25": ("BM25", "start", 12, 5),
}
PANELS = ("six chapters of each book, MAP", "story for an answer, MRR")
SPEEDS = (0.01, 0.1, 1, 10)  # ticks
SCORES = (0.4, 0.6, 0.8, 1.0)
LOWEST_SPEED = 0.002
HIGHEST_SPEED = 20.0
LOWEST_SCORE = 0.4
WIDTH = 390  # of a panel, in pixels
HEIGHT = 280
TOP = 46
LEFT = (60, 560)
STYLE = """\
  text { font: 15px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
  .small { font-size: 13px; fill: #57606a }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .main { font-weight: 600 }
  path { stroke: #d0d7de; stroke-width: 1; fill: none }
  circle { fill: #57606a } circle.main { fill: #ea580c }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9aa4ae }
    path { stroke: #3d444d } circle { fill: #9aa4ae } circle.main { fill: #fb923c }
  }"""


class Method(NamedTuple):
    """A row of the table: its name, its score in each panel, and its speed."""

    name: str
    scores: tuple[float, float]
    speed: float


def read_methods(page: str) -> list[Method]:
    """Reads the methods with a speed from the table of README.md.

    Raises:
        ValueError: if the section has no table.
    """
    section = page.partition("## How it compares\n")[2]
    table = re.search(r"\| --- .*\n((?:\|.*\n)+)", section)
    if table is None:
        raise ValueError("README.md has no table in its section 'How it compares'.")
    methods = []
    for line in table[1].splitlines():
        name, *cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        speed = cells[-1]
        if name in LABELS:
            scores = (float(cells[1]), float(cells[2]))
            methods.append(Method(name, scores, speed=float(Fraction(speed))))
    return methods


def x_of(speed: float) -> float:
    """Returns the distance of a speed from the left of a panel, on a logarithmic scale."""
    decades = math.log10(HIGHEST_SPEED / LOWEST_SPEED)
    return WIDTH * math.log10(speed / LOWEST_SPEED) / decades


def y_of(score: float) -> float:
    """Returns the distance of a score from the top of a panel."""
    return HEIGHT * (1 - (score - LOWEST_SCORE) / (1 - LOWEST_SCORE))


def draw_panel(panel: int, methods: list[Method]) -> list[str]:
    """Returns the elements of a panel: its grid, and a point and a label for each method."""
    lines = [f'<text x="0" y="-24">{PANELS[panel]}</text>']
    for score in SCORES:
        y = y_of(score)
        lines.append(f'<path d="M0 {y:.0f}H{WIDTH}"/>')
        lines.append(f'<text class="small end" x="-8" y="{y + 5:.0f}">{score:.1f}</text>')
    for speed in SPEEDS:
        x = x_of(speed)
        lines.append(f'<path d="M{x:.0f} 0V{HEIGHT}"/>')
        lines.append(f'<text class="small middle" x="{x:.0f}" y="{HEIGHT + 20}">{speed:g}</text>')
    lines.append(
        f'<text class="small middle" x="{WIDTH / 2:.0f}" y="{HEIGHT + 42}">'
        "tokens per processor second, tokenizer alone = 1</text>"
    )
    for method in methods:
        label, anchor, right, down = LABELS[method.name]
        x = x_of(method.speed)
        y = y_of(method.scores[panel])
        emphasis = ""
        if label.startswith("nextlevelbert"):
            emphasis = " main"
        lines.append(f'<circle class="{emphasis.strip()}" cx="{x:.0f}" cy="{y:.0f}" r="6"/>')
        lines.append(
            f'<text class="{anchor}{emphasis}" x="{x + right:.0f}" y="{y + down:.0f}">'
            f"{escape(label)} {method.scores[panel]:.3f}</text>"
        )
    return lines


def draw(page: str) -> str:
    """Draws the chart of the numbers in README.md, as SVG for light and for dark pages."""
    methods = read_methods(page)
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 384" role="img"'
        ' aria-labelledby="title">',
        '<title id="title">Speed and quality of five methods: similar chapters on the left, short'
        " questions on the right</title>",
        f"<style>\n{STYLE}\n</style>",
    ]
    for panel, left in enumerate(LEFT):
        lines.append(f'<g transform="translate({left} {TOP})">')
        lines += draw_panel(panel, methods)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>\n"])


if __name__ == "__main__":
    CHART.write_text(draw((ROOT / "README.md").read_text(encoding="utf-8")), encoding="utf-8")
