"""A buffered network in compiled code equals the reference: logits, actions, and every gradient."""

import pytest
import torch
from conftest import thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.comparison import spread_out

from stack_lm import BufferedStackRNNConfig, BufferedStackRNNForTransduction

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
MEMORIES = {
    "none": {"memory": "none"},
    "stack": {"memory": "stack", "push_control": "sigmoid", "pop_control": "sigmoid", "memory_size": 3},
    "deque": {"memory": "deque", "memory_size": 2},
    "superposition": {"memory": "superposition", "memory_size": 3, "operation_control": "gumbel_softmax"},
    "tape": {"memory": "baby_ntm", "memory_size": 2, "memory_depth": 5},
}


def make_model(seed=0, dtype=torch.float64, spread=2.0, **fields):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 5, "target_vocab_size": 4, "steps_per_token": 2, "extra_steps": 1}
    if fields.get("controller") != "direct":
        sizes["hidden_size"] = 7
    if fields.get("input_encoding") != "one_hot":
        sizes["embedding_size"] = 6
    return spread_out(BufferedStackRNNForTransduction(BufferedStackRNNConfig(**sizes | fields)).to(dtype), spread)


def check(model, batch_size=3, length=5, padding=None, tolerance=1e-10, seed=1):
    torch.manual_seed(seed)
    ids, labels = torch.randint(0, 5, (batch_size, length)), torch.randint(0, 4, (batch_size, length))
    mask = None
    if padding is not None:
        mask = torch.ones(batch_size, length, dtype=torch.long)
        for row in range(batch_size):
            n = row % length
            mask[row, length - n if padding == "right" else 0 : length if padding == "right" else n] = 0
    results, gradients = [], []
    for backend in ("reference", "numba"):
        model.set_scan_backend(backend)
        torch.manual_seed(7)  # of the noise of choices
        outputs = model(ids, attention_mask=mask, labels=labels, output_actions=True)
        gradients.append(torch.autograd.grad(outputs.loss, list(model.parameters()), allow_unused=True))
        results.append([outputs.loss, outputs.logits, *(part for _, part in sorted(outputs.actions.items()))])
        names = sorted(outputs.actions)
    for name, expected, found in zip(["loss", "logits", *names], *results, strict=True):
        torch.testing.assert_close(
            found, expected, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )
    for expected, found in zip(*gradients, strict=True):
        if expected is None or found is None:
            assert all(part is None or not part.any() for part in (expected, found))
        else:
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("memory", "controller", "padding"),
    thinned(MEMORIES, ["direct", "linear", "sigmoid", "rnn_sigmoid", "gru", "lstm"], [None, "left", "right"]),
)
def test_every_memory_and_controller(memory, controller, padding):
    for encoding in ("embedding", "one_hot"):
        check(make_model(controller=controller, input_encoding=encoding, **MEMORIES[memory]), padding=padding)


@pytest.mark.parametrize("pop", ["sigmoid", "expected_value", 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("push", ["sigmoid", "expected_value", 1.0])
def test_every_control_of_the_buffers(pop, push):
    for bias in (True, False):
        model = make_model(input_pop_control=pop, output_push_control=push, bias=bias, **MEMORIES["stack"])
        check(model, padding="right")


@pytest.mark.parametrize("steps", [{"steps_per_token": 0, "extra_steps": 1}, {"steps_per_token": 1, "extra_steps": 4}])
def test_any_number_of_steps(steps):
    check(make_model(controller="direct", **MEMORIES["stack"] | steps), padding="left")


def test_a_batch_of_no_rows():
    model = make_model(memory="stack")
    model.set_scan_backend("numba")
    outputs = model(torch.empty(0, 3, dtype=torch.long), output_actions=True)
    assert outputs.logits.shape == (0, 7, 4)
    assert {part.shape[:2] for part in outputs.actions.values()} == {(0, 7)}
    outputs.logits.sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters())


def test_single_precision_and_readings_into_the_state():
    fields = {"controller": "lstm", "num_layers": 2, "reading_entry": "hidden_state"}
    model = make_model(dtype=torch.float32, spread=1.0, **fields, **MEMORIES["superposition"])
    check(model, 6, 11, padding="left", tolerance=1e-5)


@st.composite
def cases(draw):
    control = st.sampled_from(["sigmoid", "expected_value", 0.5, 1.0])
    fields = MEMORIES[draw(st.sampled_from(sorted(MEMORIES)))] | {
        "controller": draw(st.sampled_from(["direct", "linear", "sigmoid", "rnn", "gru", "lstm"])),
        "input_encoding": draw(st.sampled_from(["embedding", "one_hot"])),
        "input_pop_control": draw(control),
        "output_push_control": draw(control),
        "steps_per_token": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
    }
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    return (
        fields,
        shape,
        draw(st.sampled_from([None, "left", "right"])),
        draw(st.integers(0, 2**31)),
        draw(st.floats(0.1, 2.0)),
    )


def fuzz(case):
    fields, (batch_size, length), padding, seed, spread = case
    check(make_model(seed=seed, spread=spread, **fields), batch_size, length, padding, seed=seed)


@pytest.mark.parametrize("examples", [25, pytest.param(1500, marks=pytest.mark.slow)])
def test_random_configurations(examples):
    settings(max_examples=examples, deadline=None)(given(case=cases())(fuzz))()


def test_altered_and_named():
    model = make_model(controller="direct", **MEMORIES["stack"])
    ids = torch.randint(0, 5, (2, 4))
    expected = model(ids).logits
    hook = model.buffer_projection.register_forward_hook(lambda module, args, output: output * 0)
    altered = model(ids).logits
    model.set_scan_backend("reference")
    assert torch.equal(altered, model(ids).logits)
    assert not torch.allclose(altered, expected)
    for backend, reason in (("numba", "buffer_projection has hooks"), ("triton", "buffer_projection has hooks")):
        model.set_scan_backend(backend)
        with pytest.raises(ValueError, match=f"scan_backend='{backend}', as set, cannot run this: {reason}"):
            model(ids)
    hook.remove()
    model.set_scan_backend("numba")
    torch.testing.assert_close(model(ids).logits, expected)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(model(ids).logits.sum(), model.buffer_projection.weight, create_graph=True)
