"""A memory in somebody else's network: the same steps as in ours, padding, chunks, and clear errors."""

import pytest
import torch
from conftest import MEMORIES, tiny_config

from stack_lm import MemoryModule, StackRNNCell


def make(fields, input_size=7):
    memory, settings = fields["memory"], {name: value for name, value in fields.items() if name != "memory"}
    size = {} if memory == "none" else {"memory_size": 3}
    return MemoryModule(input_size, memory, **size, **settings)


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_it_does_what_the_cell_does(fields):
    """Driven by the outputs of our own controller it takes the cell's actions and reads what the cell reads."""
    cell, module = StackRNNCell(tiny_config(**fields)), make(fields)
    module.controls.load_state_dict(cell.controls.state_dict())
    module.eval()
    cell.eval()
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]).bool()
    scan = cell.scan(torch.randn(2, 5, 5), mask=mask, output_actions=True)
    readings, state, actions = module.scan(scan.outputs, mask)
    assert readings.shape == (2, 5, module.reading_size)
    torch.testing.assert_close(readings[:, -1], scan.state.reading)
    torch.testing.assert_close(state.reading, scan.state.reading)
    assert actions.keys() == scan.actions.keys()
    for name, values in actions.items():
        torch.testing.assert_close(values, scan.actions[name])


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_a_sequence_may_come_in_pieces(fields):
    module, hidden = make(fields), torch.randn(2, 6, 7)
    whole, _, _ = module.scan(hidden)
    first, state, _ = module.scan(hidden[:, :2])
    rest, _, _ = module.scan(hidden[:, 2:], state=state)
    torch.testing.assert_close(torch.cat((first, rest), dim=1), whole)


def test_its_parameters_are_one_linear_layer():
    module = MemoryModule(10, memory_size=4, push_control="sigmoid", pop_control="sigmoid", read_control=1.0)
    assert [tuple(p.shape) for p in module.parameters()] == [(6, 10), (6,)]
    module.scan(torch.randn(2, 5, 10))[0].square().sum().backward()
    assert all(parameter.grad.any() for parameter in module.parameters())
    assert len(list(MemoryModule(10, bias=False).parameters())) == 1


def test_moved_elsewhere_it_begins_there():
    state = MemoryModule(5, memory_size=2).double().initial_state(3)
    assert state.reading.dtype == state.memory.values.dtype == torch.float64


def test_bad_arguments_are_refused():
    for arguments, message in (
        ({"memory": "stak"}, "memory must be one of .*'stack'.*; got 'stak'"),
        ({"num_stacks": 2}, "memory='stack' has no setting 'num_stacks'; it has memory_size, push_control"),
        ({"memory": "none", "memory_size": 2}, "memory='none' has no setting 'memory_size'; it has none"),
        ({"hidden_size": 2}, "memory='stack' has no setting 'hidden_size'"),
        ({"pop_control": "hard"}, "pop_control must be one of 'sigmoid', 'expected_value' or .*; got 'hard'"),
    ):
        with pytest.raises(ValueError, match=message):
            MemoryModule(7, **arguments)
    module = MemoryModule(7)
    with pytest.raises(ValueError, match="state is of 3 sequences; hidden is of 2"):
        module(torch.zeros(2, 7), module.initial_state(3))
    with pytest.raises(ValueError, match=r"hidden has no steps: its shape is \[2, 0, 7\]"):
        module.scan(torch.zeros(2, 0, 7))
    full = MemoryModule(7, "superposition", memory_depth=1, memory_overflow="raise")
    with pytest.raises(ValueError, match="memory_depth|depth"):
        full.scan(torch.randn(1, 9, 7))
