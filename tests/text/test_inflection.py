"""The other number of verbs and nouns."""

import pytest

from stack_lm.text.inflection import other_form, plural_forms


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
