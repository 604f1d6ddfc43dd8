"""Files of trees: brackets, JSON lines, LaTeX (forest), pictures (SVG), and browsable pages (HTML)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stack_lm.core.atomic import write_text
from stack_lm.core.errors import InputError
from stack_lm.core.markup import escape_latex

from .drawing import draw_trees
from .page import trees_page
from .trees import ConstituencyTree

ENDINGS = (".mrg", ".tree", ".ptb", ".txt", "", ".jsonl", ".tex", ".svg", ".html", ".htm")
"""Endings of the names of files with trees; those up to "", no ending, are for brackets."""


def write_trees(
    path: str,
    trees: Sequence[ConstituencyTree | None],
    *,
    distances: Sequence[np.ndarray | None] | None = None,
    gold: Sequence[ConstituencyTree] | None = None,
    source: str = "",
) -> None:
    """Write trees to a file, by its ending: .jsonl, .tex (forest), .svg, .html, or brackets, one tree per line.

    Args:
        path: the path of the file; its name has one of the `ENDINGS`.
        trees: over all words of a sentence, or over those that count. None is a sentence without a tree: an empty line
            among brackets, an empty record among JSON lines; elsewhere both the tree and its number are left out.
        distances: the distances that gave the trees; for JSON lines.
        gold: the gold trees of the same words; for JSON lines, SVG and HTML.
        source: the origin of the trees, such as a model's name; for HTML.

    Raises:
        InputError: if the file cannot be written, or its name has another ending.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"trees are written to {', '.join(filter(None, ENDINGS))}; got {path!r}")
    if ending == ".jsonl":
        records = []
        for i, tree in enumerate(trees):
            record = tree_record(tree, distances[i] if distances is not None else None)
            records.append(record | ({"gold": gold[i].brackets()} if gold is not None else {}))
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    elif ending == ".tex":
        text = forest_document([tree for tree in trees if tree is not None])
    elif ending == ".svg":
        text = draw_trees(trees, gold)
    elif ending in (".html", ".htm"):
        text = trees_page(trees, gold, source=source)
    else:
        text = "".join(("" if tree is None else tree.brackets()) + "\n" for tree in trees)
    write_text(path, text)


def tree_record(tree: ConstituencyTree | None, distances: np.ndarray | None = None) -> dict[str, Any]:
    """A tree for JSON: its words, brackets and spans [start, stop, label], and the distances from which it was made.

    `read_treebank` reads lines of such records. For an empty sentence, whose tree is None, all are empty.
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
    """A LaTeX document of trees, for pdflatex, or for xelatex and lualatex, which have more characters.

    A tree larger than the page is shrunk.
    """
    body = "\n\\bigskip\n\n".join(f"\\begin{{fitted}}\n{to_forest(tree)}\\end{{fitted}}\n" for tree in trees)
    return f"{_PREAMBLE}\\begin{{document}}\n\n{body}\n\\end{{document}}\n"


# Engines other than pdflatex read UTF-8 directly; for Chinese, Japanese and Korean the document names a font.
_PREAMBLE = r"""\documentclass{article}
\usepackage{iftex}
\iftutex
  \usepackage{fontspec} % characters of other scripts: \setmainfont{Noto Serif CJK SC}, or one that is installed
\else
  \usepackage[utf8]{inputenc}
  \usepackage[T1]{fontenc}
\fi
\usepackage[landscape,margin=1cm]{geometry}
\usepackage{graphicx}
\usepackage[linguistics]{forest}
\newsavebox{\treebox}
\newenvironment{fitted}{\noindent\begin{lrbox}{\treebox}}{\end{lrbox}%
  \ifdim\wd\treebox>\linewidth \sbox{\treebox}{\resizebox{\linewidth}{!}{\usebox{\treebox}}}\fi
  \ifdim\dimexpr\ht\treebox+\dp\treebox>.95\textheight
    \sbox{\treebox}{\resizebox*{!}{.95\textheight}{\usebox{\treebox}}}\fi
  \usebox{\treebox}\par}
"""
