"""Memories written by the delta rule: chunks against single steps, Python's list and dictionary, and reflections."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm import MemoryLayer, StackAttention, explain_backend
from stack_lm.core.errors import InputError
from stack_lm.memory import DeltaNet, DeltaStack, DeltaStackActions, Memory, leaves, map_tensors
from stack_lm.memory.delta import addresses, delta_rule, read, write
from stack_lm.testing.memories import random_actions


def draw(memory, batch_size, length):
    """Actions of all steps, with strengths below 1."""
    steps = [random_actions(memory, None, batch_size, 1.0) for _ in range(length)]
    return memory.action_type(*(torch.stack(parts, 1) for parts in zip(*steps, strict=True)))


def results(memory, state, actions, mask, scan):
    """Readings, states, and gradients of both under fixed weights."""
    inputs = map_tensors(lambda part: part.clone().requires_grad_(), (state, actions))
    run = scan(memory, *inputs, mask)
    found, given = [run.readings, run.reading, *leaves(run.state)], list(leaves(inputs))
    loss = sum((part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in found)
    return [*found, *torch.autograd.grad(loss, given)]


@pytest.mark.parametrize("length", [1, 16, 45])
@pytest.mark.parametrize(
    "memory",
    [
        DeltaNet(6, 2, True),
        DeltaNet(4, 2, convolution_width=3),
        DeltaStack(4, 2, slots=5),
        DeltaStack(3, 1, True, 4, True, slots=40),
    ],
)
def test_chunks_equal_steps(memory, length):
    torch.manual_seed(0)
    state = memory.initial_state(3, dtype=torch.float64)
    state = memory.set_learned(state, {field.name: torch.randn(field.size) for field in memory.learned})
    before = memory.scan(state, draw(memory, 3, 9)).state
    actions, mask = draw(memory, 3, length), torch.rand(3, length) < 0.8
    mask[0] = False
    for given_mask in (None, mask):
        chunks, steps = (results(memory, before, actions, given_mask, cls.scan) for cls in (type(memory), Memory))
        for got, expected in zip(chunks, steps, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@given(st.lists(st.sampled_from(["push", "pop", "no_op"]), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_hard_operations_and_sharp_addresses_make_a_python_list(operations):
    memory, expected, tops = DeltaStack(1, slots=41), [], []
    choices = []
    for number, operation in enumerate(operations, start=1):
        choices.append(operation if expected or operation != "pop" else "no_op")  # below the first slot is nothing
        if choices[-1] == "push":
            expected.append(float(number))
        elif choices[-1] == "pop":
            expected.pop()
        tops.append(expected[-1] if expected else 0.0)
    weights = torch.eye(3, dtype=torch.float64)[[memory.operations.index(choice) for choice in choices]]
    values = torch.arange(1.0, len(choices) + 1, dtype=torch.float64).view(1, -1, 1)
    nothing = torch.zeros_like(values)
    actions = DeltaStackActions(nothing, nothing, values, nothing.squeeze(-1), weights.view(1, -1, 1, 3))
    state = memory.initial_state(1, dtype=torch.float64)
    state = state._replace(sharpness=torch.full_like(state.sharpness, 5_000.0))
    for t, top in enumerate(tops):
        state, _ = memory.step(state, map_tensors(lambda part, t=t: part[:, t], actions))
        assert state.slots[0, 0, :, 0].count_nonzero() == state.pointer.item()
        assert read(state.slots, addresses(state.pointer, 41, state.sharpness)).item() == top
    assert state.slots[0, 0, 1 : len(expected) + 1, 0].tolist() == expected


def test_writes_of_strength_1_under_orthogonal_keys_make_a_dictionary():
    generator, expected = torch.Generator().manual_seed(0), {}
    basis, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    names = torch.randint(4, (20,), generator=generator)
    values, seen = torch.randn(20, 3, generator=generator, dtype=torch.float64), []
    for name, value in zip(names.tolist(), values, strict=True):
        expected[name] = value
        seen.append(expected.get(2, torch.zeros(3, dtype=torch.float64)))
    strengths = torch.ones(20, 1, dtype=torch.float64)
    given = (basis[names].unsqueeze(1), values.unsqueeze(1), strengths, basis[2].expand(20, 4))
    readings, matrix = delta_rule(torch.zeros(4, 3, dtype=torch.float64), *given)
    torch.testing.assert_close(readings, torch.stack(seen))
    torch.testing.assert_close(matrix, sum(torch.outer(basis[name], value) for name, value in expected.items()))


def test_writes_of_strength_2_are_reflections():
    """So a network can swap two things, and count modulo 2."""
    key = torch.tensor([0.6, 0.8], dtype=torch.float64)
    reflected = write(torch.eye(2, dtype=torch.float64), key, torch.zeros(2), torch.tensor(2.0))
    torch.testing.assert_close(torch.linalg.eigvalsh(reflected), torch.tensor([-1.0, 1.0], dtype=torch.float64))
    ones = DeltaNet(1, 1, negative_eigenvalues=True)
    state = ones.initial_state(1)._replace(matrix=torch.ones(1, 1, 1, 1))
    large = torch.full((1, 5, 1), 50.0)
    readings = ones.scan(state, ones.action_type(large, large, 0 * large, torch.ones(1, 5))).readings
    torch.testing.assert_close(readings.flatten(), torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["deltanet", "deltastack"])
def test_layers_read_all_steps_at_once(name, caplog):
    layer = StackAttention(8, name, num_heads=2)
    assert "itself scans all steps at once" in explain_backend(layer)
    hidden = torch.randn(2, 40, 8)
    outputs, state, _ = layer(hidden)
    first, between, _ = layer(hidden[:, :33])
    second, last, _ = layer(hidden[:, 33:], between)
    torch.testing.assert_close(torch.cat((first, second), 1), outputs)
    torch.testing.assert_close(last, state)
    assert not caplog.messages
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(hidden)[0].float(), outputs, rtol=0.1, atol=0.03)


def test_a_layer_is_that_of_the_papers():
    """Written with torch's own convolution and norm, as the released code is."""
    torch.manual_seed(0)
    size, heads = 8, 2
    layer = StackAttention(size, "deltanet", num_heads=heads, convolution_width=4, normalize_reading=True).double()
    kernel = layer.stack.controls.start["kernel"]
    assert 0.45 < kernel.abs().max() <= 0.5  # as torch draws it
    convolution = torch.nn.Conv1d(3 * size, 3 * size, 4, groups=3 * size, padding=3, bias=False).double()
    convolution.weight.data.copy_(kernel.unflatten(0, (4, 3 * size)).mT.unsqueeze(1))
    norm = torch.nn.RMSNorm(size // heads, eps=1e-5).double()
    hidden = torch.randn(2, 11, size, dtype=torch.float64)
    emitted = layer.stack.controls.projection(hidden)
    mixed = torch.nn.functional.silu(convolution(emitted[..., : 3 * size].mT)[..., :11].mT)
    key, query, value = (part.unflatten(-1, (heads, -1)) for part in mixed.split(size, dim=-1))
    key, query = (part * (part.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for part in (key, query))
    matrix, readings = torch.zeros(2, heads, 4, 4, dtype=torch.float64), []
    for t in range(11):
        matrix = write(matrix, key[:, t], value[:, t], emitted[:, t, 3 * size :].sigmoid())
        readings.append(norm(read(matrix, query[:, t])).flatten(1))
    outputs, _, _ = layer(hidden)
    torch.testing.assert_close(outputs, layer.output(torch.stack(readings, 1)))
    mask = torch.ones(2, 14, dtype=torch.bool)
    mask[:, [0, 5, 13]] = False
    padded = torch.randn(2, 14, size, dtype=torch.float64)
    padded[mask] = hidden.flatten(0, 1)
    torch.testing.assert_close(layer(padded, None, mask)[0][mask], outputs.flatten(0, 1))


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="memory_size=6 must be a multiple of num_heads=4"):
        MemoryLayer(5, "deltastack", memory_size=6, num_heads=4)


@pytest.mark.parametrize("memory", ["deltanet", "deltastack"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"write_control": 2.5}, "write_control must be one .* of at least 0 and at most 1; got 2.5"),
        ({"write_control": "expected_value", "max_write": 2}, "max_write must be an integer of at most 1; got 2"),
    ],
)
def test_writes_that_grow_without_limit_are_refused(memory, settings, message):
    with pytest.raises(InputError, match=message):
        MemoryLayer(8, memory, memory_size=8, **settings)
