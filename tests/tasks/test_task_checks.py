"""Mistakes in a task of one's own are found before a model trains on it."""

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import Example, GrammarLanguage, Split, Task, make_task
from stack_lm.tasks.checks import check_examples
from stack_lm.tasks.grammars import Grammar


def own(answer, kind="per_step", plan=("train", "test"), symbols=("a", "b")):
    """A task whose examples are what `answer` makes of a string."""

    class Own(Task):
        vocabulary = symbols
        default_plan = {name: Split(4, 2, 5) for name in plan}  # noqa: RUF012

        def sample(self, rng, length):
            return answer(tuple(rng.randrange(2) for _ in range(length)))

    Own.kind = kind
    return Own()


def echo(string):
    return Example(string, string, (True,) * len(string))


@pytest.mark.parametrize("name", ["hao2018/xor", "suzgun2019/dyck2", "joulin2015/anbn", "grefenstette2015/copy"])
def test_the_papers_tasks_pass(name):
    check_examples(make_task(name))


def test_own_tasks_pass():
    for kind in ("per_step", "transduction", "language"):
        check_examples(own(echo, kind))
    check_examples(own(lambda string: Example(string, (0,), (True,)), "classification"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (own(echo, "tagging"), "the kind of a task must be one of per_step, .*; got 'tagging'"),
        (own(echo, symbols=("a", "a")), r"the vocabulary of a task must be different symbols; got \('a', 'a'\)"),
        (own(echo, symbols=()), "the vocabulary of a task must be different symbols; got"),
        (own(echo, plan=("train",)), "Own has no split 'test'; it has train"),
        (own(lambda string: Example(string, string, (True,))), "and a mask of that length; got 2 and 1"),
        (
            own(lambda s: Example(s, s[1:], (True,) * len(s[1:]))),
            "has 2 targets for 2 symbols, .* got 1",
        ),
        (own(echo, "next_symbols"), "the targets of a next_symbols task are frozensets of ids; got [01]"),
        (own(lambda s: Example(s, s, (False,) * len(s))), "Own: the mask scores no target of the shortest and longest"),
        (own(lambda s: echo((*s[1:], 7))), "a source has ids below 2, the size of its vocabulary; got 7"),
    ],
)
def test_mistakes(task, message):
    with pytest.raises(InputError, match=message):
        check_examples(task)


def test_the_ends_of_a_window_may_be_no_lengths():
    class Even(GrammarLanguage):
        symbols = "a b"
        grammar = Grammar({"S": ["a S b", "a b"]})
        default_plan = {"train": Split(4, 1, 21), "test": Split(4, 3, 5)}  # noqa: RUF012

    check_examples(Even())
    with pytest.raises(InputError, match="has no string of a length from 3 to 3"):
        check_examples(Even(splits={"test": {"longest": 3}}))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"symbols": ["a"]}, "Own must have grammar, a Grammar"),
        ({"grammar": Grammar({"S": ["a"]})}, "Own must have symbols, a str or list or tuple"),
    ],
)
def test_parts_of_a_grammar_language(parts, message):
    with pytest.raises(InputError, match=message):
        type("Own", (GrammarLanguage,), parts)()
