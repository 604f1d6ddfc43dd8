"""Several runs of two models: their spread, and the test over runs and items."""

import numpy as np
import pytest
from scipy import stats

from stack_lm.core.errors import InputError
from stack_lm.eval import compare_runs, compare_seeds, score_choices, spreads


def draw(rng, runs, items, run_sd, interaction_sd, effect=0.0):
    """Outcomes of two models whose runs and items are random; they differ by `effect` on the logit scale."""
    difficulty = rng.normal(1, 1.5, items)
    sides = []
    for n, shift in zip(runs, (effect, 0.0), strict=True):
        logits = difficulty + shift + rng.normal(0, interaction_sd, items)
        logits = logits + rng.normal(0, run_sd, (n, 1)) + rng.normal(0, 1, (n, items))
        sides.append((rng.random((n, items)) < 1 / (1 + np.exp(-logits))).astype(int))
    return sides


def test_the_comparison_by_its_definition():
    """min F' = F1 F2 / (F1 + F2) of the two tests that SciPy has."""
    first, second = draw(np.random.default_rng(0), (4, 4), 50, 0.4, 0.5, effect=0.5)
    found = compare_seeds(first, second)
    by_runs = stats.ttest_ind(first.mean(axis=1), second.mean(axis=1), equal_var=False)
    by_items = stats.ttest_rel(first.mean(axis=0), second.mean(axis=0))
    f1, f2 = by_runs.statistic**2, by_items.statistic**2
    ratio = f1 * f2 / (f1 + f2)
    degrees = (f1 + f2) ** 2 / (f1**2 / by_items.df + f2**2 / by_runs.df)
    assert found.difference == pytest.approx(100 * (first.mean() - second.mean()))
    assert found.degrees == pytest.approx(degrees)
    assert found.p_value == pytest.approx(stats.f.sf(ratio, 1, degrees))
    assert found.low < found.difference < found.high
    # The interval ends where the test would.
    error = found.difference / ratio**0.5
    assert found.high - found.difference == pytest.approx(abs(error) * stats.t.ppf(0.975, degrees))
    other = compare_seeds(second, first)
    assert (other.difference, other.p_value) == (pytest.approx(-found.difference), pytest.approx(found.p_value))


@pytest.mark.parametrize(
    ("runs", "items", "run_sd", "interaction_sd"),
    [((5, 3), 200, 0.3, 0.5), ((3, 3), 400, 0.3, 0.0), ((5, 3), 100, 0.0, 0.5), ((2, 2), 100, 0.2, 0.5)],
)
def test_the_level_of_the_test(runs, items, run_sd, interaction_sd):
    """Of models that do not differ, at most one in twenty is called different; a test over items alone calls more."""
    rng = np.random.default_rng(1)
    n = 400
    found = [compare_seeds(*draw(rng, runs, items, run_sd, interaction_sd)).p_value < 0.05 for _ in range(n)]
    assert np.mean(found) < 0.05 + 2 * (0.05 * 0.95 / n) ** 0.5
    strong = [compare_seeds(*draw(rng, (5, 3), 400, 0.1, 0.3, effect=1.5)).p_value < 0.05 for _ in range(40)]
    assert np.mean(strong) > 0.9


def test_items_that_a_run_did_not_score_do_not_count():
    first, second = draw(np.random.default_rng(3), (3, 2), 30, 0.4, 0.5)
    more = [np.concatenate((side, rows), axis=1) for side, rows in ((first, [[1, -1]] * 3), (second, [[-1, 0]] * 2))]
    assert compare_seeds(*more) == compare_seeds(first, second)


def test_runs_that_never_differ():
    same = np.ones((2, 5), dtype=int)
    assert compare_seeds(same, same).p_value == 1
    found = compare_seeds(same, 0 * same)
    assert found.difference == 100
    assert np.isnan([found.low, found.high, found.p_value]).all()


def result(outcomes, **groups):
    """A result of items that are right (1), wrong (0) or out of vocabulary (-1)."""
    logprobs = [(float(outcome), 0.5) for outcome in outcomes]
    return score_choices(np.array(logprobs), groups, unknown=[outcome < 0 for outcome in outcomes])


def test_spreads():
    attractors = [0, 0, 1, 1, 2]
    runs = [result(row, attractors=attractors) for row in ([1, 1, 1, 0, 0], [1, 0, 0, 0, -1], [1, 1, 0, 1, 1])]
    found = spreads(runs)
    assert list(found) == [("all", ""), ("attractors", 0), ("attractors", 1), ("attractors", 2)]
    every = found["all", ""]
    assert every.runs == (60, 25, 80)
    assert (every.mean, every.min, every.median, every.max) == (55, 25, 60, 80)
    assert every.sd == pytest.approx(np.std([60, 25, 80], ddof=1))
    assert found["attractors", 2].runs == (0, 100)  # of the runs that scored one
    assert np.isnan(spreads(runs[:1])["all", ""].sd)


def test_comparisons_by_property():
    rng = np.random.default_rng(4)
    number = ["singular", "plural"] * 20
    sides = [[result(row, number=number) for row in side] for side in draw(rng, (3, 3), 40, 0.2, 0.5, effect=2)]
    found = compare_runs(*sides)
    codes = [np.stack([run.correct for run in side]) for side in sides]
    assert found["all", ""] == compare_seeds(*codes)
    assert found["number", "singular"] == compare_seeds(*(side[:, ::2] for side in codes))
    del sides[0][0].properties["number"]  # of a table without this column
    assert compare_runs(*sides) == found


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (np.ones((1, 3)), np.ones((2, 3)), "needs two runs or more of each model; got 1 and 2"),
        (np.array([[1, -1], [1, 1]]), np.ones((2, 2)), "fewer than two items were scored by all 4 runs"),
    ],
)
def test_bad_input(first, second, message):
    with pytest.raises(InputError, match=message):
        compare_seeds(first, second)
