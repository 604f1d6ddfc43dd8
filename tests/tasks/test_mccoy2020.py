"""Question formation and tense reinflection: where the linear and the hierarchical rule agree, and where not."""

import random
from itertools import pairwise

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.tasks.checks import check_examples

AUXILIARIES = {"does", "doesn't", "do", "don't"}
GENERAL = "generalization"


def drawn(name, split, number=600):
    task = make_task(f"mccoy2020/{name}", splits={split: {"number": number}})
    examples = task.split(split, 3)
    return [(task.write(e.source).split(), task.write(e.target).split()) for e in examples]


def front(words, place):
    return [words[place], *words[:place], *words[place + 1 : -2], "?"]


@pytest.mark.parametrize("split", ["train", GENERAL])
def test_questions(split):
    pairs = drawn("question", split)
    questions = [pair for pair in pairs if pair[0][-1] == "quest"]
    for source, target in pairs:
        if source[-1] == "decl":
            assert target == source[:-1]
    for source, target in questions:
        places = [place for place, word in enumerate(source) if word in AUXILIARIES]
        relative = source[2] in ("who", "that")
        main = places[1] if relative else places[0]
        assert target == front(source, main)
        assert (target == front(source, places[0])) == (split != GENERAL) == (not relative)
        if split == GENERAL:
            assert len(places) == 2
            assert {source[place] for place in places} in ({"does", "doesn't"}, {"do", "don't"})
    share = len(questions) / len(pairs)
    # As released: of the first 67 validation strings 28 are questions.
    assert share == 1 if split == GENERAL else share == pytest.approx(0.4, abs=0.06)


def number_of(noun):
    return "plural" if noun.endswith("s") and noun not in ("tyrannosaurus", "walrus") else "singular"


@pytest.mark.parametrize("split", ["train", GENERAL])
def test_tenses(split):
    pairs = drawn("tense", split)
    determiners = "the some my your our her".split()
    nouns = {word for source, _ in pairs for before, word in pairwise(source) if before in determiners}
    assert len(nouns) == 26
    present = [pair for pair in pairs if pair[0][-1] == "PRESENT"]
    for source, target in pairs:
        if source[-1] == "PAST":
            assert target == source[:-1]
    for source, target in present:
        changed = [place for place, word in enumerate(target) if word != source[place] or word in ("read", "reads")]
        relative = source[2] in ("who", "that")
        main = changed[1] if relative else changed[0]
        recent = next(word for word in reversed(source[:main]) if word in nouns)
        agrees = ["singular" if target[main].endswith("s") else "plural", number_of(source[1]), number_of(recent)]
        assert agrees[0] == agrees[1]
        assert (agrees[0] == agrees[2]) == (split != GENERAL)
    share = len(present) / len(pairs)
    assert share == 1 if split == GENERAL else share == pytest.approx(0.419, abs=0.06)


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        # Strings of the released files.
        ("question", "our tyrannosaurus doesn't comfort my yaks who some yak does high_five . quest",
         "doesn't our tyrannosaurus comfort my yaks who some yak does high_five ?"),
        ("question", "her vultures that do amuse your salamander don't smile . quest",
         "don't her vultures that do amuse your salamander smile ?"),
        ("tense", "my salamanders below our walrus remembered her unicorn that our orangutans admired . PRESENT",
         "my salamanders below our walrus remember her unicorn that our orangutans admire ."),
        ("tense", "our newt who our quails amused moved . PRESENT", "our newt who our quails amuse moves ."),
        ("tense", "some yak who comforted our unicorns accepted some unicorn who slept . PRESENT",
         "some yak who comforts our unicorns accepts some unicorn who sleeps ."),
        ("tense", "your vulture below the walruses ate . PRESENT", "your vulture below the walruses eats ."),
    ],
)  # fmt: skip
def test_released_strings(name, source, target):
    task = make_task(f"mccoy2020/{name}")
    assert task.write(task.example(task.read(source)).target) == target


def test_sizes_and_checks():
    for name in ("question", "tense"):
        task = make_task(f"mccoy2020/{name}")
        assert [split.number for split in task.plan.values()] == [100_000, 1_000, 10_000, 10_000]
        check_examples(task)
        assert max(task.length_weights(1, 40)) <= 20
    with pytest.raises(InputError, match="not a sentence of mccoy2020/question with its instruction: the yak do sleep"):
        question = make_task("mccoy2020/question")
        question.example(question.read("the yak do sleep . quest"))
    assert question.sample(random.Random(0), 6).source
