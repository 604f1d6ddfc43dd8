"""The HTML page of many trees."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from stack_lm.markup import escape, html_page
from stack_lm.messages import counted

from .drawing import STYLE, draw_tree, to_svg
from .trees import ConstituencyTree


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
        sentence = f"<bdi>{escape(' '.join(tree.words))}</bdi>"
        other = gold[number - 1] if gold is not None else None
        picture = to_svg(draw_tree(tree, other), style="", label=str(tree))
        origin = (tree if other is None else other).origin
        about = f'<p class="soft">{escape(origin)}</p>' if origin else ""
        cards.append(
            f'<article id="t{number}"><h2><a href="#t{number}">{number}</a> {sentence}</h2>{about}'
            f'<div class="wide" tabindex="0">{picture}</div></article>'
        )
        links.append(f'<li><a href="#t{number}"><b>{number}</b> {sentence}</a></li>')
    count = counted(len(cards), "tree")
    left = len(trees) - len(cards)
    title = f"{count}: {source}" if source else count
    key = (
        ""
        if gold is None
        else "<p>Solid blue: in both trees. Dashed orange: in this tree only. The whole sentence is not counted.</p>"
    )
    missing = f'<p class="soft">Sentences without a tree: {left}.</p>' if left else ""
    body = (
        f"<header><h1>{escape(title)}</h1>{missing}{key}"
        '<p class="controls"><label id="search" hidden>Filter <input id="filter" type="search" '
        'placeholder="words or a number"></label> <output id="count"></output> '
        '<label><input id="fit" type="checkbox"> Fit wide trees to the page</label></p></header>\n'
        f'<nav aria-label="Sentences"><ol>{"".join(links)}</ol></nav>\n<main>\n' + "\n".join(cards) + "\n</main>"
    )
    return html_page(title, STYLE + "\n" + _asset("page.css"), body, _asset("page.js"))


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
