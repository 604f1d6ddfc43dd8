"""Texts in HTML, XML, LaTeX and figures."""

from __future__ import annotations

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
