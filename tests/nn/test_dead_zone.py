"""How far readings reach, against lists in plain Python."""

import math

import pytest
import torch
from conftest import tiny_config

from stack_lm import MemoryLayer, StackRNNForCausalLM
from stack_lm.memory import stack_weights
from stack_lm.nn import memories
from stack_lm.nn.dead_zone import DeadZone, dead_zone
from stack_lm.nn.interventions import Intervention, intervene
from stack_lm.training.language_model import dead_zone_notes

SIGMOID = {f"{control}_control": "sigmoid" for control in ("push", "pop", "read")}
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def model_of(**fields):
    """Strengths and values differ from step to step."""
    torch.manual_seed(0)
    model = StackRNNForCausalLM(tiny_config(**fields)).double().eval()
    for parameter in model.parameters():
        parameter.data *= 3
    return model


def taken(strength, elements):
    """Take a strength from elements [strength, step], the first ones first: what is taken of each."""
    parts = []
    for left, step in elements:
        part = left if left <= strength else strength
        strength = strength - part
        parts.append((part, step))
    return parts


def weights(memory, actions, row):
    """For each step and end the weight and the step of each element that is read; strengths are tensors."""
    elements, readings = [], []  # from the bottom to the top
    ends = ["top", "bottom"] if memory == "deque" else [""]

    def amount(name, end, t):
        return actions[f"{name}_strength{end and '_'}{end}"][row, t]

    def seen_from(end):
        return elements if end == "bottom" or memory == "queue" else elements[::-1]

    for t in range(IDS.shape[1]):
        for end in ends:
            order = seen_from(end)
            popped = taken(amount("pop", end, t), order)
            cut = [[left - part, step] for (left, step), (part, _) in zip(order, popped, strict=True)]
            elements = cut if order is elements else cut[::-1]
        elements.append([amount("push", ends[0], t), t])
        if memory == "deque":
            elements.insert(0, [amount("push", "bottom", t), -t - 1])  # a step's value at the bottom
        readings.append({end: taken(amount("read", end, t), seen_from(end)) for end in ends})
    return readings


@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
def test_it_is_that_of_lists(memory, monkeypatch):
    model = model_of(memory=memory, **SIGMOID)
    (layer,) = memories(model)
    found = dead_zone(layer, lambda: model(IDS, labels=IDS).loss)
    with torch.no_grad(), intervene(layer, Intervention()):
        recorded = dict(model(IDS, output_actions=True).actions)
    update, shifts = layer.memory.update, []

    def shifted(state, actions):
        state, reading = update(state, actions)
        shifts.append(torch.zeros_like(reading, requires_grad=True))
        return state, reading + shifts[-1]

    monkeypatch.setattr(layer.memory, "update", shifted)
    layer.scan_backend = "reference"
    by_reading = torch.autograd.grad(model(IDS, labels=IDS).loss, shifts, materialize_grads=True)
    strengths = {name: part.requires_grad_() for name, part in recorded.items() if "_strength" in name}
    shares, terms = [], {True: 0.0, False: 0.0}
    for row in range(len(IDS)):
        for t, ends in enumerate(weights(memory, recorded, row)):
            for k, (_, read) in enumerate(ends.items()):
                total = sum(part.detach() for part, _ in read)
                if t and total:
                    shares.append(sum(part.detach() for part, i in read if i in (t, -t - 1)) / total)
                for part, i in read:
                    kind = "" if memory != "deque" else "_top" if i >= 0 else "_bottom"
                    value = recorded[f"push_value{kind}"][row, i if i >= 0 else -i - 1]
                    terms[i in (t, -t - 1)] += part * (by_reading[t][row, 3 * k : 3 * k + 3] @ value)
    assert found.own_share == pytest.approx(sum(shares) / len(shares))
    emitted = {name: part for name, part in strengths.items() if not name.startswith("total")}
    assert found.gradients.keys() == emitted.keys()
    by_part = [torch.autograd.grad(terms[own], list(emitted.values()), materialize_grads=True) for own in (False, True)]
    squares = {False: 0.0, True: 0.0}
    for (name, part), *pair in zip(emitted.items(), *by_part, strict=True):
        norms = [float((gradient * part * (1 - part)).detach().norm()) for gradient in pair]  # of the sigmoid's logits
        assert [*found.gradients[name].values()] == pytest.approx(norms, rel=1e-6, abs=1e-12)
        for own, norm in zip((False, True), norms, strict=True):
            squares[own] += 0 if name.startswith("read") else norm**2
    older, own = math.sqrt(squares[False]), math.sqrt(squares[True])
    assert found.older_share == pytest.approx(older / (older + own))
    assert 0.05 < found.older_share < 0.999


def test_it_is_that_of_attention():
    """Heads of a layer with given vectors, which emits all actions at once."""
    torch.manual_seed(0)
    layer = MemoryLayer(5, memory="stack", memory_size=4, num_heads=2, read_order="after_push", pop_control="sigmoid")
    hidden, wanted = 3 * torch.randn(2, 6, 5), torch.randn(2, 6, 4)
    found = dead_zone(layer, lambda: (layer(hidden)[0] * wanted).sum())
    with torch.no_grad():
        logits = layer.controls.projection(hidden).requires_grad_()
    value, *strengths = logits.split(layer.controls.widths, -1)
    push, pop, read = (
        layer.controls.emission(field.name).emit(part.flatten(0, 1))[0].unflatten(0, (2, 6)).transpose(1, 2)
        for field, part in zip(layer.memory.actions[1:], strengths, strict=True)
    )
    weights = stack_weights(push, pop, read)  # [B, heads, T, T]
    own = weights.diagonal(dim1=-2, dim2=-1)
    shares = (own / weights.sum(-1))[..., 1:]
    assert found.own_share == pytest.approx(shares.mean().item())
    values, terms = (
        value.tanh().detach().unflatten(2, (2, 2)).transpose(1, 2),
        wanted.unflatten(2, (2, 2)).transpose(1, 2),
    )
    by_pair = terms @ values.mT * weights
    for own, kind in ((True, "own"), (False, "older")):
        diagonal = torch.eye(6, dtype=torch.bool) == own
        (gradient,) = torch.autograd.grad((by_pair * diagonal).sum(), logits, retain_graph=True)
        for field, part in zip(layer.memory.actions[1:], gradient.split(layer.controls.widths, -1)[1:], strict=True):
            assert found.gradients[field.name][kind] == pytest.approx(float(part.norm()), rel=1e-4)


@pytest.mark.parametrize(
    ("fields", "dead"),
    [
        ({"pop_control": 1.0, "push_strength_init": 0.5}, True),  # a pop leaves nothing
        ({"read_control": 0.1, "push_control": 1.0, "pop_control": "sigmoid"}, True),  # a read does not reach further
        ({"read_control": 1.0, "push_control": "sigmoid", "pop_control": "sigmoid", "pop_strength_init": 0.1}, False),
        ({"memory": "queue", "pop_control": "sigmoid", "push_control": 1.0, "read_control": 0.1}, False),
        ({"read_order": "before_push"}, False),
        ({"memory": "superposition"}, False),
        ({"memory": "none"}, False),
    ],
)
def test_who_is_warned(fields, dead):
    torch.manual_seed(0)
    model = StackRNNForCausalLM(tiny_config(**fields))
    text = (
        "at the start, 100% of a reading is the step's own value; 0% of the gradient of push and pop comes from older "
    )
    notes = dead_zone_notes(model, [[3, 1, 4, 1, 5], [9, 2]])
    assert notes == [f"{text}elements (docs/memories.md)"] * dead
    for layer in memories(model):
        found = dead_zone(layer, lambda: model(IDS, labels=IDS).loss)
        assert (found is None) == (fields.get("memory") == "superposition")
        assert bool(found and found.warning) == dead


@pytest.mark.parametrize(
    ("own", "gradients", "dead"),
    [
        (0.99, {"push_strength": {"older": 0.0, "own": 0.0}}, True),
        (0.99, {"push_strength": {"older": 1.0, "own": 20.0}, "read_strength": {"older": 9.0, "own": 0.0}}, True),
        (0.99, {"push_strength": {"older": 1.0, "own": 18.0}}, False),
        (0.9, {"push_strength": {"older": 0.0, "own": 1.0}}, False),
        (0.99, {}, False),
    ],
)
def test_what_is_dead(own, gradients, dead):
    assert bool(DeadZone(own, gradients).warning) == dead


def test_padding_does_not_count():
    model = model_of(**SIGMOID)
    (layer,) = memories(model)
    alone = dead_zone(layer, lambda: model(IDS[:1, :4], labels=IDS[:1, :4]).loss)
    labels = torch.cat((IDS[:1, :4], torch.full((1, 3), -100)), dim=1)
    padded = dead_zone(layer, lambda: model(IDS[:1], labels=labels).loss, labels != -100)
    assert padded.own_share == pytest.approx(alone.own_share)
    for name, part in alone.gradients.items():
        assert padded.gradients[name] == pytest.approx(part)


def test_a_loss_without_gradient():
    model = model_of(**SIGMOID)
    (layer,) = memories(model)
    model.requires_grad_(False)
    found = dead_zone(layer, lambda: model(IDS, labels=IDS).loss)
    assert (found.gradients, found.older_share) == ({}, None)
    assert str(found) == f"{found.own_share:.0%} of a reading is the step's own value"
