"""Pages of trees in a PDF. Needs matplotlib: `pip install 'stack-lm[plots]'`."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stack_lm.errors import InputError
from stack_lm.markup import drawable

from .drawing import COLORS, LABEL_SIZE, MARGIN, TEXT_COLORS, TEXT_SIZE, Picture

# A4 landscape, in pixels of 3/4 point: texts are as large as in a document.
_WIDTH, _HEIGHT = 297 / 25.4 * 96, 210 / 25.4 * 96
_HEADER = 16.0
_LARGEST = 200 * 96.0  # pixels: 200 inches, the limit of PDF readers
_STYLES = {"right": "solid", "wrong": (0, (5, 3)), "plain": "solid"}
# Fallbacks for characters that matplotlib's own font lacks; the installed ones are used.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans Symbols2",
    "Noto Emoji",
)


class _Page(NamedTuple):
    """Pictures on a page, with the distance of each from its top, and the page's size."""

    pictures: list[tuple[float, Picture]]
    width: float
    height: float


def check_pdf() -> None:
    """Reject a PDF if matplotlib is not installed.

    Raises:
        InputError: with the command to install it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("trees in a PDF need matplotlib: pip install 'stack-lm[plots]'")


def write_pdf(path: Path, pictures: Iterable[Picture], header: str = "") -> None:
    """Draw pictures below each other, as many as fit on each A4 page; a larger picture gets a page of its size.

    Args:
        path: the path of the file.
        pictures: without any, the page is empty.
        header: at the top of each page.

    Raises:
        InputError: without matplotlib.
    """
    check_pdf()
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages

    # No formulas in words; texts stay searchable texts.
    settings: Any = {"text.parse_math": False, "pdf.fonttype": 42, "font.family": _installed_fonts()}
    with warnings.catch_warnings(), rc_context(settings), PdfPages(path) as pdf:
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # drawn as a box
        for page in _pages(pictures):
            pdf.savefig(_draw(page, drawable(header)))


def _installed_fonts() -> list[str]:
    from matplotlib import font_manager

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in installed]


def _pages(pictures: Iterable[Picture]) -> Iterator[_Page]:
    page = _Page([], _WIDTH, _HEIGHT)
    used = top = MARGIN + _HEADER
    for picture in pictures:
        bottom = used + picture.height + MARGIN
        if page.pictures and (bottom > page.height or picture.width + 2 * MARGIN > page.width):
            yield page
            page, used, bottom = _Page([], _WIDTH, _HEIGHT), top, top + picture.height + MARGIN
        width, height = max(page.width, picture.width + 2 * MARGIN), max(page.height, bottom)
        page = _Page([*page.pictures, (used, picture)], width, height)
        used = bottom
    yield page


def _draw(page: _Page, header: str) -> Any:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    shrink = min(1.0, _LARGEST / max(page.width, page.height))
    figure = Figure(figsize=(page.width / 96 * shrink, page.height / 96 * shrink))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, page.width)
    axes.set_ylim(page.height, 0)  # pictures are drawn from the top down
    points = 0.75 * shrink
    axes.text(MARGIN, MARGIN - 4, header, fontsize=LABEL_SIZE * points, color="#595959")
    for top, picture in page.pictures:
        shown = picture.moved(MARGIN, top)
        for kind, color in COLORS.items():
            strokes = [s for line in shown.lines if line.kind == kind for s in line.strokes]
            segments = [((x1, y1), (x2, y2)) for x1, y1, x2, y2 in strokes]
            how: dict[str, Any] = {"colors": color, "linewidths": 1.35 * shrink, "linestyles": _STYLES[kind]}
            axes.add_collection(LineCollection(segments, **how))
        for text in shown.texts:
            axes.text(
                text.x,
                text.y,
                drawable(text.text),
                fontsize=(LABEL_SIZE if text.role == "label" else TEXT_SIZE) * points,
                color=TEXT_COLORS[text.kind],
                ha="center" if text.role == "word" else "left",
                fontweight="bold" if text.role == "title" else "normal",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5} if text.role == "label" else None,
            )
    return figure
