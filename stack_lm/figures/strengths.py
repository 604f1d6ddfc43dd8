"""Strengths by kinds of words: parts of speech, and verbs with and without an object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.trace import Trace
from .verbs import VERB_FRAMES

if TYPE_CHECKING:
    import pandas as pd

ALL_WORDS, PUNCTUATION = "all words", "punctuation"
# The tag sets of the Penn Treebank, of the Brown corpus, of Universal Dependencies, and STTS, of German treebanks.
CLASSES = {
    "nouns": r"NNS?|NNPS?|N[NPR]S?\$?|NOUN|PROPN|NE",
    "verbs": r"VB[DGNPZ]?|(BE|HV|DO)[DGNRZM]?Z?|VERB|V[VA](FIN|IMP|INF|IZU|PP)",
    "modals": r"MD|VM(FIN|INF|PP)",
    "adpositions": r"IN|ADP|AP(PR|PRART|PO|ZR)",
    "infinitival to": r"TO|PTKZU",
    "determiners": r"DT[ISX]?\$?|PDT|WDT|AT|AB[LNX]|DET|ART|P(DAT|IAT|IDAT|POSAT|WAT|RELAT)",
    "adjectives": r"JJ[RST]?|ADJ|ADJ[AD]",
    "adverbs": r"RB[RST]?\$?|RN|RP|WRB|QLP?|WQL|ADV|(P|PRO|PW)AV",
    "pronouns": r"PRP\$?|EX|P[NP](\$\$?|L|LS|O|S|SS)?\$?|WP[OS]?\$?|PRON|PPER|PRF|P(D|I|POS|REL|W)S",
    "conjunctions": r"CC|CS|CCONJ|SCONJ|KO(N|KOM|US|UI)",
    "numbers": r"CD|OD|NUM|CARD",
    PUNCTUATION: r"(?![$#]$)[^A-Za-z]+|-[LR][RCS]B-|PUNCT",  # $ and # are symbols of currency and number
}
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@lru_cache(maxsize=4096)
def word_class(tag: str) -> str | None:
    """The class of a part-of-speech tag, such as "nouns"; None for rare tags, and for those of other tag sets.

    The tag sets are those of the Penn Treebank, the Brown corpus, Universal Dependencies and STTS.

    Adpositions (IN) of the Penn Treebank include its subordinating conjunctions, and its infinitival to (TO) includes
    the preposition; the Brown corpus distinguishes them. Brown's tags of two words in one (PPSS+BEM) have no class.
    """
    plain = re.sub(r"^FW-|-(TL|HL|NC)\b", "", tag)
    plain = plain.removesuffix("*") or plain
    return next((name for name, pattern in CLASSES.items() if re.fullmatch(pattern, plain)), None)


def known_words(
    traces: Sequence[Trace],
    signal: str,
    tags: Sequence[Sequence[str]],
    frames: Sequence[Sequence[str | None]] | None = None,
) -> pd.DataFrame:
    """The words that a model knows, in order.

    Args:
        traces: one for each sentence.
        signal: such as "push_strength".
        tags: the part-of-speech tags of each sentence.
        frames: the frames of each sentence (see `verb_frames`), if there are trees.

    Returns:
        The columns `sentence`, its number from 0, `word`, `tag`, `frame` (None without one), and `value`, the strength
        in elements.
    """
    import pandas as pd

    rows = [
        row
        for number, (trace, of_sentence) in enumerate(zip(traces, tags, strict=True))
        for *row, unknown in zip(
            [number] * len(trace.words),
            trace.words,
            of_sentence,
            [None] * len(trace.words) if frames is None else frames[number],
            trace.signals[signal],
            trace.unknown,
            strict=True,
        )
        if not unknown
    ]
    return pd.DataFrame(rows, columns=["sentence", "word", "tag", "frame", "value"])


def classes(words: pd.DataFrame) -> dict[str, np.ndarray]:
    """Masks [N] of the words in each class by name, all words first; empty classes are left out."""
    of_words = words["tag"].map(word_class)
    masks = {name: (of_words == name).to_numpy() for name in CLASSES}
    return {ALL_WORDS: np.ones(len(words), dtype=bool)} | {name: mask for name, mask in masks.items() if mask.any()}


def summarize(values: pd.Series) -> dict[str, Any]:
    """The number of some values, at least one, their mean and standard deviation, and quantiles."""
    quantiles = {f"{100 * q:g}%": value for q, value in values.quantile(QUANTILES).items()}
    return {"n": len(values), "mean": float(values.mean()), "std": float(values.std(ddof=0))} | quantiles


def by_tag(words: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """A summary of each tag, the most frequent first."""
    summaries = [(tag, summarize(values)) for tag, values in words.groupby("tag")["value"]]
    return dict(sorted(summaries, key=lambda pair: -pair[1]["n"]))


def frames_by_tag(words: pd.DataFrame) -> dict[str, dict[str, dict[str, Any]]]:
    """A summary of each frame of the verbs of each tag, because frames differ in their share of verb forms."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    groups = dict(list(words.groupby(["tag", "frame"])["value"]))
    for tag, frame in sorted(groups, key=lambda key: (key[0], VERB_FRAMES.index(key[1]))):
        found.setdefault(tag, {})[frame] = summarize(groups[tag, frame])
    return found


class Contrast(NamedTuple):
    """The difference between the strengths of two groups of words.

    Attributes:
        first: name of the first group.
        second: name of the second group.
        difference: difference of the means, first minus second, in elements.
        low: lower end of its 95% confidence interval, by the bootstrap over sentences (percentiles).
        high: upper end of that interval.
        superiority: the probability that a random word of the first group has the greater strength, with ties counted
            half: 0.5 is no difference (McGraw and Wong 1992; the Mann-Whitney U over the number of pairs).
    """

    first: str
    second: str
    difference: float
    low: float
    high: float
    superiority: float


def contrast(
    first: str, second: str, values: np.ndarray, sentences: np.ndarray, in_first: np.ndarray, in_second: np.ndarray,
    *, samples: int = 1000, seed: int = 0,
) -> Contrast | None:  # fmt: skip
    """Compare two groups of words.

    Sentences, not words, are drawn with replacement (Efron and Tibshirani 1993, section 8), because the words of a
    sentence depend on each other.

    Args:
        first: name of the first group.
        second: name of the second group.
        values: strength of each word [N].
        sentences: number of each word's sentence [N].
        in_first: mask of the words in the first group [N].
        in_second: mask of the words in the second group [N].
        samples: number of bootstrap samples.
        seed: the seed of its random choices.

    Returns:
        None if a group is empty.
    """
    if not in_first.any() or not in_second.any():
        return None
    n = int(sentences.max()) + 1
    sums = [np.bincount(sentences[g], weights=values[g], minlength=n) for g in (in_first, in_second)]
    counts = [np.bincount(sentences[g], minlength=n) for g in (in_first, in_second)]
    rng = np.random.default_rng(seed)
    differences = np.empty(samples)
    for sample in range(samples):
        drawn = np.bincount(rng.integers(n, size=n), minlength=n)
        # A sample may miss a small group entirely; it is then ignored.
        sizes = [int(drawn @ c) for c in counts]
        differences[sample] = drawn @ sums[0] / sizes[0] - drawn @ sums[1] / sizes[1] if all(sizes) else np.nan
    low, high = np.nanquantile(differences, (0.025, 0.975)).tolist()
    a, b = values[in_first], np.sort(values[in_second])
    below, not_above = np.searchsorted(b, a, "left"), np.searchsorted(b, a, "right")
    return Contrast(
        first, second, float(a.mean() - b.mean()), low, high, float((below + not_above).sum() / (2 * len(a) * len(b)))
    )
