"""`push_value_activation="hidden"`: the controller's output itself is pushed (DuSell & Chiang 2023)."""

import pytest
import torch

from stack_lm import StackRNNCell, StackRNNConfig, StackRNNForCausalLM, explain_backend

H, T = 4, 6


def stack_step(cells, value, weights):
    """The cells after a push, a pop and a no-op, in the proportions of the weights."""
    push, pop, no_op = weights
    empty = torch.zeros(H).double()
    below, above = [*cells, empty, empty], [value, *cells]
    return [push * above[i] + pop * below[i + 1] + no_op * below[i] for i in range(len(cells) + 1)]


def test_values_and_gradients_of_a_cell_are_those_of_a_plain_computation():
    torch.manual_seed(0)
    config = StackRNNConfig(
        embedding_size=3, hidden_size=H, controller="rnn", memory="superposition", memory_size=H, no_op=True,
        push_value_activation="hidden",
    )  # fmt: skip
    cell = StackRNNCell(config).double()
    assert cell.controls.projection.weight.shape == (3, H)  # of the operations alone
    inputs = torch.randn(1, T, 3).double().requires_grad_()
    weights = dict(cell.controller.named_parameters())
    hidden, reading = (torch.zeros(H).double() for _ in range(2))
    cells, outputs = [hidden], []
    for x in inputs[0]:
        hidden = torch.tanh(
            weights["weight_ih_l0"] @ x + weights["bias_ih_l0"] + weights["weight_hh_l0"] @ hidden
            + weights["bias_hh_l0"] + weights["weight_reading"] @ reading
        )  # fmt: skip
        cells = stack_step(cells, hidden, cell.controls.projection(hidden).softmax(-1))
        reading = cells[0]
        outputs.append(torch.cat((hidden, reading)))
    scan = cell.scan(inputs, output_readings=True)
    found, expected = torch.cat((scan.outputs, scan.readings), -1)[0], torch.stack(outputs)
    torch.testing.assert_close(found, expected)
    probe = torch.randn_like(expected)
    parameters = [inputs, *cell.parameters()]
    for one, other in zip(
        *(torch.autograd.grad((y * probe).sum(), parameters) for y in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("memory", ["superposition", "stack"])
def test_it_runs_on_the_reference_scan_and_says_so(memory):
    config = StackRNNConfig(
        vocab_size=9, embedding_size=3, hidden_size=H, memory=memory, memory_size=H, push_value_activation="hidden"
    )
    model, ids = StackRNNForCausalLM(config), torch.randint(9, (2, T))
    assert explain_backend(model).startswith(
        "reference: numba cannot run this: the control of push_value is a HiddenState"
    )
    model(ids, labels=ids).loss.backward()
    assert model.generate(ids, max_new_tokens=2, do_sample=False).shape == (2, T + 2)
    model.set_scan_backend("numba")
    with pytest.raises(ValueError, match="the control of push_value is a HiddenState"):
        model(ids)
