"""The cell: scan equals steps, chunks equal the whole, padding changes nothing, for controllers, memories, controls."""

import pytest
import torch
from conftest import CONTROLLERS, MEMORIES, thinned, tiny_config
from torch import nn

from stack_lm.memory import map_tensors
from stack_lm.nn import draw_noise, with_noise
from stack_lm.nn.cell import Actions, StackRNNCell

LAYERS = [
    {"num_layers": 3},
    {"learn_initial_state": True},
    {"bias": False},
    {"num_layers": 3, "input_skip_connections": True, "memory": "deque"},
    {"num_layers": 2, "input_skip_connections": True, "memory": "none"},
]
READINGS = [
    [{"controller": c, "reading_entry": "hidden_state"} for c in ("rnn", "rnn_sigmoid", "gru", "lstm")],
    [{"memory": m} for m in ("stack", "superposition", "deque")],
]
VARIANTS = [*thinned([{"controller": c} for c in CONTROLLERS], MEMORIES, every=4), *LAYERS, *thinned(*READINGS)]


def make_cell(**fields):
    cell = StackRNNCell(tiny_config(**fields)).double()
    for parameter in cell.controller.first_state:
        nn.init.normal_(parameter)
    for parameter in cell.parameters():
        parameter.data *= 3  # away from where all strengths are alike
    return cell


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_scan_equals_steps(fields):
    cell = make_cell(**fields)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    scan = cell.scan(inputs, output_actions=True, output_layers=True)
    state = cell.initial_state(2)
    for t in range(6):
        layers, actions, state = cell.step(inputs[:, t], state)
        torch.testing.assert_close(scan.outputs[:, t], layers[-1])
        for whole, layer in zip(scan.layers, layers, strict=True):
            torch.testing.assert_close(whole[:, t], layer)
        for name, value in actions.items():
            torch.testing.assert_close(scan.actions[name][:, t], value)
    map_tensors(torch.testing.assert_close, scan.state, state)


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_chunks_with_carried_state_equal_the_whole(fields):
    cell = make_cell(**fields)
    inputs = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    whole = cell.scan(inputs, output_actions=True)
    state, outputs, totals = None, [], []
    for chunk in inputs.split(3, dim=1):
        scan = cell.scan(chunk, state, output_actions=True)
        state = scan.state
        outputs.append(scan.outputs)
        totals.append(scan.actions)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.outputs)
    for name, value in whole.actions.items():
        torch.testing.assert_close(torch.cat([chunk[name] for chunk in totals], dim=1), value)
    # The gradient flows through the carried state as well.
    (expected,) = torch.autograd.grad(whole.outputs[:, -1].sum(), inputs)
    (actual,) = torch.autograd.grad(outputs[-1][:, -1].sum(), inputs)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_sequences_that_are_reset_begin_anew(fields):
    cell = make_cell(**fields)
    inputs, following = torch.randn(3, 6, 5, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    state = map_tensors(torch.Tensor.detach, cell.scan(inputs).state)
    outputs = cell.scan(following, cell.reset(state, torch.tensor([True, False, True]))).outputs
    torch.testing.assert_close(outputs[1], cell.scan(following, state).outputs[1])
    torch.testing.assert_close(outputs[[0, 2]], cell.scan(following).outputs[[0, 2]])


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_padding_changes_nothing(fields, side):
    cell = make_cell(**fields)
    sentence = torch.randn(1, 4, 5, dtype=torch.float64)
    real = {"left": [3, 4, 5, 6], "right": [0, 1, 2, 3], "middle": [0, 2, 3, 6]}[side]
    inputs = torch.randn(2, 7, 5, dtype=torch.float64)
    inputs[0, real] = sentence[0]
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0] = False
    mask[0, real] = True
    padded = cell.scan(inputs, mask=mask, output_actions=True)
    alone = cell.scan(sentence, output_actions=True)
    torch.testing.assert_close(padded.outputs[:1, real], alone.outputs)
    assert not padded.outputs[0, ~mask[0]].any()
    for name, value in alone.actions.items():
        torch.testing.assert_close(padded.actions[name][:1, real], value)
    # The state is carried through the padding: what follows is the same.
    more = torch.randn(2, 3, 5, dtype=torch.float64)
    after = cell.scan(more, padded.state).outputs[:1]
    torch.testing.assert_close(after, cell.scan(more[:1], alone.state).outputs)
    # The other sequence does not notice.
    torch.testing.assert_close(padded.outputs[1:], cell.scan(inputs[1:]).outputs)


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_gradcheck(fields):
    cell = make_cell(**fields)
    inputs = torch.randn(2, 4, 5, dtype=torch.float64, requires_grad=True)
    names, weights = zip(*cell.named_parameters(), strict=True) if list(cell.parameters()) else ((), ())

    def run(inputs, *weights):
        scan = torch.func.functional_call(cell, dict(zip(names, weights, strict=True)), (inputs,))
        return scan.outputs, scan.state.reading

    assert torch.autograd.gradcheck(run, (inputs, *weights), fast_mode=True)


@pytest.mark.parametrize("fields", [{"controller": "lstm", **memory} for memory in MEMORIES], ids=str)
def test_a_state_of_other_sequences_or_another_device_is_refused(fields):
    cell = make_cell(**fields)
    inputs = torch.randn(2, 4, 5, dtype=torch.float64)
    for state in (cell.initial_state(1), cell.initial_state(3)):
        n = state.reading.shape[0]
        with pytest.raises(ValueError, match=f"the same number of sequences; got {n} and 2"):
            cell.scan(inputs, state)
        with pytest.raises(ValueError, match=f"the same number of sequences; got {n} and 2"):
            cell.step(inputs[:, 0], state)
    elsewhere = map_tensors(lambda tensor: tensor.to("meta"), cell.initial_state(2))
    with pytest.raises(ValueError, match="the state is on meta; the inputs are on cpu"):
        cell.scan(inputs, elsewhere)


def test_a_full_stack_is_noticed_once_and_not_at_padding():
    cell = make_cell(memory="superposition", memory_depth=3)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match="memory_depth=3 was full"):
        cell.scan(inputs)
    mask = torch.tensor([[True] * 3 + [False] * 3, [False] * 4 + [True] * 2])
    assert not cell.scan(inputs, mask=mask, output_actions=True).actions.lost.any()


def test_actions_name_what_is_there():
    actions = Actions(push_strength=torch.zeros(1))
    assert actions.push_strength is actions["push_strength"]
    with pytest.raises(AttributeError, match="no action 'pop_strength'; there are push_strength"):
        _ = actions.pop_strength
    with pytest.raises(AttributeError, match="the model has no memory"):
        _ = Actions().push_strength


@pytest.mark.parametrize("memory", ["none", "stack"])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_given_dropout(memory, backend):
    """Every backend drops between layers what it is given, or nothing where all factors are 1."""
    torch.manual_seed(0)
    cell = make_cell(num_layers=3, memory=memory, hidden_dropout=0.5)
    cell.scan_backend = backend
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    drawn = draw_noise(cell, (2, 6), torch.Generator().manual_seed(1))
    factors = drawn["0.dropout"]
    assert factors.shape == (2, 6, 2, cell.bare_controller.hidden_size)
    assert set(factors.unique().tolist()) == {0.0, 2.0}
    with with_noise(cell, drawn):
        dropped = cell.scan(inputs).outputs
    steps, state = [], cell.initial_state(2)
    for t in range(6):
        layers, _, state = cell.step(inputs[:, t], state, noise={"dropout": factors[:, t]})
        steps.append(layers[-1])
    torch.testing.assert_close(dropped, torch.stack(steps, dim=1))
    with with_noise(cell, {"0.dropout": torch.ones_like(factors)}):
        whole = cell.scan(inputs).outputs
    cell.eval()
    torch.testing.assert_close(whole, cell.scan(inputs).outputs)
    assert not torch.allclose(whole, dropped)
    assert draw_noise(cell, (2, 6)) == {}
    with (
        with_noise(cell.train(), drawn),
        pytest.raises(ValueError, match=r"given as \[2, 6, 2, .*; the steps are \[2, 3\]"),
    ):
        cell.scan(inputs[:, :3])
