"""Pictures of trees, with or without their gold trees: lines and texts in pixels, and the same as SVG."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from stack_lm.markup import escape

from .layout import place_phrases
from .trees import LABEL, ConstituencyTree

# In pixels, like all sizes here.
TEXT_SIZE, LABEL_SIZE = 13.0, 11.0
MARGIN = 24.0
_GAP, _LINE = 14.0, 18.0
# The more levels, the smaller their height, down to the room for a label, or only for lines.
_LEVEL, _LABELLED, _BARE, _TALL = 26.0, 14.0, 8.0, 520.0
_WIDEST = 1400.0
_DASH = 28.0

# Distinguished by colour (Okabe and Ito) and by dashes, so also in grey.
COLORS = {"right": "#0072B2", "wrong": "#D55E00", "plain": "#555555"}
TEXT_COLORS = {"right": "#0072B2", "wrong": "#B34A00", "plain": "#1a1a1a"}
# Every rule names the picture's class: in a page, the styles of an inline SVG apply to the whole page.
STYLE = (
    f'.trees text{{font:{TEXT_SIZE:g}px system-ui,-apple-system,"Segoe UI",sans-serif;fill:{TEXT_COLORS["plain"]};'
    "text-anchor:middle}.trees .title{font-weight:600;text-anchor:start}.trees .legend{text-anchor:start}"
    f".trees .label{{font-size:{LABEL_SIZE:g}px;text-anchor:start;paint-order:stroke;stroke:#fff;stroke-width:4px}}"
    ".trees path{fill:none;stroke-width:1.8}"
    + "".join(f".trees path.{kind}{{stroke:{color}}}" for kind, color in COLORS.items())
    + "".join(f".trees text.{kind}{{fill:{color}}}" for kind, color in TEXT_COLORS.items())
    + ".trees path.wrong{stroke-dasharray:5 3}"
)

# Widths in DejaVu Sans, which is wider than most other fonts: fractions of the text's size.
_NARROW, _BROAD = frozenset("iljtfrI.,;:'!|()[]/\\ `"), frozenset("mwMWOQ@%—…")


class Line(NamedTuple):
    """Strokes (x1, y1, x2, y2), each horizontal or vertical, of one kind: plain, right or wrong."""

    kind: str
    strokes: tuple[tuple[float, float, float, float], ...]


class Text(NamedTuple):
    """A text on the baseline y: a word centred at x, or from x on a title, a legend, or the label of a phrase."""

    role: str
    kind: str
    x: float
    y: float
    text: str


class Picture(NamedTuple):
    """Lines, texts above them, and the picture's size."""

    lines: tuple[Line, ...]
    texts: tuple[Text, ...]
    width: float
    height: float

    def moved(self, right: float, down: float) -> Picture:
        """The same picture, moved; its area still begins at the origin."""
        lines = tuple(
            Line(kind, tuple((a + right, b + down, c + right, d + down) for a, b, c, d in strokes))
            for kind, strokes in self.lines
        )
        texts = tuple(text._replace(x=text.x + right, y=text.y + down) for text in self.texts)
        return Picture(lines, texts, self.width + right, self.height + down)

    def joined(self, other: Picture) -> Picture:
        """Two pictures in one."""
        width, height = max(self.width, other.width), max(self.height, other.height)
        return Picture(self.lines + other.lines, self.texts + other.texts, width, height)


def text_width(text: str, size: float = TEXT_SIZE) -> float:
    """The approximate width of a text in a common sans-serif font, in pixels."""
    return size * sum(map(_em, text))


def _em(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if character in _BROAD or unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.38 if character in _NARROW else 0.76 if character.isupper() else 0.63


def draw_tree(tree: ConstituencyTree, gold: ConstituencyTree | None = None, title: str = "") -> Picture:
    """Draw one tree, its words in a row at the bottom; with a gold tree, both, and the spans that they share.

    Args:
        tree: the tree to draw.
        gold: a gold tree of the same words; labels are not compared.
        title: above the picture; with a gold tree the number of right spans follows, the whole sentence not counted.
    """
    if gold is None:
        return _draw(tree, None, title)
    found, wanted = tree.wide_spans, gold.wide_spans
    whole = {(0, len(tree.words))}
    hits = len(found & wanted - whole)
    said = f"{hits} of {len(found - whole)} predicted spans are right"
    left = _draw(tree, wanted, f"{title}: {said}" if title else said)
    right = _draw(gold, found, f"gold: {hits} of {len(wanted - whole)} spans are found")
    if left.width + right.width + 2 * MARGIN <= _WIDEST:
        return left.joined(right.moved(left.width + 2 * MARGIN, 0))
    return left.joined(right.moved(0, left.height + MARGIN))


def draw_each(
    trees: Sequence[ConstituencyTree | None], gold: Sequence[ConstituencyTree] | None = None
) -> Iterator[Picture]:
    """A picture of each tree that is not None; its title is the tree's origin, or its number among several."""
    for i, tree in enumerate(trees):
        if tree is not None:
            other = gold[i] if gold is not None else None
            number = str(i + 1) if len(trees) > 1 or other is not None else ""
            yield draw_tree(tree, other, (tree if other is None else other).origin or number)


def draw_trees(trees: Sequence[ConstituencyTree | None], gold: Sequence[ConstituencyTree] | None = None) -> str:
    """Trees as one SVG picture, one sentence under the other (Merrill et al. 2019, figure 5).

    With gold trees, a predicted span that the gold tree has is a solid blue line, and any other a dashed orange one. In
    the gold tree, beside it or below if that is too wide, the dashed spans are those not found. Labels are not
    compared.

    Args:
        trees: None, for a sentence without a tree, is left out.
        gold: the gold trees of the same words, and the same number.
    """
    lines: list[Line] = []
    texts: list[Text] = []
    width = height = 0.0
    for picture in chain([draw_legend()] if gold is not None else [], draw_each(trees, gold)):
        below = picture.moved(0, height + (MARGIN if height else 0))
        lines += below.lines
        texts += below.texts
        width, height = max(width, below.width), below.height
    return to_svg(Picture(tuple(lines), tuple(texts), width, height))


def draw_legend() -> Picture:
    """Draw the legend of a comparison with a gold tree."""
    y, second = _LINE - 4, 140.0
    lines = (Line("right", ((0, y - 4, _DASH, y - 4),)), Line("wrong", ((second, y - 4, second + _DASH, y - 4),)))
    texts = (
        Text("legend", "plain", _DASH + 8, y, "in both trees"),
        Text("legend", "plain", second + _DASH + 8, y, "in this tree only; the whole sentence is not counted"),
    )
    return Picture(lines, texts, 540.0, _LINE)


def to_svg(picture: Picture, *, style: str = STYLE, label: str = "") -> str:
    """A picture as SVG, with a margin, for a file or inside a page.

    Args:
        picture: the picture to show.
        style: its own styles; "" for those of a page.
        label: a description, for people who do not see the picture.
    """
    shown = picture.moved(MARGIN, MARGIN)
    width, height = shown.width + MARGIN, shown.height + MARGIN
    body = [f'<path class="{line.kind}" d="{_path(line)}"/>' for line in shown.lines]
    for text in shown.texts:
        classes = f' class="{text.role} {text.kind}"' if text.role != "word" else ""
        body.append(f'<text{classes} x="{text.x:.1f}" y="{text.y:.1f}">{escape(text.text)}</text>')
    named = f' aria-label="{escape(label)}"' if label else ""
    styled = f"<style>{style}</style>\n" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="trees" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img"{named}>\n{styled}'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _path(line: Line) -> str:
    return "".join(
        f"M{x1:.1f} {y1:.1f}" + (f"H{x2:.1f}" if y1 == y2 else f"V{y2:.1f}") for x1, y1, x2, y2 in line.strokes
    )


def _draw(tree: ConstituencyTree, other: set[tuple[int, int]] | None, title: str) -> Picture:
    """Draw one tree; `other` has the spans that count as right."""
    edges = np.concatenate(([0.0], np.cumsum([text_width(word) + _GAP for word in tree.words])))
    centers = ((edges[:-1] + edges[1:]) / 2).tolist()
    phrases = place_phrases(tree, centers)
    levels = max((phrase.level for phrase in phrases), default=0)
    least = _BARE if all(label == LABEL for _, _, label in tree.spans) else _LABELLED
    pitch = max(least, min(_LEVEL, _TALL / max(1, levels)))
    top = _LINE + 8 if title else 0.0
    # A label is above its phrase's line.
    bottom = top + _LINE + pitch * levels + (_LINE if levels else 0)
    lines, labels = [], []
    for (start, stop, label), phrase in zip(tree.spans, phrases, strict=True):
        kind = "plain" if other is None or stop - start < 2 else "right" if (start, stop) in other else "wrong"
        y = bottom - _LINE - phrase.level * pitch
        # Elbows, because straight lines would cross other phrases.
        strokes = [(phrase.children[0][0], y, phrase.children[-1][0], y)]
        strokes += [(x, y, x, bottom - _LINE - level * pitch) for x, level in phrase.children]
        lines.append(Line(kind, tuple(strokes)))
        if label != LABEL:
            labels.append(Text("label", kind, phrase.middle + 4, y - 4, label))
    words = [Text("word", "plain", center, bottom, word) for center, word in zip(centers, tree.words, strict=True)]
    titles = [Text("title", "plain", 0.0, _LINE - 4, title)] if title else []
    width = max([float(edges[-1]), 1.1 * text_width(title), *(t.x + text_width(t.text, LABEL_SIZE) for t in labels)])
    return Picture(tuple(lines), (*titles, *labels, *words), width, bottom + _LINE / 2)
