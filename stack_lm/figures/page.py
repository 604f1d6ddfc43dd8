"""The computation of a model on one sentence or string as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from ..core.markup import escape
from ..parsing.drawing import draw_tree, to_svg
from ..parsing.page import GOLD_KEY, html_page
from ..parsing.trees import ConstituencyTree
from .computation import Computation
from .figures import ELEMENT_COLORS

_ELEMENT_WIDTH = 3.5  # em
_LEAST_STRENGTH = 0.005  # elements; less is not shown


def render_page(
    computation: Computation,
    about: Mapping[str, str],
    tree: ConstituencyTree | None = None,
    gold: ConstituencyTree | None = None,
) -> str:
    """One HTML page, without other files: a table of all numbers with a row for each step, and the tree.

    Args:
        computation: the computation to show.
        about: facts about the model, by name.
        tree: over the words of a sentence.
        gold: a tree of the same words, to compare with.
    """
    title = " ".join(computation.inputs)
    facts = "; ".join(f"{escape(key)}: {escape(value)}" for key, value in about.items())
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="soft">{facts}</p>']
    if tree is not None:
        parts += ["<h2>Tree</h2>" if gold is None else f"<h2>Tree, and the gold tree</h2>{GOLD_KEY}"]
        parts.append(f'<div class="wide">{to_svg(draw_tree(tree, gold), styled=False, label=str(tree))}</div>')
    parts.append("<h2>Step by step</h2><p>Darker cells are greater numbers.")
    if any(computation.targets):
        parts.append("Wrong scored answers are red.")
    if computation.buffered:
        parts.append("The network reads and answers at its own pace: symbols are by position, actions by step.")
    if computation.contents is not None:
        parts.append(
            "The memory is that after each word, with the newest element at the right: an element has the name of the "
            "word that pushed it, and its width is the strength that is left."
        )
    parts.append(f'</p><div class="wide">{_table(computation)}</div>')
    return html_page(title, "\n".join(parts))


def _table(computation: Computation) -> str:
    panels = [panel for name, panel in computation.panels.items() if name != "input"]
    answers = any(computation.targets)
    has_contents = computation.contents is not None
    names = ["", "read", *(["target", "answer"] if answers else []), *(["memory"] if has_contents else [])]
    head = "".join(f"<th rowspan=2>{name}</th>" for name in names)
    head += "".join(f'<th colspan="{len(panel.labels)}">{escape(panel.name)}</th>' for panel in panels)
    labels = "".join(f"<th>{escape(label)}</th>" for panel in panels for label in panel.labels)
    wrong, rows = set(computation.errors), []
    symbols = zip_longest(computation.steps, computation.inputs, computation.targets, computation.outputs, fillvalue="")
    for step, (_, read, target, output) in enumerate(symbols):
        unknown = computation.unknown is not None and computation.unknown[step]
        cells = f'<th class="unknown">{escape(read)} (unknown)</th>' if unknown else f"<th>{escape(read)}</th>"
        if answers:
            cells += f"<td>{escape(target)}</td><td{' class=wrong' if step in wrong else ''}>{escape(output)}</td>"
        if has_contents:
            cells += f"<td class=contents>{_contents(computation, step)}</td>"
        for panel in panels:
            low, high = panel.range
            decimals = 0 if panel.whole else 2
            cells += "".join(_cell(float(value), low, high, decimals) for value in panel.numbers[:, step])
        rows.append(f"<tr><td>{step + 1}</td>{cells}</tr>")
    body = "\n".join(rows)
    return f"<table><thead><tr>{head}</tr><tr>{labels}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(value: float, low: float, high: float, decimals: int) -> str:
    if not np.isfinite(value):
        return "<td></td>"
    share = 0.0 if high <= low else min(1.0, max(0.0, (value - low) / (high - low)))
    ink = "#fff" if share > 0.55 else "#1a1a1a"
    return f'<td style="background:rgb(0 114 178/{share:.2f});color:{ink}">{value:.{decimals}f}</td>'


def _contents(computation: Computation, step: int) -> str:
    """The elements of the memory after a step, from the bottom."""
    words, elements = ["(beginning)", *computation.inputs], []
    assert computation.contents is not None
    for element, strength in enumerate(computation.contents[step, : step + 2].tolist()):
        if strength > _LEAST_STRENGTH:
            color, word = ELEMENT_COLORS[element % len(ELEMENT_COLORS)], escape(words[element])
            width = strength * _ELEMENT_WIDTH
            elements.append(
                f'<i style="width:{width:.2f}em;background:{color}" title="{word}: {strength:.2f}">{word}</i>'
            )
    return f"<span>{''.join(elements)}</span>"
