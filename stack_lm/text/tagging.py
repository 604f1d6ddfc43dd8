"""A part-of-speech tagger with the tags of the Penn Treebank, trained on tagged corpora of NLTK.

The Brown corpus has its own tags. `penn_sentence` translates a sentence, or rejects it if the translation is unclear:
Brown does not distinguish base forms from present tenses ("they work", "to work"), for example.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from .corpora import Sentence

if TYPE_CHECKING:
    from nltk.tag.perceptron import PerceptronTagger

Tagged = list[tuple[str, str]]

# From Brown's tags; those that depend on the word or its neighbours are in functions below.
_PENN = {tag: tag for tag in "CC CD DT EX IN JJ JJR MD NN NNS RB RBR RP TO UH VBD VBG VBN VBZ WDT WP$ WRB".split()}
_PENN |= {mark: mark for mark in ". , : ( ) `` ''".split()} | {"--": ":", "'": "''", "*": "RB"}
_PENN |= {
    brown: penn
    for penn, same in {
        "DT": "AT DTI DTS DTX",
        "IN": "CS",
        "JJ": "JJS OD",
        "JJS": "JJT",
        "NN": "NR PN",
        "NNP": "NP",
        "NNPS": "NPS",
        "NNS": "NRS",
        "PRP": "PP$$ PPL PPLS PPO PPS PPSS",
        "PRP$": "PP$",
        "RB": "QL QLP RN",
        "RBS": "RBT",
        "VB": "BE",
        "VBD": "BED BEDZ DOD HVD",
        "VBG": "BEG HVG",
        "VBN": "BEN HVN",
        "VBP": "BEM BER",
        "VBZ": "BEZ DOZ HVZ",
        "WRB": "WQL",
    }.items()
    for brown in same.split()
}
_DOUBLED = (";", "?", "!")  # the Brown corpus has these twice
_TITLES = {"NN": "NNP", "NNS": "NNPS", "JJ": "NNP", "VBN": "NNP", "VBG": "NNP", "NR": "NNP", "NP": "NNP", "NPS": "NNPS"}
_DEGREES = {"more": "JJR", "less": "JJR", "fewer": "JJR", "most": "JJS", "least": "JJS"}
# Base form or present tense, and what decides: an infinitive follows to, a modal or do; after these verbs it follows an
# object too ("makes people work").
_BASE_FORMS = {"VB", "DO", "HV"}
_BEFORE_INFINITIVES = {"TO", "MD", "DO", "DOD", "DOZ"}
_CAUSATIVES = re.compile(
    r"let|let's|ma[kd]e|makes|making|help(s|ed|ing)?|saw|sees?|watch(es|ed|ing)?|hear[ds]?|ha[ds]|have"
)


def train_tagger(sentences: Iterable[Tagged], iterations: int = 5, seed: int = 0) -> PerceptronTagger:
    """NLTK's averaged perceptron (Collins 2002), trained reproducibly for a seed.

    Args:
        sentences: words with their tags.
        iterations: number of passes over them.
        seed: the seed of their order after the first pass.
    """
    from nltk.tag.perceptron import PerceptronTagger

    tagger = PerceptronTagger(load=False)
    state = random.getstate()
    random.seed(seed)  # NLTK shuffles with the process's own generator
    try:
        tagger.train(sentences, nr_iter=iterations)
    finally:
        random.setstate(state)
    return tagger


def tagged_sentences(corpus: Iterable[Sentence], brown: bool = False) -> Iterator[Tagged]:
    """The tagged sentences of a corpus, with Penn's tags and with brackets as in text.

    Args:
        corpus: a corpus with tags.
        brown: whether the tags are those of the Brown corpus; sentences without a clear translation are left out.
    """
    brackets = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}"}
    for words, tags in corpus:
        pairs = list(zip((brackets.get(word, word) for word in words), tags or (), strict=True))
        sentence = penn_sentence(pairs) if brown else [(word, brackets.get(tag, tag)) for word, tag in pairs]
        if sentence:
            yield sentence


def penn_sentence(pairs: Sequence[tuple[str, str]]) -> Tagged | None:
    """A sentence of the Brown corpus in the words and tags of the Penn Treebank; None if they are unclear.

    Contractions and possessives are split, as in the Treebank.

    Args:
        pairs: words and their tags.
    """
    plain = [re.sub(r"-(HL|NC)\b", "", tag) for _, tag in pairs]
    bare = [tag.removesuffix("-TL").rstrip("*") or tag for tag in plain]
    sentence: Tagged = []
    for i, (word, _) in enumerate(pairs):
        parts = _split(word, plain[i])
        if parts is None:
            return None
        for form, tag in parts:
            penn = (
                _base_or_present(pairs, bare, i) if tag in _BASE_FORMS else _translate(form, tag, bare[i + 1 : i + 2])
            )
            if penn is None:
                return None
            if not (form in _DOUBLED and sentence and sentence[-1][0] == form):
                sentence.append((form, ":" if form == ";" else penn))
    return sentence


def _split(word: str, tag: str) -> Tagged | None:
    """A word's parts with their tags of the Brown corpus; None for kinds that are too rare."""
    title = "-TL" * tag.endswith("-TL")
    tag = tag.removesuffix("-TL")
    if tag.startswith("FW-") or tag == "NIL":
        return None
    if tag.endswith("*") and tag != "*":
        if word.lower() == "cannot":
            return [(word[:3], "MD"), (word[3:], "*")]
        stem, mark, _ = word.rpartition("n't")
        return [(stem, tag[:-1]), (mark, "*")] if stem else None
    if "+" in tag:
        first, _, second = tag.partition("+")
        stem, mark, rest = word.rpartition("'")
        return [(stem, first), (mark + rest, second)] if stem and second in {*_PENN} - {"TO", "PPO"} else None
    if tag.endswith("$") and tag not in _PENN:
        stem = next((word.removesuffix(end) for end in ("'s", "'") if word.endswith(end)), "")
        return [(stem, tag[:-1] + title), (word[len(stem) :], "POS")] if stem else None
    return [(word, tag + title)]


def _translate(word: str, tag: str, following: Sequence[str]) -> str | None:
    """Penn's tag for a word with a Brown tag other than that of a base form."""
    lower = word.lower()
    if tag.endswith("-TL"):
        tag = tag.removesuffix("-TL")
        return _TITLES.get(tag, _PENN.get(tag))
    if tag == "POS":
        return tag
    if lower == "to":
        return "TO"
    if tag == "NR" and word[:1].isupper():
        return "NNP"
    if tag in ("WPS", "WPO"):
        return "WDT" if lower in ("that", "which") else "WP"
    if tag == "AP":
        return _DEGREES.get(lower, "JJ")
    if tag in ("ABN", "ABL", "ABX"):  # all the people, such a man
        return "PDT" if following and following[0] in ("AT", "PP$", "DT", "DTS") else None if lower == "half" else "DT"
    return _PENN.get(tag)


def _base_or_present(pairs: Sequence[tuple[str, str]], tags: Sequence[str], i: int) -> str | None:
    """The tag of the verb at i: "VB" for a base form, "VBP" for the present tense; None if that is not clear."""
    before = [j for j in range(i - 1, -1, -1) if tags[j] not in ("RB", "QL", "*", "RBR")]
    if not before:
        return "VB"  # an imperative
    j = before[0]
    if tags[j] in _BEFORE_INFINITIVES or tags[j].endswith("+MD"):
        return "VB"
    if tags[j] not in ("PPSS", "NNS", "NPS", "WPS"):
        return None
    asked = len(before) > 1 and tags[before[1]] in _BEFORE_INFINITIVES  # do you know
    caused = any(_CAUSATIVES.fullmatch(word.lower()) for word, _ in pairs[:j])
    return "VB" if asked else None if caused else "VBP"


def treebank_quotes(words: Iterable[str]) -> list[str]:
    """Words with the Treebank's quotation marks in place of straight ones, opening and closing in turn."""
    forms, inside = [], False
    for word in words:
        if word == '"':
            word, inside = ("''" if inside else "``"), not inside
        forms.append(word)
    return forms
