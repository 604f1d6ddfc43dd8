"""The loss without logits as models use it: when they take it, and that it trains as with logits."""

import copy

import pytest
import torch
from conftest import tiny_config
from test_loss import assert_same
from torch import nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments
from transformers.loss.loss_utils import ForCausalLMLoss

from stack_lm import StackRNNForCausalLM
from stack_lm.models.arguments import is_plain_linear


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
    with pytest.raises(ValueError, match="skip_logits=True cannot be used: the model's loss_function"):
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
    with pytest.raises(ValueError, match="skip_logits=True cannot be used: lm_head is not a plain nn.Linear"):
        model(ids, labels=labels, skip_logits=True)


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
    with pytest.raises(ValueError, match="loss_dtype='bfloat16' cannot be used: logits_to_keep asks for logits"):
        model(ids, labels=labels, loss_dtype="bfloat16", logits_to_keep=1)
    with pytest.raises(ValueError, match="loss_dtype='bfloat16' cannot be used: there are no labels"):
        model(ids, loss_dtype="bfloat16")
    model.eval()
    assert model(ids, labels=labels, loss_dtype="bfloat16", skip_logits=True).logits is None


def test_softmax_samples():
    model, ids, labels = make_model()
    expected, gradients = loss_and_gradients(model, ids, labels=labels)
    exact, exact_gradients = loss_and_gradients(model, ids, labels=labels, softmax_samples=1000)
    assert torch.equal(exact.loss, expected.loss)
    assert_same(exact_gradients, gradients)
    sampled = [model(ids, labels=labels, softmax_samples=3) for _ in range(2)]
    assert sampled[0].loss != sampled[1].loss
    assert sampled[0].logits is None
    torch.testing.assert_close(sampled[0].loss, expected.loss, rtol=0.2, atol=0)
    model.eval()
    with pytest.raises(ValueError, match="softmax_samples=3 cannot be used: logits are computed; skip_logits=True"):
        model(ids, labels=labels, softmax_samples=3)


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


def test_a_batch_whose_only_label_is_after_padding_has_no_loss():
    model = StackRNNForCausalLM(tiny_config(pad_token_id=0)).train()
    batch = {"input_ids": torch.tensor([[0, 0, 1]]), "attention_mask": torch.tensor([[0, 0, 1]])}
    loss = model(**batch, labels=torch.tensor([[-100, -100, 1]]), num_items_in_batch=5).loss
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
