"""From sentences and documents to token ids, here or in worker processes, so it does not load torch.

Token ids of text files are cached by content, so that a second run starts at once. An entry is a folder named
after a hash of the files and of all settings that affect the result: a tokenizer, and memory-mapped arrays. Remove the
folder to free the space.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..core.atomic import atomic_directory
from ..core.errors import InputError
from ..core.messages import explaining
from ..text import Sentence
from ..text.plain import Segmenter
from ..text.tokenization import Frame, RareWordTags, TreebankForms, reopen_tokenizer
from .children import Workers, environment
from .compact import TokenArray

# Part of every key: a new number ignores all earlier entries.
_FORMAT = 6
# Smaller texts are tokenised in a second.
MIN_BYTES = 2**20
_TRAIN, _VALIDATION, _SIZE, _TOKENIZER = "train", "validation", "size.json", "tokenizer"


@dataclass
class TextSize:
    """Predicted text; `docs/evaluation.md` defines it, and `stack_lm.eval.perplexity` counts the same.

    Attributes:
        words: number of words of the corpus.
        bytes: size of its text in UTF-8: words, a space between two, and the end of a line for each end of a sentence.
        in_part: words with some predicted tokens but not the first, which are not counted: first words of several
            tokens, without a beginning token. The loss includes these tokens; the size does not.
    """

    words: int = 0
    bytes: int = 0
    in_part: int = 0

    def add(self, words: Sequence[str], *, first: bool, end: bool) -> None:
        """Count a sentence.

        Args:
            words: the words of the sentence.
            first: whether the first word is predicted.
            end: whether its end is predicted.
        """
        self.words += len(words) - (not first)
        self.bytes += len(" ".join(words).encode()) - (0 if first else len(words[0].encode())) + end


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Iterable[Sentence],
    max_length: int | None,
    frame: Frame,
    progress: Callable[[int], None] = lambda n: None,
    *,
    min_length: int = 2,
    size: TextSize | None = None,
) -> TokenArray:
    """Sentences as token ids; those of one token are left out, because there is nothing to predict.

    The tokenizer processes a thousand at a time, on all cores.

    Args:
        tokenizer: any fast one.
        sentences: the sentences to encode.
        max_length: truncates a sentence to this number of tokens, which drops its end token; None: no limit.
        frame: the special tokens around each sentence.
        progress: called with the number of sentences done.
        min_length: sentences of fewer tokens are left out.
        size: counts the predicted text of these sentences.
    """
    adapt, replace_rare = TreebankForms(tokenizer), RareWordTags(tokenizer)
    begin, end = frame

    def parts() -> Iterator[list[list[int]]]:
        waiting = iter(sentences)
        while batch := list(islice(waiting, 1000)):
            texts = [" ".join(replace_rare(adapt(words), tags)) for words, tags in batch]
            framed = [begin + ids + end if ids else [] for ids in tokenize(texts)]
            if size is not None:
                for (words, _), text, ids in zip(batch, texts, framed, strict=True):
                    if len(ids) >= min_length:
                        count(size, words, text, len(ids))
            yield [ids[:max_length] for ids in framed if len(ids) >= min_length]
            progress(len(batch))

    def count(size: TextSize, words: Sequence[str], text: str, length: int) -> None:
        whole = max_length is None or length <= max_length
        if max_length is not None and not whole:  # a truncated word counts in full
            offsets = backend.encode(text, add_special_tokens=False).offsets[: max_length - len(begin)]
            words = words[: len(text[: offsets[-1][1]].split()) if offsets else 0]
        if words:
            size.add(words, first=bool(begin), end=whole and bool(end))
            size.in_part += not begin and _is_split(tokenizer, words[0])

    def tokenize(texts: list[str]) -> list[list[int]]:
        # On all cores: commands turn its threads off, to avoid its warning when a process is forked.
        with environment(TOKENIZERS_PARALLELISM="true"):
            encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    tokenizer("")  # turns padding and truncation off, which its file may have on
    backend: Any = tokenizer.backend_tokenizer
    return TokenArray.pack(parts(), len(tokenizer))


def _is_split(tokenizer: PreTrainedTokenizerBase, word: str) -> bool:
    """Whether a word has several tokens."""
    backend: Any = tokenizer.backend_tokenizer
    return len(backend.encode(word, add_special_tokens=False).ids) > 1


def encode_documents(
    tokenizer: PreTrainedTokenizerBase,
    documents: Iterable[Iterable[Sentence]],
    frame: Frame,
    progress: Callable[[int], None] = lambda n: None,
    size: TextSize | None = None,
) -> TokenArray:
    """Documents as token ids: those of their sentences, end to end; documents of one token are left out.

    Args: as `encode_sentences`.
    """
    counts: list[int] = []

    def sentences() -> Iterator[Sentence]:
        for document in documents:
            counts.append(0)
            for sentence in document:
                if sentence.words:
                    counts[-1] += 1
                    if size is not None:
                        later = counts[-1] > 1
                        size.add(sentence.words, first=later or bool(frame.begin), end=later or bool(frame.end))
                        size.in_part += not later and not frame.begin and _is_split(tokenizer, sentence.words[0])
                    yield sentence

    tokens = encode_sentences(tokenizer, sentences(), None, frame, progress, min_length=0)
    ends = np.concatenate([[0], tokens.ends])[np.cumsum(counts, dtype=np.int64)]
    lengths = np.diff(ends, prepend=0)
    if len(lengths) and lengths.min() < 2:
        ids = tokens.ids[np.repeat(lengths >= 2, lengths)]
        return TokenArray(ids, np.cumsum(lengths[lengths >= 2]))
    return TokenArray(tokens.ids, ends)


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """An encoder from the texts of documents to token ids.

    Attributes:
        tokenizer: any.
        segmenter: splits a document into sentences.
        max_length: the maximum length of a sentence, as in `encode_sentences`.
        frame: the special tokens around each sentence.
        whole: keep each document in one piece, as `encode_documents`.
    """

    tokenizer: PreTrainedTokenizerBase
    segmenter: Segmenter
    max_length: int
    frame: Frame
    whole: bool = False

    def __call__(self, texts: Sequence[str]) -> TokenArray:
        documents = ((Sentence(words) for words in self.segmenter(text)) for text in texts)
        if self.whole:
            return encode_documents(self.tokenizer, documents, self.frame)
        return encode_sentences(self.tokenizer, chain.from_iterable(documents), self.max_length, self.frame)


class EncodingWorkers:
    """Processes that encode texts while others train; they end with their parent, however it ends.

    Args:
        encoder: the encoder that they run.
        number: the number of processes; 0 encodes in this one, when the result is requested.
    """

    def __init__(self, encoder: TextEncoder, number: int) -> None:
        self._encoder = encoder
        self._pool = Workers(number, _start_worker, encoder) if number else None

    def encode(self, chunks: Sequence[Sequence[str]]) -> Callable[[], list[TokenArray]]:
        """Start to encode some chunks of texts; the returned function waits for the results, in the same order.

        Raises:
            InputError: if a process has ended.
        """
        if self._pool is None:
            return lambda: [self._encoder(chunk) for chunk in chunks]
        with _naming_lost_workers():
            waiting = [self._pool.submit(_encode, chunk) for chunk in chunks]

        def results() -> list[TokenArray]:
            with _naming_lost_workers():
                return [future.result() for future in waiting]

        return results

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.end()


@contextmanager
def _naming_lost_workers() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        needs = "perhaps for lack of memory; a smaller data.workers or data.pool takes less"
        raise InputError(f"a process that tokenises has ended unexpectedly, {needs}") from error


_encoder: TextEncoder


def _start_worker(encoder: TextEncoder) -> None:
    global _encoder
    _encoder = encoder
    # A queue signals the whole job; the training process decides when to end.
    for name in ("SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _encode(texts: Sequence[str]) -> TokenArray:
    return _encoder(texts)


class Tokenised(NamedTuple):
    """The content of an entry of the cache."""

    train: TokenArray
    validation: TokenArray
    size: TextSize
    tokenizer: PreTrainedTokenizerBase


def text_digest(files: Iterable[Path]) -> str:
    """A hash of files by their content, in reading order.

    Raises:
        InputError: if one cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with explaining(f"cannot read {file}", OSError), open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "blake2b").digest())
    return digest.hexdigest()


def size_digest(files: Iterable[Path]) -> str:
    """A hash of files by their sizes only, for files too large to be read before training."""
    sizes = [file.stat().st_size for file in files]
    return hashlib.blake2b(str(sizes).encode(), digest_size=16).hexdigest()


def cache_key(files: Iterable[Path], settings: str) -> str | None:
    """The name of an entry; None for files too small to be cached.

    Args:
        files: the files that are read.
        settings: everything that affects the result, including digests of the files.
    """
    if sum(file.stat().st_size for file in files) < MIN_BYTES:
        return None
    return hashlib.blake2b(f"{_FORMAT}\n{settings}".encode(), digest_size=16).hexdigest()


def read_entry(key: str) -> Tokenised | None:
    """Return an entry, if there is a complete one."""
    folder = _cache_folder() / key
    if not folder.is_dir():
        return None
    with suppress(OSError):
        os.utime(folder)  # used now
    try:
        size = TextSize(**json.loads((folder / _SIZE).read_text()))
        tokenizer = reopen_tokenizer(folder / _TOKENIZER)
        return Tokenised(_read_tokens(folder, _TRAIN), _read_tokens(folder, _VALIDATION), size, tokenizer)
    except Exception:  # many kinds: of numpy and of the tokenizer, for missing, truncated or changed files
        return None


def _read_tokens(folder: Path, name: str) -> TokenArray:
    ids, ends = (np.load(folder / f"{name}_{part}.npy", mmap_mode="r", allow_pickle=False) for part in ("ids", "ends"))
    if ids.ndim != 1 or ends.ndim != 1 or len(ids) != (ends[-1] if len(ends) else 0):
        raise ValueError(f"{name}: the arrays do not fit each other")
    return TokenArray(ids, ends)


def write_entry(key: str, content: Tokenised) -> None:
    """Write an entry, unless there is one. If it cannot be written, the run continues without it."""
    folder = _cache_folder()
    if read_entry(key) is not None:  # another run's, which may have it open
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / key, ignore_errors=True)  # damaged
        with atomic_directory(folder / key) as directory:
            for name, tokens in ((_TRAIN, content.train), (_VALIDATION, content.validation)):
                np.save(directory / f"{name}_ids.npy", tokens.ids)
                np.save(directory / f"{name}_ends.npy", tokens.ends)
            (directory / _SIZE).write_text(json.dumps(vars(content.size)))
            content.tokenizer.save_pretrained(directory / _TOKENIZER)
    except Exception:  # many kinds: the tokenizer's own files are written in Rust
        return


def _cache_folder() -> Path:
    """The folder of tokenised text: in STACK_LM_CACHE, or else in stack-lm in the user's cache folder."""
    base = os.environ.get("STACK_LM_CACHE")
    if base:
        return Path(base) / "tokens"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stack-lm" / "tokens"
