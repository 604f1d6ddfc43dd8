"""Stack attention equals the formulas of DuSell & Chiang (2024), step by step, and is a layer for any transformer."""

import pytest
import torch

from stack_lm import StackAttention, memories

D, M = 6, 3
KINDS = {
    "superposition": {"memory_size": M},
    "stack": {"memory_size": M},
    "nondeterministic": {"memory_states": 2, "memory_symbols": 2, "memory_size": M},
}


def make(memory, **settings):
    torch.manual_seed(0)
    layer = StackAttention(D, memory, **KINDS[memory] | settings).double()
    for parameter in layer.parameters():
        parameter.data.uniform_(-1, 1)
    return layer


def superposition(logits):
    """p * shift down + q * shift up + n * same, from zeros; the reading is the top."""
    cells, readings = [torch.zeros(M).double()], []
    for z in logits:
        value, (push, pop, no_op) = z[:M], torch.softmax(z[M:], -1)
        below = [*cells, torch.zeros(M), torch.zeros(M)]
        above = [value, *cells]
        cells = [push * above[i] + pop * below[i + 1] + no_op * below[i] for i in range(len(cells) + 1)]
        readings.append(cells[0])
    return readings


def strengths(logits):
    """Pop, push and read as in Grefenstette et al. (2015), eqs. 1-3, but the read comes before the push."""
    support = [torch.arange(size).double() for size in SUPPORT]
    elements, readings = [], []
    for z in logits:
        parts = z[M:].split(SUPPORT)
        push, pop, read = (p.softmax(-1) @ own for p, own in zip(parts, support, strict=True))
        kept = []
        for value, strength in reversed(elements):
            removed = torch.minimum(strength, pop)
            pop = pop - removed
            kept.insert(0, (value, strength - removed))
        reading = torch.zeros(M).double()
        for value, strength in reversed(kept):
            used = torch.minimum(strength, read)
            read, reading = read - used, reading + used * value
        readings.append(reading)
        elements = [*kept, (torch.tanh(z[:M]), push)]
    return readings


SUPPORT = [
    StackAttention(D, "stack", memory_size=M).stack.controls.emission(f"{n}_strength").width
    for n in ("push", "pop", "read")
]


def nondeterministic(logits, bottom):
    """The weights of all runs, each with its whole stack: symbols, and the vectors that they carry."""
    states = symbols = 2
    pairs = states * symbols
    runs, readings = {(0, ((0, 0),)): torch.tensor(1.0).double()}, []
    vectors = [torch.sigmoid(bottom)]
    for t, z in enumerate(logits, start=1):
        push, replace, pop, value = z.split((pairs * pairs, pairs * pairs, pairs * states, M))
        push, replace, pop = (part.exp().view(pairs, -1) for part in (push, replace, pop))
        vectors.append(value.exp())
        after = {}
        for (q, stack), weight in runs.items():
            top, time = stack[-1]
            row = q * symbols + top
            moves = []
            for r in range(states):
                for y in range(symbols):
                    to = r * symbols + y
                    moves.append((r, (*stack, (y, t)), push[row, to]))
                    moves.append((r, (*stack[:-1], (y, time)), replace[row, to]))
                if len(stack) > 1:
                    moves.append((r, stack[:-1], pop[row, r]))
            for r, new, of_move in moves:
                after[r, new] = after.get((r, new), 0) + weight * of_move
        runs = after
        reading = torch.zeros(pairs, M).double()
        for (r, stack), weight in runs.items():
            reading[r * symbols + stack[-1][0]] += weight * vectors[stack[-1][1]]
        readings.append((reading / sum(runs.values())).flatten())
    return readings


DEFINITIONS = {"superposition": superposition, "stack": strengths, "nondeterministic": nondeterministic}


@pytest.mark.parametrize("memory", KINDS)
def test_it_equals_the_formulas_step_by_step(memory):
    layer, x = make(memory), torch.randn(2, 5, D).double()
    weight = layer.stack.controls.projection.weight
    assert layer.stack.controls.projection.bias is None
    assert layer.output.bias is None
    outputs, _, _ = layer(x)
    for found, row in zip(outputs, x, strict=True):
        expected = torch.stack(DEFINITIONS[memory](row @ weight.T, *layer.stack.controls.start.values()))
        expected = expected @ layer.output.weight.T
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("memory", KINDS)
def test_an_output_has_the_actions_of_its_own_step_and_of_none_after_it(memory):
    layer, x = make(memory), torch.randn(1, 5, D).double().requires_grad_()
    for t in range(5):
        (gradient,) = torch.autograd.grad(layer(x)[0][0, t].square().sum(), x)
        if t or memory != "stack":  # which reads before its first push
            assert gradient[0, t].abs().max() > 1e-6
        assert not gradient[0, t + 1 :].any()


def test_the_actions_of_a_stack_are_readable():
    layer = make("stack")
    _, _, actions = layer(torch.randn(2, 4, D).double(), output_actions=True)
    assert actions.push_strength.shape == (2, 4)
    assert [each.memory.name for each in memories(layer)] == ["stack"]
    maps = {"superposition": D * 3 + 2 * D * M, "nondeterministic": D * 4 * 10 + D * M + D * 4 * M + M}
    for memory, count in maps.items():
        assert sum(parameter.numel() for parameter in make(memory).parameters()) == count


@pytest.mark.parametrize("activation", ["exp", "identity"])
@pytest.mark.parametrize("memory", ["superposition", "stack", "nondeterministic", "baby_ntm"])
def test_pushed_vectors_may_be_exponentials_or_as_they_are(memory, activation):
    layer = StackAttention(D, memory, memory_size=2, push_value_activation=activation).double()
    x = torch.randn(2, 3, D).double()
    emitted, _ = layer.stack.controls(x[:, 0])
    start = 0 if memory != "nondeterministic" else -2
    logits = (x[:, 0] @ layer.stack.controls.projection.weight.T)[:, start or None :][:, :2]
    torch.testing.assert_close(emitted.push_value, logits.exp() if activation == "exp" else logits)
    results = []
    for backend in ("reference", "numba"):
        layer.stack.scan_backend = backend
        output = layer(x)[0]
        results.append((output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
