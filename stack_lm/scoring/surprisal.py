"""Surprisal of words for reading-time studies: a table with a row for each word.

The columns of a table, in order:

- those of a data frame, except the texts; one with the name of a column below gets the suffix "_input";
- `sentence`, from 1, and `position` of the white-space word in it, from 1 (int64); `word` (string);
- `n_tokens`: tokens that were scored (int64); `unknown`: outside the vocabulary (bool);
- `punctuation`: nothing but punctuation (bool), if that is split off;
- `surprisal` (float64): NaN for the first word where the model has no token that begins sentences;
- `entropy`: of the next token before the word, and `entropy_reduction`: how far it is lower after the word, at least 0;
- a memory's strengths (float64, in elements), such as `push_strength`; of several layers `push_strength_0`, ...; those
  of a word's last token, or as a scorer's `word_strength` says, without the punctuation that it touches;
- `log_frequency`: the logarithm of a word's share in a table of counts, with one added to each;
- with lags: `length`, in characters without punctuation at the ends, and `surprisal_1`, ... of the words before.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ..core.errors import InputError
from ..core.messages import check_name, shortened
from ..core.trace import Trace
from ..text.escapes import unescape_word
from ..text.plain import check_encodable
from ..text.records import text_columns
from .encoding import Sentences
from .punctuation import Punctuation, inner, is_punctuation
from .reading import Progress
from .sentences import ModelScorer

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# A unit of surprisal in nats, by the base of its logarithm.
NATS = {"2": math.log(2), "e": 1.0, "10": math.log(10)}
WordEnds = Literal["auto", "own", "next"]
"""The word whose surprisal has the probability that a word ends, where tokens begin with spaces: `own`, the word that
ends; `next`, the one after it, as tokens have it; `auto` is `own`."""
# Sentences scored at a time: enough for batches of similar length.
_BLOCK = 10_000
_COLUMNS = {"model", "sentence", "position", "word", "n_tokens", "unknown", "punctuation", "surprisal"}
_MORE = {"entropy", "entropy_reduction", "log_frequency", "length"}
_STRENGTHS = re.compile(r"(push|pop|read|total)_strength(_(?!input$)\w+)?")
_LAGGED = re.compile(r"(surprisal|entropy|entropy_reduction|log_frequency|length)_\d+")


class _Settings(NamedTuple):
    """Arguments of `surprisal`."""

    base: str
    punctuation: Punctuation
    end: bool
    word_ends: WordEnds
    entropy: bool
    frequencies: Mapping[str, int] | None
    lags: int


def surprisal(
    model: str | os.PathLike[str] | PreTrainedModel | ModelScorer,
    sentences: Iterable[str | Sequence[str]] | pd.DataFrame,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    column: Hashable | None = None,
    context: Hashable | None = None,
    base: int | str = 2,
    punctuation: Punctuation = "attach",
    word_ends: WordEnds = "auto",
    end: bool = False,
    entropy: bool = False,
    frequencies: Mapping[str, int] | None = None,
    lags: int = 0,
    progress: Progress | None = None,
    **reading: Any,
) -> pd.DataFrame:
    """The surprisal of each word given the words before it in its sentence, or in its context.

    White space separates the words of a text, and any run of it counts as one space. A word's surprisal is the sum
    over its tokens. A sentence of only white space has no rows; the others keep their numbers.

    Args:
        model: a path or a name on the hub, any causal language model, or a scorer.
        sentences: texts, or lists of words; or a data frame of them, whose other columns are repeated in each row of a
            sentence.
        tokenizer: a model's fast tokenizer; that of a path by default.
        column: the column of a data frame with the texts; None takes "text", or "sentence", or the only column of text.
            An empty cell is a text without words.
        context: the column of a data frame with a text's story or dialogue: the model reads a text after those of the
            same value that come before it.
        base: the base of the logarithm: 2 (bits), "e" (nats) or 10.
        punctuation: "attach" counts punctuation with the word that it touches. "split" gives the punctuation at the
            ends of a word its own rows, unless a token has both.
        word_ends: see `WordEnds` (Pimentel and Meister 2024; Oh and Schuler 2024).
        end: add a row for the end of each sentence. The sum of a sentence's rows is then its surprisal.
        entropy: add the entropies.
        frequencies: the counts of words, in lower case; adds their logarithms.
        lags: repeat the numbers of this many words before; NaN for none in the sentence or context, and unknown words.
        progress: called with the number of sentences done, batch by batch.
        reading: of a model that is loaded or given: `device`, `batch_tokens`, `window` (see `ModelScorer`).

    Returns:
        One row for each word, in order, with the columns that the module lists.

    Raises:
        InputError: if the model cannot be loaded, a text is not a string or cannot be read, a context is missing, lags
            are as long as the longest text, or an argument is not one of those above.
    """
    settings = _Settings(str(base), punctuation, end, word_ends, entropy, frequencies, lags)
    _check_arguments(settings)
    import pandas as pd

    texts, contexts, fields = _texts_of(sentences, column, context)
    table = _table(_as_scorer(model, tokenizer, reading), texts, contexts, settings, progress)
    if fields is None:
        return table
    repeated = fields.iloc[table["sentence"].to_numpy() - 1].reset_index(drop=True)
    return pd.concat([repeated, table], axis=1)


def _texts_of(
    sentences: Any, column: Hashable | None, context: Hashable | None
) -> tuple[list[str | Sequence[str]], list[Hashable] | None, pd.DataFrame | None]:
    """The texts, the context of each, and the other columns of a data frame."""
    import pandas as pd

    if not isinstance(sentences, pd.DataFrame):
        if context is not None:
            raise InputError("context: a column, so the texts must come in a data frame")
        return _checked(sentences), None, None
    fields, texts = _columns_of(sentences, column)
    return _checked(texts), _contexts_of(sentences, context, texts), fields


def _table(
    scorer: ModelScorer,
    texts: Sequence[str | Sequence[str]],
    contexts: Sequence[Hashable] | None,
    settings: _Settings,
    progress: Progress | None,
) -> pd.DataFrame:
    """The columns that are ours."""
    import pandas as pd

    if settings.end and not scorer.end_tokens:
        raise InputError("end: the model has no token that ends sentences, so their end has no surprisal")
    words = [text.split() if isinstance(text, str) else text for text in texts]
    blocks = list(_scored(scorer, words, contexts, settings, progress))
    table = pd.DataFrame({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})
    table["word"] = table["word"].astype(pd.StringDtype(na_value=np.nan))  # lengths of words are int64
    if settings.frequencies is not None:
        table["log_frequency"] = _log_frequencies(table["word"], settings.frequencies)
    for name in ("surprisal", "entropy", "entropy_reduction", "log_frequency"):
        if name in table:
            table[name] /= NATS[settings.base]
    if settings.punctuation == "attach":
        del table["punctuation"]
    _add_lags(table, settings, contexts)
    return table


def _log_frequencies(words: pd.Series, frequencies: Mapping[str, int]) -> pd.Series:
    """The logarithm of each word's share, in nats."""
    total = sum(frequencies.values()) + len(frequencies) + 1
    return words.map(lambda word: math.log((frequencies.get(word[inner(word)].lower(), 0) + 1) / total)).astype(float)


def _add_lags(table: pd.DataFrame, settings: _Settings, contexts: Sequence[Hashable] | None) -> None:
    """Add the columns of the words before."""
    lags = settings.lags
    if not lags:
        return
    table["length"] = table["word"].map(lambda word: len(word[inner(word)])).astype(np.int64)
    is_word = table["sentence"].duplicated(keep="last") if settings.end else table["sentence"] > 0
    texts = table["sentence"][is_word]
    if contexts is not None:
        texts = texts.map(lambda number: contexts[number - 1])
    longest = int(texts.value_counts().max()) if len(texts) else 0
    if lags >= longest:
        raise InputError(f"lags must be below {longest}, the number of words of the longest text; got {lags}")
    for name in ("surprisal", "entropy", "entropy_reduction", "log_frequency", "length"):
        if name in table:
            values = table[name][is_word]
            if name == "surprisal":
                values = values.mask(table["unknown"][is_word])  # that of all unknown words together
            for lag in range(1, lags + 1):
                table[f"{name}_{lag}"] = values.groupby(texts).shift(lag)


def name_clashes(names: Iterable[Hashable]) -> dict[Hashable, str]:
    """New names for the columns that have a name of ours.

    Raises:
        InputError: if another column already has the new name.
    """
    names = list(names)
    clashes: dict[Hashable, str] = {
        name: f"{name}_input"
        for name in names
        if name in _COLUMNS | _MORE or _STRENGTHS.fullmatch(str(name)) or _LAGGED.fullmatch(str(name))
    }
    for name, other in clashes.items():
        if other in names:
            raise InputError(f"the result has a column {name!r} of its own, and {other!r} is taken; rename one of them")
    return clashes


def strengths_in(columns: Iterable[str]) -> list[str]:
    """The columns of a table that are strengths."""
    return [name for name in columns if _STRENGTHS.fullmatch(name)]


def numbers_in(columns: Iterable[str]) -> list[str]:
    """The columns of a table that are numbers of a model: surprisal, strengths, and the others."""
    known = _MORE - {"length"} | {"surprisal"}
    return [name for name in columns if name in known or _STRENGTHS.fullmatch(name) or _LAGGED.fullmatch(name)]


def _check_arguments(settings: _Settings) -> None:
    if settings.base not in NATS:
        raise InputError(f"base must be one of {', '.join(NATS)}; got {settings.base}")
    check_name("punctuation", settings.punctuation, get_args(Punctuation))
    check_name("word_ends", settings.word_ends, get_args(WordEnds))
    if settings.lags < 0:
        raise InputError(f"lags must be at least 0; got {settings.lags}")


def _contexts_of(frame: pd.DataFrame, context: Hashable | None, texts: Sequence[Any]) -> list[Hashable] | None:
    """The context of each text; an empty text needs none."""
    if context is None:
        return None
    names = list(frame.columns)
    if names.count(context) != 1:
        raise InputError(f"context must be one of {', '.join(map(repr, names)) or 'no columns'}; got {context!r}")
    empty = frame[context].isna() | (frame[context].astype(object) == "")
    missing = empty.to_numpy() & np.array([bool(text) for text in texts])
    if missing.any():
        raise InputError(f"sentence {int(missing.argmax()) + 1} has no value in the column {context!r}, its context")
    values = frame[context].tolist()
    for number, value in enumerate(values, start=1):
        if not isinstance(value, Hashable):
            raise InputError(f"sentence {number}: a context must be a text or a number; got {shortened(value, 60)}")
    return values


def _columns_of(frame: pd.DataFrame, column: Hashable | None) -> tuple[pd.DataFrame, list[Any]]:
    """The other columns of a data frame, none with a name of ours, and its texts; "" where they are missing."""
    names = list(frame.columns)
    if column is None:

        def is_text(name: Hashable) -> bool:
            return names.count(name) == 1 and any(isinstance(value, str) for value in frame[name])

        texts = text_columns(names, is_text)
        column = texts[0] if len(texts) == 1 else None
    if names.count(column) != 1:
        raise InputError(f"column must be one of {', '.join(map(repr, names)) or 'no columns'}; got {column!r}")
    texts = frame[column]
    fields = frame.drop(columns=[column])
    return fields.rename(columns=name_clashes(fields.columns)), texts.astype(object).where(texts.notna(), "").tolist()


def _checked(sentences: Any) -> list[Any]:
    if isinstance(sentences, str):
        raise InputError("sentences must be a list of texts or a data frame; got one text")
    if not isinstance(sentences, Iterable):
        raise InputError(f"sentences must be texts or a data frame; got {type(sentences).__name__}")
    texts = list(sentences)
    for number, sentence in enumerate(texts, start=1):
        words: Sequence[Any] = sentence if isinstance(sentence, (list, tuple)) else [sentence]
        if not all(isinstance(word, str) for word in words):
            raise InputError(f"sentence {number} must be a text; got {sentence!r}")
        check_encodable(" ".join(words), f"sentence {number}")
    return texts


def _as_scorer(model: Any, tokenizer: Any, reading: Mapping[str, Any]) -> ModelScorer:
    if isinstance(model, ModelScorer):
        return model
    if isinstance(model, str | os.PathLike):
        loaded = ModelScorer.from_pretrained(os.fspath(model), **reading)
        if tokenizer is None:
            return loaded
        model = loaded.model
    if tokenizer is None:
        raise InputError("tokenizer: a model that is given as an object needs one")
    return ModelScorer(model, tokenizer, **{name: value for name, value in reading.items() if name != "device"})


def _scored(
    scorer: ModelScorer,
    sentences: Sentences,
    contexts: Sequence[Hashable] | None,
    settings: _Settings,
    progress: Progress | None,
) -> Iterator[dict[str, np.ndarray]]:
    """The columns of the rows, for one block of sentences with words at a time; at least one block."""
    numbers = [number for number, words in enumerate(sentences, start=1) if words]
    last = "".join(scorer.end_tokens)
    own_ends = settings.word_ends != "next" and scorer.begins_word is not None
    size = _BLOCK if contexts is None else max(1, len(numbers))  # a context is read as a whole
    for start in range(0, max(1, len(numbers)), size):
        block = numbers[start : start + size]
        given = [sentences[number - 1] for number in block]
        traces = scorer.trace(
            given,
            punctuation=settings.punctuation,
            numbers=block,
            contexts=None if contexts is None else [contexts[number - 1] for number in block],
            uncertainty=own_ends or settings.entropy,
            progress=progress,
        )
        if own_ends:
            traces = [_with_own_ends(trace) for trace in traces]
        if settings.end:
            traces = [_with_end(trace, last, len(scorer.end_tokens)) for trace in traces]
            given = [[*words, last] for words in given]
        yield _rows(traces, given, block, settings.entropy)


def _with_own_ends(trace: Trace) -> Trace:
    """A trace in which a word's probability has that of its end, and not that of the end before it."""
    ends = trace.word_ends
    assert ends is not None
    return replace(trace, logprobs=trace.logprobs + ends[1:] - ends[:-1], end_logprob=trace.end_logprob - ends[-1])


def _with_end(trace: Trace, end: str, n_tokens: int) -> Trace:
    """A trace in which the end of the sentence is one more word, without strengths."""
    return Trace(
        (*trace.words, end),
        np.append(trace.logprobs, trace.end_logprob),
        np.append(trace.n_tokens, n_tokens),
        np.append(trace.unknown, False),
        actions=tuple(
            {name: np.append(layer_actions[name], np.nan) for name in strengths_in(layer_actions)}
            for layer_actions in trace.actions
        ),
        entropies=None if trace.entropies is None else np.append(trace.entropies, np.nan),
    )


def _rows(
    traces: Sequence[Trace], sentences: Sentences, numbers: Sequence[int], entropy: bool
) -> dict[str, np.ndarray]:
    """The columns of some sentences' rows, in nats."""
    words = [word for trace in traces for word in trace.words]

    def join(parts: Iterable[np.ndarray], dtype: type) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype), *parts], dtype=dtype)

    columns = {
        "sentence": np.repeat(np.array(numbers, np.int64), [len(trace.words) for trace in traces]),
        "position": join(map(_positions, traces, sentences), np.int64),
        "word": np.array(words, dtype=object),
        "n_tokens": join((trace.n_tokens for trace in traces), np.int64),
        "unknown": join((trace.unknown for trace in traces), np.bool_),
        "punctuation": np.fromiter(map(is_punctuation, map(unescape_word, words)), np.bool_, len(words)),
        "surprisal": join((0.0 - trace.logprobs for trace in traces), np.float64),
    }
    if entropy:
        entropies = [trace.entropies for trace in traces if trace.entropies is not None]
        columns["entropy"] = join((each[:-1] for each in entropies), np.float64)
        columns["entropy_reduction"] = join((np.maximum(0.0, each[:-1] - each[1:]) for each in entropies), np.float64)
    layers = traces[0].actions if traces else ()
    for i, layer_actions in enumerate(layers):
        for name in strengths_in(layer_actions):
            column = name if len(layers) == 1 else f"{name}_{i}"
            columns[column] = join((trace.actions[i][name] for trace in traces), np.float64)
    return columns


def _positions(trace: Trace, words: Sequence[str]) -> np.ndarray:
    """The numbers, from 1, of the words to which those of a trace belong."""
    starts = np.cumsum([0, *map(len, trace.words[:-1])])
    return np.searchsorted(np.cumsum([len(word) for word in words]), starts, side="right") + 1
