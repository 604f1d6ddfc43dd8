"""Subjects of present-tense verbs in tagged sentences, by rules.

A sentence is rewritten twice, with a letter for each part, so that the rules are regular expressions. First each tag
becomes a letter, and base noun phrases are found among them. Then each noun phrase becomes one letter. A verb's subject
is the leftmost noun phrase that begins a clause and has only its own modifiers between itself and the verb:
prepositional phrases, participles, infinitives, relative clauses, and text between commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# The letters of tags. Punctuation is its own letter.
_TAGS = {
    "n": "NN",
    "s": "NNS",
    "p": "NNP NNPS",
    "o": "PRP",
    "e": "EX",
    "d": "DT PDT PRP$",
    "c": "CD",
    "j": "JJ JJR JJS",
    "r": "RB RBR RBS RP",
    "i": "IN",
    "t": "TO",
    "Z": "VBZ",
    "P": "VBP",
    "D": "VBD",
    "M": "MD",
    "b": "VB",
    "g": "VBG",
    "q": "VBN",
    "k": "CC",
    "w": "WDT WP WP$ WRB",
    "'": "POS",
    ",": ",",
    ":": ":",
    ".": ".",
}
_LETTERS = {tag: letter for letter, tags in _TAGS.items() for tag in tags.split()}
_SUBORDINATORS = {"because", "if", "although", "though", "while", "whether", "unless", "whereas", "whilst"}

# Base noun phrases: determiners, modifiers, nouns, and again after a possessive; or a pronoun, a number, "this".
_CORE = r"d{0,2}(?:r?[jcgq](?:[,k](?=[jgq]))?)*[nsp][nspc]*"
_NOUN_PHRASE = re.compile(rf"{_CORE}(?:'{_CORE}|'(?=[^nspjcgq]))*|d?c|d|o|e")

# With N for a base noun phrase with a common noun as its head, and Q for any other.
_NPS = r"[NQ](?:(?:,[NQ])*,?k[NQ])?"
_PP = rf"(?:j?[it]r*(?:g[it]?)?{_NPS})"
_INFINITIVE = rf"(?:tr*br*(?:{_NPS})?{_PP}*)"
_PARTICIPLE = rf"(?:r*[gq](?:[rqgb]|t(?=b)|{_NPS}|{_PP})*)"
_ADJECTIVE = rf"(?:r*j+(?:{_PP}|{_INFINITIVE})+)"
_FINITE = rf"(?:[ZPDM](?:[rjbgqk]|t(?=b)|{_NPS}|{_PP})*)"
_RELATIVE = rf"(?:,?i?[wh](?:{_NPS}{_PP}*)?r*{_FINITE},?)"
_QUOTED = rf'(?:"{_NPS})'
_ASIDE = r"(?:(?:,[^,ZPDMwh.:]+(?:[wh][^,.:]*)?)+,)"
_SUBJECT = re.compile(rf"{_NPS}(?:{_PP}|{_INFINITIVE}|{_PARTICIPLE}|{_ADJECTIVE}|{_RELATIVE}|{_QUOTED}|{_ASIDE}|r)*")
_CLAUSE_BEGINS = re.compile(r"(?:^|[,kh:.wS(])r*$")
# Maximum number of letters between a subject and its verb: more are rarely right, and the limit bounds the search.
_FARTHEST = 30


class Dependency(NamedTuple):
    """A verb in the present tense and the head of its subject.

    Attributes:
        subject: place of the head noun in the sentence, from 0.
        verb: place of the verb.
        intervening: the tags of the common nouns between the two, in order: NN or NNS.
    """

    subject: int
    verb: int
    intervening: tuple[str, ...]


def find_dependencies(words: Sequence[str], tags: Sequence[str]) -> Iterator[Dependency]:
    """The verbs with tags VBZ and VBP whose subject is found and has a common noun as its head, in order.

    The two may differ in number, after an error of a tagger.

    Args:
        words: the words of a sentence.
        tags: the tags of the words, from the Penn Treebank.
    """
    letters, places = _letters(words, tags)
    line, heads = _noun_phrases(letters, places)
    for at, letter in enumerate(line):
        if letter not in "ZP":
            continue
        for start in range(max(0, at - _FARTHEST), at):
            if line[start] in "NQ" and _CLAUSE_BEGINS.search(line, 0, start) and _SUBJECT.fullmatch(line, start, at):
                if line[start] == "N":
                    subject, verb = heads[start], heads[at]
                    between = tuple(tag for tag in tags[subject + 1 : verb] if tag in ("NN", "NNS"))
                    yield Dependency(subject, verb, between)
                break


def _letters(words: Sequence[str], tags: Sequence[str]) -> tuple[str, list[int]]:
    """A letter for each word that counts, and its position.

    Text in brackets is left out, and so are quotation marks, except one that opens after a noun: the word "dogs".
    """
    letters: list[str] = []
    places: list[int] = []
    depth = 0
    for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
        if word in "([{":
            depth += 1
        elif word in ")]}":
            depth = max(0, depth - 1)
        elif tag in ("``", "''"):
            if tag == "``" and letters and letters[-1] in "nsp":
                letters.append('"')
                places.append(i)
        elif depth == 0:
            lower = word.lower()
            letter = _LETTERS.get(tag, "x")
            if letter == "i":
                letter = "h" if lower == "that" else "S" if lower in _SUBORDINATORS else "i"
            letters.append(letter)
            places.append(i)
    return "".join(letters), places


def _noun_phrases(letters: str, places: Sequence[int]) -> tuple[str, list[int]]:
    """The letters with one for each base noun phrase; the position of each, for a phrase that of its last noun."""
    line: list[str] = []
    heads: list[int] = []
    end = 0
    for phrase in _NOUN_PHRASE.finditer(letters):
        line += letters[end : phrase.start()]
        heads += places[end : phrase.start()]
        start, end = phrase.span()
        nouns = [i for i in range(start, end) if letters[i] in "nsp"]
        head = nouns[-1] if nouns else start
        line.append("N" if letters[head] in "ns" else "Q")
        heads.append(places[head])
    return "".join(line) + letters[end:], heads + list(places[end:])
