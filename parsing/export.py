"""Trees out: brackets, JSON lines, LaTeX (forest), and pictures (SVG) beside the gold trees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stack_lm.atomic import atomic_file
from stack_lm.errors import InputError

from .layout import place_phrases
from .trees import ConstituencyTree

ENDINGS = (".mrg", ".tree", ".ptb", ".txt", "", ".jsonl", ".tex", ".svg")
"""Endings of the names of files with trees; those up to "", no ending, are for brackets."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "#$%&_{}"},
}


def write_trees(
    path: str,
    trees: Sequence[ConstituencyTree | None],
    *,
    distances: Sequence[np.ndarray | None] | None = None,
    gold: Sequence[ConstituencyTree] | None = None,
) -> None:
    """Write trees to a file, as its ending says: .jsonl, .tex (forest), .svg, or brackets, one tree a line.

    Args:
        path: of the file; its name has one of the `ENDINGS`.
        trees: over all words of a sentence, or over those that count. None is an empty sentence: an empty line among
            brackets, an empty record among JSON lines, and no tree elsewhere.
        distances: that they were made of; for JSON lines.
        gold: of the same words; for JSON lines and SVG.

    Raises:
        InputError: if the file cannot be written, or its name has another ending.
    """
    ending = Path(path).suffix.lower()
    there = [tree for tree in trees if tree is not None]
    if ending not in ENDINGS:
        raise InputError(f"trees are written to {', '.join(filter(None, ENDINGS))}; got {path!r}")
    if ending == ".jsonl":
        records = []
        for i, tree in enumerate(trees):
            record = tree_record(tree, distances[i] if distances is not None else None)
            records.append(record | ({"gold": gold[i].brackets()} if gold is not None else {}))
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    elif ending == ".tex":
        text = forest_document(there)
    elif ending == ".svg":
        text = draw_trees(there, gold)
    else:
        text = "".join(("" if tree is None else tree.brackets()) + "\n" for tree in trees)
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def tree_record(tree: ConstituencyTree | None, distances: np.ndarray | None = None) -> dict[str, Any]:
    """A tree for JSON: its words, brackets and spans [start, stop, label], and the distances it was made of.

    `read_treebank` reads lines of such records. Of an empty sentence, whose tree is None, all are empty.
    """
    if tree is None:
        return {"words": [], "brackets": "", "spans": []}
    record: dict[str, Any] = {
        "words": list(tree.words),
        "brackets": tree.brackets(),
        "spans": list(map(list, tree.spans)),
    }
    if distances is not None:
        record["distances"] = np.asarray(distances).tolist()
    return record


def to_forest(tree: ConstituencyTree) -> str:
    """The tree for LaTeX's package forest: `\\begin{forest} [{S} ...] \\end{forest}`."""
    pieces = []
    for word, leaf in zip(tree.words, tree.leaves(), strict=True):
        opening = "".join(f"[{{{escape_latex(label)}}} " for _, _, label in leaf.opening)
        shown = f"[{{{escape_latex(word)}}}]"
        if leaf.tag is not None:
            shown = f"[{{{escape_latex(leaf.tag)}}} {shown}]"
        pieces.append(opening + shown + "]" * leaf.n_closing)
    return "\\begin{forest}\n  " + " ".join(pieces) + "\n\\end{forest}\n"


def forest_document(trees: Sequence[ConstituencyTree]) -> str:
    """A LaTeX document of trees, ready for pdflatex."""
    body = "\n\\bigskip\n\n".join(f"\\noindent\n{to_forest(tree)}" for tree in trees)
    return (
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
        "\\usepackage[landscape,margin=1cm]{geometry}\n\\usepackage[linguistics]{forest}\n"
        f"\\begin{{document}}\n\n{body}\n\\end{{document}}\n"
    )


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


# --- pictures

_CHARACTER, _GAP, _LEVEL, _LINE = 7.6, 14.0, 26.0, 18.0
_MARGIN, _WIDEST = 24.0, 1400.0
# Told apart by colour (Okabe and Ito) and by dashes, so in grey as well.
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1a1a1a; text-anchor: middle }
  .title { font-weight: 600; text-anchor: start } .legend { text-anchor: start }
  .label { font-size: 11px; text-anchor: start; paint-order: stroke; stroke: #fff; stroke-width: 4px }
  path { fill: none; stroke-width: 1.8 }
  .right { stroke: #0072B2 } .wrong { stroke: #D55E00; stroke-dasharray: 5 3 } .plain { stroke: #555 }
  text.right, text.wrong, text.plain { stroke: #fff } text.right { fill: #0072B2 } text.wrong { fill: #B34A00 }
"""


class _Picture(NamedTuple):
    """SVG elements, and the room that they take."""

    elements: list[str]
    width: float
    height: float


def draw_trees(trees: Sequence[ConstituencyTree], gold: Sequence[ConstituencyTree] | None = None) -> str:
    """Trees as one SVG picture, one sentence under the other (Merrill et al. 2019, figure 5).

    With gold trees, a predicted span that the gold tree has is a solid blue line and one that it has not a dashed
    orange one; in the gold tree, beside it or below if that is too wide, the dashed ones are those not found. Labels
    are not compared.

    Args:
        trees: one or more.
        gold: of the same words, as many.
    """
    blocks = []
    for number, tree in enumerate(trees):
        name = tree.origin if gold is None else gold[number].origin
        if gold is None:
            blocks.append(_draw(tree, None, name or f"{number + 1}"))
            continue
        found, wanted = _phrases(tree), _phrases(gold[number])
        hits = len(found & wanted)
        title = f"{name or number + 1}: {hits} of {len(found)} predicted spans are right"
        other = f"gold: {hits} of {len(wanted)} spans are found"
        blocks.append(_beside(_draw(tree, wanted, title), _draw(gold[number], found, other)))
    height = _MARGIN
    width = max(block.width for block in blocks) + 2 * _MARGIN
    body = []
    if gold is not None:
        body.append(
            f'<path class="right" d="M{_MARGIN} {height}h28"/><text class="legend" x="{_MARGIN + 36}" y="{height + 4}">'
            f'in both trees</text><path class="wrong" d="M{_MARGIN + 140} {height}h28"/>'
            f'<text class="legend" x="{_MARGIN + 176}" y="{height + 4}">in this tree only</text>'
        )
        width = max(width, 2 * _MARGIN + 300)
        height += _MARGIN
    for block in blocks:
        body.append(f'<g transform="translate({_MARGIN} {height:.0f})">{"".join(block.elements)}</g>')
        height += block.height + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img">\n<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _phrases(tree: ConstituencyTree) -> set[tuple[int, int]]:
    return {(start, stop) for start, stop, _ in tree.spans if stop - start > 1}


def _beside(left: _Picture, right: _Picture) -> _Picture:
    """Two pictures beside each other, or, if that is too wide, below each other."""
    if left.width + right.width + 2 * _MARGIN <= _WIDEST:
        moved = f'<g transform="translate({left.width + 2 * _MARGIN:.0f} 0)">{"".join(right.elements)}</g>'
        width, height = left.width + 2 * _MARGIN + right.width, max(left.height, right.height)
    else:
        moved = f'<g transform="translate(0 {left.height + _MARGIN:.0f})">{"".join(right.elements)}</g>'
        width, height = max(left.width, right.width), left.height + _MARGIN + right.height
    return _Picture([*left.elements, moved], width, height)


def _draw(tree: ConstituencyTree, other: set[tuple[int, int]] | None, title: str) -> _Picture:
    """One tree, its words in a row at the bottom; `other` has the spans that count as right."""
    widths = [len(word) * _CHARACTER + _GAP for word in tree.words]
    edges = np.concatenate(([0.0], np.cumsum(widths)))
    centers = (edges[:-1] + edges[1:]) / 2
    phrases = place_phrases(tree, centers.tolist())
    top = 2 * _LINE
    bottom = top + _LEVEL * max((phrase.level for phrase in phrases), default=0) + _LINE
    elements = [f'<text class="title" x="0" y="{_LINE - 4}">{escape(title)}</text>']
    labels = []
    for (start, stop, label), phrase in zip(tree.spans, phrases, strict=True):
        kind = "plain" if other is None or stop - start < 2 else "right" if (start, stop) in other else "wrong"
        height = bottom - _LINE - phrase.level * _LEVEL
        # Elbows, as straight lines would cross other phrases.
        lines = [f"M{phrase.children[0][0]:.1f} {height:.1f}H{phrase.children[-1][0]:.1f}"]
        lines += [f"M{x:.1f} {height:.1f}V{bottom - _LINE - level * _LEVEL:.1f}" for x, level in phrase.children]
        elements.append(f'<path class="{kind}" d="{"".join(lines)}"/>')
        if label != "X":
            labels.append(
                f'<text class="label {kind}" x="{phrase.middle + 4:.1f}" y="{height - 4:.1f}">{escape(label)}</text>'
            )
    elements += labels  # above all lines
    elements += [
        f'<text x="{center:.1f}" y="{bottom:.1f}">{escape(word)}</text>'
        for center, word in zip(centers.tolist(), tree.words, strict=True)
    ]
    width = max(float(edges[-1]), len(title) * _CHARACTER)
    return _Picture(elements, width, bottom + _LINE / 2)
