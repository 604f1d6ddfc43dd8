"""Interventions against a loop over steps, and against models that are built as the intervention leaves them."""

import copy

import pytest
import torch
from conftest import MEMORIES, tiny_config

from stack_lm import (
    DeepStackRNNConfig,
    DeepStackRNNForCausalLM,
    Intervention,
    MemoryLayer,
    StackRNNForCausalLM,
    intervene,
    memories,
)
from stack_lm.memory import Strength, Value

BATCH, LENGTH = 3, 6
IDS = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % 23


def make(**fields):
    """A model in float64 whose actions are far from alike."""
    model = StackRNNForCausalLM(tiny_config(**fields)).double().eval()
    with torch.no_grad():
        if model.base_model.reading_exit is not None:
            torch.nn.init.normal_(model.base_model.reading_exit.weight, std=0.2)  # it starts at zero
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def test_the_state_of_an_intervened_layer_is_of_another_form():
    """Cached steps within an intervention, and before and after it."""
    model = make()
    (layer,) = memories(model)
    within = model.generate(IDS[:, :2], max_new_tokens=4, do_sample=False)
    for _ in range(2):
        with intervene(layer, Intervention({"push_strength": 0.5})):
            changed = model.generate(IDS[:, :2], max_new_tokens=4, do_sample=False)
            whole = model.generate(IDS[:, :2], max_new_tokens=4, do_sample=False, use_cache=False)
        assert torch.equal(changed, whole)
        assert torch.equal(model.generate(IDS[:, :2], max_new_tokens=4, do_sample=False), within)
    other = make()
    (layer,) = memories(other)
    with intervene(layer, Intervention({"push_strength": 0.5})):
        other.generate(IDS[:, :2], max_new_tokens=4, do_sample=False)
    other.generate(IDS[:, :2], max_new_tokens=4, do_sample=False)


def by_hand(model, push, one_element=False, reading=None):
    """Logits of a stack model with these push strengths [T], with a stack as a list of values and strengths."""
    cell = model.base_model.cell
    rows = []
    for ids in IDS:
        controller, stack, read = cell.bare_controller.initial_state(1), [], torch.zeros(1, 3, dtype=torch.float64)
        rows.append([])
        for t, token in enumerate(ids):
            embedded = model.get_input_embeddings()(token.view(1))
            (output,), controller = cell.bare_controller.step(cell.bare_controller.project(embedded), read, controller)
            actions, _ = cell.controls(output)
            left, kept = float(actions.pop_strength), []
            for value, strength in reversed(stack):
                kept.append((value, max(0.0, strength - max(0.0, left))))
                left -= strength
            stack = [] if one_element else kept[::-1]
            stack.append((actions.push_value, float(push[t])))
            left, read = float(actions.read_strength), torch.zeros_like(read)
            for value, strength in reversed(stack):
                read = read + min(strength, max(0.0, left)) * value
                left -= strength
            below = read - min(float(push[t]), float(actions.read_strength)) * actions.push_value
            exits = torch.cat((actions.push_value, below), -1)
            if reading is not None:
                read, exits = reading.view(1, -1), torch.zeros_like(exits)
            if model.base_model.reading_exit is not None:
                output = output + model.base_model.reading_exit(exits)
            rows[-1].append(model.get_output_embeddings()(output)[0])
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("exit", ["none", "output"])
@torch.no_grad()
def test_against_a_list_with_the_actions_replaced(exit):
    model = make(pop_control="sigmoid", reading_exit=exit)
    (layer,) = memories(model)
    memory, untouched = layer.memory, model(IDS).logits
    push = torch.linspace(0.2, 2.5, LENGTH, dtype=torch.float64)
    zeros = torch.zeros(3, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    given = {"push_strength": push.expand(BATCH, -1)}
    cases = (
        (Intervention(given), {}),
        (Intervention(given, one_element=True), {"one_element": True}),
        (Intervention(given, False, *(zeros if exit == "output" else (zeros[0], None))), {"reading": zeros[0]}),
    )
    for intervention, how in cases:
        with intervene(layer, intervention):
            outputs = model(IDS, output_actions=True)
        torch.testing.assert_close(outputs.logits, by_hand(model, push, **how), atol=1e-10, rtol=0)
        torch.testing.assert_close(outputs.actions["push_strength"], push.expand(BATCH, -1))
        assert (outputs.logits - untouched).abs().max() > 1e-3
    assert layer.memory is memory
    torch.testing.assert_close(model(IDS).logits, untouched, atol=0, rtol=0)


@pytest.mark.parametrize("settings", [m for m in MEMORIES if m["memory"] != "none"], ids=str)
@torch.no_grad()
def test_an_intervention_on_nothing_changes_nothing_and_shows_all_actions(settings):
    model = make(**settings)
    (layer,) = memories(model)
    mask = torch.ones_like(IDS)
    mask[1, 4:] = 0
    expected = model(IDS, attention_mask=mask, output_actions=True)
    with intervene(layer, Intervention()):
        found = model(IDS, attention_mask=mask, output_actions=True)
        chunk = model(IDS[:, :2], use_cache=True)
        rest = model(IDS[:, 2:], past_key_values=chunk.past_key_values)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-10, rtol=0)
    for name, values in expected.actions.items():
        torch.testing.assert_close(found.actions[name], values, atol=1e-10, rtol=0)
    assert {field.name for field in layer.memory.actions} | {"reading"} <= set(found.actions)
    torch.testing.assert_close(torch.cat((chunk.logits, rest.logits), 1), model(IDS).logits, atol=1e-10, rtol=0)
    # The actions that it shows, given again, are the same model; sequences of other actions are not.
    names = [field.name for field in layer.memory.actions if isinstance(field, (Strength, Value))]
    with intervene(layer, Intervention({name: found.actions[name] for name in names})):
        torch.testing.assert_close(
            model(IDS, attention_mask=mask).logits, expected.logits, atol=1e-10, rtol=0, check_dtype=False
        )


@torch.no_grad()
def test_layers_of_one_s_own_and_one_layer_of_several():
    layer = MemoryLayer(4, "queue", memory_size=3).double()
    hidden, push = torch.randn(2, 5, 4, dtype=torch.float64), torch.rand(2, 5, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    emitted, _ = layer.controls.over_time(hidden)
    expected = layer.memory.scan(layer.initial_state(2).memory, emitted._replace(push_strength=push), mask)
    with intervene(layer, Intervention({"push_strength": push})):
        readings, _, actions = layer(hidden, mask=mask, output_actions=True)
    torch.testing.assert_close(readings, expected.readings, atol=1e-10, rtol=0)
    torch.testing.assert_close(actions.push_strength, push.masked_fill(~mask, 0))
    layers = [{"memory": "stack", "hidden_size": 6}, {"memory": "queue", "hidden_size": 5}]
    sizes = {"vocab_size": 23, "embedding_size": 5, "pad_token_id": 0}
    model = DeepStackRNNForCausalLM(DeepStackRNNConfig(layers=layers, **sizes)).double().eval()
    untouched = model(IDS, output_actions=True)
    with intervene(memories(model)[1], Intervention({"push_strength": 0.25})):
        found = model(IDS, output_actions=True)
    torch.testing.assert_close(found.actions[0].push_strength, untouched.actions[0].push_strength, atol=1e-10, rtol=0)
    assert bool((found.actions[1].push_strength == 0.25).all())
    assert (found.logits - untouched.logits).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("intervention", "message"),
    [
        (Intervention({"push": 1.0}), "has no action 'push'; it has push_value, push_strength, pop_strength, read_str"),
        (Intervention({"push_value": torch.zeros(2)}), r"must be a number, \[3\] or \[B, T, 3\]; got \[2\]"),
        (Intervention(reading=torch.zeros(2)), r"reading must be \[3\]; got \[2\]"),
    ],
)
def test_wrong_interventions(intervention, message):
    (layer,) = memories(make())
    memory = copy.copy(layer.memory)
    with pytest.raises(ValueError, match=message), intervene(layer, intervention):
        pass
    assert type(layer.memory) is type(memory)
