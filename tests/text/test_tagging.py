"""Brown's tags in Penn's terms, and the tagger."""

import random

import pytest

from stack_lm.text import Sentence
from stack_lm.text.tagging import penn_sentence, tagged_sentences, train_tagger, treebank_quotes


def pairs(text):
    return [tuple(part.rsplit("/", 1)) for part in text.split()]


# Sentences in the style of the Brown corpus.
@pytest.mark.parametrize(
    ("brown", "penn"),
    [
        ("The/AT dogs/NNS bark/VB ./.", "The/DT dogs/NNS bark/VBP ./."),
        ("They/PPSS often/RB run/VB to/IN town/NN", "They/PRP often/RB run/VBP to/TO town/NN"),
        ("He/PPS wants/VBZ to/TO quickly/RB leave/VB", "He/PRP wants/VBZ to/TO quickly/RB leave/VB"),
        ("Did/DOD they/PPSS leave/VB ?/. ?/.", "Did/VBD they/PRP leave/VB ?/."),
        ("I/PPSS don't/DO* know/VB ;/. ;/.", "I/PRP do/VBP n't/RB know/VB ;/:"),
        ("You/PPSS cannot/MD* do/DO that/DT", "You/PRP can/MD not/RB do/VB that/DT"),
        ("Go/VB home/NR", "Go/VB home/NN"),
        ("those/DTS who/WPS have/HV dogs/NNS", "those/DT who/WP have/VBP dogs/NNS"),
        ("the/AT dog/NN that/WPS barks/VBZ", "the/DT dog/NN that/WDT barks/VBZ"),
        ("Fulton/NP-TL County's/NN$-TL Jury/NN-TL met/VBD", "Fulton/NNP County/NNP 's/POS Jury/NNP met/VBD"),
        ("on/IN Friday/NR", "on/IN Friday/NNP"),
        ("the/AT dogs'/NNS$ owner/NN", "the/DT dogs/NNS '/POS owner/NN"),
        ("it's/PPS+BEZ all/ABN the/AT same/AP", "it/PRP 's/VBZ all/PDT the/DT same/JJ"),
        ("more/AP-HL than/CS most/AP", "more/JJR than/IN most/JJS"),
        ("such/ABL a/AT man/NN", "such/PDT a/DT man/NN"),
    ],
)  # fmt: skip
def test_a_translation(brown, penn):
    assert penn_sentence(pairs(brown)) == pairs(penn)


@pytest.mark.parametrize(
    "brown",
    [
        "the/AT de/FW-IN facto/FW-NN ruler/NN",
        "He/PPS saw/VBD the/AT dogs/NNS bark/VB",  # base form or present tense?
        "dogs/NNS and/CC bark/VB",
        "wanna/VB+TO go/VB",
        "x/NIL",
    ],
)
def test_what_is_not_clear_is_given_up(brown):
    assert penn_sentence(pairs(brown)) is None


def test_tagged_sentences():
    corpus = [Sentence(["-LRB-", "dogs", "-RRB-"], ["-LRB-", "NNS", "-RRB-"]), Sentence(["x"], ["NIL"])]
    assert list(tagged_sentences(corpus)) == [[("(", "("), ("dogs", "NNS"), (")", ")")], [("x", "NIL")]]
    assert list(tagged_sentences(corpus[1:], brown=True)) == []


def test_quotes():
    assert treebank_quotes('a " b " c "'.split()) == ["a", "``", "b", "''", "c", "``"]


def test_the_tagger_learns_and_repeats():
    training = [pairs(f"the/DT {noun}/NN {verb}/VBZ ./.") for noun in ("dog", "cat") for verb in ("barks", "sleeps")]
    state = random.getstate()
    one, two = train_tagger(training * 3, seed=1), train_tagger(training * 3, seed=1)
    assert random.getstate() == state
    assert one.model.weights == two.model.weights
    assert [tag for _, tag in one.tag("the dog sleeps .".split())] == ["DT", "NN", "VBZ", "."]
