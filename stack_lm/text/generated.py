"""A corpus of generated English: sentences, their trees, and subject-verb agreement with attractors.

A probabilistic grammar with about 600 word forms. Verbs have frames (intransitive, transitive, ditransitive, sentential
complement) and prefer kinds of subjects and objects; noun phrases grow prepositional phrases, subject and object
relative clauses and conjuncts; verbs agree with their subject across any intervening words. Recursion becomes less
likely with depth, so that sentences end. A seed gives the same sentences on every machine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nltk.tree import Tree

from .inflection import other_form, plural_forms

NOUNS = {
    kind: words.split()
    for kind, words in {
        "person": (
            "teacher doctor farmer lawyer writer singer painter soldier sailor student nurse pilot baker dancer judge "
            "king queen priest banker tailor guard waiter poet hunter driver boy girl man woman child neighbor cousin"
        ),
        "animal": "dog cat horse cow bird fox wolf bear rabbit mouse camel goose lion duck",
        "thing": (
            "book letter picture basket hammer lamp table chair mirror bottle coat hat ring clock map key rope box "
            "knife bicycle boat wagon guitar drum flag blanket candle"
        ),
        "food": "cake pie sandwich potato tomato soup cookie carrot pear peach loaf melon",
        "place": (
            "house garden village city forest river bridge market school church station tower kitchen castle field "
            "harbor valley library museum hill"
        ),
        "idea": "story rumor plan secret song question report joke promise idea",
    }.items()
}
NAMES = "Anna Ben Clara David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nina Oscar Paula Robert Sarah".split()
ADJECTIVES = (
    "old young tall short happy sad quiet loud clever foolish strange famous rich poor brave lazy kind angry tired "
    "small large green red blue white black heavy light broken clean dirty beautiful ugly new"
).split()
ADVERBS = "quickly slowly often rarely loudly quietly today again soon together always finally".split()
PLACE_PREPOSITIONS = "in near behind beside outside beyond".split()
THING_PREPOSITIONS = "with without under about beside".split()
SINGULAR_DETERMINERS = [*["the"] * 4, *["a"] * 3, *"this that every some no each".split()]
PLURAL_DETERMINERS = [*["the"] * 4, *"these those some many several most no few".split()]
MODALS = "will can may must should".split()
SUBORDINATORS = "because when while although if before after".split()

ANIMATE = ("person", "person", "person", "animal")

# Frame: verb and its irregular past, kinds of subject, kinds of object. A regular past is not written.
FRAMES = {
    "intransitive": (
        ("sleep slept,laugh,smile,cry,wait,swim swam,dance,arrive,run ran,sit sat,shout,pray", ANIMATE, ()),
        ("fall fell,disappear,shine shone,burn,remain,vanish", ("thing", "place", "thing", "idea"), ()),
    ),
    "transitive": (
        ("see saw,follow,help,like,fear,admire,meet met,know knew,chase,watch,visit,greet,trust", ANIMATE, ANIMATE),
        ("buy bought,carry,find found,hide hid,lose lost,sell sold,break broke,clean,paint", ANIMATE, ("thing",)),
        ("eat ate,cook,taste,steal stole,bake", ANIMATE, ("food",)),
        ("build built,leave left,enter,love,own", ("person",), ("place",)),
        ("hear heard,tell told,remember,ignore", ("person",), ("idea",)),
        ("please,surprise,frighten,interest", ("idea", "thing", "place"), ANIMATE),
    ),
    "ditransitive": (
        ("give gave,send sent,show,lend lent,hand,bring brought", ("person",), ("thing", "food", "idea")),
    ),
    "sentential": (("say said,think thought,believe,hope,claim,suspect,deny,doubt,learn,guess", ("person",), ()),),
}
_VOWELS = "aeiou"


class Verb(NamedTuple):
    """A verb's forms, and the kinds of noun it takes."""

    base: str
    singular: str
    past: str
    participle: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


def _doubles(word: str) -> bool:
    """True if a verb of one syllable doubles its last consonant: run, running."""
    short = sum(letter in _VOWELS for letter in word) == 1
    return short and word[-1] not in _VOWELS + "wyx" and word[-2] in _VOWELS


def _verb(entry: str, subjects: tuple[str, ...], objects: tuple[str, ...]) -> Verb:
    base, _, past = entry.partition(" ")
    if not past:
        if base.endswith("e"):
            past = base + "d"
        elif base.endswith("y") and base[-2] not in _VOWELS:
            past = base[:-1] + "ied"
        else:
            past = base + base[-1] * _doubles(base) + "ed"
    stem = base[:-1] if base.endswith("e") and not base.endswith("ee") else base + base[-1] * _doubles(base)
    return Verb(base, other_form(base, "VBP"), past, stem + "ing", subjects, objects)


# All of these nouns have the last form: men, wolves, tomatoes.
_PLURALS = {noun: plural_forms(noun)[-1] for nouns in NOUNS.values() for noun in nouns}
_VERBS = {
    frame: tuple(_verb(entry, subjects, objects) for verbs, subjects, objects in groups for entry in verbs.split(","))
    for frame, groups in FRAMES.items()
}

_FRAME_WEIGHTS = {"intransitive": 4, "transitive": 6, "ditransitive": 2, "sentential": 2}
_VERBS_BY_SUBJECT: dict[str, dict[str, list[Verb]]] = {
    kind: {frame: taking for frame in FRAMES if (taking := [verb for verb in _VERBS[frame] if kind in verb.subjects])}
    for kind in NOUNS
}


@dataclass(frozen=True)
class AgreeingVerb:
    """A verb whose form shows its number.

    Attributes:
        verb: its position in the sentence, from 0.
        correct: the form in the sentence.
        wrong: the form of the other number.
        number: "singular" or "plural", of subject and verb.
        n_attractors: nouns of the other number between the subject's head and the verb.
    """

    verb: int
    correct: str
    wrong: str
    number: str
    n_attractors: int


@dataclass(frozen=True)
class GeneratedSentence:
    """A sentence, its part-of-speech tags and tree in the style of the Penn Treebank, and its agreeing verbs."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    tree: Tree
    agreement: tuple[AgreeingVerb, ...]


@dataclass
class _NounPhrase:
    tree: Tree
    plural: bool
    head: Tree | None  # None if conjuncts share the headship


class _Grammar:
    """A generator of one sentence."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.agreements: list[
            tuple[Tree, Tree, str]
        ] = []  # subject head and verb, with their tags; the verb's other form

    def chance(self, probability: float, depth: int) -> bool:
        """Draw whether to recurse: recursion becomes rarer with depth, so every sentence ends."""
        return self.rng.random() < probability * 0.62**depth

    def noun_phrase(self, kinds: tuple[str, ...], depth: int) -> _NounPhrase:
        rng = self.rng
        kind = rng.choice(kinds)
        if kind == "person" and rng.random() < 0.18:
            head = Tree("NNP", [rng.choice(NAMES)])
            return _NounPhrase(Tree("NP", [head]), False, head)
        phrase = self.common_noun_phrase(kind)
        if self.chance(0.22, depth):
            phrase.tree = Tree("NP", [phrase.tree, self.prepositional_phrase(kind, depth + 1)])
        if kind != "place" and self.chance(0.22, depth):
            phrase.tree = Tree("NP", [phrase.tree, self.relative_clause(phrase, kind, depth + 1)])
        if self.chance(0.08, depth):
            other = self.noun_phrase((kind,), depth + 2)
            both = Tree("NP", [phrase.tree, Tree("CC", ["and"]), other.tree])
            return _NounPhrase(both, True, None)
        return phrase

    def common_noun_phrase(self, kind: str) -> _NounPhrase:
        rng = self.rng
        plural = rng.random() < 0.42
        noun = rng.choice(NOUNS[kind])
        head = Tree("NNS" if plural else "NN", [_PLURALS[noun] if plural else noun])
        words = [head]
        while rng.random() < 0.2 and len(words) < 3:
            adjective = rng.choice(ADJECTIVES)
            if all(word[0] != adjective for word in words):
                words.insert(0, Tree("JJ", [adjective]))
        determiner = rng.choice(PLURAL_DETERMINERS if plural else SINGULAR_DETERMINERS)
        if determiner == "a" and words[0][0][0] in _VOWELS:
            determiner = "an"
        return _NounPhrase(Tree("NP", [Tree("DT", [determiner]), *words]), plural, head)

    def prepositional_phrase(self, attached_to: str, depth: int) -> Tree:
        rng = self.rng
        kinds: tuple[str, ...]
        if attached_to == "idea":
            preposition, kinds = "about", ("person", "animal", "place")
        elif attached_to in ("person", "animal") and rng.random() < 0.4:
            preposition, kinds = rng.choice(THING_PREPOSITIONS), ("thing",)
        elif rng.random() < 0.25:
            preposition, kinds = "of", ("person",)
        else:
            preposition, kinds = rng.choice(PLACE_PREPOSITIONS), ("place",)
        return Tree("PP", [Tree("IN", [preposition]), self.noun_phrase(kinds, depth).tree])

    def relative_clause(self, head: _NounPhrase, kind: str, depth: int) -> Tree:
        rng = self.rng
        pronoun = rng.choice(("who", "that")) if kind == "person" else rng.choice(("that", "which"))
        tag = "WP" if pronoun == "who" else "WDT"
        filler = Tree("WHNP", [Tree(tag, [pronoun])])
        taking = [verb for verb in _VERBS["transitive"] if kind in verb.objects]
        if taking and rng.random() < 0.5:
            verb = rng.choice(taking)
            subject = self.noun_phrase(verb.subjects, depth)
            clause = Tree("S", [subject.tree, self.verb_phrase(verb, "gap", subject, depth)])
        else:
            clause = Tree("S", [self.predicate(head, kind, depth)])
        return Tree("SBAR", [filler, clause])

    def predicate(self, subject: _NounPhrase, kind: str, depth: int) -> Tree:
        """A verb phrase that takes a noun of this kind as its subject."""
        rng = self.rng
        verbs = _VERBS_BY_SUBJECT[kind]
        frames = [frame for frame in verbs if frame != "sentential" or depth < 3]
        if not frames or rng.random() < 0.16:
            complement = Tree("ADJP", [Tree("JJ", [rng.choice(ADJECTIVES)])])
            return Tree("VP", [self.be(subject), complement])
        (frame,) = rng.choices(frames, [_FRAME_WEIGHTS[frame] for frame in frames])
        phrase = self.verb_phrase(rng.choice(verbs[frame]), frame, subject, depth)
        if "intransitive" in verbs and self.chance(0.1, depth):
            second = rng.choice(verbs["intransitive"])
            conjunct = self.verb_phrase(second, "intransitive", subject, depth + 2, conjunct=True)
            return Tree("VP", [phrase, Tree("CC", ["and"]), conjunct])
        return phrase

    def be(self, subject: _NounPhrase, conjunct: bool = False) -> Tree:
        forms = ("is", "are") if self.rng.random() < 0.65 else ("was", "were")
        form, other = (forms[1], forms[0]) if subject.plural else forms
        tag = "VBD" if forms[0] == "was" else ("VBP" if subject.plural else "VBZ")
        return self.agreeing(subject, form, other, tag, conjunct)

    def agreeing(self, subject: _NounPhrase, form: str, other: str, tag: str, conjunct: bool) -> Tree:
        word = Tree(tag, [form])
        # With conjuncts there is no single head, and after "and" the subject is not this verb's alone.
        if subject.head is not None and not conjunct:
            self.agreements.append((subject.head, word, other))
        return word

    def verb_phrase(self, verb: Verb, frame: str, subject: _NounPhrase, depth: int, conjunct: bool = False) -> Tree:
        """A verb, in some tense, with the complements of its frame; the frame "gap" lacks its object."""
        rng = self.rng
        tense = rng.random()
        outer: list[Tree] = []
        if tense < 0.55:
            form, other = (verb.base, verb.singular) if subject.plural else (verb.singular, verb.base)
            tag = "VBP" if subject.plural else "VBZ"
            inner = self.agreeing(subject, form, other, tag, conjunct)
        elif tense < 0.75:
            inner = Tree("VBD", [verb.past])
        elif tense < 0.88:
            outer = [Tree("MD", [rng.choice(MODALS)])]
            inner = Tree("VB", [verb.base])
        else:
            outer = [self.be(subject, conjunct)]
            inner = Tree("VBG", [verb.participle])
        children = [inner]
        if frame == "transitive":
            children.append(self.noun_phrase(verb.objects, depth + 1).tree)
        elif frame == "ditransitive":
            given = self.noun_phrase(verb.objects, depth + 1).tree
            receiver = self.noun_phrase(("person",), depth + 1).tree
            if rng.random() < 0.5:
                children += [receiver, given]
            else:
                children += [given, Tree("PP", [Tree("TO", ["to"]), receiver])]
        elif frame == "sentential":
            complementizer = Tree("IN", ["that"])
            children.append(Tree("SBAR", [complementizer, self.clause(depth + 1)]))
        if frame in ("intransitive", "transitive") and self.chance(0.22, depth):
            children.append(self.prepositional_phrase("place", depth + 1))
        if frame != "sentential" and self.chance(0.18, depth):
            children.append(Tree("ADVP", [Tree("RB", [rng.choice(ADVERBS)])]))
        phrase = Tree("VP", children)
        return Tree("VP", [*outer, phrase]) if outer else phrase

    def clause(self, depth: int) -> Tree:
        kinds = ("person",) * 5 + ("animal",) * 2 + ("thing", "idea", "place")
        kind = self.rng.choice(kinds)
        subject = self.noun_phrase((kind,), depth)
        return Tree("S", [subject.tree, self.predicate(subject, kind, depth)])

    def sentence(self) -> Tree:
        clause = self.clause(0)
        draw = self.rng.random()
        stop = Tree(".", ["."])
        if draw < 0.07:
            joiner = Tree("CC", [self.rng.choice(("and", "but"))])
            return Tree("S", [clause, joiner, self.clause(1), stop])
        if draw < 0.14:
            adverbial = Tree("SBAR", [Tree("IN", [self.rng.choice(SUBORDINATORS)]), self.clause(1)])
            return Tree("S", [adverbial, Tree(",", [","]), *clause, stop])
        return Tree("S", [*clause, stop])


def generate_sentence(rng: random.Random) -> GeneratedSentence:
    """Make one sentence from the next random numbers of `rng`."""
    grammar = _Grammar(rng)
    tree = grammar.sentence()
    words, tags = zip(*tree.pos(), strict=True)
    places = {id(part): i for i, part in enumerate(tree.subtrees(lambda part: isinstance(part[0], str)))}
    items = []
    for head, verb, other in grammar.agreements:
        first, last = places[id(head)], places[id(verb)]
        plural = head.label() == "NNS"
        attractors = sum(tag in (("NN", "NNP") if plural else ("NNS",)) for tag in tags[first + 1 : last])
        items.append(AgreeingVerb(last, verb[0], other, "plural" if plural else "singular", attractors))
    return GeneratedSentence(words, tags, tree, tuple(sorted(items, key=lambda item: item.verb)))


def generate_corpus(n_sentences: int, seed: int = 0, max_length: int = 40) -> Iterator[GeneratedSentence]:
    """Generate sentences, all different.

    Args:
        n_sentences: their number.
        seed: the seed of the random numbers; corpora of different seeds are independent samples, and may share
            sentences.
        max_length: longest sentence, in words, full stop included.
    """
    rng = random.Random(seed)
    seen: set[bytes] = set()  # of their hashes, because millions of sentences would not fit
    while len(seen) < n_sentences:
        sentence = generate_sentence(rng)
        if len(sentence.words) <= max_length:
            digest = hashlib.blake2b(" ".join(sentence.words).encode(), digest_size=8).digest()
            if digest not in seen:
                seen.add(digest)
                yield sentence
