"""HTML pages: their frame, and the page of many trees."""

from __future__ import annotations

from collections.abc import Sequence

from stack_lm.core.markup import escape
from stack_lm.core.messages import counted

from .drawing import draw_tree, read_asset, to_svg
from .trees import ConstituencyTree


def html_page(title: str, body: str) -> str:
    """A page that works from a file, without scripts, a network or other files; on phones and in print.

    Args:
        title: text.
        body: HTML; it may have trees from `to_svg` without styles of their own.
    """
    style = read_asset("trees.css") + read_asset("page.css")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def trees_page(
    trees: Sequence[ConstituencyTree | None],
    gold: Sequence[ConstituencyTree] | None = None,
    *,
    source: str = "",
) -> str:
    """A page to browse trees: a list of the sentences, and each with its number and tree.

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
        other = None if gold is None else gold[number - 1]
        origin = (other or tree).origin
        about = f'<p class="soft">{escape(origin)}</p>' if origin else ""
        picture = to_svg(draw_tree(tree, other), styled=False, label=str(tree))
        cards.append(
            f'<article id="t{number}"><h2><a href="#t{number}">{number}</a> {sentence}</h2>{about}'
            f'<div class="wide" tabindex="0">{picture}</div></article>'
        )
        links.append(f'<li><a href="#t{number}"><b>{number}</b> {sentence}</a></li>')
    count = counted(len(cards), "tree")
    left = len(trees) - len(cards)
    title = f"{count}: {source}" if source else count
    missing = f'<p class="soft">Sentences without a tree: {left}.</p>' if left else ""
    body = (
        f"<header><h1>{escape(title)}</h1>{missing}{'' if gold is None else GOLD_KEY}"
        '<p><label><input id="fit" type="checkbox"> Fit wide trees to the page</label></p></header>\n'
        f'<nav aria-label="Sentences"><ol>{"".join(links)}</ol></nav>\n<main>\n' + "\n".join(cards) + "\n</main>"
    )
    return html_page(title, body)


GOLD_KEY = "<p>Solid blue: in both trees. Dashed orange: in this tree only. The whole sentence is not counted.</p>"
"""The legend of trees beside gold trees."""
