"""HTML pages without other files: their frame, and the page of many trees."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from .drawing import STYLE, draw_tree, escape_markup, to_svg
from .trees import ConstituencyTree


def html_page(title: str, style: str, body: str, script: str = "", data: str = "") -> str:
    """A page that works from a file, without a network or other files.

    Args:
        title: text.
        style: CSS.
        body: HTML.
        script: JavaScript, the only script that runs, whatever the body contains.
        data: JSON for the script, in an element with the id "data"; it contains no "<", which could end the element.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    scripts = (f'<script type="application/json" id="data">{data}</script>\n' if data else "") + (
        f"<script>{script}</script>\n" if script else ""
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'unsafe-inline'{allowed}\">\n"
        f"<title>{escape_markup(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n{scripts}"
        "</body>\n</html>\n"
    )


def trees_page(
    trees: Sequence[ConstituencyTree | None],
    gold: Sequence[ConstituencyTree] | None = None,
    *,
    source: str = "",
) -> str:
    """A page to browse trees: each with its number and sentence, an index, and a filter by words.

    Args:
        trees: None is a sentence without a tree, which keeps its number.
        gold: the gold trees of the same words; see `draw_trees`.
        source: the origin of the trees, such as a model's name.
    """
    cards, links = [], []
    for number, tree in enumerate(trees, start=1):
        if tree is None:
            continue
        sentence = f"<bdi>{escape_markup(' '.join(tree.words))}</bdi>"
        other = gold[number - 1] if gold is not None else None
        picture = to_svg(draw_tree(tree, other), style="", label=str(tree))
        origin = (tree if other is None else other).origin
        about = f'<p class="soft">{escape_markup(origin)}</p>' if origin else ""
        cards.append(
            f'<article id="t{number}"><h2><a href="#t{number}">{number}</a> {sentence}</h2>{about}'
            f'<div class="wide" tabindex="0">{picture}</div></article>'
        )
        links.append(f'<li><a href="#t{number}"><b>{number}</b> {sentence}</a></li>')
    count = f"{len(cards)} tree{'s' * (len(cards) != 1)}"
    left = len(trees) - len(cards)
    title = f"{count}: {source}" if source else count
    key = (
        ""
        if gold is None
        else "<p>Solid blue: in both trees. Dashed orange: in this tree only. The whole sentence is not counted.</p>"
    )
    missing = f'<p class="soft">Sentences without a tree: {left}.</p>' if left else ""
    body = (
        f"<header><h1>{escape_markup(title)}</h1>{missing}{key}"
        '<p class="controls"><label id="search" hidden>Filter <input id="filter" type="search" '
        'placeholder="words or a number"></label> <output id="count"></output> '
        '<label><input id="fit" type="checkbox"> Fit wide trees to the page</label></p></header>\n'
        f'<nav aria-label="Sentences"><ol>{"".join(links)}</ol></nav>\n<main>\n' + "\n".join(cards) + "\n</main>"
    )
    return html_page(title, STYLE + "\n" + _asset("page.css"), body, _asset("page.js"))


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
