"""Memories are found by name, also those that others register."""

import pytest
import torch

from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.memory import NeuralStack, make_memory, map_tensors, memory_names, register_memory


def test_names():
    assert {"none", "stack"} <= set(memory_names())
    assert isinstance(make_memory(StackRNNConfig(memory="stack")), NeuralStack)


@pytest.mark.usefixtures("registries")
def test_a_memory_from_outside_the_package():
    @register_memory("leaky")
    class LeakyStack(NeuralStack):
        """Loses a tenth of every strength at each step."""

        def update(self, state, actions):
            return super().update(state._replace(strengths=0.9 * state.strengths), actions)

    model = StackRNNForCausalLM(StackRNNConfig(vocab_size=11, memory="leaky"))
    actions = model(torch.arange(8).unsqueeze(0), output_actions=True).actions
    push, pop, total = actions.push_strength[0], actions.pop_strength[0], actions.total_strength[0]
    torch.testing.assert_close(total[1], (0.9 * total[0] - pop[1]).clamp(min=0) + push[1])


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="the memory name 'stack' is taken"):
        register_memory("stack")(type("Other", (NeuralStack,), {}))


def test_a_memory_that_overrides_step_is_refused():
    with pytest.raises(TypeError, match="Hasty overrides step; it must override update"):
        register_memory("hasty")(type("Hasty", (NeuralStack,), {"step": lambda self, state, actions: None}))


def test_map_tensors_keeps_the_structure():
    state = NeuralStack(2).initial_state(3)
    mapped = map_tensors(lambda a, b: a + b + 1, (state, None), (state, None))
    assert type(mapped[0]) is type(state)
    assert mapped[1] is None
    assert mapped[0].values.shape == state.values.shape
