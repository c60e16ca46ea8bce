"""The pictures and lists of ``nextlevelbert app`` as HTML. All that comes from documents is escaped."""

from __future__ import annotations

import base64
import html
import io
import json
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.image import imsave

from .app_library import Answer, Library, Part, strip

_WARM, _COLD = (234, 88, 12), (37, 99, 235)  # they stand out from white and from black
_NAME_LENGTH = 26
_CONTEXT = 1200  # characters shown before and after a passage

CSS = """
.nlb h3 { font-size: 1rem; font-weight: 600; margin: 0 0 .4rem }
.nlb p, .nlb li { font-size: .875rem; line-height: 1.45; margin: 0 }
.nlb .faint { font-size: .8rem; font-weight: 400; color: color-mix(in srgb, var(--body-text-color) 68%, transparent) }
.nlb button { all: unset; box-sizing: border-box; cursor: pointer }
.nlb button:focus-visible, .nlb [tabindex]:focus-visible { outline: 2px solid var(--color-accent) }
.nlb .map { position: relative; height: clamp(15rem, 32vw, 25rem); border-radius: 8px;
  border: 1px solid var(--border-color-primary); background: var(--background-fill-secondary); overflow: hidden }
.nlb .field { position: absolute; inset: 1.2rem 1.4rem }
.nlb .point { position: absolute; width: .7rem; height: .7rem; margin: -.35rem; border-radius: 50%;
  background: rgb(37 99 235 / .5) }
.nlb .point:hover { background: rgb(37 99 235); z-index: 3 }
.nlb .point.found { width: 1.3rem; height: 1.3rem; margin: -.65rem; z-index: 2; background: rgb(234 88 12);
  color: white; font-size: .75rem; font-weight: 600; text-align: center; line-height: 1.3rem }
.nlb .point.chosen { box-shadow: 0 0 0 3px var(--body-text-color); z-index: 3 }
.nlb .name { position: absolute; font-size: .7rem; line-height: 1; white-space: nowrap; pointer-events: none;
  color: var(--body-text-color); transform: translate(.8rem, -50%); z-index: 2;
  text-shadow: 0 0 3px var(--background-fill-secondary), 0 0 3px var(--background-fill-secondary) }
.nlb .name.left { transform: translate(calc(-100% - .8rem), -50%) }
@media (max-width: 700px) { .nlb .name { display: none } }
.nlb ol { list-style: none; margin: 0; padding: 0; display: grid; gap: .55rem }
.nlb .row { display: flex; gap: .6rem; align-items: baseline; width: 100% }
.nlb .row b { flex: 1; min-width: 0; font-weight: 500; overflow-wrap: anywhere }
.nlb .row:hover b, .nlb .passage:hover b { text-decoration: underline }
.nlb .pin { flex: none; width: 1.3rem; height: 1.3rem; border-radius: 50%; background: rgb(234 88 12); color: white;
  font-size: .75rem; font-weight: 600; text-align: center; line-height: 1.3rem }
.nlb .number { font-variant-numeric: tabular-nums }
.nlb .picture { display: block; position: relative; cursor: pointer;
  background-color: var(--background-fill-secondary); border: 1px solid var(--border-color-primary);
  background-size: 100% 100%; image-rendering: pixelated }
.nlb .cell { position: absolute; outline: 2px solid var(--body-text-color); pointer-events: none }
.nlb .strip { height: 1.1rem; width: 100%; border-radius: 4px; margin-top: .2rem }
.nlb .strip.tall { height: 2.4rem }
.nlb .heat { width: 100%; aspect-ratio: 1; max-width: 30rem; border-radius: 6px }
.nlb .ends { display: flex; justify-content: space-between }
.nlb .passage { display: block; width: 100%; text-align: left }
.nlb .text { max-height: 24rem; overflow-y: auto; padding: .8rem 1rem; border-radius: 8px; white-space: pre-line;
  border: 1px solid var(--border-color-primary); font: .95rem/1.55 Georgia, serif;
  color: color-mix(in srgb, var(--body-text-color) 62%, transparent);
  overflow-wrap: anywhere; position: relative }
.nlb .text mark { background: rgb(234 88 12 / .14); color: var(--body-text-color); border-radius: 3px }
.nlb .text + h3 { margin-top: .8rem }
.nlb .text:not(:only-of-type) { max-height: 14rem }
.html-container.html-container { padding: 4px 0 }
"""

# A click on what belongs to a document sends that and, from a strip or heat-map, the cell. The mouse tells scores.
JAVASCRIPT = """
const cell = (picture, event, wide, high) => {
  const box = picture.getBoundingClientRect();
  const at = (from, size, count) => Math.max(0, Math.min(count - 1, Math.floor((from / size) * count)));
  return [at(event.clientX - box.left, box.width, wide), at(event.clientY - box.top, box.height, high)];
};
// An outline around the cell whose text is shown.
const outline = (picture, [column, row], wide, high) => {
  const cell = picture.querySelector('.cell') ?? picture.appendChild(document.createElement('i'));
  cell.className = 'cell';
  const place = { left: column / wide, top: row / high, width: 1 / wide, height: 1 / high };
  for (const [side, share] of Object.entries(place)) cell.style[side] = `${100 * share}%`;
};
const values = new WeakMap();
const told = (picture) => {
  if (!values.has(picture)) values.set(picture, JSON.parse(picture.dataset.values));
  return values.get(picture);
};
element.addEventListener('click', (event) => {
  const target = event.target.closest('[data-document]');
  if (!target) return;
  for (const before of document.querySelectorAll('.nlb .cell')) before.remove();
  const sent = { document: Number(target.dataset.document) };
  if ('chunk' in target.dataset) sent.chunk = Number(target.dataset.chunk);
  if (target.classList.contains('strip')) {
    const { chunks, scores } = told(target);
    const best = scores.indexOf(Math.max(...scores));  // by the keyboard there is no place
    const column = event.detail === 0 ? best : cell(target, event, chunks.length, 1)[0];
    sent.chunk = chunks[column];
    outline(target, [column, 0], chunks.length, 1);
  }
  if (target.classList.contains('heat')) {
    const { headings } = told(target);
    sent.parts = cell(target, event, headings.length, headings.length);
    outline(target, sent.parts, headings.length, headings.length);
    sent.parts.reverse();  // row, column
  }
  trigger('click', sent);
});
element.addEventListener('mousemove', (event) => {
  const target = event.target.closest('.picture');
  if (!target) return;
  const { headings, scores } = told(target);
  if (!headings) {
    target.title = scores[cell(target, event, scores.length, 1)[0]].toFixed(2);
    return;
  }
  const [column, row] = cell(target, event, headings.length, headings.length);
  target.title = `${headings[row]} · ${headings[column]}: ${(scores[row][column] / 100).toFixed(2)}`;
});
"""
# Where the text cannot be seen, as on a phone, the page is moved to it.
SCROLL = """
watch('value', () => {
  for (const mark of element.querySelectorAll('mark')) mark.closest('.text').scrollTop = mark.offsetTop - 60;
  const { top, bottom } = element.getBoundingClientRect();
  if (element.querySelector('[data-clicked]') && (bottom < 150 || top > window.innerHeight - 150))
    element.scrollIntoView({ behavior: 'smooth' });
});
"""


def map_html(library: Library, chosen: int, found: Sequence[int]) -> str:
    """Every document as a point; those of an answer have their rank, the chosen one a ring."""
    points, share = library.map()
    spots = [f"left:{100 * x:.2f}%;top:{100 * (1 - y):.2f}%" for x, y in points]
    names = _names(points, library.places, [chosen, *found])
    drawn = []
    for number, place in enumerate(library.places):
        rank = found.index(number) + 1 if number in found else ""
        kind = "point" + " found" * bool(rank) + " chosen" * (number == chosen)
        title = html.escape(place, quote=True)
        drawn.append(
            f'<button class="{kind}" style="{spots[number]}" data-document="{number}" title="{title}" '
            f'aria-label="{title}">{rank}</button>'
        )
        if number in names:
            side = "" if names[number] else " left"
            drawn.append(f'<span class="name{side}" style="{spots[number]}">{_short(place)}</span>')
    return _section(
        f"Map of {len(points):,} documents",
        f'<div class="map"><div class="field">{"".join(drawn)}</div></div>',
        f"near each other: alike, as far as two components can show ({share:.0%} of the variance)",
    )


def _names(points: np.ndarray, places: Sequence[str], first: Sequence[int]) -> dict[int, bool]:
    """Which points have room for their name, and whether it stands to the right; on a map of 560 by 340 pixels.

    Only the `first` ones may cover other points.
    """
    centres = (points * (560, 340)).tolist()
    dots = [(x - 8, x + 8, y - 8, y + 8) for x, y in centres]
    taken = [dots[number] for number in first]
    names: dict[int, bool] = {}
    for rank, number in enumerate(dict.fromkeys([*first, *range(len(places))])):
        if rank == len(set(first)):
            taken += dots
        (x, y), width = centres[number], 6.2 * min(len(places[number]), _NAME_LENGTH)
        for right in (True, False):
            low, high = (x + 12, x + 12 + width) if right else (x - 12 - width, x - 12)
            free = all(high < box[0] or box[1] < low or y + 7 < box[2] or box[3] < y - 7 for box in taken)
            if free and low > -20 and high < 580:
                names[number] = right
                taken.append((low, high, y - 7, y + 7))
                break
    return names


def documents_html(library: Library, ranked: Sequence[tuple[int, float]], answer: Answer | None) -> str:
    """The nearest documents, for a question with a strip each."""
    rows = []
    for rank, (number, score) in enumerate(ranked, start=1):
        picture = strip_html(library, number, answer) if answer else ""
        rows.append(
            f'<li><button class="row" data-document="{number}"><span class="pin">{rank}</span>'
            f'<b>{html.escape(library.places[number])}</b><span class="faint number">{score:.3f}</span></button>'
            f"{picture}</li>"
        )
    if not ranked:  # one document
        return ""
    if not answer:
        return _section("Most similar documents", f"<ol>{''.join(rows)}</ol>", "cosine of document vectors")
    return _section(
        "Nearest documents",
        f"<ol>{''.join(rows)}</ol>",
        "each from beginning to end; colour: nearness to the question",
    )


def passages_html(library: Library, answer: Answer | None) -> str:
    """The nearest passages, each with its beginning."""
    if answer is None:
        return ""
    rows = []
    for number, chunk, score in answer.passages:
        document = library.document(number)
        start, end = document.spans[chunk].tolist()
        words = textwrap.shorten(document.text[start:end], 220, placeholder=" …")
        rows.append(
            f'<li><button class="passage" data-document="{number}" data-chunk="{chunk}"><p class="row">'
            f'<b>{html.escape(document.place)}</b><span class="faint number">at {start / len(document.text):.0%} · '
            f'{score:.3f}</span></p><p class="faint">… {html.escape(words)}</p></button></li>'
        )
    return _section("Nearest passages", f"<ol>{''.join(rows)}</ol>")


def strip_html(library: Library, number: int, answer: Answer, tall: bool = False) -> str:
    """A document from left to right, the scores of its chunks as colour."""
    scores, chunks = strip(answer.scores[library.chunks(number)])
    low, high = _range(answer.scores)
    shares = np.clip((scores - low) / max(high - low, 1e-6), 0, 1)
    told = {"chunks": chunks.tolist(), "scores": [round(score, 3) for score in scores.tolist()]}
    return _picture("strip tall" if tall else "strip", shares[None] ** 1.5, number, told, "the question along it")


def document_html(library: Library, number: int, answer: Answer | None) -> str:
    """The strip of the chosen document, with what its colours mean."""
    size = f"{library.characters[number]:,} characters in {np.diff(library.first)[number]:,} chunks"
    if answer is None:
        return f'<p class="nlb faint">{size}</p>'
    low, high = _range(answer.scores)
    ends = f'<p class="ends faint"><span>beginning</span><span>{size}</span><span>end</span></p>'
    note = f"colour: score from {low:.2f}, the mean of all passages, to {high:.2f}, the highest"
    return _section("Along the document", strip_html(library, number, answer, tall=True) + ends, note)


def heat_html(library: Library, number: int) -> str:
    """The parts of a document against each other."""
    parts, cosines = library.parts(number)
    if len(parts) < 2:
        return _section("Parts", '<p class="faint">The document is too short for parts.</p>')
    limit = max(float(np.abs(cosines[~np.eye(len(parts), dtype=bool)]).max()), 1e-6)
    told = {"headings": [part.heading for part in parts], "scores": (100 * cosines).round().astype(int).tolist()}
    picture = _picture("heat", cosines / limit, number, told, "which parts are alike")
    note = f"{len(parts)} parts from top and left; orange: alike (full colour: {limit:.2f}), blue: unlike"
    return _section("Which parts are alike", picture, note)


def text_html(library: Library, number: int, chunks: Sequence[int], parts: Sequence[Part] = (), clicked=False) -> str:
    """The text of chunks of one document, each with what stands around it."""
    document = library.document(number)
    shown = []
    for each, chunk in enumerate(chunks):
        start, end = document.spans[chunk].tolist()
        where = f"at {start / len(document.text):.0%} · characters {start:,} to {end:,}"
        heading = f"{_long(parts[each].heading)} · " if parts else ""
        before = document.text[max(0, start - _CONTEXT) : start]
        pieces = [
            html.escape(text) for text in (before, document.text[start:end], document.text[end : end + _CONTEXT])
        ]
        shown.append(
            f'<h3>Text <span class="faint">{heading}{where}</span></h3>'
            f'<div class="text" tabindex="0">{pieces[0]}<mark>{pieces[1]}</mark>{pieces[2]}</div>'
        )
    return f'<div class="nlb"{" data-clicked" if clicked else ""}>{"".join(shown)}</div>'


def _range(scores: np.ndarray) -> tuple[float, float]:
    return max(float(scores.mean()), 0.0), float(scores.max())


def _picture(kind: str, shares: np.ndarray, number: int, told: dict[str, object], label: str) -> str:
    """Shares ``[rows, columns]`` from -1 to 1 as the opacity of cold and warm colour."""
    pixels = np.empty((*shares.shape, 4), dtype=np.uint8)  # [rows, columns, RGBA]
    pixels[..., :3] = np.where(shares[..., None] < 0, _COLD, _WARM)
    pixels[..., 3] = (255 * np.clip(np.abs(shares), 0, 1)).round()
    imsave(file := io.BytesIO(), pixels, format="png")
    data = base64.b64encode(file.getvalue()).decode()
    values = html.escape(json.dumps(told, ensure_ascii=False, separators=(",", ":")), quote=True)
    return (
        f'<button class="picture {kind}" data-document="{number}" data-values="{values}" aria-label="{label}" '
        f'style="background-image:url(data:image/png;base64,{data})"></button>'
    )


def _section(title: str, body: str, note: str = "") -> str:
    """`title` and `body` are HTML."""
    note = f' <span class="faint">{note}</span>' if note else ""
    return f'<section class="nlb"><h3>{title}{note}</h3>{body}</section>'


def _long(text: str) -> str:
    return html.escape(text if len(text) <= 90 else text[:89] + "…")


def _short(text: str) -> str:
    return html.escape(text if len(text) <= _NAME_LENGTH else text[: _NAME_LENGTH - 1] + "…")
