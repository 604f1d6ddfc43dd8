"""The look of the site: figures with captions and readable widths, whole options, tabs on smaller windows.

mkdocs calls the functions that begin with `on_`.
"""

from __future__ import annotations

import posixpath
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
IMAGE = re.compile(r'<p><img alt="([^"]+)" src="([^":]+)" /></p>')
CODE, OPTION = re.compile(r"<code>([^<]+)</code>"), re.compile(r"(?<![\w-])--?[a-z][\w-]*")
# Pages that search ranks as theme and words alone would not.
SEARCH: dict[str, dict[str, Any]] = {"changelog.md": {"exclude": True}, "models.md": {"boost": 3}}
# The width, in em of 16 pixels, from which the theme shows tabs and the side bar, and the one from which we do.
THEME, OURS = "76.25em", "70em"
BELOW_THEME, BELOW_OURS = "76.234375em", "69.984375em"
# Pixels for an inch of a plot: its size on a wide screen, and the smallest at which its text can be read.
COMFORTABLE, LEGIBLE = 100, 62
LEGIBLE_SVG = 0.65  # of its own size


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Turn a picture that stands alone into a figure, whose caption is its description; keep options in one line."""
    if page.file.src_uri in SEARCH:
        page.meta["search"] = SEARCH[page.file.src_uri]
    html = CODE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    return IMAGE.sub(lambda image: _figure(image, posixpath.dirname(page.file.src_uri)), html)


def on_post_build(config: MkDocsConfig) -> None:
    """Show tabs and the side bar from 1,120 pixels, not from 1,220.

    Raises:
        RuntimeError: if the theme has another width.
    """
    for pattern in ("stylesheets/main.*.css", "javascripts/bundle.*.js"):
        (path,) = Path(config.site_dir, "assets").glob(pattern)
        text = path.read_text(encoding="utf-8")
        if THEME not in text:
            raise RuntimeError(f"{path.name}: the theme's width is no longer {THEME}; change docs/hooks/look.py")
        path.write_text(text.replace(THEME, OURS).replace(BELOW_THEME, BELOW_OURS), encoding="utf-8")


def _figure(image: re.Match[str], folder: str) -> str:
    description, source = image.groups()
    width, legible = widths(DOCS / posixpath.normpath(posixpath.join(folder, source)))
    style = f"--width: {width}px; --legible: {legible}px"
    picture = f'<img alt="{description}" src="{source}" style="{style}">'
    return f"<figure><div>{picture}</div><figcaption>{description}</figcaption></figure>"


def widths(path: Path) -> tuple[int, int]:
    """The width in pixels of a picture on a wide screen, and the smallest at which its text can be read."""
    content = path.read_bytes()
    if path.suffix == ".svg":
        width = int(re.search(rb' width="(\d+)"', content)[1])  # type: ignore[index]
        return width, round(LEGIBLE_SVG * width)
    (pixels,) = struct.unpack(">I", content[16:20])
    (per_metre,) = struct.unpack(">I", content[content.index(b"pHYs") + 4 :][:4])
    inches = pixels / per_metre / 0.0254
    return round(COMFORTABLE * inches), round(LEGIBLE * inches)
