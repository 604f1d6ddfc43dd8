"""Texts in HTML, XML, LaTeX and figures, and the frame of HTML pages."""

from __future__ import annotations

import base64
import hashlib
import html
import re

# Characters that XML cannot represent.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "#$%&_{}"},
}


def printable(text: str) -> str:
    """A text without characters that no XML, HTML or PDF can have, such as control characters."""
    return _NOT_XML.sub("\ufffd", text)


def escape(text: str) -> str:
    """A text for HTML and XML; characters that they cannot have are replaced."""
    return html.escape(printable(text))


def escape_latex(text: str) -> str:
    """A text that LaTeX prints unchanged; control characters, which it rejects, become question marks."""
    return "".join(_LATEX.get(character, character) for character in printable(text).replace("\ufffd", "?"))


def drawable(text: str) -> str:
    """A text that matplotlib can draw into a PDF, without byte order marks, which have no width and no glyph."""
    return printable(text).replace("\ufeff", "")


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
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n{scripts}"
        "</body>\n</html>\n"
    )
