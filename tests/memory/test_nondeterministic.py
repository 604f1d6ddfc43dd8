"""The nondeterministic stack equals a dictionary of explicit stacks, loops over every index, and counts of runs."""

import itertools
import math
from collections import defaultdict
from functools import partial

import pytest
import torch
from conftest import tiny_config

from stack_lm import MemoryLayer, StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.memory import NondeterministicStack, make_memory, map_tensors, room
from stack_lm.memory.nondeterministic import ZERO

BOTTOMS = ("open", "fixed")


def random_moves(memory, steps, batch_size=1, spread=2.0, dtype=torch.float64):
    return [
        memory.action_type(
            *(
                torch.rand(batch_size, *field.shape, dtype=dtype)
                if field.name == "push_value"
                else spread * (2 * torch.rand(batch_size, *field.shape, dtype=dtype) - 1)
                for field in memory.actions
            )
        )
        for _ in range(steps)
    ]


def run(memory, moves, dtype=torch.float64):
    state = memory.initial_state(len(moves[0].pop_weight), dtype=dtype)
    readings = []
    for step in moves:
        state, reading = memory.step(state, step)
        readings.append(reading)
    return torch.stack(readings, dim=1), state


def explicit(memory, moves):
    """The readings by a dictionary of stacks, of one sequence, and the total weights of all runs, with the start's.

    A stack is a tuple of elements from the bottom up: a symbol, the time at which the one below was last the top, and
    when its vector was made.
    """
    n_states, n_symbols, size = memory.states, memory.symbols, memory.size
    runs = {(0, ((0, -1, 0),)): 1.0}
    vectors = [torch.full((size,), float(memory.bottom_vector == "ones"), dtype=torch.float64)]
    readings, totals = [], [1.0]
    for time, step in enumerate(moves, start=1):
        rows = [part[0].flatten(2) for part in step[:3]]
        if memory.normalize:
            rows = torch.cat(rows, 2).log_softmax(2).split([row.shape[2] for row in rows], 2)
        push, replace = (row.exp().unflatten(2, (n_states, n_symbols)).tolist() for row in rows[:2])
        pop = rows[2].exp().tolist()
        vectors.append(step.push_value[0] if size else torch.zeros(0, dtype=torch.float64))
        new = defaultdict(float)
        for (q, stack), weight in runs.items():
            x, under, vector = stack[-1]
            fixed = memory.bottom == "fixed" and len(stack) == 1
            for r, y in itertools.product(range(n_states), range(n_symbols)):
                new[r, (*stack, (y, time - 1, time))] += weight * push[q][x][r][y]
                if not fixed:
                    new[r, (*stack[:-1], (y, under, vector))] += weight * replace[q][x][r][y]
            if len(stack) > 2 or (len(stack) == 2 and memory.bottom == "open"):
                for r in range(n_states):
                    new[r, stack[:-1]] += weight * pop[q][x][r]
        runs = {
            key: weight for key, weight in new.items() if memory.window is None or time - key[1][-1][1] <= memory.window
        }
        total = sum(runs.values())
        reading = torch.zeros(n_states, n_symbols, max(size, 1), dtype=torch.float64)
        for (r, stack), weight in runs.items():
            reading[r, stack[-1][0]] += weight / total * (vectors[stack[-1][2]] if size else 1)
        readings.append((reading if memory.read_states else reading.sum(0)).flatten())
        totals.append(total)
    return torch.stack(readings), totals


SETTINGS = [
    {},
    {"size": 2},
    {"size": 2, "bottom_vector": "zeros", "read_states": False},
    {"window": 2},
    {"window": 3, "size": 1},
    {"window": 9},
    {"normalize": True, "read_states": False},
]


@pytest.mark.parametrize("bottom", BOTTOMS)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize(("sizes", "steps"), [((1, 2), 6), ((2, 1), 6), ((2, 2), 5), ((1, 3), 5)])
def test_it_equals_a_dictionary_of_stacks(bottom, options, sizes, steps):
    memory = NondeterministicStack(*sizes, bottom=bottom, **options)
    moves = random_moves(memory, steps)
    readings, _ = run(memory, moves)
    torch.testing.assert_close(readings[0], explicit(memory, moves)[0], rtol=1e-12, atol=1e-12)


def loops(memory, moves):
    """The papers' recurrences in loops over every index, of one sequence: readings, gamma and alpha."""
    n_states, n_symbols, n = memory.states, memory.symbols, len(moves)
    pairs = list(itertools.product(range(n_states), range(n_symbols)))
    push, replace, pop = ([part[0].exp() for part in parts] for parts in list(zip(*moves, strict=True))[:3])
    gamma, alpha = defaultdict(float), defaultdict(float)
    alpha[-1, 0, 0] = alpha[0, 0, 0] = gamma[-1, 0, 0, 0, 0, 0] = 1.0
    readings = []
    for j in range(1, n + 1):
        for i, (q, x), (r, y) in itertools.product(range(-1, j), pairs, pairs):
            total = push[j - 1][q, x, r, y] if i == j - 1 else 0.0
            for s, z in pairs:
                total += gamma[i, j - 1, q, x, s, z] * replace[j - 1][s, z, r, y]
            for k, u in itertools.product(range(i + 1, j - 1), range(n_states)):
                revealed = sum(gamma[k, j - 1, u, y, s, z] * pop[j - 1][s, z, r] for s, z in pairs)
                total += gamma[i, k, q, x, u, y] * revealed
            gamma[i, j, q, x, r, y] = float(total)
        for (r, y), i, (q, x) in itertools.product(pairs, range(-1, j), pairs):
            alpha[j, r, y] += alpha[i, q, x] * gamma[i, j, q, x, r, y]
        reading = torch.tensor([alpha[j, *pair] for pair in pairs], dtype=torch.float64)
        readings.append(reading / reading.sum())
    return torch.stack(readings), gamma, alpha


def test_it_equals_loops_over_every_index():
    memory = NondeterministicStack(2, 2)
    moves = random_moves(memory, 4)
    readings, state = run(memory, moves)
    expected, gamma, alpha = loops(memory, moves)
    torch.testing.assert_close(readings[0], expected, rtol=1e-12, atol=1e-12)
    for i, j in itertools.combinations(range(-1, 5), 2):
        for q, x, r, y in itertools.product(range(2), repeat=4):
            share = alpha[i, q, x] * gamma[i, j, q, x, r, y] / alpha[j, r, y] if alpha[j, r, y] else 0.0
            found = state.under[0, i + 1, j, 2 * q + x, 2 * r + y].exp().item()
            assert found == pytest.approx(share, abs=1e-13)


@pytest.mark.parametrize(
    ("sizes", "options", "expected"),
    [
        ((1, 1), {}, [1, 2, 5, 13, 35, 96, 267]),
        ((1, 1), {"bottom": "fixed"}, [1, 1, 2, 5, 13, 35]),
        ((1, 1), {"window": 3}, [1, 2, 5, 9, 18, 37, 73]),
        ((2, 3), {}, [1, 12, 156, 2088]),
    ],
)
def test_the_numbers_of_runs(sizes, options, expected):
    """Known counts where all weights are 1; the same stacks give the same readings (above)."""
    memory = NondeterministicStack(*sizes, **options)
    moves = [memory.action_type(*map(torch.zeros_like, step)) for step in random_moves(memory, len(expected) - 1)]
    readings, totals = explicit(memory, moves)
    assert totals == pytest.approx(expected)
    torch.testing.assert_close(run(memory, moves)[0][0], readings)


def test_a_number_added_to_all_weights_of_a_step_changes_nothing():
    memory = NondeterministicStack(2, 2, 1)
    moves = random_moves(memory, 7)
    more = [
        step._replace(**{name: getattr(step, name) + 30 * t for name in memory.action_type._fields[:3]})
        for t, step in enumerate(moves)
    ]
    expected, found = run(memory, moves), run(memory, more)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1].under, expected[1].under, rtol=1e-12, atol=1e-10)


def test_single_runs_are_a_list():
    """Weights of 0 for all moves but one a step: the reading is 1 at the top of a Python list."""
    memory, generator = NondeterministicStack(2, 3, 1), torch.Generator().manual_seed(3)
    draw = lambda n: int(torch.randint(n, (), generator=generator))  # noqa: E731
    stack, state, moves, tops = [(0, 1.0)], 0, [], []
    for t in range(1, 40):
        weights = {f.name: torch.full((1, *f.shape), -math.inf, dtype=torch.float64) for f in memory.actions[:3]}
        here, r, y = (0, state, stack[-1][0]), draw(2), draw(3)
        move = draw(3 if len(stack) > 1 else 2)
        if move == 2:
            weights["pop_weight"][*here, r] = 1.5
            stack.pop()
        else:
            weights[("push_weight", "replace_weight")[move]][*here, r, y] = 1.5
            stack = [*stack, (y, t / 40)] if move == 0 else [*stack[:-1], (y, stack[-1][1])]
        state = r
        moves.append(memory.action_type(**weights, push_value=torch.full((1, 1), t / 40, dtype=torch.float64)))
        expected = torch.zeros(6, dtype=torch.float64)
        expected[3 * state + stack[-1][0]] = stack[-1][1]
        tops.append(expected)
    torch.testing.assert_close(run(memory, moves)[0][0], torch.stack(tops), rtol=0, atol=1e-12)


def test_float32_holds_extreme_weights():
    """Log weights of up to 200 and more: the exact result is that of float64, and gradients are finite."""
    memory = NondeterministicStack(2, 3)
    moves = random_moves(memory, 12, batch_size=3, spread=200.0)
    expected, _ = run(memory, moves)
    leaves = [map_tensors(lambda part: part.float().requires_grad_(), step) for step in moves]
    found, _ = run(memory, leaves, torch.float32)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3)
    (found * torch.randn_like(found)).sum().backward()
    assert all(torch.isfinite(part.grad).all() for step in leaves for part in step if part.grad is not None)


@pytest.mark.parametrize("options", [{}, {"size": 2}, {"bottom": "fixed"}, {"window": 2}, {"normalize": True}], ids=str)
def test_it_has_second_derivatives(options):
    memory = NondeterministicStack(2, 2, **options)
    moves = random_moves(memory, 3, batch_size=1)
    parts = [part.requires_grad_() for step in moves for part in step]
    width = len(moves[0])

    def readings(*parts):
        steps = [memory.action_type(*parts[i : i + width]) for i in range(0, len(parts), width)]
        return run(memory, steps)[0]

    assert torch.autograd.gradgradcheck(readings, parts)


def test_a_window_carries_on_without_end():
    """The state has as many times as the window, and its numbers do not grow."""
    memory = NondeterministicStack(2, 2, 2, window=5)
    _, state = run(memory, random_moves(memory, 60, spread=20.0, dtype=torch.float32), torch.float32)
    assert state.under.shape == (1, 4, 4, 4, 4)
    assert state.under.max() <= 1e-5
    assert memory.check_overflow(state) is None


def test_the_state_forgets_times_of_no_sequence():
    memory = NondeterministicStack(1, 2, 1)
    moves = random_moves(memory, 6, batch_size=2)
    _, state = run(memory, moves)
    state = memory.reset(state, torch.tensor([True, True]))
    small = memory.compact(state, 10)
    assert small.under.shape[1] == 1
    step = random_moves(memory, 1, batch_size=2)[0]
    torch.testing.assert_close(memory.step(small, step)[1], memory.step(state, step)[1])
    assert memory.compact(run(memory, moves)[1], 10).under.shape[1] == 7


@pytest.mark.parametrize(
    ("states", "symbols", "size", "expected"),
    [(1, 29, 0, 6_125_759), (4, 5, 0, 5_902_976), (4, 3, 0, 5_754_976), (1, 1, 32, 5_698_131), (2, 3, 10, 5_741_944)],
)
def test_parameters_are_as_many_as_in_the_released_code(states, symbols, size, expected):
    """Of the language models of DuSell and Chiang (2022, 2023), which learn the bottom's vector."""
    sizes = {"memory_states": states, "memory_symbols": symbols, "memory_size": size}
    layer = {"vocab_size": 10_000, "embedding_size": 256, "hidden_size": 256}
    with torch.device("meta"):
        model = StackRNNForCausalLM(tiny_config(**layer, memory="nondeterministic", **sizes))
    assert sum(parameter.numel() for parameter in model.parameters()) == expected - size


def test_what_cannot_be_is_refused(monkeypatch):
    for fields, message in (
        ({"memory_states": 0}, "memory_states must be an integer of at least 1; got 0"),
        ({"bottom": "new"}, "bottom must be one of 'open', 'fixed'; got 'new'"),
        ({"memory_states": 100, "memory_symbols": 100}, "make 201,000,000 weights a step; at most 16,777,216"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny_config(**{"memory": "nondeterministic", "memory_size": 0} | fields)
    monkeypatch.setattr(room, "memory_of", lambda device: 2**30)
    layer = MemoryLayer(5, "nondeterministic", memory_states=3)
    with pytest.raises(InputError, match=r"over 5,000 steps of 2 sequences needs 15.. GiB; 1.0 GiB are available"):
        layer(torch.zeros(2, 1, 5).expand(2, 5_000, 5))


def test_a_stack_without_any_run_is_refused():
    memory = make_memory(tiny_config(memory="nondeterministic", memory_size=0))
    (good,) = random_moves(memory, 1, batch_size=2)
    state = memory.initial_state(2, dtype=torch.float64)
    nothing = map_tensors(lambda part: part.index_fill(0, torch.tensor([1]), -math.inf), good)
    with pytest.raises(ValueError, match="no run is left on the nondeterministic stack of sequence 1: the weights of"):
        memory.step(state, nothing)
    with pytest.raises(ValueError, match="pop_weight must be logarithms of weights, below infinity; got nan"):
        memory.step(state, good._replace(pop_weight=good.pop_weight * math.nan))
    _, reading = memory.update(state, map_tensors(partial(torch.full_like, fill_value=math.nan), good))
    assert reading.isnan().all()  # as everywhere in a network
    assert ZERO < -1e29
