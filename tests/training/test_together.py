"""Several models trained at once: as each is alone."""

import copy

import pytest
import torch

import stack_lm
from stack_lm.core.config_files import read_config
from stack_lm.core.errors import InputError
from stack_lm.training.together import Together, stack_batches

PRESETS = {
    "suzgun2019/stack_rnn_softmax": {"vocab_size": 4, "num_labels": 4},
    "suzgun2019/baby_ntm_temperature": {"vocab_size": 4, "num_labels": 4},
    "suzgun2019/lstm": {"vocab_size": 4, "num_labels": 4},
    "hao2018/linear_stack": {"vocab_size": 4, "num_labels": 4},
    "hao2018/lstm_stack": {"vocab_size": 4, "num_labels": 4},
    "hao2018/buffered_linear_stack": {"vocab_size": 4, "target_vocab_size": 4},
}


def make_models(preset, count=3, **fields):
    values = read_config(preset)["model"] | PRESETS.get(preset, {}) | fields
    (architecture,) = values["architectures"]
    model_class = getattr(stack_lm, architecture)
    return [model_class(model_class.config_class(**values)) for _ in range(count)]


def make_batch(model, batch_size, length, masked):
    ids = torch.randint(4, (batch_size, length))
    labels = ids.clone()
    if isinstance(model, stack_lm.StackRNNForKHotPrediction):
        labels = (torch.rand(batch_size, length, 4) > 0.5).float()
    return {"input_ids": ids, "labels": labels} | ({"attention_mask": torch.ones_like(ids)} if masked else {})


@pytest.mark.parametrize("lengths", [(6, 6, 6), (6, 3, 5)])
@pytest.mark.parametrize("preset", PRESETS)
def test_models_learn_as_they_do_alone(preset, lengths):
    torch.manual_seed(0)
    models = make_models(preset)
    alone = copy.deepcopy(models)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in alone]
    together = Together(models)
    common = torch.optim.Adam(together.parameters(), lr=0.01)
    for _ in range(3):
        batches = [make_batch(models[0], 2, length, len(set(lengths)) > 1) for length in lengths]
        losses = together.losses(stack_batches(batches))
        common.zero_grad()
        losses.sum().backward()
        common.step()
        for model, optimizer, batch, loss in zip(alone, optimizers, batches, losses, strict=True):
            optimizer.zero_grad()
            own = model(**batch).loss
            own.backward()
            optimizer.step()
            torch.testing.assert_close(loss, own)
    for model, other in zip(models, alone, strict=True):
        torch.testing.assert_close(dict(model.named_parameters()), dict(other.named_parameters()))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transformers_with_padding_at_once():
    torch.manual_seed(0)
    sizes = {"vocab_size": 7, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    config = stack_lm.StackTransformerConfig(
        **sizes, dropout=0, attention_dropout=0, layers=["attention", "superposition", "attention"]
    )
    models = [stack_lm.StackTransformerForSequenceClassification(config) for _ in range(3)]

    def loss_of(model, inputs):
        return model(**inputs).logits.logsumexp(-1).sum()

    masks = torch.ones(3, 2, 5, dtype=torch.long)
    masks[0, 1, 3:] = masks[2, 0, 1:] = 0  # none of the second model
    batches = [{"input_ids": torch.randint(1, 7, (2, 5)), "attention_mask": mask} for mask in masks]
    expected = [loss_of(model, batch) for model, batch in zip(models, batches, strict=True)]
    found = Together(models, loss_of).losses(stack_batches(batches))
    torch.testing.assert_close(found, torch.stack(expected))


def test_noise_differs_between_models():
    torch.manual_seed(0)
    models = make_models("suzgun2019/baby_ntm_gumbel", vocab_size=4, num_labels=4)
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    batch = make_batch(models[0], 2, 6, False)
    assert len(set(Together(models).losses(stack_batches([batch] * 3)).tolist())) == 3


def test_gradients_are_clipped_for_each_model():
    torch.manual_seed(0)
    models = make_models("hao2018/lstm_stack")
    alone = copy.deepcopy(models)
    together = Together(models)
    batches = [make_batch(models[0], 2, 5, False) for _ in models]
    losses = together.losses(stack_batches(batches))
    (losses * torch.tensor([100.0, 1.0, 1e-4])).sum().backward()
    norms = together.clip_gradients(0.1)
    for i, (model, batch, factor) in enumerate(zip(alone, batches, (100.0, 1.0, 1e-4), strict=True)):
        (model(**batch).loss * factor).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        torch.testing.assert_close(norms[i], norm)
        for common, parameter in zip(together.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(common.grad[i], parameter.grad)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.SGD])
def test_each_model_may_have_a_learning_rate_of_its_own(kind):
    torch.manual_seed(0)
    rates = (0.03, 0.0, 0.001)
    models = make_models("hao2018/lstm_stack")
    alone = copy.deepcopy(models)
    optimizers = [kind(model.parameters(), lr=rate) for model, rate in zip(alone, rates, strict=True)]
    # Another loss than the model's own; that of the model which is to keep its weights is not finite.
    together = Together(
        models, lambda model, inputs: model(inputs["input_ids"]).logits.square().mean() * inputs["factor"]
    )
    common = kind(together.parameters(), lr=1)
    for _ in range(3):
        ids = torch.randint(4, (3, 2, 5))
        common.zero_grad()
        factors = torch.tensor([1.0, float("inf"), 1.0])
        together.losses({"input_ids": ids, "factor": factors}).sum().backward()
        together.step(common, rates)
        for model, optimizer, own in zip(alone, optimizers, ids, strict=True):
            optimizer.zero_grad()
            model(own).logits.square().mean().backward()
            optimizer.step()
    for model, other in zip(models, alone, strict=True):
        torch.testing.assert_close(dict(model.named_parameters()), dict(other.named_parameters()))


def test_models_that_cannot_be_trained_together_are_refused():
    with pytest.raises(InputError, match="one class and configuration"):
        Together(make_models("hao2018/lstm_stack", 1) + make_models("hao2018/lstm_stack", 1, hidden_size=3))
    models = make_models("hao2018/lstm_stack", 2)
    models[0].set_scan_backend("reference")
    with pytest.raises(InputError, match="compiled scan only; as set"):
        Together(models)
