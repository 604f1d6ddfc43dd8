"""Packed rows: each text is read as if it had a row of its own."""

import pytest
import torch
from conftest import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import DataCollatorWithFlattening

from stack_lm import (
    BufferedStackRNNConfig,
    BufferedStackRNNForTransduction,
    DeepStackRNNConfig,
    DeepStackRNNForCausalLM,
    MemoryLayer,
    StackRNNForCausalLM,
    StackRNNForSequenceClassification,
    StackTransformerConfig,
    StackTransformerForCausalLM,
)
from stack_lm.nn import StackAttention

LENGTHS = (3, 1, 4, 2)


class RunningSum(nn.Linear):
    """A causal layer, which would read on from text to text."""

    def __init__(self, size):
        super().__init__(size, size)

    def forward(self, hidden):
        return super().forward(hidden.cumsum(1))


CELL = {"controller": "lstm", "hidden_size": 5, "memory": "stack", "memory_size": 3}
MODELS = {
    "stack": {"reading_exit": "output"},
    "one-hot": {"input_encoding": "one_hot", "embedding_size": None, "memory": "none"},
    "superposition": {"memory": "superposition", "controller": "gru"},
    "nondeterministic": {"memory": "nondeterministic", "memory_size": 2},
    "transformer": {"layers": ["attention", "stack"], "position_encoding": "learned"},
    "rotary": {"layers": [CELL | {"detach": True}, "attention"], "auxiliary_losses": [{"layer": 0}]},
    "own": {
        "layers": [{"module": f"{__name__}.RunningSum", "settings": {}}, "attention"],
        "position_encoding": "sinusoidal",
    },
    "deep": {"layers": [CELL, {"memory": "none", "hidden_size": 9}], "embedding_size": 5},
}


def make(name):
    """A small model in float64, without dropout."""
    torch.manual_seed(0)
    fields = MODELS[name]
    if "layers" not in fields:
        model = StackRNNForCausalLM(tiny_config(**fields))
    elif "embedding_size" in fields:
        model = DeepStackRNNForCausalLM(DeepStackRNNConfig(vocab_size=23, **fields))
    else:
        sizes = {"vocab_size": 23, "hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
        model = StackTransformerForCausalLM(StackTransformerConfig(**sizes, **fields))
    return model.double()


def texts_of(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 23, (1, length), generator=generator) for length in lengths]


def ends_of(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def borders_of(lengths):
    """The arguments of a packed row, in each form."""
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    numbers = torch.cat([torch.full((length,), number) for number, length in enumerate(lengths)])[None]
    ends = ends_of(lengths)
    pair = {"cu_seq_lens_q": ends.int(), "cu_seq_lens_k": ends.int(), "max_length_q": max(lengths)}
    return [{"position_ids": positions}, {"cu_seqlens": ends}, {"seq_idx": numbers}, pair | {"position_ids": positions}]


def gradients(model):
    found = [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    model.zero_grad()
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_packed_row_equals_separate_rows(name):
    model, texts = make(name), texts_of(LENGTHS)
    row = torch.cat(texts, dim=1)
    alone = [model(text, output_actions=True, output_hidden_states=True, skip_logits=False) for text in texts]
    predicted = sum(LENGTHS) - len(LENGTHS)
    sum(model(text, labels=text, num_items_in_batch=predicted).loss for text in texts if text.shape[1] > 1).backward()
    expected = gradients(model)
    for borders in borders_of(LENGTHS):
        found = model(row, output_actions=True, output_hidden_states=True, **borders)
        torch.testing.assert_close(found.logits, torch.cat([each.logits for each in alone], dim=1))
        for number, states in enumerate(found.hidden_states):
            torch.testing.assert_close(states, torch.cat([each.hidden_states[number] for each in alone], dim=1))
        assert found.cache is None
        for action, values in found.actions.items():
            if values.dtype.is_floating_point and values.dim() == 2:
                torch.testing.assert_close(values, torch.cat([each.actions[action] for each in alone], dim=1))
        model(row, labels=row, **borders).loss.backward()
        torch.testing.assert_close(gradients(model), expected)
    marked = row.masked_fill(torch.cat([torch.arange(n) for n in LENGTHS])[None] == 0, -100)  # as the collator writes
    losses = [model(row, labels=labels, **borders_of(LENGTHS)[0]).loss for labels in (row, marked)]
    torch.testing.assert_close(*losses)


def test_auxiliary_losses_without_labels_stay_within_texts():
    """As under a trainer that computes its own loss: the gradient of the mean over all labels comes with the states."""
    model, lengths = make("rotary").train(), (3, 4, 2)
    texts, expected = texts_of(lengths), None
    for text in texts:
        (0 * model.model(text).last_hidden_state.sum()).backward()
        share = (text.shape[1] - 1) / (sum(lengths) - len(lengths))
        parts = [share * grad for grad in gradients(model)]
        expected = parts if expected is None else [one + other for one, other in zip(expected, parts, strict=True)]
    (0 * model.model(torch.cat(texts, dim=1), cu_seqlens=ends_of(lengths)).last_hidden_state.sum()).backward()
    torch.testing.assert_close(gradients(model), expected)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from(["stack", "transformer"]))
def test_borders_may_be_anywhere(lengths, name):
    model, texts = make(name).eval(), texts_of(lengths)
    with torch.no_grad():
        expected = torch.cat([model(text).logits for text in texts], dim=1)
        for borders in borders_of(lengths):  # texts of one token among them
            torch.testing.assert_close(model(torch.cat(texts, dim=1), **borders).logits, expected)


@pytest.mark.parametrize("name", ["stack", "rotary"])
def test_several_rows_with_padding(name):
    model = make(name).eval()
    rows = torch.cat(texts_of((5, 5)), dim=0)
    positions, mask = torch.tensor([[0, 1, 0, 1, 2], [0, 1, 2, 0, 1]]), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    found = model(rows, mask, position_ids=positions).logits
    for row, start, stop in ((0, 0, 2), (0, 2, 5), (1, 0, 3), (1, 3, 4)):
        torch.testing.assert_close(found[row, start:stop], model(rows[row : row + 1, start:stop]).logits[0])


@pytest.mark.parametrize("name", ["stack", "rotary"])
def test_texts_of_one_token_beside_padding(name):
    """On either side, whatever the positions of padding: transformers writes 1 to its left."""
    model, row = make(name).eval(), texts_of((6,))[0]
    expected = torch.cat([model(text).logits for text in (row[:, 1:2], row[:, 2:4], row[:, 4:5])], dim=1)
    for padding in (0, 1):
        positions, mask = torch.tensor([[padding, 0, 0, 1, 0, padding]]), torch.tensor([[0, 1, 1, 1, 1, 0]])
        torch.testing.assert_close(model(row, mask, position_ids=positions).logits[:, 1:5], expected)


@torch.no_grad()
def test_a_compiled_model_does_not_read_on_from_text_to_text():
    model, row = make("stack").eval(), torch.cat(texts_of((3, 2)), dim=1)
    compiled, whole = torch.compile(model, backend="aot_eager"), {"position_ids": torch.arange(5)[None]}
    torch.testing.assert_close(compiled(row, **whole).logits, model(row, **whole).logits)
    borders = borders_of((3, 2))[3]
    positions, lengths = ({name: borders[name]} for name in ("position_ids", "cu_seq_lens_q"))
    with pytest.raises(RuntimeError, match="position_ids start again: give cu_seq_lens_q"):
        compiled(row, **positions)
    torch.testing.assert_close(compiled(row, **lengths, **positions).logits, model(row, **lengths).logits)


@pytest.mark.parametrize("kind", ["position_ids", "flash"])
def test_the_collator_of_transformers(kind):
    texts = [text[0].tolist() for text in texts_of(LENGTHS)]
    options = {"return_position_ids": False, "return_flash_attn_kwargs": True} if kind == "flash" else {}
    batch = DataCollatorWithFlattening(**options)([{"input_ids": text} for text in texts])
    model = make("stack")
    losses = [
        model(torch.tensor([text]), labels=torch.tensor([text])).loss * (len(text) - 1) for text in texts if text[1:]
    ]
    torch.testing.assert_close(model(**batch).loss, sum(losses) / (sum(LENGTHS) - len(LENGTHS)))


@pytest.mark.parametrize(
    "layer", [MemoryLayer(4, memory_size=3), StackAttention(4, memory="stack")], ids=["memory", "attention"]
)
def test_layers_take_cumulative_lengths(layer):
    layer = layer.double()
    hidden = torch.randn(1, sum(LENGTHS), 4, dtype=torch.float64, requires_grad=True)
    alone = [layer(text, output_actions=True) for text in hidden.split(LENGTHS, dim=1)]
    found, state, actions = layer(hidden, cu_seqlens=ends_of(LENGTHS), output_actions=True)
    expected = torch.cat([each for each, _, _ in alone], dim=1)
    torch.testing.assert_close(found, expected)
    pushes = torch.cat([each.push_strength for _, _, each in alone], dim=1)
    torch.testing.assert_close(actions.push_strength, pushes)
    torch.testing.assert_close(state.reading, torch.cat([each.reading for _, each, _ in alone]))
    both = [torch.autograd.grad(each.square().sum(), hidden, retain_graph=True)[0] for each in (found, expected)]
    torch.testing.assert_close(*both)
    with pytest.raises(ValueError, match="each text begins with an empty memory: state must be None"):
        layer(hidden, state, cu_seqlens=ends_of(LENGTHS))
    for mask in (torch.zeros(1, 10), torch.ones(1, 20).bool(), [True] * 10):
        with pytest.raises(ValueError, match=r"mask must be a tensor torch.bool \[1, 10\]"):
            layer(hidden, mask=mask, cu_seqlens=ends_of(LENGTHS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cu_seqlens": [0, 3, 2, 5]}, "cu_seqlens must be ascending integers from 0 to the row's length, 5; got"),
        ({"cu_seqlens": [0, 3, 3, 5]}, "must be ascending"),
        ({"cu_seqlens": [0, 3, 4]}, "the row's length, 5; got"),
        ({"cu_seqlens": [1, 5]}, "from 0 to"),
        ({"cu_seq_lens_q": torch.tensor([0.0, 5.0])}, "cu_seq_lens_q must be ascending integers"),
        ({"cu_seq_lens_q": [0, 2, 5], "cu_seq_lens_k": [0, 3, 5]}, "mark different borders"),
        ({"cu_seqlens": [0, 2, 5], "position_ids": torch.tensor([[0, 1, 2, 0, 1]])}, "mark different borders"),
        ({"position_ids": torch.tensor([[0, 1, 3, 0, 1]])}, "rise by one and start again at 0; got 3 after 1 in row 0"),
        ({"position_ids": torch.tensor([[0, 1, 0, 2, 1]])}, "got 2 after 0"),
        ({"seq_idx": torch.tensor([[0, 1]])}, r"integers \[1, 5\]; got torch.int64 \[1, 2\]"),
        ({"position_ids": torch.tensor([[3, 4, 0, 1, 2]])}, "start again at 0; got 3 first in row 0"),
        ({"position_ids": torch.tensor([[0.0, 1, 2, 0, 1]])}, "position_ids must be a tensor of integers; got torch.f"),
        ({"position_ids": [[0, 1, 2, 0, 1]]}, "position_ids must be a tensor of integers; got <class 'list'>"),
        ({"seq_idx": [[0, 0, 1, 1, 1]]}, r"seq_idx must be a tensor of integers \[1, 5\]; got list"),
        ({"cu_seqlens": "abc"}, "cu_seqlens must be ascending integers from 0 to the row's length, 5; got abc"),
        ({"cu_seqlens": [0, None, 5]}, "must be ascending"),
        ({"cu_seqlens": torch.tensor([[0, 5]])}, "must be ascending"),
        ({"cu_seqlens": [0, 2, 5], "attention_mask": torch.zeros(1, 5)}, "attention_mask must be of bool or integers"),
        ({"max_length_q": 3}, "give cu_seq_lens_q"),
        (
            {"cu_seqlens": [0, 2, 5], "attention_mask": torch.ones(1, 5, 5)},
            r"attention_mask of packed rows must be \[1, 5\]",
        ),
    ],
)
@pytest.mark.parametrize("name", ["stack", "transformer"])
def test_wrong_borders(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(name)(torch.ones(1, 5, dtype=torch.long), **arguments)


def test_one_row_a_packed_batch_and_no_cache():
    model, row = make("stack"), torch.ones(1, 5, dtype=torch.long)
    with pytest.raises(ValueError, match="cu_seqlens is of one packed row; got a batch of 2"):
        model(row.expand(2, 5), cu_seqlens=[0, 2, 5])
    with pytest.raises(ValueError, match="no cache, no attentions"):
        model(row, cu_seqlens=[0, 2, 5], cache=model(row, use_cache=True, skip_logits=False).cache)


@pytest.mark.parametrize("lengths", [(3, 2), (1, 3)], ids=str)
@pytest.mark.parametrize("kind", ["classifier", "buffered"])
def test_models_that_keep_no_texts_apart_refuse(kind, lengths):
    if kind == "classifier":  # one answer for a row
        model = StackRNNForSequenceClassification(tiny_config())
    else:
        model = BufferedStackRNNForTransduction(BufferedStackRNNConfig(vocab_size=9, hidden_size=4))
    row = torch.ones(1, sum(lengths), dtype=torch.long)
    for borders in borders_of(lengths):
        with pytest.raises(ValueError, match="several texts into one row, without padding"):
            model(row, **borders)
