"""The transduction tasks of Grefenstette et al. (2015), against rewriting systems that derive both sides together."""

import random
from collections import Counter
from itertools import islice

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task

# Appendix C: rules as (source, target, share); a number links a nonterminal of the source with one of the target.
SVO = {
    "A": [("S1 V2 O3", "S1 O3 V2", 1)],
    "S": [("S1 S2", "S1 S2", 1), ("S1 rpi S2 V3", "S1 rpo S2 V3", 1), ("si", "so", 3)],
    "O": [("O1 O2", "O1 O2", 1), ("S1 rpi S2 V3", "S1 rpo S2 V3", 1), ("oi", "oo", 3)],
    "V": [("vi", "vo", 1)],
}
NOUNS = {"M": ("me", "mg"), "F": ("fe", "fg"), "N": ("ne", "ng")}
ARTICLES = [("the", "M", "der"), ("the", "F", "die"), ("the", "N", "das")]
ARTICLES += [("a", "M", "ein"), ("a", "F", "eine"), ("a", "N", "ein")]
GENDER = {
    "A": [("B1", "B1", 1)],
    "B": [("B1 or B2", "B1 oder B2", 1), ("S1 and S2", "S1 und S2", 1), ("B1 V1", "B1 V1", 2)],
    "V": [("W1 B1", "W1 B1", 3), ("W1", "W1", 1)],
    "S": [(f"{source} {noun}1", f"{target} {noun}1", 1) for source, noun, target in ARTICLES],
    "W": [("we", "wg", 1)],
} | {noun: [(*both, 1)] for noun, both in NOUNS.items()}
GRAMMARS = {"svo_sov": (SVO, 33), "gender": (GENDER, 25)}


def derive(rules, words, rng, longest, symbol="A"):
    """Both sides of a random derivation; None as soon as the source is too long."""
    places = rules[symbol]
    ((source, target, _),) = rng.choices(places, [share for *_, share in places])
    if source.islower() and " " not in source:
        number = rng.randrange(words) + 1
        return [f"{source}{number}"], [f"{target}{number}"]
    parts, made = {}, []
    for child in source.split():
        if child[0].isupper():
            pair = derive(rules, words, rng, longest - len(made), child[0])
            if pair is None:
                return None
            parts[child] = pair[1]
            made += pair[0]
        else:
            made.append(child)
        if len(made) > longest:
            return None
    return made, [word for child in target.split() for word in parts.get(child, [child])]


@pytest.mark.parametrize("name", GRAMMARS)
def test_targets_are_those_that_the_grammar_derives(name):
    rules, words = GRAMMARS[name]
    task = make_task(f"grefenstette2015/{name}")
    rng = random.Random(0)
    pairs = [pair for _ in range(600) if (pair := derive(rules, words, rng, 60)) is not None]
    assert max(len(source) for source, _ in pairs) > 30
    for source, target in pairs:
        example = task.example(task.read(" ".join(source)))
        assert task.write_targets(example.target) == target
        assert all(example.mask)


@pytest.mark.parametrize("name", GRAMMARS)
def test_lengths_are_as_frequent_as_in_the_grammar(name):
    rules, words = GRAMMARS[name]
    weights = make_task(f"grefenstette2015/{name}", lengths="grammar").length_weights(0, 12)
    rng = random.Random(1)
    made = [derive(rules, words, rng, 12) for _ in range(6000)]
    lengths = Counter(len(pair[0]) for pair in made if pair is not None)
    assert set(lengths) <= set(weights)
    for length, weight in weights.items():
        assert lengths[length] / 6000 == pytest.approx(weight, abs=5 * (weight / 6000) ** 0.5)
    # All of them are equally likely by default.
    task = make_task(f"grefenstette2015/{name}")
    assert task.length_weights(0, 12) == dict.fromkeys(weights, 1.0)
    lengths = Counter(len(example.source) for example in task.draw(rng, 2000, 0, 12))
    for length in weights:
        assert lengths[length] / 2000 == pytest.approx(1 / len(weights), abs=5 * (1 / len(weights) / 2000) ** 0.5)


def test_the_papers_sample():
    """Section 4.2; subscripts there are numbers here."""
    task = make_task("grefenstette2015/svo_sov")
    source = "si1 vi28 oi5 oi7 si15 rpi si19 vi16 oi10 oi24"
    target = "so1 oo5 oo7 so15 rpo so19 vo16 oo10 oo24 vo28"
    assert " ".join(task.write_targets(task.example(task.read(source)).target)) == target


def test_sequences():
    rng = random.Random(0)
    for name in ("copy", "reversal", "bigram_flipping"):
        task = make_task(f"grefenstette2015/{name}")
        assert len(task.vocabulary) == 128
        for source, target, mask in task.draw(rng, 50, 8, 64):
            wanted = list(source)
            if name == "reversal":
                wanted.reverse()
            elif name == "bigram_flipping":
                wanted[::2], wanted[1::2] = wanted[1::2], wanted[::2]
            assert list(target) == wanted
            assert mask == (True,) * len(source)
    lengths = Counter(len(example.source) for example in task.draw(rng, 2000, 8, 13))
    assert set(lengths) == {8, 10, 12}
    assert all(number / 2000 == pytest.approx(1 / 3, abs=0.06) for number in lengths.values())


def test_options():
    task = make_task("grefenstette2015/copy", symbols=4, splits={"train": {"shortest": 1, "longest": 3}})
    assert task.vocabulary == ("a1", "a2", "a3", "a4")
    assert {len(example.source) for example in task.split("train", 0)[:100]} == {1, 2, 3}
    assert task.online
    stream = list(islice(task.stream("train", 0), 20))
    assert stream == list(islice(task.stream("train", 0), 20))
    assert {len(example.source) for example in stream} == {1, 2, 3}
    for name, options, message in (
        ("copy", {"symbols": 0}, "symbols must be an integer of at least 1; got 0"),
        ("svo_sov", {"lengths": "even"}, "lengths must be one of 'uniform', 'grammar'; got 'even'"),
    ):
        with pytest.raises(InputError, match=message):
            make_task(f"grefenstette2015/{name}", **options)
    for name, source in (("svo_sov", "si1 oi1"), ("gender", "the me1"), ("bigram_flipping", "a1 a2 a3")):
        task = make_task(f"grefenstette2015/{name}")
        with pytest.raises(InputError, match=f"not a source of grefenstette2015/{name}: {source}"):
            task.example(task.read(source))
