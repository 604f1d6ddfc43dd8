"""The Penn Treebank's escapes: "-LRB-" for "(", "1\\/2" for "1/2"."""

from __future__ import annotations

import re
from collections.abc import Sequence

ESCAPES = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
    **{"\\/": "/", "\\*": "*"},
}
"""What each escape stands for."""
_ESCAPE = re.compile(r"-[LR][RSC]B-|\\[/*]", re.IGNORECASE)  # some corpora are in lower case
_BRACKETS = {character: escape for escape, character in ESCAPES.items() if character not in "/*"}


def escape_word(word: str) -> str:
    """A word with its round brackets escaped, as trees need them: "(" is "-LRB-"."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-") if "(" in word or ")" in word else word


def escape_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a sentence, each as `escape_word` returns it."""
    return tuple(map(escape_word, words))


def unescape_word(word: str) -> str:
    """A word as ordinary text has it: "-LRB-" is "(", and "1\\/2" is "1/2"."""
    return _ESCAPE.sub(lambda match: ESCAPES[match[0].upper()], word)


def treebank_word(word: str) -> str:
    """A word as the Penn Treebank has it, if it is a bracket or has a slash or an asterisk."""
    return _BRACKETS.get(word) or re.sub(r"(?<!\\)[/*]", r"\\\g<0>", word)
