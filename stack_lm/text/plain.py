"""Plain text: reading files, finding sentences and words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

from ..core.errors import InputError
from ..core.messages import check_name, shortened
from .files import check_file, decode, numbered_lines, open_file

# Enough text for Punkt to learn its abbreviations, in only seconds.
TRAINING_CHARACTERS = 1_000_000
# Ends of sentences that Punkt does not know: of Arabic, Urdu and Hindi; and of Chinese and Japanese, without a space
# behind them.
_SPACED_ENDS, _UNSPACED_ENDS = "\u061f\u06d4\u0964\u0965", "\u3002\uff01\uff1f\uff61"
# Marks that may close a sentence after its end: German's closing quotation mark is the opening one in English.
_CLOSERS = "\"'\u201d\u2019\u201c\u2018\xbb\xab)\u300d\u300f\uff09"
_FINAL = (".", "!", "?", "\u2026", *_SPACED_ENDS, *_UNSPACED_ENDS, *_CLOSERS)
_UNSPACED = re.compile(rf"[^{_UNSPACED_ENDS}]*(?:[{_UNSPACED_ENDS}]+[{_CLOSERS}]*|$)")
_OTHER_ENDS = re.compile(rf"([{_SPACED_ENDS}{_UNSPACED_ENDS}]+)")
# Manually wrapped text has lines at least this long, in characters, except the last of a paragraph. A few lines may end
# early, such as one before a word that a program or an author kept whole.
_SHORTEST_WRAP, _WRAPPED_SHARE = 40, 0.9
# In a wrapped text a line is full from this share of the usual width: a long word may not have fitted.
_FULL_SHARE = 0.7
# A word with a period, followed by a capital. Text in the Penn Treebank's form has a space before the period.
_NEXT_SENTENCE = re.compile(rf"(?<![A-Za-z])[a-z]{{3,}}[.!?] [A-Z]|[{_UNSPACED_ENDS}][^{_UNSPACED_ENDS}{_CLOSERS}\s]")


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a UTF-8 file, or of standard input for "-", with their numbers from 1.

    A file that ends in .gz, .bz2, .xz or .zst is decompressed while it is read.

    Raises:
        InputError: if the file is missing, damaged, has no text, or is not UTF-8; the message names the line.
    """
    lines = ((number, line) for number, line in numbered_lines(path) if line.strip())
    first = next(lines, None)
    if first is None:
        raise InputError(f"{check_file(path)} is empty")
    return chain([first], lines)


def read_text(path: str | Path) -> str:
    """The text of a whole UTF-8 file, unpacked as in `read_lines`, or of standard input for "-".

    Raises:
        InputError: as `read_lines`.
    """
    with open_file(path) as (name, stream):
        text = decode(stream.read(), name)
    if not text.strip():
        raise InputError(f"{name} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_encodable(text: str, name: str) -> None:
    """Reject a text that UTF-8 cannot encode: bytes of an argument that are not UTF-8 arrive as lone surrogates.

    Args:
        text: the text.
        name: its name, for the message.

    Raises:
        InputError: with the place of the character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{name} is not UTF-8 text (character {error.start + 1})") from error


def json_object(text: str) -> dict[str, Any] | None:
    """A JSON object; None for a text that is not one, such as a truncated or damaged one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_value(text: str, where: str) -> Any:
    """The value of a JSON text; `where` opens the message of errors.

    Raises:
        InputError: if the text is not JSON, or has half a character, which is invalid in text.
    """
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: {error.object[error.start]!r} is not a valid character in text") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON ({getattr(error, 'msg', error)})") from error
    return value


def json_record(line: str, where: str) -> dict[str, Any]:
    """The object in a line of JSON; `where` opens the message of errors.

    Raises:
        InputError: as `json_value`, and if the value is not an object.
    """
    record = json_value(line, where)
    if not isinstance(record, dict):
        raise InputError(f"{where}: a JSON object is needed; got {shortened(line, 60)!r}")
    return record


def has_several_sentences(text: str) -> bool:
    """True if an ordinary text seems to have more than one sentence."""
    return _NEXT_SENTENCE.search(text) is not None


class SentenceSplitter:
    """A splitter of running text into sentences, with NLTK's Punkt (Kiss and Strunk 2006).

    Punkt learns the abbreviations of a text from the text itself, so nothing needs to be downloaded, and the same text
    is split the same way everywhere.

    Args:
        training_text: the text to learn from; its first million characters count.
    """

    def __init__(self, training_text: str) -> None:
        from nltk.tokenize.punkt import PunktLanguageVars, PunktSentenceTokenizer, PunktTrainer

        class Ends(PunktLanguageVars):
            sent_end_chars = (*PunktLanguageVars.sent_end_chars, *_SPACED_ENDS)

        trainer = PunktTrainer(lang_vars=Ends())
        trainer.INCLUDE_ALL_COLLOCS = False
        trainer.train(training_text[:TRAINING_CHARACTERS], finalize=True)
        self._punkt = PunktSentenceTokenizer(trainer.get_params(), lang_vars=Ends())

    def __call__(self, paragraph: str) -> list[str]:
        """The sentences of one paragraph."""
        sentences = map(_UNSPACED.findall, self._punkt.tokenize(paragraph))
        return [part for parts in sentences for part in map(str.strip, parts) if part]


Segmentation = Literal["lines", "paragraphs", "raw", "articles"]


class Segmenter:
    """From documents to sentences of words.

    Args:
        mode: the form of the text.
            "lines": one sentence a line, words separated by spaces.
            "paragraphs": words separated by spaces, but sentences run on (wikitext).
            "raw": ordinary text. Lines that were wrapped by hand are joined; other lines are a paragraph each.
            "articles": the same with headings and lists (Wikipedia); paragraphs without final punctuation are left out.
        documents: some documents for the sentence splitter to learn from.
        split_words: in ordinary text, split punctuation off the words, as this package's tokenizers do; otherwise
            white space alone separates them.
        tokens: in lines, single spaces alone separate the words, which may have others in them.
    """

    MODES = get_args(Segmentation)

    def __init__(
        self, mode: str, documents: Iterable[str] = (), *, split_words: bool = True, tokens: bool = False
    ) -> None:
        check_name("segmentation", mode, self.MODES)
        self._separator = " " if tokens else None
        self.mode = mode
        if mode == "lines":
            return
        from .tokenization.words import word_splitter

        sample: list[str] = []
        size = 0
        for document in documents:
            sample.append(document)
            size += len(document)
            if size >= TRAINING_CHARACTERS:
                break
        self._split = SentenceSplitter("\n".join(sample))
        self._width = _wrap_width("\n\n".join(sample) if any("\n" in text for text in sample) else "\n".join(sample))
        self._words = word_splitter() if split_words else None

    def __call__(self, document: str) -> Iterable[list[str]]:
        """The sentences of one document."""
        if self.mode == "lines":
            return (line.split(self._separator) for line in document.split("\n") if line.strip())
        return self._sentences(document)

    def _sentences(self, document: str) -> Iterator[list[str]]:
        lines = [line.strip() for line in document.split("\n")]
        if self.mode == "paragraphs":
            for line in lines:
                if not (line.startswith("= ") and line.endswith(" =")):  # a heading of wikitext
                    yield from (sentence.split() for sentence in self._split(line))
            return
        for paragraph in _unwrapped(lines, self._width):
            if self.mode == "raw" or paragraph.endswith(_FINAL):
                yield from map(self._words_of, self._split(paragraph))

    def _words_of(self, sentence: str) -> list[str]:
        if self._words is None:
            return sentence.split()
        return [word for word, _ in self._words.pre_tokenize_str(_OTHER_ENDS.sub(r" \1 ", sentence))]


def _unwrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    """The paragraphs of lines: those between empty lines, if the text was wrapped manually; otherwise each line.

    In a wrapped text the lines of a block stay apart if most are short, as in verse or a table of contents.
    """
    for block in _blocks(lines):
        full = sum(len(line) >= _FULL_SHARE * width for line in block[:-1])
        yield from [" ".join(block)] if width and 2 * full >= len(block) - 1 else block


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines between empty lines."""
    return (list(group) for filled, group in groupby(lines, key=bool) if filled)


def _wrap_width(text: str) -> int:
    """The length of the lines of a text that was wrapped manually; 0 if most of its paragraphs were not.

    One decision for a whole text: a single paragraph may have a short line.
    """
    blocks = list(_blocks(line.strip() for line in text.split("\n")))
    longer = [block for block in blocks if len(block) > 2] or [block for block in blocks if len(block) > 1]
    widths = sorted(max(map(len, block)) for block in longer if _is_wrapped(block))
    return widths[len(widths) // 2] if 2 * len(widths) > len(longer) else 0


def _is_wrapped(lines: list[str]) -> bool:
    """True if the next line's first word would not have fitted into the line, as when an editor wraps it."""
    width = max(map(len, lines))
    if width < _SHORTEST_WRAP or not all(" " in line for line in lines[:-1]):
        return False
    full = sum(len(line) + 1 + len(after.split()[0]) > width for line, after in pairwise(lines))
    ends = len(lines) - 1
    return full >= min(_WRAPPED_SHARE * ends, ends - (ends > 2))
