"""One sentence as a self-contained HTML page: strengths, the stack at each step, the tree, all numbers."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from ..markup import escape, html_page
from ..parsing.drawing import draw_trees
from ..parsing.layout import place_phrases
from ..parsing.trees import ConstituencyTree
from ..trace import Trace

STRENGTHS = ("push_strength", "pop_strength", "read_strength")
_NO_WORD = "(beginning)"
# Elements of the stack: pale enough for dark text on them (after Okabe and Ito), and never equal to a neighbour.
_ELEMENT_COLORS = ("#9ecae8", "#f5c98a", "#9fd8c2", "#eac2d9", "#f2eb9a", "#c9c9c9")
_CARD, _BARS, _UNIT, _DEEPEST = 74, 70, 26, 8.0  # pixels; the last is in elements: the maximum depth drawn
_GONE = 0.005  # elements; less is not shown
_ROW, _LEVELS = 24, 200


def render_page(
    trace: Trace,
    tree: ConstituencyTree,
    contents: np.ndarray,
    distances: np.ndarray,
    *,
    memory: str,
    about: Mapping[str, str],
    gold: ConstituencyTree | None = None,
) -> str:
    """The page as a text, without a network or other files; it works from a file, on a phone and in print.

    Args:
        trace: a trace of n words, with log-probabilities and the strengths of a stack.
        tree: over its words.
        contents: the remaining strength of each element after each word [n, n + 1]; see `ModelScorer.memory_contents`.
        distances: the distances that gave the tree [n].
        memory: its name; for a "stack" the page also marks the reading, which is at the top.
        about: further facts about the model, by name.
        gold: a tree over the same words, to compare with.
    """
    names = [name for name in STRENGTHS if name in trace.signals]
    parts = [
        f"<h1>{escape(' '.join(trace.words))}</h1>",
        f'<p class="soft">{"; ".join(f"{escape(k)}: {escape(v)}" for k, v in about.items())}</p>',
        '<p class="soft screen">Point at a word or a phrase, tap it, or move with the arrow keys.</p>',
        f"<h2>Strengths, and the {escape(memory)} after each word</h2>",
        _legend(names, memory),
        f'<div class="steps">{"".join(_steps(trace, names, contents, memory))}</div>',
        "<h2>Tree</h2>",
        "<p>A bar is the distance between a word and the one above it. The decoder splits a phrase by these.</p>",
        f'<div class="wide">{_draw_tree(tree, distances)}</div>',
        '<div id="panel" aria-live="polite"></div>',
    ]
    if gold is not None:
        picture = base64.b64encode(draw_trees([tree], [gold]).encode()).decode()
        words = escape(f"The tree {tree} beside the gold tree {gold.collapse_unaries()}")
        parts.append("<h2>Beside the gold tree</h2>")
        parts.append(f'<div class="wide"><img alt="{words}" src="data:image/svg+xml;base64,{picture}"></div>')
    if trace.distributions:
        parts.append("<h2>Distributions over 0, 1, 2 ... elements</h2>")
        parts.append(f'<div class="panels">{"".join(_distributions(trace))}</div>')
    parts += ["<h2>All numbers</h2>", f'<div class="wide">{_table(trace, names)}</div>']
    body = "<main>\n" + "\n".join(parts) + "\n</main>"
    data = _json({"memory": memory, "words": _numbers(trace, names, contents)})
    return html_page(" ".join(trace.words), _asset("page.css"), body, _asset("page.js"), data)


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    # Inside a script element only "<" can end it.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _say(name: str) -> str:
    return name.replace("_strength", "").replace("_distribution", "")


def _legend(names: list[str], memory: str) -> str:
    keys = [f'<span><i class="key {_say(name)}"></i>{_say(name)} strength</span>' for name in names]
    return (
        f'<p class="legend">{"".join(keys)}</p>'
        f"<p>Below each word is the {escape(memory)} after it, the newest element first: each has the name of the word "
        "that pushed it, and its height is its remaining strength. The number above is the sum"
        f"{'; the green bracket marks the reading' if memory == 'stack' else ''}.</p>"
    )


def _steps(trace: Trace, names: list[str], contents: np.ndarray, memory: str) -> list[str]:
    """A card for each word, so that a row of cards wraps at the page's edge."""
    most = max(1.0, *(float(trace.signals[name].max()) for name in names))
    cards = []
    for i, word in enumerate(trace.words):
        bars = []
        pitch = (_CARD - 4) / max(3, len(names))
        for k, name in enumerate(names):
            value = float(trace.signals[name][i])
            x = (_CARD - pitch * len(names)) / 2 + pitch * k
            height = _BARS * value / most
            bars.append(
                f'<rect class="{_say(name)}" x="{x + 3:.1f}" y="{12 + _BARS - height:.1f}" width="{pitch - 6:.1f}" '
                f'height="{height:.1f}"/><text x="{x + pitch / 2:.1f}" y="{9 + _BARS - height:.1f}">{value:.2f}</text>'
            )
        unknown = ' class="unknown" title="unknown to the model"' if trace.unknown[i] else ""
        cards.append(
            f'<button class="step" type="button" aria-pressed="false" title="{escape(_in_words(trace, names, i))}">'
            f'<svg width="{_CARD}" height="{_BARS + 14}" aria-hidden="true">{"".join(bars)}'
            f'<path class="axis" d="M0 {_BARS + 12.5}H{_CARD}"/></svg><strong{unknown}>{escape(word)}</strong>'
            f"{_column(trace, contents[i], i, memory)}</button>"
        )
    return cards


def _in_words(trace: Trace, names: list[str], i: int) -> str:
    numbers = ", ".join(f"{_say(name)} {float(trace.signals[name][i]):.2f}" for name in names)
    return f"{trace.words[i]}: {numbers}"


def _column(trace: Trace, left: np.ndarray, step: int, memory: str) -> str:
    """The memory after one word, the newest element first; elements that do not fit are counted."""
    total = float(left.sum())
    shown = min(total, _DEEPEST)
    top, bottom = 13.0, 13.0 + shown * _UNIT
    pieces = [f'<text x="33" y="10">{total:.2f}</text>']
    y = top
    for element in reversed(range(step + 2)):
        height = min(float(left[element]) * _UNIT, bottom - y)
        if left[element] <= _GONE or height <= 0:
            continue
        color = _ELEMENT_COLORS[element % len(_ELEMENT_COLORS)]
        pieces.append(f'<rect class="element" x="7" y="{y:.1f}" width="52" height="{height:.1f}" fill="{color}"/>')
        if height >= 11:
            name = _element(trace, element)
            name = name if len(name) <= 8 else name[:7] + "…"
            pieces.append(f'<text x="33" y="{y + height / 2 + 3.5:.1f}">{escape(name)}</text>')
        y += height
    if memory == "stack" and "read_strength" in trace.signals and total > _GONE:
        read = min(shown, float(trace.signals["read_strength"][step]))
        pieces.append(f'<path class="reading" d="M62 {top + 1:.1f}h4V{top + max(2.0, read * _UNIT - 1):.1f}h-4"/>')
    if total - shown > _GONE:
        pieces.append(f'<text x="33" y="{bottom + 13:.1f}">+ {total - shown:.2f}</text>')
        bottom += 16
    else:
        pieces.append(f'<path class="axis" d="M2 {bottom:.1f}H{_CARD - 8}"/>')
    return f'<svg width="{_CARD}" height="{bottom + 3:.1f}" aria-hidden="true">{"".join(pieces)}</svg>'


def _element(trace: Trace, element: int) -> str:
    return trace.words[element - 1] if element else _NO_WORD


def _distributions(trace: Trace) -> list[str]:
    """Small bars of each word's distributions (Merrill et al. 2019, figure 3)."""
    kinds = [name for name in (f"{_say(s)}_distribution" for s in STRENGTHS) if name in trace.distributions]
    cards = []
    for i, word in enumerate(trace.words):
        bars = []
        x = 2.0
        for name in kinds:
            for k, p in enumerate(trace.distributions[name][i].tolist()):
                bars.append(
                    f'<rect class="{_say(name)}" x="{x:.1f}" y="{46 - 44 * p:.1f}" width="8" height="{44 * p:.1f}">'
                    f'<title>{_say(name)} {k}: {p:.2f}</title></rect><text x="{x + 4:.1f}" y="57">{k}</text>'
                )
                x += 10
            x += 6
        cards.append(
            f'<div class="panel"><svg width="{x - 4:.0f}" height="60" role="img" '
            f'aria-label="distributions at {escape(word)}" style="margin:0 auto">{"".join(bars)}'
            f'<path class="axis" d="M0 46.5H{x - 4:.0f}"/></svg><b>{escape(word)}</b></div>'
        )
    return cards


def _draw_tree(tree: ConstituencyTree, distances: np.ndarray) -> str:
    """The tree on its side: one word per line, as narrow as it is deep, so long sentences fit on paper and phones."""
    phrases = place_phrases(tree, [(i + 0.5) * _ROW for i in range(len(tree))])
    deepest = max((phrase.level for phrase in phrases), default=0)
    pitch = min(16.0, _LEVELS / max(1, deepest))
    words_at = 10 + pitch * deepest + 4
    bars_at = words_at + 8 * max(map(len, tree.words)) + 14
    greatest = max(float(distances.max()), 1e-9)
    top = 10
    pieces = []
    for (start, stop, _), phrase in zip(tree.spans, phrases, strict=True):
        x = 10 + pitch * (deepest - phrase.level)
        lines = f"M{x:.1f} {top + phrase.children[0][0]:.1f}V{top + phrase.children[-1][0]:.1f}" + "".join(
            f"M{x:.1f} {top + y:.1f}H{10 + pitch * (deepest - level):.1f}" for y, level in phrase.children
        )
        greatest_at = start + int(distances[start:stop].argmax())
        note = f"the greatest distance, {distances[greatest_at]:.2f}, is before “{tree.words[greatest_at]}”"
        words = escape(" ".join(tree.words[start:stop]))
        pieces.append(
            f'<g class="phrase" tabindex="0" role="button" aria-pressed="false" data-start="{start}" '
            f'data-stop="{stop}" data-note="{escape(note)}" aria-label="{words}"><title>{words}</title>'
            f'<path class="lines" d="{lines}"/><path class="hit" d="{lines}"/></g>'
        )
    for i, word in enumerate(tree.words):
        y = top + (i + 0.5) * _ROW
        width = 72 * max(0.0, float(distances[i])) / greatest
        pieces.append(
            f'<text x="{words_at:.1f}" y="{y + 5:.1f}">{escape(word)}</text>'
            f'<rect x="{bars_at:.1f}" y="{y - _ROW / 2 - 4:.1f}" width="{width:.1f}" height="8" fill="#8a8a8a"/>'
            f'<text class="number" x="{bars_at + width + 4:.1f}" y="{y - _ROW / 2 + 4:.1f}">{distances[i]:.2f}</text>'
        )
    width, height = bars_at + 112, top + len(tree) * _ROW + 6
    return (
        f'<svg class="tree" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="group" aria-label="{escape(str(tree))}">{"".join(pieces)}</svg>'
    )


def _probability(logprob: float) -> str:
    return f"{100 * math.exp(logprob):.3g}%"


def _table(trace: Trace, names: list[str]) -> str:
    kinds = list(trace.distributions)
    columns = [name for name in (*names, "total_strength") if name in trace.signals]
    head = "".join(f"<th>{_say(name)}</th>" for name in columns) + "".join(
        f"<th>{_say(name)} {k}</th>" for name in kinds for k in range(trace.distributions[name].shape[1])
    )
    rows = []
    for i, word in enumerate(trace.words):
        known = math.isfinite(trace.logprobs[i])
        cells = [_probability(float(trace.logprobs[i])) if known else ""]
        cells += [f"{float(trace.signals[name][i]):.2f}" for name in columns]
        cells += [f"{p:.2f}" for name in kinds for p in trace.distributions[name][i].tolist()]
        shown = f'<span class="unknown">{escape(word)} (unknown)</span>' if trace.unknown[i] else escape(word)
        rows.append(f"<tr><td>{i + 1}</td><td>{shown}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return (
        f"<table><thead><tr><th></th><th>word</th><th>probability</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _numbers(trace: Trace, names: list[str], contents: np.ndarray) -> list[dict[str, Any]]:
    """The data that the script shows for each word."""
    words = []
    for i, word in enumerate(trace.words):
        logprob = float(trace.logprobs[i])
        known = math.isfinite(logprob)
        words.append(
            {
                "text": word,
                "unknown": bool(trace.unknown[i]),
                "probability": _probability(logprob) if known else None,
                "bits": -logprob / math.log(2) if known else None,
                "strengths": {_say(name): float(trace.signals[name][i]) for name in names},
                "distributions": {_say(name): values[i].tolist() for name, values in trace.distributions.items()},
                "contents": [
                    (_element(trace, element), float(contents[i, element]))
                    for element in reversed(range(i + 2))
                    if contents[i, element] > _GONE
                ],
            }
        )
    return words
