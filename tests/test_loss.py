"""The loss without logits: exact against torch's cross-entropy, in bounded memory, and as the model uses it."""

import copy

import pytest
import torch
from conftest import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Trainer, TrainingArguments
from transformers.loss.loss_utils import ForCausalLMLoss

from stack_lm import StackRNNForCausalLM
from stack_lm.loss import default_chunk_rows, is_plain_linear, linear_cross_entropy, multiplies_bfloat16


def make_inputs(rows, hidden, classes, dtype=torch.float64, bias=True, ignored=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    labels = torch.randint(classes, (rows,), generator=generator)
    labels[torch.rand(rows, generator=generator) < ignored] = -100
    return random(rows, hidden), random(classes, hidden), random(classes) if bias else None, labels


def plain(hidden, weight, bias, labels, **options):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, **options)


def value_and_gradients(loss, hidden, weight, bias, labels, **options):
    leaves = [tensor for tensor in (hidden, weight, bias) if tensor is not None]
    value = loss(hidden, weight, bias, labels, **options)
    return value.detach(), torch.autograd.grad(value * 1.7, leaves)


def assert_same(actual, expected, rtol=1e-10, atol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


class Tensors(TorchDispatchMode):
    """Records what torch computes: the operations, and the memory of new tensors [rows, classes]."""

    def __init__(self, classes, *inputs):
        super().__init__()
        self.classes, self.inputs = classes, {id_of(tensor) for tensor in inputs}
        self.operations, self.wide = [], {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations.append(func.overloadpacket.__name__)
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 2 and tensor.shape[1] == self.classes:
                # The tensor is kept, so that no address is given out twice.
                self.wide[id_of(tensor)] = tensor
        return result

    def elements(self):
        return sum(t.untyped_storage().nbytes() // 4 for key, t in self.wide.items() if key not in self.inputs)


def id_of(tensor):
    return tensor.untyped_storage().data_ptr()


# The function


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 7)),
    chunk_rows=st.integers(1, 12),
    bias=st.booleans(),
    ignored=st.sampled_from([0.0, 0.4, 1.0]),
    reduction=st.sampled_from(["mean", "sum"]),
    seed=st.integers(0, 99),
)
def test_value_and_every_gradient_equal_torch(sizes, chunk_rows, bias, ignored, reduction, seed):
    inputs = make_inputs(*sizes, bias=bias, ignored=ignored, seed=seed)
    actual = value_and_gradients(linear_cross_entropy, *inputs, reduction=reduction, chunk_rows=chunk_rows)
    expected = value_and_gradients(plain, *inputs, reduction=reduction)
    assert_same(actual, expected)  # where no label counts, a mean of NaN and gradients of zero


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 5])
def test_gradients_where_nothing_counts(rows, dtype):
    inputs = make_inputs(rows, 3, 4, torch.float32, ignored=1.0)
    actual = value_and_gradients(linear_cross_entropy, *inputs, dtype=dtype)
    assert_same(actual, value_and_gradients(plain, *inputs))
    assert all(not gradient.any() for gradient in actual[1])


def test_ignore_index():
    hidden, weight, bias, labels = make_inputs(8, 3, 5)
    expected = value_and_gradients(plain, hidden, weight, bias, labels, ignore_index=2)
    assert (labels == 2).any()
    assert_same(value_and_gradients(linear_cross_entropy, hidden, weight, bias, labels, ignore_index=2), expected)


def test_float32_and_large_logits():
    inputs = make_inputs(40, 6, 30, ignored=0.2)
    for scale in (1.0, 1e4):
        scaled = [(t.detach() * scale).requires_grad_() for t in inputs[:2]] + list(inputs[2:])
        exact = value_and_gradients(plain, *scaled)
        single = [t.detach().float().requires_grad_() for t in scaled[:3]] + [scaled[3]]
        actual = value_and_gradients(linear_cross_entropy, *single, chunk_rows=7)
        assert actual[0].dtype == torch.float32
        torch.testing.assert_close(actual[0].double(), exact[0], rtol=1e-5, atol=0)
        if scale == 1.0:
            for one, two in zip(actual[1], exact[1], strict=True):
                torch.testing.assert_close(one.double(), two, rtol=1e-5, atol=1e-6)
        assert all(gradient.isfinite().all() for gradient in actual[1])


def test_gradcheck():
    hidden, weight, bias, labels = make_inputs(6, 3, 4, ignored=0.3)
    for reduction in ("mean", "sum"):
        assert torch.autograd.gradcheck(
            lambda *leaves, how=reduction: linear_cross_entropy(*leaves, labels, reduction=how, chunk_rows=4),
            (hidden, weight, bias),
        )


def test_differentiating_twice_is_refused():
    hidden, weight, bias, labels = make_inputs(6, 3, 4)
    loss = linear_cross_entropy(hidden, weight, bias, labels)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_backward_twice_through_a_retained_graph():
    inputs = make_inputs(6, 3, 4)
    loss = linear_cross_entropy(*inputs)
    first = torch.autograd.grad(loss, inputs[:3], retain_graph=True)
    assert_same(torch.autograd.grad(loss, inputs[:3]), first)


def test_nan_shows_where_it_counts_and_only_there():
    hidden, weight, bias, labels = make_inputs(6, 3, 4, torch.float32)
    with torch.no_grad():
        hidden[2] = torch.tensor([torch.nan, torch.inf, 0.0])
    assert linear_cross_entropy(hidden, weight, bias, labels).isnan()
    labels[2] = -100
    value, (to_hidden, to_weight, to_bias) = value_and_gradients(linear_cross_entropy, hidden, weight, bias, labels)
    assert value.isfinite()
    assert (to_hidden[2] == 0).all()
    assert to_weight.isfinite().all()
    assert to_bias.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    inputs = make_inputs(64, 16, 50, torch.float32, ignored=0.2)
    exact = value_and_gradients(plain, *inputs)
    with torch.autocast("cpu", dtype):
        value = linear_cross_entropy(*inputs, chunk_rows=10)
    gradients = torch.autograd.grad(value * 1.7, inputs[:3])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact[0], rtol=1e-2, atol=0)
    for actual, expected in zip(gradients, exact[1], strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 0.02 * expected.norm()
    doubles = make_inputs(5, 3, 4)
    with torch.autocast("cpu", dtype):  # leaves float64 alone, as it does elsewhere
        assert_same(linear_cross_entropy(*doubles), plain(*doubles))


def test_products_in_bfloat16():
    inputs = make_inputs(300, 16, 50, torch.float32, ignored=0.2)
    exact = value_and_gradients(plain, *inputs)
    value, gradients = value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.bfloat16, chunk_rows=7)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact[0], rtol=2e-3, atol=0)
    for actual, expected in zip(gradients, exact[1], strict=True):
        assert actual.dtype == torch.float32
        assert 0 < (actual - expected).norm() < 0.01 * expected.norm()
    # The same as of inputs that were rounded before, but for the type of the results.
    with torch.autocast("cpu", torch.bfloat16):
        same = value_and_gradients(linear_cross_entropy, *inputs, chunk_rows=7)
        single = value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.float32)
    assert_same((value, gradients), same)
    assert_same((single[0], single[1]), exact, rtol=1e-5, atol=1e-6)


def test_bfloat16_in_few_shapes():
    # oneDNN keeps memory for each shape: without blocks a process of training grew by gigabytes.
    shapes = set()

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket is torch.ops.aten.mm:
                shapes.add(tuple(tuple(tensor.shape) for tensor in args[:2]))
            return func(*args, **(kwargs or {}))

    for rows in range(1, 600, 7):
        inputs = make_inputs(rows, 5, 9, torch.float32, ignored=0.2)
        with Products():
            value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.bfloat16)
    assert len(shapes) <= 3 * 256 / 16


def test_the_products_of_doubles_in_other_types():
    inputs = make_inputs(30, 6, 9, torch.float64)
    exact = value_and_gradients(plain, *inputs)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 0.02)):
        value, gradients = value_and_gradients(linear_cross_entropy, *inputs, dtype=dtype)
        assert value.dtype == torch.float32
        for actual, expected in zip(gradients, exact[1], strict=True):
            assert actual.dtype == torch.float64
            assert (actual - expected).norm() < tolerance * expected.norm()


def test_bfloat16_where_nothing_counts():
    inputs = make_inputs(5, 3, 4, torch.float32, ignored=1.0)
    value, gradients = value_and_gradients(linear_cross_entropy, *inputs, reduction="sum", dtype=torch.bfloat16)
    assert value == 0
    assert all(not gradient.any() for gradient in gradients)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({"architecture": "aarch64", "bf16": True}, False),
    ],
)
def test_which_processors_multiply_bfloat16(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert multiplies_bfloat16() == (expected and torch.backends.mkldnn.is_available())
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: capabilities.get("avx512_bf16", False))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: capabilities.get("amx_bf16", False))
    assert multiplies_bfloat16() == (expected and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bfloat16()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_over_chunks_in_float32(dtype):
    exact = make_inputs(600, 4, 9)
    half = [t.detach().to(dtype).requires_grad_() for t in exact[:3]] + [exact[3]]
    exact = [t.detach().double().requires_grad_() for t in half[:3]] + [exact[3]]
    actual = value_and_gradients(linear_cross_entropy, *half, chunk_rows=3)
    expected = value_and_gradients(plain, *exact)
    assert actual[0].dtype == torch.float32
    for one, two in zip(actual[1], expected[1], strict=True):
        assert one.dtype == dtype
        # The products are rounded to the type; that 200 chunks were added must not show.
        assert (one.double() - two).norm() < 0.01 * two.norm()


def test_float16_keeps_gradients_that_its_range_does_not_have():
    # Class 1 has the probability exp(-18) = 1.5e-8, which float16 takes for zero.
    weight = torch.tensor([[0.0], [0.0]], dtype=torch.float16, requires_grad=True)
    bias = torch.tensor([18.0, 0.0], dtype=torch.float16)
    hidden = torch.full((1, 1), 60_000.0, dtype=torch.float16)
    linear_cross_entropy(hidden, weight, bias, torch.tensor([0])).backward()
    assert float(weight.grad[1, 0]) == pytest.approx(60_000 * 1.523e-8, rel=0.01)


def test_one_chunk_of_logits_is_all_that_exists():
    hidden, weight, bias, labels = make_inputs(48, 3, 1000, torch.float32, ignored=0.1)
    with Tensors(1000, weight) as tensors:
        linear_cross_entropy(hidden, weight, bias, labels, chunk_rows=5).backward()
    assert tensors.elements() == (5 + 2) * 1000  # and two rows to work with
    with Tensors(1000, weight) as tensors:  # the measure itself: the plain loss holds all of them more than once
        plain(hidden, weight, bias, labels).backward()
    assert tensors.elements() >= 2 * 48 * 1000


def test_nothing_is_computed_that_nobody_asked_for():
    hidden, weight, bias, labels = make_inputs(6, 3, 5, torch.float32)

    def products():
        with Tensors(5, weight) as tensors:
            linear_cross_entropy(hidden, weight, bias, labels, chunk_rows=6)
        return sum(name in ("mm", "addmm_", "mv") for name in tensors.operations)

    assert products() == 3  # the bias's gradient comes with the softmax
    weight.requires_grad_(False)
    assert products() == 2
    with torch.no_grad():
        assert products() == 1
    labels[1:] = -100  # padding costs nothing
    with Tensors(5, weight) as tensors:
        linear_cross_entropy(hidden, weight, bias, labels)
    assert tensors.elements() == (1 + 2) * 5


def test_chunks_are_bounded():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert default_chunk_rows(100, 10_000, cpu) == 256
    assert default_chunk_rows(650, 10_000, cpu) == 640
    for device, limit in ((cpu, 64), (gpu, 256)):
        for classes in (10_000, 50_000, 250_000):
            assert default_chunk_rows(2048, classes, device) * classes * 4 <= limit * 2**20
        assert default_chunk_rows(100, 10**9, device) == 1


def test_bad_arguments():
    hidden, weight, bias, labels = make_inputs(4, 3, 5)
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'sum'; got 'none'"):
        linear_cross_entropy(hidden, weight, bias, labels, reduction="none")
    with pytest.raises(ValueError, match="chunk_rows must be at least 1; got 0"):
        linear_cross_entropy(hidden, weight, bias, labels, chunk_rows=0)
    with pytest.raises(ValueError, match="of one type; got torch.float64 and torch.float32"):
        linear_cross_entropy(hidden, weight.float(), None, labels)
    for wrong in (5, -1):
        labels[1] = wrong
        with pytest.raises(IndexError, match=rf"labels must be in \[0, 5\) or -100; got {wrong}"):
            linear_cross_entropy(hidden, weight, bias, labels)


# The model


def make_model(**fields):
    torch.manual_seed(3)
    model = StackRNNForCausalLM(tiny_config(push_control="expected_value", pop_control=1.0, **fields)).double()
    ids = torch.randint(1, 23, (3, 8))
    labels = ids.clone()
    labels[0, 5:] = -100
    labels[2, :3] = -100
    return model.train(), ids, labels


def loss_and_gradients(model, ids, **arguments):
    model.zero_grad()
    torch.manual_seed(5)
    outputs = model(ids, **arguments)
    outputs.loss.backward()
    return outputs, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def double_loss(logits, labels, vocab_size, shift_labels=None, num_items_in_batch=None, ignore_index=-100, **_):
    """transformers' loss for language models, but in float64: its own casts the logits to float32."""
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[:, 1:]
    total = F.cross_entropy(logits.flatten(0, 1), shift_labels.flatten(), ignore_index=ignore_index, reduction="sum")
    return total / ((shift_labels != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"bias": False},
        {"output_dropout": 0.5, "embedding_dropout": 0.5},
        {"tie_word_embeddings": True, "hidden_size": 5},
        {"memory": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_items_in_batch": 7}, {"num_items_in_batch": torch.tensor(7)}, {"ignore_index": 4}, "shift_labels"],
    ids=str,
)
def test_training_without_logits_is_training_with_them(fields, arguments):
    if fields.get("memory") == "none":
        model = StackRNNForCausalLM(tiny_config(**fields)).double().train()
        _, ids, labels = make_model()
    else:
        model, ids, labels = make_model(**fields)
    if arguments == "shift_labels":
        arguments = {"shift_labels": labels.roll(-1, 1)}
        labels = None
    elif "ignore_index" in arguments:
        labels = ids
    without, gradients = loss_and_gradients(model, ids, labels=labels, **arguments)
    transformers_loss = loss_and_gradients(model, ids, labels=labels, skip_logits=False, **arguments)[0].loss
    model.loss_function = double_loss
    plain_outputs, expected = loss_and_gradients(model, ids, labels=labels, **arguments)
    assert without.logits is None
    assert plain_outputs.logits.shape == (3, 8, 23)
    assert_same(without.loss, plain_outputs.loss)
    torch.testing.assert_close(without.loss, transformers_loss.double(), rtol=1e-6, atol=0)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize(
    ("columns", "arguments"),
    [(1, {}), (8, {}), (8, {"num_items_in_batch": 0}), (8, {"num_items_in_batch": torch.tensor(0)})],
    ids=str,
)
def test_batches_without_a_label_that_counts(columns, arguments):
    model, ids, labels = make_model()
    labels = labels.fill_(-100)[:, :columns] if columns > 1 else ids[:, :1]
    without, gradients = loss_and_gradients(model, ids[:, :columns], labels=labels, **arguments)
    plain_outputs, expected = loss_and_gradients(model, ids[:, :columns], labels=labels, skip_logits=False, **arguments)
    assert without.logits is None
    assert without.loss.isnan()
    assert plain_outputs.loss.isnan()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, expected[name]), name


def test_when_logits_are_there():
    model, ids, labels = make_model()
    assert model(ids).logits is not None
    assert model(ids, labels=labels).logits is None
    assert model(ids, labels=labels, return_dict=False)[0].dim() == 0
    assert model(ids, labels=labels, skip_logits=False).logits is not None
    assert model(ids, labels=labels, logits_to_keep=torch.arange(8)).logits is not None
    model.eval()
    assert model(ids, labels=labels).logits is not None
    skipped = model(ids, labels=labels, skip_logits=True)
    assert skipped.logits is None
    torch.testing.assert_close(skipped.loss, model(ids, labels=labels).loss.double(), rtol=1e-6, atol=0)


def test_a_loss_function_of_ones_own_gets_logits():
    model, ids, labels = make_model()
    model.loss_function = lambda logits, labels, vocab_size, **_: logits.sum() * 0 + 42.0
    outputs = model(ids, labels=labels)
    assert float(outputs.loss.detach()) == 42
    assert outputs.logits is not None
    with pytest.raises(ValueError, match="skip_logits=True cannot be: the model's loss_function"):
        model(ids, labels=labels, skip_logits=True)
    model.loss_function = ForCausalLMLoss
    assert model(ids, labels=labels).logits is None


class Adapted(nn.Linear):
    """As an adapter does: another module in the head's place, which adds something."""

    def forward(self, inputs):
        return super().forward(inputs) * 2


def adapted(head):
    new = Adapted(head.in_features, head.out_features).double()
    new.load_state_dict(head.state_dict())
    return new


def with_hook(head):
    head.register_forward_hook(lambda module, inputs, output: output * 2)
    return head


def with_forward(head):
    head.forward = lambda inputs: nn.Linear.forward(head, inputs) * 2
    return head


def parametrized(head):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    return nn.utils.parametrize.register_parametrization(head, "weight", Double())


@pytest.mark.parametrize("change", [adapted, with_hook, with_forward, parametrized])
def test_a_changed_head_is_called(change):
    model, ids, labels = make_model(bias=True)
    nn.init.zeros_(model.lm_head.bias)
    before = model(ids, labels=labels, skip_logits=False).logits
    assert is_plain_linear(model.lm_head)
    model.set_output_embeddings(change(model.lm_head))
    assert not is_plain_linear(model.lm_head)
    outputs = model(ids, labels=labels)
    torch.testing.assert_close(outputs.logits, 2 * before)
    with pytest.raises(ValueError, match="skip_logits=True cannot be: lm_head is not a plain nn.Linear"):
        model(ids, labels=labels, skip_logits=True)


def test_skipping_needs_labels_and_all_steps():
    model, ids, labels = make_model()
    with pytest.raises(ValueError, match="there are no labels"):
        model(ids, skip_logits=True)
    with pytest.raises(ValueError, match="logits_to_keep asks for logits"):
        model(ids, labels=labels, logits_to_keep=1, skip_logits=True)


def test_loss_dtype():
    model, ids, labels = make_model()
    model = model.float()
    expected, gradients = loss_and_gradients(model, ids, labels=labels)
    same, same_gradients = loss_and_gradients(model, ids, labels=labels, loss_dtype=torch.float32)
    assert torch.equal(same.loss, expected.loss)
    assert_same(same_gradients, gradients)
    for dtype in ("bfloat16", torch.bfloat16):
        rounded, rounded_gradients = loss_and_gradients(model, ids, labels=labels, loss_dtype=dtype)
        assert rounded.loss != expected.loss
        torch.testing.assert_close(rounded.loss, expected.loss, rtol=1e-2, atol=0)
        for name, gradient in gradients.items():
            assert rounded_gradients[name].dtype == torch.float32
            assert (rounded_gradients[name] - gradient).norm() <= 0.05 * gradient.norm(), name
    with pytest.raises(ValueError, match="loss_dtype must be one of float32, bfloat16; got 'float8'"):
        model(ids, labels=labels, loss_dtype="float8")
    with pytest.raises(ValueError, match="loss_dtype='bfloat16' cannot be: logits_to_keep asks for logits"):
        model(ids, labels=labels, loss_dtype="bfloat16", logits_to_keep=1)
    with pytest.raises(ValueError, match="loss_dtype='bfloat16' cannot be: there are no labels"):
        model(ids, loss_dtype="bfloat16")
    model.eval()
    with pytest.raises(ValueError, match="loss_dtype='bfloat16' cannot be: logits are computed in evaluation mode"):
        model(ids, labels=labels, loss_dtype="bfloat16")
    assert model(ids, labels=labels, loss_dtype="bfloat16", skip_logits=True).logits is None


def test_resized_embeddings():
    model, ids, labels = make_model()
    model.resize_token_embeddings(31, mean_resizing=False)
    labels[1, 2] = 30
    assert_same(
        model(ids, labels=labels).loss.float(),
        model(ids, labels=labels, skip_logits=False).loss,
        rtol=1e-6,
    )


def test_activation_checkpointing():
    model, ids, labels = make_model()
    expected = loss_and_gradients(model, ids, labels=labels)
    model.activation_checkpointing_enable({"use_reentrant": False})
    actual = loss_and_gradients(model, ids, labels=labels)
    assert actual[0].logits is None
    assert_same((actual[0].loss, actual[1]), (expected[0].loss, expected[1]))


def test_bfloat16_autocast():
    model, ids, labels = make_model()
    model = model.float()
    expected = loss_and_gradients(model, ids, labels=labels)
    with torch.autocast("cpu", torch.bfloat16):
        actual = loss_and_gradients(model, ids, labels=labels)
    assert actual[0].loss.dtype == torch.float32
    torch.testing.assert_close(actual[0].loss, expected[0].loss, rtol=2e-2, atol=0)
    head = "lm_head.weight"
    assert (actual[1][head] - expected[1][head]).norm() < 0.05 * expected[1][head].norm()


def test_trainer_trains_without_logits_and_evaluates_with_them(tmp_path):
    model, ids, _ = make_model()
    model = model.float()
    expected = copy.deepcopy(model).eval()
    data = [{"input_ids": row, "labels": row} for row in ids]
    seen = []

    def accuracy(prediction):
        seen.append(prediction.predictions.shape)
        return {"accuracy": float((prediction.predictions[:, :-1].argmax(-1) == ids[:, 1:].numpy()).mean())}

    arguments = TrainingArguments(
        str(tmp_path), use_cpu=True, report_to=[], max_steps=2, save_strategy="no", disable_tqdm=True, logging_steps=1
    )
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, compute_metrics=accuracy)
    metrics = trainer.evaluate()
    assert seen == [(3, 8, 23)]
    assert 0 <= metrics["eval_accuracy"] <= 1
    assert metrics["eval_loss"] == pytest.approx(float(expected(ids, labels=ids).loss.detach()), rel=1e-5)
    assert trainer.train().training_loss == pytest.approx(metrics["eval_loss"], rel=0.05)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
