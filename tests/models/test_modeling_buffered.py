"""Buffered networks against the equations element by element, and against Python programs; and what any model owes."""

import pytest
import torch
from conftest import MEMORIES, checkpoint_activations
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from stack_lm import BufferedStackRNNConfig, BufferedStackRNNForTransduction, StackRNNConfig, StackRNNForCausalLM
from stack_lm.memory.emission import Sigmoid

HAO = {"memory": "stack", "push_control": "sigmoid", "pop_control": "sigmoid", "read_control": 1.0}
HAO |= {"push_value_activation": "sigmoid"}


def tiny(**fields):
    if fields.get("controller") != "direct":
        fields.setdefault("hidden_size", 7)
    sizes = {"vocab_size": 5, "target_vocab_size": 4, "embedding_size": 3, "memory_size": 2, "pad_token_id": 0}
    return BufferedStackRNNConfig(**(sizes | fields))


def make(scale=3.0, **fields):
    """A model with large random weights, whose strengths are all over (0, 1)."""
    model = BufferedStackRNNForTransduction(tiny(**fields))
    for parameter in model.parameters():
        parameter.data *= scale
    return model.eval()


# --- the equations of Hao et al. (2018), sections 2.1-2.3, on Python lists


def pop_list(strengths, amount):
    """From the first element on, take away `amount` in all."""
    left = []
    for strength in strengths:
        left.append(max(strength - max(amount, 0.0), 0.0))
        amount -= strength
    return left


def read_list(values, strengths):
    """From the first element on, one element's worth."""
    reading, rest = torch.zeros_like(values[0]), 1.0
    for value, strength in zip(values, strengths, strict=True):
        reading = reading + min(strength, max(rest, 0.0)) * value
        rest -= strength
    return reading


def reference(model, ids, steps):
    """The output buffer's values and strengths after running one sequence, step by step."""
    model = model.double()
    controller, lstm = model.model.cell.controller, None
    size = model.config.memory_size
    if model.config.controller == "lstm":
        lstm = torch.nn.LSTMCell(model.config.embedding_size + size, model.config.hidden_size, dtype=torch.float64)
        lstm.weight_ih.data = torch.cat((controller.weight_ih_l0, controller.weight_reading), dim=1).data
        lstm.weight_hh.data, lstm.bias_ih.data = controller.weight_hh_l0.data, controller.bias_ih_l0.data
        lstm.bias_hh.data = controller.bias_hh_l0.data
    items = list(model.model.embed_tokens.weight[ids])
    left = [1.0] * len(items)
    stack_values, stack_strengths, reading = [], [], torch.zeros(size, dtype=torch.float64)
    outputs, pushes, input_pop = [], [], 0.0
    state = None
    for _ in range(steps):
        left = pop_list(left, input_pop)
        hidden = torch.cat((read_list(items, left), reading))
        if lstm is not None:
            state = lstm(hidden.unsqueeze(0), state)
            hidden = state[0][0]
        value, push, pop = torch.sigmoid(model.model.cell.controls.projection(hidden)).split([size, 1, 1])
        stack_strengths = [push.item(), *pop_list(stack_strengths, pop.item())]
        stack_values = [value, *stack_values]
        reading = read_list(stack_values, stack_strengths)
        input_pop, output_push = torch.sigmoid(model.buffer_projection(hidden)).tolist()
        outputs.append(model.lm_head(hidden))
        pushes.append(output_push)
    return outputs, pushes


@pytest.mark.parametrize("controller", ["direct", "lstm"])
@torch.no_grad()
def test_it_equals_the_equations_step_by_step(controller):
    model = make(controller=controller, steps_per_token=1, extra_steps=4, **HAO).double()
    ids = [3, 1, 4, 1, 2]
    outputs, pushes = reference(model, ids, 9)
    expected, taken = [], pushes
    for _ in range(6):
        expected.append(read_list(outputs, taken))
        taken = pop_list(taken, 1.0)
    result = model(torch.tensor([ids]), target_length=6, output_actions=True)
    torch.testing.assert_close(result.logits[0], torch.stack(expected))
    torch.testing.assert_close(result.actions.output_push_strength[0].tolist(), pushes)
    torch.testing.assert_close(result.output_strength.item(), sum(pushes))


# --- Python programs


class Scripted(Sigmoid):
    """A strength that follows a script."""

    def __init__(self, actions):
        super().__init__()
        self.actions = iter(actions)

    def emit(self, logits, noise=None):
        return torch.tensor([float(next(self.actions))]), None


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_hard_actions_make_a_python_program(data):
    """Nothing but buffers: the network writes what it reads, where a script of 0s and 1s says so."""
    steps = data.draw(st.integers(1, 12))
    script = data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=steps, max_size=steps))
    text = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))

    waiting, written = list(text), []
    for pop, push in script:
        if push:
            written.append(waiting[0] if waiting else None)
        if pop:
            waiting = waiting[1:]

    model = BufferedStackRNNForTransduction(
        BufferedStackRNNConfig(vocab_size=4, input_encoding="one_hot", controller="direct", memory="none")
    )
    model.lm_head.weight.data, model.lm_head.bias.data = torch.eye(4), torch.zeros(4)
    model.set_scan_backend("reference")  # compiled code would not see what is put in the place of a method
    model.buffer_strengths = tuple(Scripted(actions) for actions in zip(*script, strict=True))
    model.config.steps_per_token, model.config.extra_steps = 0, steps
    logits = model(torch.tensor([text]), target_length=14).logits[0]
    expected = [[float(i == symbol) for i in range(4)] for symbol in written] + [[0.0] * 4] * 14
    assert logits.tolist() == expected[:14]


def by_hand(rows):
    """A linear network with a stack over two symbols; rows of [x_0, x_1, r_0, r_1, 1] weights, in units of 50."""
    config = BufferedStackRNNConfig(
        vocab_size=2, input_encoding="one_hot", controller="direct", memory_size=2, output_push_control="sigmoid", **HAO
    )
    model = BufferedStackRNNForTransduction(config).eval()
    layers = {
        model.model.cell.controls.projection: ("value_0", "value_1", "push", "pop"),
        model.buffer_projection: ("input_pop", "output_push"),
        model.lm_head: ("y_0", "y_1"),
    }
    for layer, names in layers.items():
        weights = 50 * torch.tensor([rows[name] for name in names])
        layer.weight.data, layer.bias.data = weights[:, :4].clone(), weights[:, 4].clone()
    return model


# Store what is read while there is input; then write what is on the stack, for as long as there is something.
REVERSAL = {
    "value_0": [1.0, 0.0, 0.0, 0.0, -0.5],
    "value_1": [0.0, 1.0, 0.0, 0.0, -0.5],
    "push": [1.0, 1.0, 0.0, 0.0, -0.5],
    "pop": [-1.0, -1.0, 0.0, 0.0, 0.5],
    "input_pop": [0.0, 0.0, 0.0, 0.0, 1.0],
    "output_push": [-2.0, -2.0, 1.0, 1.0, -0.5],
    "y_0": [0.0, 0.0, 1.0, 0.0, 0.0],
    "y_1": [0.0, 0.0, 0.0, 1.0, 0.0],
}


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_a_network_wired_by_hand_reverses(texts):
    """The transducer of Hao et al. (2018), figure 3, without its blanks: it writes when all is read."""
    longest = max(map(len, texts))
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    assert by_hand(REVERSAL).transduce(ids, mask) == [text[::-1] for text in texts]


# --- what every model owes


def test_one_symbol_a_step_is_the_plain_network():
    fields = {"vocab_size": 5, "embedding_size": 3, "hidden_size": 7, "memory_size": 2}
    plain = StackRNNForCausalLM(StackRNNConfig(**fields)).eval()
    config = BufferedStackRNNConfig(input_pop_control=1.0, output_push_control=1.0, steps_per_token=1, **fields)
    buffered = BufferedStackRNNForTransduction(config).eval()
    assert buffered.buffer_projection is None
    buffered.load_state_dict(plain.state_dict())
    ids = torch.randint(0, 5, (3, 8))
    torch.testing.assert_close(buffered(ids).logits, plain(ids).logits)


@pytest.mark.parametrize("fields", [{"controller": "direct", **HAO}, *MEMORIES], ids=str)
@torch.no_grad()
def test_sequences_are_independent_and_padding_is_not_there(fields):
    model = make(steps_per_token=1, extra_steps=3, **fields)
    rows = [torch.randint(1, 5, (n,)) for n in (6, 2, 4)]
    alone = [model(row.unsqueeze(0), target_length=5, output_actions=True) for row in rows]
    for side in ("left", "right"):
        pads = [(0, 6 - len(row)) if side == "right" else (6 - len(row), 0) for row in rows]
        batch = torch.stack([torch.nn.functional.pad(row, pad) for row, pad in zip(rows, pads, strict=True)])
        together = model(batch, (batch != 0).long(), target_length=5, output_actions=True)
        for i, single in enumerate(alone):
            torch.testing.assert_close(together.logits[i], single.logits[0])
            torch.testing.assert_close(together.output_strength[i], single.output_strength[0])
            for name, values in together.actions.items():
                steps = single.actions[name].shape[1]
                torch.testing.assert_close(values[i, :steps], single.actions[name][0])
        assert model.transduce(batch, (batch != 0).long()) == [model.transduce(row.unsqueeze(0))[0] for row in rows]


@pytest.mark.parametrize("controller", ["direct", "lstm"])
def test_gradcheck(controller):
    model = make(1.0, controller=controller, steps_per_token=1, **HAO).double()
    labels = torch.tensor([[0, 2, 1], [3, -100, -100]])
    parameters = list(model.parameters())[1:]  # without the embeddings, whose place `inputs` takes
    inputs = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)

    def loss(inputs, *_):
        return model(inputs_embeds=inputs, labels=labels).loss

    assert torch.autograd.gradcheck(loss, (inputs, *parameters))


def test_the_loss_is_the_mean_over_labelled_positions():
    model = make(**HAO)
    ids, labels = torch.randint(1, 5, (2, 4)), torch.tensor([[0, 2, 1], [3, -100, -100]])
    outputs = model(ids, labels=labels)
    assert outputs.logits.shape == (2, 3, 4)
    picked = outputs.logits.log_softmax(-1)[[0, 0, 0, 1], [0, 1, 2, 0], [0, 2, 1, 3]]
    torch.testing.assert_close(outputs.loss, -picked.mean())
    accumulated = model(ids, labels=labels, num_items_in_batch=torch.tensor(8)).loss
    torch.testing.assert_close(accumulated, outputs.loss / 2)


@pytest.mark.parametrize("fields", [{"controller": "direct", **HAO}, {"output_size": 6}, *MEMORIES[1::3]], ids=str)
def test_saved_and_loaded_it_computes_the_same(fields, tmp_path):
    model = make(**fields)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), BufferedStackRNNConfig)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch = torch.randint(1, 5, (2, 6))
    assert torch.equal(loaded(batch).logits, model(batch).logits)


def test_the_input_symbols_are_resized_alone(tmp_path):
    model = make(vocab_size=5, target_vocab_size=3)
    model.resize_token_embeddings(9)
    assert (model.config.vocab_size, model.lm_head.out_features) == (9, 3)
    model.save_pretrained(tmp_path)
    assert type(model).from_pretrained(tmp_path).lm_head.out_features == 3
    both = make(vocab_size=5, target_vocab_size=None)
    both.resize_token_embeddings(9)
    assert both.lm_head.out_features == 9


def test_bfloat16_and_autocast():
    model = make(1.0, controller="lstm", **HAO)
    batch, labels = torch.randint(1, 5, (2, 6)), torch.randint(0, 4, (2, 5))
    exact = model(batch, labels=labels).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(batch, labels=labels).loss
    torch.testing.assert_close(loss, exact, rtol=0.03, atol=0)
    outputs = model.to(torch.bfloat16)(batch, labels=labels, output_actions=True)
    torch.testing.assert_close(outputs.loss, exact, rtol=0.03, atol=0)
    outputs.loss.backward()
    assert outputs.actions.output_push_strength.dtype == torch.float32


def test_an_output_ends_with_the_end_symbol():
    model = by_hand(REVERSAL)
    ids = torch.tensor([[0, 0, 1, 1, 0]])
    assert model.transduce(ids, max_length=3) == [[0, 1, 1]]
    model.config.eos_token_id = 1
    assert model.transduce(ids) == [[0, 1]]
    model.config.eos_token_id = [0, 1]
    assert model.transduce(ids) == [[0]]


def test_a_delay_takes_the_front_of_the_output():
    """Hao et al. (2018), section 2.3: popped before the first reading, the first element's worth is lost."""
    model = by_hand(REVERSAL)
    ids = torch.tensor([[0, 0, 1, 1, 0]])
    whole = model(ids, target_length=5).logits
    model.config.output_delay = 1
    torch.testing.assert_close(model(ids, target_length=4).logits, whole[:, 1:])
    assert model.transduce(ids) == [[1, 1, 0, 0]]
    assert model.transduce(ids[:, :1]) == [[]]
    model.config.output_delay = 9
    assert model.transduce(ids) == [[]]


# --- bad input


def test_bad_values_are_refused():
    for fields, message in (
        ({"input_pop_control": "hard"}, r"input_pop_control must be one of 'sigmoid', .* or .*; got 'hard'"),
        ({"steps_per_token": 0}, r"steps_per_token and extra_steps must not both be 0"),
        ({"tie_word_embeddings": True, "embedding_size": 7}, r"tie_word_embeddings must be False"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny(**fields)


def test_bad_arguments_are_refused():
    model, ids = make(), torch.randint(1, 5, (2, 4))
    for arguments, message in (({"input_ids": ids, "labels": ids[:1]}, r"labels must be \[2, M\]; got \[1, 4\]"),):
        with pytest.raises(ValueError, match=message):
            model(**arguments)
    with pytest.raises(ValueError, match="does not support .* checkpointing"):
        checkpoint_activations(model)


# --- learning
