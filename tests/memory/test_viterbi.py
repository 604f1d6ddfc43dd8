"""The most probable run is the best of all runs, which are listed one by one, and the run that a programme forces."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.core.errors import InputError
from stack_lm.core.trace import Trace
from stack_lm.kernels.cpu import viterbi as compiled
from stack_lm.kernels.runs import tables_for
from stack_lm.memory import NondeterministicStack
from stack_lm.memory.viterbi import best_runs, tables
from stack_lm.parsing import distances_from_trace, tree_from_distances


def random_weights(memory, steps, batch_size=1, seed=0, grid=0):
    """Log weights [B, T, ...]; on a grid of whole numbers there are ties."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape):
        numbers = 3 * torch.randn(batch_size, steps, *shape, generator=generator, dtype=torch.float64)
        return numbers.clamp(-grid, grid).round() if grid else numbers

    return memory.action_type(*(draw(field.shape) for field in memory.actions))


def of_memory(memory, actions):
    """Log weights of each step [T] of the first sequence as lists: push and replace [q][x][r][y], pop [q][x][r]."""
    rows = torch.cat([part[0].flatten(3).flatten(1, 2) for part in actions[:3]], 2)
    if memory.normalize:
        rows = rows.log_softmax(2)
    pairs, split = memory.pairs, (memory.states, memory.symbols)
    push, replace, pop = rows.unflatten(1, split).split((pairs, pairs, memory.states), 3)
    return push.unflatten(3, split).tolist(), replace.unflatten(3, split).tolist(), pop.tolist()


def all_runs(memory, actions):
    """Every run of the first sequence: its weight, and (move, state, symbol, element, depth) of each step."""
    push, replace, pop = of_memory(memory, actions)
    runs = [(0.0, 0, ((0, 0, -1),), ())]  # the stack's elements: symbol, step of the push, time of the top below
    for t in range(len(push)):
        step, longer = t + 1, []
        for weight, q, stack, done in runs:
            x, element, under = stack[-1]
            bottom = len(stack) == 1
            for r in range(memory.states):
                moves = []
                for y in range(memory.symbols):
                    moves.append(("push", (*stack, (y, step, t)), push[t][q][x][r][y]))
                    if not (bottom and memory.bottom == "fixed"):
                        moves.append(("replace", (*stack[:-1], (y, element, under)), replace[t][q][x][r][y]))
                if len(stack) > (2 if memory.bottom == "fixed" else 1):
                    moves.append(("pop", stack[:-1], pop[t][q][x][r]))
                for name, new, more in moves:
                    if (memory.window is None or step - new[-1][2] <= memory.window) and more > -1e29:
                        after = (name, r, new[-1][0], new[-1][1], len(new) - 1)
                        longer.append((weight + more, r, new, (*done, after)))
        runs = longer
    return [(weight, done) for weight, _, _, done in runs]


def steps_of(run):
    numbers = (run.states, run.symbols, run.elements + 1, run.depths)
    return tuple(zip(run.moves, *(part.tolist() for part in numbers), strict=True))


OPTIONS = st.fixed_dictionaries(
    {
        "bottom": st.sampled_from(["open", "fixed"]),
        "normalize": st.booleans(),
        "window": st.sampled_from([None, 2, 3]),
        "size": st.sampled_from([0, 2]),
    }
)
SIZES = st.sampled_from([(1, 1, 6), (1, 2, 5), (2, 1, 5), (2, 2, 3), (1, 3, 4), (2, 3, 2), (2, 1, 1)])


@settings(deadline=None, max_examples=40)
@given(SIZES, OPTIONS, st.integers(0, 2**20), st.sampled_from([0, 1]))
def test_it_is_the_best_of_all_runs(sizes, options, seed, grid):
    states, symbols, steps = sizes
    memory = NondeterministicStack(states, symbols, **options)
    actions = random_weights(memory, steps, seed=seed, grid=grid)
    (run,) = best_runs(memory, actions)
    there = all_runs(memory, actions)
    best = max(weight for weight, _ in there)
    assert run.weight == pytest.approx(best, abs=1e-9)
    equals = [done for weight, done in there if weight > best - 1e-9]
    assert steps_of(run) in equals  # any of those that tie, but a possible run with its own numbers


@pytest.mark.parametrize("window", [None, 4])
def test_sequences_are_independent_and_may_be_shorter(window, monkeypatch):
    memory = NondeterministicStack(2, 2, window=window)
    actions = random_weights(memory, 12, batch_size=3)
    lengths = [12, 5, 1]
    together = best_runs(memory, actions._asdict(), lengths)
    monkeypatch.setattr("stack_lm.memory.viterbi._AT_ONCE", 100)  # in parts: a row at a time
    for row, length in enumerate(lengths):
        (alone,) = best_runs(memory, memory.action_type(*(part[row : row + 1, :length] for part in actions)))
        assert steps_of(alone) == steps_of(together[row])
        assert alone.weight == together[row].weight
        assert len(alone.moves) == length


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"bottom": "fixed", "normalize": True}])
@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (1, 1)])
def test_the_compiled_tables_are_the_same(sizes, options):
    memory = NondeterministicStack(*sizes, **options)
    actions = random_weights(memory, 14, batch_size=2)
    actions.push_weight[0, 3, :, 0] = actions.pop_weight[1, 6:8] = -math.inf
    for length in (14, 2, 1, 0):
        found = [best_runs(memory, actions, [length] * 2, fill=fill) for fill in (tables, compiled.tables)]
        for one, other in zip(*found, strict=True):
            assert steps_of(one) == steps_of(other)
            assert one.weight == pytest.approx(other.weight)


def test_much_is_compiled(monkeypatch):
    monkeypatch.delenv("STACK_LM_SCAN_BACKEND", raising=False)
    assert tables_for([60]) is tables
    assert tables_for([25] * 20) is compiled.tables
    monkeypatch.setenv("STACK_LM_SCAN_BACKEND", "reference")
    assert tables_for([25] * 20) is tables


def programme(memory, string):
    """Pushes 0s as symbol 1 and 1s as symbol 2 up to #, then pops each if it is the one that is read."""
    actions = memory.action_type(*(torch.full((1, len(string), *f.shape), -math.inf) for f in memory.actions))
    for t, letter in enumerate(string):
        if letter == "#":
            for x in range(3):
                actions.replace_weight[0, t, 0, x, 1, x] = 0  # to state 1
            continue
        symbol = 1 + int(letter)
        actions.push_weight[0, t, 0, :, 0, symbol] = 0
        actions.pop_weight[0, t, 1, symbol, 1] = 0
    return actions


def test_marked_reversal_is_pushed_then_popped():
    memory = NondeterministicStack(2, 3)
    (run,) = best_runs(memory, programme(memory, "0110#0110"))
    assert list(run.moves) == ["push"] * 4 + ["replace"] + ["pop"] * 4
    assert run.depths.tolist() == [1, 2, 3, 4, 4, 3, 2, 1, 0]
    assert run.elements.tolist() == [0, 1, 2, 3, 3, 2, 1, 0, -1]
    assert run.symbols.tolist() == [1, 2, 2, 1, 1, 2, 2, 1, 0]
    assert run.states.tolist() == [0] * 4 + [1] * 5
    assert run.stacks[3:6] == [(0, 1, 2, 2, 1), (0, 1, 2, 2, 1), (0, 1, 2, 2)]
    assert run.weight == 0


def test_a_sequence_without_a_run_is_an_error():
    memory = NondeterministicStack(2, 3)
    with pytest.raises(InputError, match=r"sequence 1 has no run: the weights of all moves"):
        best_runs(memory, programme(memory, "01#11"))
    both = [torch.cat(pair) for pair in zip(programme(memory, "01#10"), programme(memory, "01#01"), strict=True)]
    with pytest.raises(InputError, match="sequence 2 has no run"):
        best_runs(memory, memory.action_type(*both))
    assert len(best_runs(memory, memory.action_type(*both), [5, 3])) == 2


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(0, 2**20))
def test_the_tree_of_its_depths_has_every_span(steps, seed):
    memory = NondeterministicStack(2, 2)
    (run,) = best_runs(memory, random_weights(memory, steps, seed=seed))
    words = tuple(f"w{t}" for t in range(steps))
    nothing = np.full(steps, np.nan)
    trace = Trace(words, nothing, nothing, nothing, find_run=lambda: run)
    tree = tree_from_distances(words, distances_from_trace(trace, "run_depth"), "gap")
    opened, spans = [], set()
    for t, move in enumerate(run.moves):
        if move == "push":
            opened.append(t)
        elif move == "pop":
            spans.add((opened.pop(), t + 1))
    spans |= {(start, steps) for start in opened if start < steps - 1}
    assert spans <= {span[:2] for span in tree.spans}
