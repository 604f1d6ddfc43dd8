"""How a network meets an example of each kind of task, and the scores of its answers, by hand."""

import math

import pytest

from stack_lm.tasks import Example, make_task, task_names
from stack_lm.tasks.kinds import KINDS, score_names
from stack_lm.tasks.scores import (
    Answers,
    before_the_first_error,
    cross_entropy,
    of_strings,
    of_symbols,
    over,
    overall,
    score_outputs,
    summarize,
)


def rows(name, text):
    task = make_task(name)
    kind = KINDS[task.kind](task)
    return kind, kind.row(task.example(task.read(text)))


def test_a_symbol_at_each_step():
    kind, row = rows("hao2018/reversal", "0 1")
    assert (kind.symbols, kind.answers) == (("0", "1", "#"), ("0", "1", "#"))
    assert row == Example((0, 1, 2, 2), (2, 2, 1, 0), (False, False, True, True))


def test_sets_of_symbols():
    _, row = rows("suzgun2019/dyck2", "( )")
    assert row.source == (0, 1)
    assert row.target == ([True, True, True, False], [True, False, True, False])
    assert row.mask == (True, True)


def test_a_language():
    kind, row = rows("joulin2015/anbn", "a a b b")
    assert kind.symbols == ("a", "b", "<s>", "</s>")
    assert row == Example((2, 0, 0, 1, 1), (0, 0, 1, 1, 3), (False, False, False, True, True))
    assert kind.distribution


def test_a_transduction():
    task = make_task("grefenstette2015/reversal", symbols=2)
    kind = KINDS[task.kind](task)
    assert kind.symbols == kind.answers == ("a1", "a2", "<s>", "|||", "</s>")
    example = task.example((0, 1))
    assert kind.row(example) == Example((2, 0, 1, 3, 1, 0), (0, 1, 3, 1, 0, 4), (False,) * 3 + (True,) * 3)
    half = kind.row(example._replace(mask=(False, True)))
    assert half.mask == (False,) * 4 + (True,) * 2


@pytest.mark.parametrize("name", [name for name in task_names() if name.count("/")])
def test_every_task_has_its_scores(name):
    task = make_task(name)
    names = score_names(task)
    assert set(KINDS[task.kind].shown) <= set(names)
    assert ("difference" in names) == name.startswith(("dusell", "brackets/dyck"))


def test_scores_by_hand():
    answers = [Answers([True, False, True, True], [1.0, 2.0]), Answers([True], [math.log(2)])]
    assert over(of_symbols, answers) == 4 / 5
    assert over(of_strings, answers) == 1 / 2
    assert over(before_the_first_error, answers) == (1 / 4 + 1) / 2
    assert over(cross_entropy, answers) == pytest.approx((3 + math.log(2)) / 3)


def test_a_surprisal_that_is_no_number_is_the_worst_there_is():
    for value in (math.nan, math.inf):
        assert over(cross_entropy, [Answers([], [1.0, value]), Answers([], [1.0])]) == math.inf


def test_where_nothing_is_asked_nothing_is_wrong():
    nothing = [Answers([])]
    assert [over(score, nothing) for score in (of_symbols, of_strings, before_the_first_error)] == [1, 1, 1]
    scores = score_outputs([[7]], [[-100]])
    assert (scores.exact_match, scores.prefix_accuracy, scores.symbol_accuracy) == (1, 1, 1)


def test_scores_by_length():
    answers = [Answers([True]), Answers([False, True]), Answers([False])]
    assert summarize({"accuracy": of_symbols}, answers, [5, 10, 5]) == {
        "accuracy": 1 / 2,
        "by_length": {"accuracy": {"5": [1 / 2, 2], "10": [1 / 2, 1]}},
    }


def test_scores_by_edits():
    answers = [Answers([True]), Answers([False]), Answers([True]), Answers([True])]
    scores = summarize({"accuracy": of_symbols}, answers, [5] * 4, [None, 2, 2, 1])
    assert scores["by_edits"] == {"accuracy": {"1": [1.0, 1], "2": [1 / 2, 2]}}
    assert overall(scores) == {"accuracy": 3 / 4}
