"""The other number of verbs and nouns."""

import pytest

from stack_lm.text.inflection import inflected_words, other_form, plural_forms


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("goes", "go"), ("carries", "carry"),
        ("plays", "play"), ("watches", "watch"), ("passes", "pass"), ("mixes", "mix"), ("uses", "use"), ("lies", "lie"),
        ("makes", "make"), ("focuses", "focus"), ("accuses", "accuse"), ("undergoes", "undergo"), ("undoes", "undo"),
        ("echoes", "echo"), ("vetoes", "veto"), ("tiptoes", "tiptoe"), ("'s", "'re"), ("Is", "Are"), ("IS", "ARE"),
        ("Carries", "Carry"), ("Makes", "Make"), ("aches", "ache"), ("gases", "gas"), ("quizzes", "quiz"),
        ("matches", "match"), ("buzzes", "buzz"), ("chooses", "choose"), ("believes", "believe"),
        ("underlies", "underlie"),
    ],
)  # fmt: skip
def test_other_form(singular, plural):
    assert other_form(singular, "VBZ") == plural
    if plural != "lie":  # spelling alone does not tell lie from fly
        assert other_form(plural, "VBP") == singular


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("dog", "dogs"), ("church", "churches"), ("city", "cities"), ("boy", "boys"), ("bus", "buses"),
        ("potato", "potatoes"), ("photo", "photos"), ("woman", "women"), ("human", "humans"), ("person", "people"),
        ("child", "children"), ("wolf", "wolves"), ("wife", "wives"), ("roof", "roofs"), ("analysis", "analyses"),
        ("do", "dos"),
    ],
)  # fmt: skip
def test_plural_forms(singular, plural):
    assert plural in plural_forms(singular)


def test_words_with_both_forms():
    counts = {("dog", "NN"): 5, ("dogs", "NNS"): 3, ("cat", "NN"): 5, ("cats", "NNS"): 2, ("run", "VBP"): 3}
    counts |= {("runs", "VBZ"): 3, ("runs", "NNS"): 9, ("is", "VBZ"): 8, ("are", "VBP"): 8, ("'s", "VBZ"): 8}
    counts |= {("adult", "VBP"): 4, ("adults", "NNS"): 9, ("sheep", "NNS"): 9, ("sheep", "NN"): 9}
    assert inflected_words(counts, 3) == {
        ("dog", "NN"), ("dogs", "NNS"), ("run", "VBP"), ("runs", "VBZ"), ("is", "VBZ"), ("are", "VBP"),
    }  # fmt: skip
    assert inflected_words(counts, 10) == set()
