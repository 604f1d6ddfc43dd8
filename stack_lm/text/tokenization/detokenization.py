"""The spaces of ordinary text in a treebank's tokens: "do n't ." and "don't." have the same subwords.

The rules are normalizers of tokenizer.json, so every program that loads it reads both forms. A space that ordinary
text lacks becomes a joint, where the pre-tokenizer splits: no token is of two words that had a space between them.
"""
# ruff: noqa: RUF001

from __future__ import annotations

import re

from tokenizers import Regex, normalizers, pre_tokenizers

from ..escapes import ESCAPES
from .words import WORD_PARTS

_JOINT = "\ue000"  # a character without a meaning
# The edge of a word, what is none, and what may stand before an opening mark and after a closing one. The rules see
# text that begins with a space.
_EDGE, _INSIDE = rf"[\s{_JOINT}]", rf"[^\s{_JOINT}]"
_BEFORE, _AFTER = rf"[\s{_JOINT}—(\[]", rf"(?=\s|{_JOINT}?[,;:.?!)\]—]|\z)"
_END = rf"(?!{_INSIDE})"
# The quotation marks from here to the end of the text are an odd number.
_ODD = r'(?=[^"]*"(?:[^"]*"[^"]*")*[^"]*\z)'
# What is found, in the order of its use, and what replaces it.
_RULES: tuple[tuple[str, str], ...] = (
    # Quotation marks and apostrophes that have a direction lose it after the space beside them.
    (rf"(?<={_EDGE}``|{_EDGE}[“„‟‘‚‛]) ", _JOINT),
    (rf" (?=(?:''|”){_END})", _JOINT),
    ("[‘’‚‛′´]", "'"),
    ("``|''|[“”„‟]", '"'),
    ("…", "..."),
    # Dashes between words have no spaces.
    (rf" (?=(?:--+|[—―]){_END})", _JOINT),
    (rf"(?<={_EDGE}--|{_EDGE}---|{_EDGE}[—―]) ", _JOINT),
    (r"(?<=[\p{L}\p{N}]) (?=–\s)", _JOINT),
    (rf"(?<={_JOINT}–) ", _JOINT),
    (rf"--+|―|(?<=\p{{L}}{_JOINT})–|(?<=\p{{L}})–(?=\p{{L}})", "—"),
    ("[–‒−‐‑]", "-"),
    # Contractions, cannot, punctuation after words, brackets and currencies.
    (rf" (?=(?:[nN]'[tT]|'(?:[smdSMD]|[rR][eE]|[vV][eE]|[lL][lL])){_END})", _JOINT),
    (rf"(?<=\s[cC]an) (?=not{_END})", _JOINT),
    (rf" (?=(?:[,;:?!%)\]}}]|\.+){_END})", _JOINT),
    (rf"(?<={_EDGE}[(\[{{]|{_EDGE}[$£€]) ", _JOINT),
    # Quotation marks without a direction: the first of a text and those before an odd number of others open.
    (rf'(?<={_BEFORE}") {_ODD}|(?<=\A ") ', _JOINT),
    (rf' (?="{_AFTER})', _JOINT),
    # An apostrophe behind s is a plural's. Another one opens a quotation if one follows.
    (rf"(?<=[sS]) (?='{_AFTER})", _JOINT),
    (rf"(?<={_BEFORE}') (?=.*\s'{_AFTER})", _JOINT),
    (rf" (?='{_AFTER})", _JOINT),
)


def detokenizer() -> list[normalizers.Normalizer]:
    """The normalizers that give text the spaces and marks of ordinary ASCII text, and one space at its beginning."""
    spaces = [normalizers.Strip(right=False), normalizers.Prepend(" ")]
    escapes = ((f"(?i:{re.escape(escape)})", plain) for escape, plain in ESCAPES.items())
    return [*spaces, *(normalizers.Replace(Regex(pattern), content) for pattern, content in (*escapes, *_RULES))]


def attached_words() -> pre_tokenizers.PreTokenizer:
    """Split text into the words of the Penn Treebank, each with the space before it, if there is one."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_JOINT, "removed"),
            pre_tokenizers.Split(Regex(f" ?(?:{WORD_PARTS})"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s+"), "merged_with_next"),
        ]
    )
