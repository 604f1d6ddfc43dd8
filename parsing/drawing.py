"""Pictures of trees as SVG, with or without their gold trees. All sizes are in pixels."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from stack_lm.core.markup import escape

from .trees import LABEL, ConstituencyTree

TEXT_SIZE, LABEL_SIZE = 13.0, 11.0  # as in trees.css
_MARGIN = 24.0
_GAP, _LINE = 14.0, 18.0
# The more levels, the smaller their height, down to the room for a label, or only for lines.
_LEVEL, _LABELLED, _BARE, _TALL = 26.0, 14.0, 8.0, 520.0
_WIDEST = 1400.0
_DASH = 28.0

# Widths in DejaVu Sans, which is wider than most other fonts: fractions of the text's size.
_NARROW, _BROAD = frozenset("iljtfrI.,;:'!|()[]/\\ `"), frozenset("mwMWOQ@%—…")


class Picture(NamedTuple):
    """SVG elements, and the size of the area that they need, which begins at the origin."""

    elements: str
    width: float
    height: float

    def moved(self, right: float, down: float) -> Picture:
        """The same picture, moved; its area still begins at the origin."""
        moved = f'<g transform="translate({right:g} {down:g})">{self.elements}</g>'
        return Picture(moved, self.width + right, self.height + down)

    def joined(self, other: Picture) -> Picture:
        """Two pictures in one."""
        width, height = max(self.width, other.width), max(self.height, other.height)
        return Picture(f"{self.elements}\n{other.elements}", width, height)


class PlacedPhrase(NamedTuple):
    """A phrase in a drawing.

    Attributes:
        middle: its position along the words: halfway between its first child and its last.
        level: its height above the words, which are at 0: one more than that of its highest child.
        children: the position and the level of each child.
    """

    middle: float
    level: int
    children: list[tuple[float, int]]


def place_phrases(tree: ConstituencyTree, positions: Sequence[float]) -> list[PlacedPhrase]:
    """Lay a tree out above its words.

    Args:
        tree: a tree of n words.
        positions: the positions of the words along a line [n], in any unit.

    Returns:
        A place for each phrase, in the order of `tree.spans`.
    """
    placed: dict[int, PlacedPhrase] = {}
    for number, children in reversed(list(enumerate(tree.children()))):  # from the inside out
        places = [
            (float(positions[child.start]), 0) if child.phrase is None else placed[child.phrase][:2]
            for child in children
        ]
        level = 1 + max(level for _, level in places)
        placed[number] = PlacedPhrase((places[0][0] + places[-1][0]) / 2, level, places)
    return [placed[number] for number in range(len(tree.spans))]


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
    predicted, correct = tree.wide_spans, gold.wide_spans
    whole = {(0, len(tree.words))}
    hits = len(predicted & correct - whole)
    score = f"{hits} of {len(predicted - whole)} predicted spans are right"
    left = _draw(tree, correct, f"{title}: {score}" if title else score)
    right = _draw(gold, predicted, f"gold: {hits} of {len(correct - whole)} spans are found")
    if left.width + right.width + 2 * _MARGIN <= _WIDEST:
        return left.joined(right.moved(left.width + 2 * _MARGIN, 0))
    return left.joined(right.moved(0, left.height + _MARGIN))


def draw_trees(trees: Sequence[ConstituencyTree | None], gold: Sequence[ConstituencyTree] | None = None) -> str:
    """Trees as one SVG picture, one sentence under the other (Merrill et al. 2019, figure 5).

    With gold trees, a predicted span that the gold tree has is a solid blue line, and any other a dashed orange one. In
    the gold tree, beside it or below if that is too wide, the dashed spans are those not found. Labels are not
    compared. The title of a tree is its origin, or its number among several.

    Args:
        trees: None, for a sentence without a tree, is left out.
        gold: the gold trees of the same words, and the same number.
    """
    pictures = [] if gold is None else [_draw_legend()]
    for i, tree in enumerate(trees):
        if tree is not None:
            other = None if gold is None else gold[i]
            number = str(i + 1) if len(trees) > 1 or other is not None else ""
            pictures.append(draw_tree(tree, other, (other or tree).origin or number))
    tops = np.cumsum([0, *(picture.height + _MARGIN for picture in pictures)]).tolist()
    elements = "\n".join(picture.moved(0, top).elements for picture, top in zip(pictures, tops, strict=False))
    width = max((picture.width for picture in pictures), default=0.0)
    return to_svg(Picture(elements, width, max(0.0, tops[-1] - _MARGIN)))


def _draw_legend() -> Picture:
    y, second = _LINE - 4, 140.0
    elements = [
        f'<path class="right" d="M0 {y - 4:g}h{_DASH:g}"/><path class="wrong" d="M{second:g} {y - 4:g}h{_DASH:g}"/>',
        _text("legend plain", _DASH + 8, y, "in both trees"),
        _text("legend plain", second + _DASH + 8, y, "in this tree only; the whole sentence is not counted"),
    ]
    return Picture("".join(elements), 540.0, _LINE)


def to_svg(picture: Picture, *, styled: bool = True, label: str = "") -> str:
    """A picture as SVG, with a margin, for a file or inside a page.

    Args:
        picture: the picture to show.
        styled: include the styles; a page of `html_page` has them.
        label: a description, for people who do not see the picture.
    """
    shown = picture.moved(_MARGIN, _MARGIN)
    width, height = shown.width + _MARGIN, shown.height + _MARGIN
    named = f' aria-label="{escape(label)}"' if label else ""
    style = f"<style>{read_asset('trees.css')}</style>\n" if styled else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="trees" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img"{named}>\n{style}'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{shown.elements}\n</svg>\n'
    )


def read_asset(name: str) -> str:
    """The text of a file beside this module."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def _text(classes: str, x: float, y: float, text: str) -> str:
    """A text on the baseline y: a word centred at x; a title, a legend or a label from x on."""
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


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
    width = max(float(edges[-1]), 1.1 * text_width(title))
    lines, texts = [], [_text("title plain", 0.0, _LINE - 4, title)] if title else []
    for (start, stop, label), phrase in zip(tree.spans, phrases, strict=True):
        kind = "plain" if other is None or stop - start < 2 else "right" if (start, stop) in other else "wrong"
        y = bottom - _LINE - phrase.level * pitch
        # Elbows, because straight lines would cross other phrases.
        line = f"M{phrase.children[0][0]:.1f} {y:.1f}H{phrase.children[-1][0]:.1f}"
        line += "".join(f"M{x:.1f} {y:.1f}V{bottom - _LINE - level * pitch:.1f}" for x, level in phrase.children)
        lines.append(f'<path class="{kind}" d="{line}"/>')
        if label != LABEL:
            texts.append(_text(f"label {kind}", phrase.middle + 4, y - 4, label))
            width = max(width, phrase.middle + 4 + text_width(label, LABEL_SIZE))
    texts += [_text("plain", center, bottom, word) for center, word in zip(centers, tree.words, strict=True)]
    return Picture("\n".join([*lines, *texts]), width, bottom + _LINE / 2)
