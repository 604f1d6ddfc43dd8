"""Each check of `stack_lm.testing` finds the mistake that it is for, and names the rule."""

import pytest
import torch
from conftest import tiny_config

from stack_lm import StackRNNForCausalLM
from stack_lm.memory import register_memory
from stack_lm.testing import MEMORY_CHECKS, MODEL_CHECKS, check_memory, check_model

NAMES = [check.__name__ for check in MEMORY_CHECKS]


def broken(registers, part):
    """The memory with one mistake."""
    State = registers.RegisterState

    class Broken(registers.Registers):
        if part == "state_and_reading":

            def update(self, state, actions):
                return super().update(state, actions)[0]

        if part == "batch_first":

            def initial_state(self, batch_size, length=None, **where):
                return State(super().initial_state(batch_size, length, **where).values.transpose(0, 1))

        if part == "type_asked_for":

            def initial_state(self, batch_size, length=None, *, device=None, dtype=None):
                return super().initial_state(batch_size, length, device=device)

        if part == "independent_sequences":

            def update(self, state, actions):
                state, reading = super().update(state, actions)
                return state, reading + 0.1 * reading.mean(0)

        if part == "nothing_in_place":

            def update(self, state, actions):
                new, reading = super().update(state, actions)
                state.values.copy_(new.values)
                return new, reading

        if part == "no_number_is_looked_at":

            def update(self, state, actions):
                if actions.decay_strength.max().item() > 100:
                    return state, state.values[:, 0]
                return super().update(state, actions)

        if part == "held_sequences":

            def hold(self, active, new, old):
                return State(torch.where(active.view(-1, 1, 1), new.values, 0.5 * old.values))

        if part == "measures":

            def measure(self, state):
                return {"norms": state.values.norm(dim=-1)}

        if part == "reset_sequences":

            def reset(self, state, fresh):
                return state

        if part == "gradients":

            def update(self, state, actions):
                return super().update(state, actions._replace(push_value=actions.push_value.detach()))

        if part == "generation_of_a_model":
            steps = 0

            def update(self, state, actions):  # remembers something that is not in the state
                self.steps += 1
                state, reading = super().update(state, actions)
                return state, reading + self.steps

        if part == "half_precision_of_a_model":

            def update(self, state, actions):  # forgets to cast the choices
                write = actions.write.transpose(1, 2)
                values = (1 - write) * state.values + write * actions.push_value.unsqueeze(1)
                values = values.to(state.values.dtype)
                return State(values), torch.bmm(actions.read, values).squeeze(1)

    register_memory("broken")(Broken)
    return "broken"


@pytest.mark.parametrize("part", [name for name in NAMES if name != "saving_of_a_model"])
def test_a_mistake_is_found_by_its_check(registers, part):
    name = broken(registers, part)
    (check,) = (check for check in MEMORY_CHECKS if check.__name__ == part)
    with pytest.raises(AssertionError, match=r"^broken rule: [a-z`].*\.\n\w+: "):
        check(name)


def test_the_first_mistake_is_named(registers):
    with pytest.raises(AssertionError, match="^broken rule: sequences in a batch are independent"):
        check_memory(broken(registers, "independent_sequences"))


def test_a_memory_that_is_right_passes(registers):
    check_memory("registers", memory_depth=4, controller="rnn")


# --- models


def model(**fields):
    return StackRNNForCausalLM(tiny_config(**fields))


class Forgets(StackRNNForCausalLM):
    """A model with a weight that is not saved."""

    def __init__(self, config):
        super().__init__(config)
        self.scale = torch.full((), 0.7)

    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, **kwargs)
        outputs.logits = outputs.logits * self.scale
        return outputs


class Stateless(StackRNNForCausalLM):
    """A model that loses its state between calls."""

    def forward(self, *args, past_key_values=None, **kwargs):
        return super().forward(*args, **kwargs)


class OnlyFloat32(StackRNNForCausalLM):
    """A model that multiplies by a matrix of float32."""

    def forward(self, *args, **kwargs):
        outputs = super().forward(*args, skip_logits=False, **kwargs)
        if outputs.logits is not None:
            outputs.logits = outputs.logits @ torch.eye(outputs.logits.shape[-1])
        return outputs


@pytest.mark.parametrize(("mistaken", "check"), [*zip([Forgets, Stateless, OnlyFloat32], MODEL_CHECKS, strict=True)])
def test_a_models_mistake_is_found_by_its_check(mistaken, check):
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=r"^broken rule: [a-z].*\.\n\w+: "):
        check(mistaken(tiny_config()))


def test_a_model_is_left_as_it_is():
    checked = model()
    before = {name: value.clone() for name, value in checked.state_dict().items()}
    check_model(checked)
    assert checked.training
    for name, value in checked.state_dict().items():
        assert torch.equal(value, before[name])
