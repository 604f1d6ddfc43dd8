"""Surprisal of words for reading-time studies: a table with a row for each word."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from ..core.errors import InputError
from ..core.messages import check_name
from ..core.trace import Trace
from ..text.escapes import unescape_word
from ..text.records import text_columns
from .punctuation import Punctuation, is_punctuation
from .sentences import ModelScorer, Progress

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# A unit of surprisal in nats, by the base of its logarithm.
NATS = {"2": math.log(2), "e": 1.0, "10": math.log(10)}
# Sentences scored at a time: enough for batches of similar length.
_BLOCK = 10_000
_COLUMNS = {"model", "sentence", "position", "word", "n_tokens", "unknown", "punctuation", "surprisal"}
_STRENGTHS = re.compile(r"(push|pop|read|total)_strength(_(?!input$)\w+)?")


def surprisal(
    model: str | os.PathLike[str] | PreTrainedModel | ModelScorer,
    sentences: Iterable[str | Sequence[str]] | pd.DataFrame,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    column: Hashable | None = None,
    base: int | str = 2,
    punctuation: Punctuation = "attach",
    end: bool = False,
    device: str | None = None,
    batch_tokens: int = 2048,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The surprisal of each word given the words before it in its sentence.

    White space separates the words of a text, and any run of it counts as one space. A word's surprisal is the sum
    over its tokens. A sentence of only white space has no rows; the others keep their numbers.

    Args:
        model: a path or a name on the hub, any causal language model, or a scorer.
        sentences: texts, or lists of words; or a data frame of them, whose other columns are repeated in each row of a
            sentence.
        tokenizer: a model's fast tokenizer; that of a path by default.
        column: the column of a data frame with the texts; None takes "text", or "sentence", or the only column of text.
            An empty cell is a text without words.
        base: the base of the logarithm: 2 (bits), "e" (nats) or 10.
        punctuation: "attach" counts punctuation with the word that it touches. "split" gives the punctuation at the
            ends of a word its own rows, unless a token has both.
        end: add a row for the end of each sentence. The sum of a sentence's rows is then its surprisal.
        device: the device of a model that is loaded, such as "cpu" or "cuda:1"; None takes a GPU if there is one.
        batch_tokens: tokens in a batch, padding included.
        progress: called with the number of sentences done, batch by batch.

    Returns:
        One row for each word, in order. Columns:

        - those of a data frame, except the texts; one with the name of a column below gets the suffix "_input";
        - `sentence`, from 1, and `position` of the white-space word in it, from 1 (int64); `word` (string);
        - `n_tokens`: tokens that were scored (int64); `unknown`: outside the vocabulary (bool);
        - `punctuation`: nothing but punctuation (bool), if that is split off;
        - `surprisal` (float64): NaN for the first word where the model has no token that begins sentences;
        - a memory's strengths (float64, in elements), such as `push_strength`; of several layers `push_strength_0`, ...

        A word's strengths are those of its last token, or as a scorer's `word_strength` says.

    Raises:
        InputError: if the model cannot be loaded, a text is not a string or is longer than the model can read, or an
            argument is not one of those above.
    """
    _check_arguments(base, punctuation)
    import pandas as pd

    fields: pd.DataFrame | None = None
    if isinstance(sentences, pd.DataFrame):
        fields, sentences = _columns_of(sentences, column)
    texts = _checked(sentences)
    table = _table(_as_scorer(model, tokenizer, device, batch_tokens), texts, base, punctuation, end, progress)
    if fields is None:
        return table
    repeated = fields.iloc[table["sentence"].to_numpy() - 1].reset_index(drop=True)
    return pd.concat([repeated, table], axis=1)


def _table(
    scorer: ModelScorer,
    texts: Sequence[str | Sequence[str]],
    base: int | str,
    punctuation: Punctuation,
    end: bool,
    progress: Progress | None,
) -> pd.DataFrame:
    """The columns of the result that are ours."""
    import pandas as pd

    if end and not scorer.end_tokens:
        raise InputError("end: the model has no token that ends sentences, so their end has no surprisal")
    words = [text.split() if isinstance(text, str) else text for text in texts]
    blocks = list(_scored(scorer, words, punctuation, end, progress))
    table = pd.DataFrame({name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]})
    table["word"] = table["word"].astype(pd.StringDtype(na_value=np.nan))  # lengths of words are int64
    table["surprisal"] /= NATS[str(base)]
    if punctuation == "attach":
        del table["punctuation"]
    return table


def name_clashes(names: Iterable[Hashable]) -> dict[Hashable, str]:
    """New names for the columns that have a name of ours.

    Raises:
        InputError: if another column already has the new name.
    """
    names = list(names)
    clashes: dict[Hashable, str] = {
        name: f"{name}_input" for name in names if name in _COLUMNS or _STRENGTHS.fullmatch(str(name))
    }
    for name, other in clashes.items():
        if other in names:
            raise InputError(f"the result has a column {name!r} of its own, and {other!r} is taken; rename one of them")
    return clashes


def strengths_in(columns: Iterable[str]) -> list[str]:
    """The columns of a table that are strengths."""
    return [name for name in columns if _STRENGTHS.fullmatch(name)]


def _check_arguments(base: int | str, punctuation: str) -> None:
    if str(base) not in NATS:
        raise InputError(f"base must be one of {', '.join(NATS)}; got {base!r}")
    check_name("punctuation", punctuation, get_args(Punctuation))


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


def _checked(sentences: Iterable[str | Sequence[str]]) -> list[str | Sequence[str]]:
    if isinstance(sentences, str):
        raise InputError("sentences must be a list of texts or a data frame; got one text")
    if not isinstance(sentences, Iterable):
        raise InputError(f"sentences must be texts or a data frame; got {type(sentences).__name__}")
    texts = list(sentences)
    for number, sentence in enumerate(texts, start=1):
        words = sentence if isinstance(sentence, (list, tuple)) else [sentence]
        if not all(isinstance(word, str) for word in words):
            raise InputError(f"sentence {number} must be a text; got {sentence!r}")
        try:
            " ".join(words).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"sentence {number}, character {error.start + 1}: not a valid character in text"
            ) from error
    return texts


def _as_scorer(model: Any, tokenizer: Any, device: str | None, batch_tokens: int) -> ModelScorer:
    if isinstance(model, ModelScorer):
        return model
    if isinstance(model, str | os.PathLike):
        loaded = ModelScorer.from_pretrained(os.fspath(model), device=device, batch_tokens=batch_tokens)
        return loaded if tokenizer is None else ModelScorer(loaded.model, tokenizer, batch_tokens=batch_tokens)
    if tokenizer is None:
        raise InputError("tokenizer: a model that is given as an object needs one")
    return ModelScorer(model, tokenizer, batch_tokens=batch_tokens)


def _scored(
    scorer: ModelScorer,
    sentences: Sequence[Sequence[str]],
    punctuation: Punctuation,
    end: bool,
    progress: Progress | None,
) -> Iterator[dict[str, np.ndarray]]:
    """The columns of the rows, for one block of sentences with words at a time; at least one block."""
    numbers = [number for number, words in enumerate(sentences, start=1) if words]
    last = "".join(scorer.end_tokens)
    for start in range(0, max(1, len(numbers)), _BLOCK):
        block = numbers[start : start + _BLOCK]
        given = [sentences[number - 1] for number in block]
        traces = scorer.trace(given, punctuation=punctuation, numbers=block, progress=progress)
        if end:
            traces = [_with_end(trace, last, len(scorer.end_tokens)) for trace in traces]
            given = [[*words, last] for words in given]
        yield _rows(traces, given, block)


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
    )


def _rows(traces: Sequence[Trace], sentences: Sequence[Sequence[str]], numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """The columns of some sentences' rows, with surprisal in nats."""
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
