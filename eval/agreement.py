"""Subject-verb agreement with a language model: does it prefer the verb's right form to the wrong one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from stack_lm.errors import InputError
from stack_lm.trace import SentenceModel

OutOfVocabulary = Literal["skip", "wrong"]
GENERATED_PER_BIN = 300


@dataclass(frozen=True)
class AgreementItem:
    """One choice between two forms of a verb.

    Attributes:
        prefix: the words before the verb.
        correct, wrong: its two forms.
        n_attractors: nouns of the other number between subject and verb.
        number: "singular" or "plural", of the subject.
    """

    prefix: tuple[str, ...]
    correct: str
    wrong: str
    n_attractors: int
    number: str


@dataclass(frozen=True, eq=False)
class AgreementResult:
    """Agreement accuracy, in percent, and the counts behind it.

    Attributes:
        accuracy: of all items that were scored.
        by_attractors: accuracy by the number of attractors.
        by_number: accuracy by the subject's number.
        n_by_attractors, n_by_number: items scored in each group.
        n: items scored.
        n_skipped: items left out: identical pairs, items without a prefix, and with oov="skip" those with a form
            outside the vocabulary.
        n_identical, n_no_prefix: of those left out.
        n_oov: items with a form outside the vocabulary, skipped or counted as wrong.
        n_ties: items whose forms were equally probable; a tie is not correct.
        oov: what was done with out-of-vocabulary items.
        majority: accuracy of always choosing the more frequent number among the items scored.
        correct: of each item, in order: 1 correct, 0 not, -1 left out.
        logprobs: of each item's correct and wrong form [items, 2], in nats; NaN where they were not computed.
    """

    accuracy: float
    by_attractors: dict[int, float]
    by_number: dict[str, float]
    n_by_attractors: dict[int, int]
    n_by_number: dict[str, int]
    n: int
    n_skipped: int
    n_identical: int
    n_no_prefix: int
    n_oov: int
    n_ties: int
    oov: OutOfVocabulary
    majority: float
    correct: np.ndarray
    logprobs: np.ndarray


def evaluate_agreement(
    model: SentenceModel,
    items: Sequence[AgreementItem],
    *,
    oov: OutOfVocabulary = "skip",
    progress: Callable[[int], None] | None = None,
) -> AgreementResult:
    """Score items: correct means that the right form is strictly more probable than the wrong one.

    Args:
        model: a `SentenceModel`.
        items: see `read_agreement`.
        oov: what becomes of an item with a form outside the model's vocabulary: "skip" leaves it out, "wrong" counts
            it as not correct.
        progress: called with the number of items done, block by block.

    Raises:
        InputError: if no item is left to score.
    """
    if oov not in get_args(OutOfVocabulary):
        raise InputError(f"oov must be one of {', '.join(get_args(OutOfVocabulary))}; got {oov!r}")
    identical = np.array([item.correct == item.wrong for item in items], dtype=bool)
    known = {word: model.knows(word) for word in {w for item in items for w in (item.correct, item.wrong)}}
    unknown = np.array([not (known[i.correct] and known[i.wrong]) for i in items], dtype=bool) & ~identical
    wanted = np.flatnonzero(~identical & ~unknown)
    logprobs = np.full((len(items), 2), np.nan)
    for start in range(0, len(wanted), 1000):
        block = wanted[start : start + 1000]
        prefixes = [items[i].prefix for i in block]
        scores = model.continuation_logprobs(prefixes, [(items[i].correct, items[i].wrong) for i in block])
        logprobs[block] = np.stack(scores)
        if progress is not None:
            progress(len(block))
    no_prefix = ~identical & ~unknown & np.isnan(logprobs).any(axis=1)
    correct = np.full(len(items), -1)
    scored = ~identical & ~unknown & ~no_prefix
    correct[scored] = logprobs[scored, 0] > logprobs[scored, 1]
    if oov == "wrong":
        correct[unknown] = 0
    counted = correct >= 0
    if not counted.any():
        why = f"{int(unknown.sum())} have a form outside the model's vocabulary, {int(identical.sum())} no two forms"
        raise InputError(f"none of the {len(items)} agreement items can be scored: {why}")
    attractors = np.array([item.n_attractors for item in items])
    numbers = np.array([item.number for item in items])

    def accuracy(group: np.ndarray) -> float:
        return 100 * float(correct[group & counted].mean())

    bins = [int(k) for k in np.unique(attractors[counted])]
    kinds = [str(kind) for kind in np.unique(numbers[counted])]
    n_by_number = {kind: int((counted & (numbers == kind)).sum()) for kind in kinds}
    return AgreementResult(
        accuracy=accuracy(counted),
        by_attractors={k: accuracy(attractors == k) for k in bins},
        by_number={kind: accuracy(numbers == kind) for kind in kinds},
        n_by_attractors={k: int((counted & (attractors == k)).sum()) for k in bins},
        n_by_number=n_by_number,
        n=int(counted.sum()),
        n_skipped=int((~counted).sum()),
        n_identical=int(identical.sum()),
        n_no_prefix=int(no_prefix.sum()),
        n_oov=int(unknown.sum()),
        n_ties=int((logprobs[scored, 0] == logprobs[scored, 1]).sum()),
        oov=oov,
        majority=100 * max(n_by_number.values()) / int(counted.sum()),
        correct=correct,
        logprobs=logprobs,
    )


def number_of(form: str, other: str) -> str:
    """The number of a present-tense verb form, or of was and were, seen beside its other form."""
    if form.endswith("s") != other.endswith("s"):
        return "singular" if form.endswith("s") else "plural"
    return "singular" if len(form) > len(other) else "plural"  # discusses, discuss


_IRREGULAR = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go"}
_OTHER_FORM = _IRREGULAR | {plural: singular for singular, plural in _IRREGULAR.items()}


def other_form(verb: str, tag: str) -> str:
    """The verb's form of the other number, by the rules of English spelling.

    Args:
        verb: a present-tense form, or was or were.
        tag: "VBZ" if it is singular, "VBP" if plural.
    """
    if verb in _OTHER_FORM:
        return _OTHER_FORM[verb]
    if tag == "VBZ":
        if verb.endswith("ies") and len(verb) > 4:
            return verb[:-3] + "y"
        return verb[:-2] if verb.endswith(("ches", "shes", "sses", "xes", "zzes")) else verb[:-1]
    if verb.endswith(("ch", "sh", "ss", "x", "zz")):
        return verb + "es"
    return verb[:-1] + "ies" if verb.endswith("y") and verb[-2:-1] not in "aeiou" else verb + "s"


def _read_linzen_tsv(source: str) -> list[AgreementItem]:
    from stack_lm.data.text import read_table

    items = []
    for number, row in read_table(source):
        missing = {"sentence", "verb_pos", "verb_index", "n_diff_intervening"} - row.keys()
        if missing:
            raise InputError(f"{source}: the header lacks the columns {', '.join(sorted(missing))}")
        words = row["sentence"].split()
        place = _number(row["verb_index"], f"{source}, line {number}: verb_index") - 1
        if not 0 <= place < len(words):
            raise InputError(f"{source}, line {number}: verb_index {place + 1} is outside a sentence of {len(words)}")
        attractors = _number(row["n_diff_intervening"], f"{source}, line {number}: n_diff_intervening")
        tag = row["verb_pos"]
        if tag not in ("VBZ", "VBP"):
            raise InputError(f"{source}, line {number}: verb_pos must be VBZ or VBP; got {tag!r}")
        singular = "singular" if tag == "VBZ" else "plural"
        verb = words[place]
        items.append(AgreementItem(tuple(words[:place]), verb, other_form(verb, tag), attractors, singular))
    return items


def _read_linzen_gulordava(source: str) -> list[AgreementItem]:
    from stack_lm.data.text import read_lines

    stem = _stem(Path(source))
    text = list(read_lines(f"{stem}.text"))
    gold = list(read_lines(f"{stem}.gold"))
    if len(text) != len(gold):
        raise InputError(f"{stem}.text has {len(text)} lines, but {stem}.gold has {len(gold)}")
    items = []
    for (number, sentence), (_, row) in zip(text, gold, strict=True):
        where = f"{stem}.gold, line {number}"
        cells = row.split("\t")
        if len(cells) != 4:
            raise InputError(
                f"{where}: {len(cells)} columns; index, correct form, wrong form and attractors are needed"
            )
        words, place = sentence.split(), _number(cells[0], where)
        if not 0 <= place < len(words):
            raise InputError(f"{where}: index {place} is outside a sentence of {len(words)} words")
        correct, wrong = cells[1], cells[2]
        number_name = number_of(correct, wrong)
        items.append(AgreementItem(tuple(words[:place]), correct, wrong, _number(cells[3], where), number_name))
    return items


def _stem(path: Path) -> str:
    """The common path of a .text and a .gold file, from a directory, one of the files, or the path itself."""
    if path.is_dir():
        stems = sorted(str(file.with_suffix("")) for file in path.glob("*.gold"))
        if len(stems) != 1:
            raise InputError(f"the directory {path} must have one .gold file; it has {len(stems)}")
        return stems[0]
    return str(path.with_suffix("")) if path.suffix in (".text", ".gold", ".eval") else str(path)


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{where}: not a whole number: {text!r}") from None


def _read_generated(source: str) -> list[AgreementItem]:
    """Items from the built-in corpus: 300 for each number of attractors from 0 to 3. The source is a seed."""
    import random

    from stack_lm.data.generated import generate_sentence

    rng = random.Random(_number(source, "--data of the format 'generated' is a seed"))
    bins: dict[int, list[AgreementItem]] = {k: [] for k in range(4)}
    while any(len(items) < GENERATED_PER_BIN for items in bins.values()):
        sentence = generate_sentence(rng)
        for item in sentence.agreement:
            chosen = bins.get(item.n_attractors)
            if chosen is not None and len(chosen) < GENERATED_PER_BIN:
                prefix = sentence.words[: item.verb]
                chosen.append(AgreementItem(prefix, item.correct, item.wrong, item.n_attractors, item.number))
    return [item for items in bins.values() for item in items]


# Readers by the format's name.
AGREEMENT_FORMATS: dict[str, Callable[[str], list[AgreementItem]]] = {
    "linzen": _read_linzen_tsv,
    "linzen-gulordava": _read_linzen_gulordava,
    "generated": _read_generated,
}


def read_agreement(source: str, format_name: str) -> list[AgreementItem]:
    """Read agreement items.

    Args:
        source: a path, or for "generated" a seed.
        format_name: "linzen" (the table of Linzen et al. 2016 with its 18 columns, `agr_50_mostcommon_10K.tsv`),
            "linzen-gulordava" (the aligned files .text and .gold: the directory, one of them, or their path without
            the ending), or "generated" (the built-in English).

    Raises:
        InputError: for an unknown format, and for a missing, empty or malformed file, by line.
    """
    if format_name not in AGREEMENT_FORMATS:
        raise InputError(f"format must be one of {', '.join(AGREEMENT_FORMATS)}; got {format_name!r}")
    items = AGREEMENT_FORMATS[format_name](source)
    if not items:
        raise InputError(f"{source} has no agreement items")
    return items
