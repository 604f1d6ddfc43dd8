"""Heads over one forward, inputs that are one-hot, and the layer before the head."""

import inspect

import pytest
import torch
from conftest import tiny_config
from transformers import AutoModelForTokenClassification, pipeline
from transformers.utils.generic import find_labels

from stack_lm import (
    StackRNNForCausalLM,
    StackRNNForKHotPrediction,
    StackRNNForSequenceClassification,
    StackRNNForTokenClassification,
    StackRNNModel,
    train_word_tokenizer,
)

PER_STEP = (StackRNNForTokenClassification, StackRNNForKHotPrediction)


def ids(*shape):
    return torch.randint(1, 23, shape)


@pytest.mark.parametrize("cls", PER_STEP)
def test_saved_and_loaded(cls, tmp_path):
    model = cls(tiny_config(num_labels=4, prediction_threshold=0.3)).eval()
    model.save_pretrained(tmp_path)
    batch = ids(2, 5)
    loaded = cls.from_pretrained(tmp_path)
    assert torch.equal(loaded(batch).logits, model(batch).logits)
    assert loaded.config.prediction_threshold == 0.3
    if cls is StackRNNForTokenClassification:
        assert type(AutoModelForTokenClassification.from_pretrained(tmp_path)) is cls


@pytest.mark.parametrize("cls", PER_STEP)
def test_every_step_is_the_head_on_its_output(cls):
    model = cls(tiny_config(num_labels=4)).eval()
    sentence = ids(1, 4)
    outputs = model(sentence, output_actions=True, use_cache=True)
    hidden = model.model(sentence).last_hidden_state
    torch.testing.assert_close(outputs.logits, model.score(hidden))
    assert outputs.actions.push_strength.shape == (1, 4)
    # Padding changes nothing, and the state can be carried on.
    for left, right in ((0, 3), (2, 1)):
        padded = torch.nn.functional.pad(sentence, (left, right))
        logits = model(padded, attention_mask=(padded != 0).long()).logits
        torch.testing.assert_close(logits[:, left : left + 4], outputs.logits)
    first = model(sentence[:, :2], use_cache=True)
    second = model(sentence[:, 2:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat((first.logits, second.logits), dim=1), outputs.logits)


def test_token_classification_loss_ignores_what_it_should():
    model = StackRNNForTokenClassification(tiny_config(num_labels=4)).eval()
    batch = ids(2, 5)
    labels = torch.randint(0, 4, (2, 5))
    labels[1, 3:] = -100
    outputs = model(batch, labels=labels)
    logs = outputs.logits.log_softmax(-1)
    kept = [(0, t) for t in range(5)] + [(1, t) for t in range(3)]
    losses = [-logs[b, t, labels[b, t]] for b, t in kept]
    torch.testing.assert_close(outputs.loss, torch.stack(losses).mean())
    torch.testing.assert_close(model(batch, labels=labels, num_items_in_batch=16).loss, outputs.loss / 2)


def test_k_hot_loss_is_the_mean_squared_error_of_what_counts():
    model = StackRNNForKHotPrediction(tiny_config(num_labels=4)).eval()
    batch = ids(2, 5)
    labels = torch.randint(0, 2, (2, 5, 4))
    labels[1, 3:] = -100
    outputs = model(batch, labels=labels)
    probabilities = outputs.logits.sigmoid()
    both = torch.cat((probabilities[0], probabilities[1, :3])), torch.cat((labels[0], labels[1, :3])).float()
    torch.testing.assert_close(outputs.loss, torch.nn.functional.mse_loss(*both))
    torch.testing.assert_close(model(batch, labels=labels, num_items_in_batch=64).loss, outputs.loss / 2)
    torch.testing.assert_close(model(batch, labels=labels.float()).loss, outputs.loss)


def test_k_hot_prediction_is_by_the_threshold():
    model = StackRNNForKHotPrediction(tiny_config(num_labels=3))
    logits = torch.tensor([-0.01, 0.0, 2.0])
    assert model.predict(logits).tolist() == [False, True, True]  # 0.5 itself is predicted
    model.config.prediction_threshold = 0.8
    assert model.predict(logits).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("cls", "labels", "message"),
    [
        (StackRNNForTokenClassification, torch.zeros(2, 5, 4), r"labels must be \[2, 5\]; got \[2, 5, 4\]"),
        (StackRNNForKHotPrediction, torch.zeros(2, 5), r"labels must be \[2, 5, 4\]; got \[2, 5\]"),
    ],
)
def test_labels_of_another_shape_are_refused(cls, labels, message):
    with pytest.raises(ValueError, match=message):
        cls(tiny_config(num_labels=4))(ids(2, 5), labels=labels)


def test_token_classification_pipeline():
    tokenizer = train_word_tokenizer([("the dogs bark".split(), None)], 10)
    model = StackRNNForTokenClassification(tiny_config(vocab_size=len(tokenizer), num_labels=3))
    answers = pipeline("token-classification", model=model, tokenizer=tokenizer)("the dogs bark")
    assert [answer["word"] for answer in answers] == ["the", "dogs", "bark"]
    assert all(answer["entity"].startswith("LABEL_") for answer in answers)


# --- one-hot inputs, and the layer before the head


def test_one_hot_inputs_equal_an_identity_for_embeddings(tmp_path):
    model = StackRNNModel(tiny_config(input_encoding="one_hot", embedding_size=None)).eval()
    assert model.config.embedding_size == 23
    assert not any("embed" in name for name in model.state_dict())
    batch = ids(2, 5)
    expected = model(inputs_embeds=torch.eye(23)[batch]).last_hidden_state
    torch.testing.assert_close(model(batch).last_hidden_state, expected)
    model.save_pretrained(tmp_path)
    assert torch.equal(StackRNNModel.from_pretrained(tmp_path)(batch)[0], model(batch)[0])
    assert model.to(torch.bfloat16)(batch).last_hidden_state.dtype == torch.bfloat16


@pytest.mark.parametrize("memory", ["none", "stack", "baby_ntm"])
@pytest.mark.parametrize("controller", ["direct", "linear"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_one_hot_inputs_in_every_type(controller, memory, dtype, tmp_path):
    fields = {"memory_size": 3} if memory != "none" else {}
    config = tiny_config(input_encoding="one_hot", embedding_size=None, controller=controller, memory=memory, **fields)
    model = StackRNNForTokenClassification(config).to(dtype)
    ids, mask = torch.randint(0, 23, (2, 5)), torch.tensor([[1] * 5, [0, 0, 1, 1, 1]])
    for padding in (None, mask):
        outputs = model(ids, attention_mask=padding, labels=ids % 2, use_cache=True)
        outputs.loss.backward()
        assert outputs.logits.dtype == dtype
        assert outputs.past_key_values.state().reading.dtype == dtype
    model.save_pretrained(tmp_path)
    loaded = StackRNNForTokenClassification.from_pretrained(tmp_path, dtype=dtype)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert model.to("meta")(ids.to("meta"), attention_mask=mask.to("meta")).logits.shape == (2, 5, 2)


@pytest.mark.parametrize("cls", [*PER_STEP, StackRNNForSequenceClassification, StackRNNForCausalLM])
def test_forward_names_the_arguments_that_trainers_look_for(cls):
    """A Trainer drops the columns of a data set that the signature does not name, and finds labels there."""
    assert {"input_ids", "attention_mask", "inputs_embeds", "labels"} <= set(inspect.signature(cls.forward).parameters)
    assert find_labels(cls) == ["labels"]


def test_the_output_layer_stands_before_every_head(tmp_path):
    """o_t = tanh(W_o o'_t + b_o), Grefenstette et al. (2015), section 3.4."""
    config = tiny_config(output_size=5, tie_word_embeddings=True)
    model = StackRNNForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    batch = ids(2, 5)
    raw = model.model.cell.scan(model.get_input_embeddings()(batch)).outputs
    layer = model.model.output_layer
    expected = model.lm_head(torch.tanh(raw @ layer.weight.T + layer.bias))
    torch.testing.assert_close(model(batch).logits, expected)
    model.save_pretrained(tmp_path)
    assert torch.equal(StackRNNForCausalLM.from_pretrained(tmp_path)(batch).logits, model(batch).logits)
    hidden = model.model(batch, attention_mask=torch.tensor([[1] * 5, [1] * 3 + [0] * 2])).last_hidden_state
    assert hidden.shape == (2, 5, 5)
    assert not hidden[1, 3:].any()
    for cls in (*PER_STEP, StackRNNForSequenceClassification):
        assert cls(tiny_config(output_size=4, num_labels=3)).score.weight.shape == (3, 4)


MODELS = {
    StackRNNModel: {},
    StackRNNForCausalLM: {"labels": torch.ones(2, 3, dtype=torch.long)},
    StackRNNForSequenceClassification: {"labels": torch.ones(2, dtype=torch.long)},
    StackRNNForTokenClassification: {"labels": torch.ones(2, 3, dtype=torch.long)},
    StackRNNForKHotPrediction: {"labels": torch.ones(2, 3, 2)},
}


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_arguments_that_nothing_uses_are_refused(cls, training):
    model, ids = cls(tiny_config(num_labels=2)).train(training), torch.ones(2, 3, dtype=torch.long)
    with pytest.raises(TypeError, match=r"no argument 'label_smoothing', which is 0\.1") as refused:
        model(ids, **MODELS[cls], label_smoothing=0.1)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="do not return attention weights: output_attentions must be False"):
        model(ids, **MODELS[cls], output_attentions=True)
    if cls not in (StackRNNModel, StackRNNForCausalLM):
        with pytest.raises(TypeError, match="no argument 'shift_labels'.* it has position_ids, .*, ignore_index$"):
            model(ids, **MODELS[cls], shift_labels=ids)


@pytest.mark.parametrize("cls", MODELS)
def test_arguments_of_every_transformers_model_are_let_through(cls):
    model, ids = cls(tiny_config(num_labels=2)), torch.ones(2, 3, dtype=torch.long)
    plain = model(ids, **MODELS[cls], return_dict=False)[0]
    arguments = {"output_attentions": False, "position_ids": ids, "token_type_ids": ids, "use_cache": False}
    assert torch.equal(model(ids, **MODELS[cls], **arguments, label_smoothing=None, return_dict=False)[0], plain)
