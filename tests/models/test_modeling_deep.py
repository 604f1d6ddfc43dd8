"""Layers that read each other: equal to their composition by hand, losses and gradients; and as any model."""

import json
import re
from dataclasses import replace

import pytest
import torch
from conftest import checkpoint_activations, train_small
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from stack_lm import DeepStackRNNConfig, DeepStackRNNForCausalLM, DeepStackRNNModel, StackRNN, memories
from stack_lm.nn import recurrent_layers

V, E = 23, 5
STACK = {"memory": "stack", "hidden_size": 7, "memory_size": 3, "push_control": "expected_value", "pop_control": 1.0}
TOP = {"memory": "none", "hidden_size": 9, "inputs": [0, "embedding"], "detach": True}


def config(**fields):
    sizes = {"vocab_size": V, "embedding_size": E, "pad_token_id": 0}
    return DeepStackRNNConfig(**(sizes | {"layers": [STACK, TOP], "auxiliary_losses": [{"layer": 0}]} | fields))


def make(scale=1.0, **fields):
    model = DeepStackRNNForCausalLM(config(**fields))
    for parameter in model.parameters():
        parameter.data *= scale
    return model


def ids(*shape):
    return torch.randint(1, V, shape)


def test_the_layers_up_to_one_with_a_head_are_a_model_of_their_own(tmp_path):
    middle = {"memory": "none", "hidden_size": 6, "inputs": ["below", "embedding"]}
    losses = [{"layer": 1, "output_size": 4}, {"layer": 0}]
    top = TOP | {"inputs": [0, 1]}
    model = make(3.0, layers=[STACK, middle, top], auxiliary_losses=losses).eval()
    tokens = ids(2, 5)
    outputs = model.model(tokens).layer_outputs
    for layer, head in ((1, 0), (0, 1)):
        part = model.up_to(layer)
        part.save_pretrained(tmp_path / str(layer))
        part = AutoModelForCausalLM.from_pretrained(tmp_path / str(layer))
        own = model.auxiliary_heads[head]
        torch.testing.assert_close(part(tokens).logits, own.lm_head(own(outputs[layer])))
        assert part.config.auxiliary_losses == []


def test_the_layers_up_to_one_keep_their_weights_to_the_bit():
    model = make(1 / 3, layers=[STACK, TOP], auxiliary_losses=[{"layer": 0}]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter /= 3
    part = model.up_to(0)
    assert torch.equal(part.model.embed_tokens.weight, model.model.embed_tokens.weight)
    part.model.embed_tokens.weight.data.zero_()  # a copy
    assert model.model.embed_tokens.weight.any()


def test_auxiliary_losses_are_of_all_steps():
    model, tokens = make().train(), ids(2, 5)
    with pytest.raises(
        ValueError, match=r"auxiliary losses are of all 5 steps, .* got \[2, 3\]: leave out logits_to_keep"
    ):
        model(tokens, labels=tokens[:, -3:], logits_to_keep=3)
    model.eval()(tokens, labels=tokens[:, -3:], logits_to_keep=3)


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# --- by hand


class ByHand(nn.Module):
    """The default shape in plain torch: a stack RNN, an LSTM on its outputs and the embeddings, and two heads."""

    def __init__(self, model, detach):
        super().__init__()
        self.detach = detach
        self.embedding = nn.Embedding.from_pretrained(model.model.embed_tokens.weight.detach().clone(), freeze=False)
        settings = {name: value for name, value in STACK.items() if name not in ("memory", "hidden_size")}
        self.stack = StackRNN(E, 7, memory="stack", batch_first=True, **settings)
        self.lstm = nn.LSTM(7 + E, 9, batch_first=True)
        self.own, self.head = nn.Linear(7, V), nn.Linear(9, V)
        cells = model.model.layers
        self.stack.layers[0].load_state_dict(cells[0].state_dict())
        self.lstm.load_state_dict({name.rpartition(".")[2]: value for name, value in cells[1].state_dict().items()})
        self.own.load_state_dict(model.auxiliary_heads[0].lm_head.state_dict())
        self.head.load_state_dict(model.lm_head.state_dict())

    def losses(self, batch):
        embedded = self.embedding(batch)
        lower, _ = self.stack(embedded)
        upper, _ = self.lstm(torch.cat((lower.detach() if self.detach else lower, embedded), -1))
        targets = batch[:, 1:].flatten()
        return [
            F.cross_entropy(logits[:, :-1].flatten(0, 1), targets) for logits in (self.head(upper), self.own(lower))
        ]


NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "stack.layers.0.": "model.layers.0.",
    "lstm.": "model.layers.1.controller.",
    "own.": "auxiliary_heads.0.lm_head.",
    "head.": "lm_head.",
}


@pytest.mark.parametrize("detach", [True, False])
def test_it_is_the_composition_of_its_layers(detach):
    model = make(layers=[STACK, TOP | {"detach": detach}], auxiliary_losses=[{"layer": 0, "weight": 0.25}])
    by_hand, batch = ByHand(model, detach), ids(3, 6)
    main, auxiliary = by_hand.losses(batch)
    (main + 0.25 * auxiliary).backward()
    outputs = model.train()(batch, labels=batch)
    outputs.loss.backward()
    torch.testing.assert_close(outputs.loss, main)  # the value; the gradient is that of the sum
    torch.testing.assert_close(outputs.loss_parts, {"main": main.detach(), "auxiliary_0": auxiliary.detach()})
    found = gradients(model)
    for name, expected in gradients(by_hand).items():
        (prefix,) = (prefix for prefix in NAMES if name.startswith(prefix))
        torch.testing.assert_close(found.pop(name.replace(prefix, NAMES[prefix])), expected, msg=name)
    assert not found
    evaluated = model.eval()(batch, labels=batch)
    torch.testing.assert_close(evaluated.loss, main)  # which perplexities are of
    assert evaluated.loss_parts is None


def test_readings_and_several_stacks():
    layers = [STACK, STACK | {"inputs": ["embedding", "0.reading"]}, TOP | {"inputs": [1, 0, "1.reading", "embedding"]}]
    model = make(layers=layers, auxiliary_losses=[{"layer": 0}, {"layer": 1, "output_size": 4}]).eval()
    batch = ids(2, 6)
    outputs = model.model(batch, output_actions=True, output_hidden_states=True)
    embedded, *found = outputs.hidden_states
    first = model.model.layers[0].scan(embedded, output_readings=True)
    second = model.model.layers[1].scan(torch.cat((embedded, first.readings), -1), output_readings=True)
    third = model.model.layers[2].scan(torch.cat((second.outputs, first.outputs, second.readings, embedded), -1))
    for hidden, scan in zip(found, (first, second, third), strict=True):
        torch.testing.assert_close(hidden, scan.outputs)
    assert [actions.push_strength.shape for actions in outputs.actions] == [(2, 6), (2, 6)]
    assert len(memories(model)) == 2
    model.train()(batch, labels=batch).loss.backward()
    assert all(grad is not None for grad in gradients(model).values())
    model.eval().model.layers[2].register_forward_hook(lambda *_: pytest.fail("it is above the memories"))
    alone = model.model(batch, use_cache=False, actions_only=True)
    assert list(alone) == ["actions"]
    for one, other in zip(alone.actions, outputs.actions, strict=True):
        torch.testing.assert_close(one.push_strength, other.push_strength)
    with pytest.raises(ValueError, match="actions_only .* takes use_cache=False"):
        model.model(batch, actions_only=True)


def test_a_shared_head():
    model, batch = make(auxiliary_losses=[{"layer": 0, "head": "shared"}]).train(), ids(2, 6)
    outputs = model(batch, labels=batch)
    lower = model.model(batch).layer_outputs[0]
    logits = model.lm_head(model.auxiliary_heads[0].projection(lower))[:, :-1]
    expected = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    torch.testing.assert_close(outputs.loss_parts["auxiliary_0"], expected.detach())
    same = make(layers=[STACK | {"hidden_size": 9}, TOP], auxiliary_losses=[{"layer": 0, "head": "shared"}])
    assert same.auxiliary_heads[0].projection is None
    assert not list(same.auxiliary_heads.parameters())


def test_a_weight_that_falls():
    model, batch = (
        make(auxiliary_losses=[{"layer": 0, "weight": {"start": 2, "end": 1, "steps": 4}}]).train(),
        ids(2, 6),
    )
    own = model.auxiliary_heads[0].lm_head
    for step, weight in ((0, 2.0), (1, 1.75), (4, 1.0), (100, 1.0)):
        model.begin_update(step)
        outputs = model(batch, labels=batch)
        assert outputs.loss == outputs.loss_parts["main"]
        (found,) = torch.autograd.grad(outputs.loss, [own.bias])
        logits = own(model.model(batch, auxiliary_losses=False).layer_outputs[0])[:, :-1].flatten(0, 1)
        expected = torch.autograd.grad(F.cross_entropy(logits, batch[:, 1:].flatten()), [own.bias])[0]
        torch.testing.assert_close(found, weight * expected)


def test_parts_of_the_loss_take_the_same_path():
    model, batch = make().double().train(), ids(3, 6)
    batch[0, 4:] = 0
    labels = batch.masked_fill(batch == 0, -100)
    expected = model(batch, labels=labels, num_items_in_batch=7)
    for arguments in ({"skip_logits": False}, {"attention_mask": (batch != 0).long()}):
        outputs = model(batch, labels=labels, num_items_in_batch=7, **arguments)
        torch.testing.assert_close(outputs.loss_parts, expected.loss_parts, rtol=1e-6, atol=0, check_dtype=False)
    shifted = model(batch, shift_labels=F.pad(labels, (0, 1), value=-100)[:, 1:], num_items_in_batch=7)
    torch.testing.assert_close(shifted.loss_parts, expected.loss_parts)
    rounded = model(batch, labels=labels, num_items_in_batch=7, loss_dtype="bfloat16").loss_parts
    for name, part in expected.loss_parts.items():
        assert rounded[name] != part
        torch.testing.assert_close(rounded[name], part, rtol=0.02, atol=0, check_dtype=False)
    exact = model(batch, labels=labels, num_items_in_batch=7, softmax_samples=1000).loss_parts
    torch.testing.assert_close(exact, expected.loss_parts)
    sampled = model(batch, labels=labels, num_items_in_batch=7, softmax_samples=3).loss_parts
    for name, part in expected.loss_parts.items():
        assert sampled[name] != part
        torch.testing.assert_close(sampled[name], part, rtol=0.3, atol=0)
    model.auxiliary_heads[0].lm_head.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert (
        model(batch, labels=labels, num_items_in_batch=7).loss_parts["auxiliary_0"]
        != expected.loss_parts["auxiliary_0"]
    )


# --- as any model


def test_beams_chunks_padding_and_checkpoints():
    model = make(2.0, layers=[STACK, TOP | {"inputs": [0, "0.reading", "embedding"]}], output_size=6).eval()
    batch = ids(3, 7)
    options = {"num_beams": 3, "max_new_tokens": 4, "do_sample": False, "attention_mask": torch.ones_like(batch)}
    assert torch.equal(model.generate(batch, **options), model.generate(batch, use_cache=False, **options))
    whole = model(batch, labels=batch)
    cache = model(batch[:, :3], use_cache=True).past_key_values
    assert set(cache.states) == {0, 1}
    torch.testing.assert_close(model(batch[:, 3:], past_key_values=cache).logits, whole.logits[:, 3:])
    for pad in ((2, 0), (0, 2)):
        padded = F.pad(batch, pad)
        outputs = model(padded, attention_mask=(padded != 0).long(), labels=padded.masked_fill(padded == 0, -100))
        torch.testing.assert_close(outputs.logits[padded != 0], whole.logits.flatten(0, 1))
        torch.testing.assert_close(outputs.loss, whole.loss)
    model.train()
    exact = model(batch, labels=batch).loss
    checkpoint_activations(model, {"use_reentrant": False})
    torch.testing.assert_close(model(batch, labels=batch).loss, exact)


def test_auto_classes_and_one_memory_less():
    assert type(AutoConfig.for_model("deep_stack_rnn")) is DeepStackRNNConfig
    assert type(AutoModel.from_config(config())) is DeepStackRNNModel
    baseline = make(layers=[{"memory": "none", "hidden_size": 7, "push_control": 1.0}, TOP])
    assert memories(baseline) == []
    assert len(recurrent_layers(baseline)) == 2
    assert "push_control" not in baseline.config.layers[0]
    assert baseline.eval()(ids(2, 3), output_actions=True).actions == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": [{"inputs": ["words"]}]}, "layers[0].inputs[0] must be 'embedding', 'below', the number of a"),
        ({"layers": [STACK, TOP | {"inputs": [1]}]}, "layers[1].inputs[0] must be the number of a layer before this"),
        ({"layers": [{"inputs": []}]}, "layers[0].inputs must name at least one source; got []"),
        ({"layers": [TOP | {"inputs": ["embedding"]}, {"inputs": ["0.reading"]}]}, "layer 0 has memory='none'"),
        ({"layers": [{"hiden_size": 3}]}, "unknown key 'layers[0].hiden_size'; the keys here are memory, controller, "),
        ({"auxiliary_losses": [{"layer": 2}]}, "auxiliary_losses[0].layer must be the number of a layer, below 2; got"),
        ({"auxiliary_losses": [{"layer": 0}] * 2}, "auxiliary_losses[1].layer must not have another loss; got 0"),
        ({"auxiliary_losses": [{"layer": 1, "head": "shared"}]}, "auxiliary_losses[0].head must be 'own' on the last"),
        ({"auxiliary_losses": []}, "layers[0] has no loss to learn from: "),
    ],
    ids=str,
)
def test_bad_configurations_are_one_line(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        config(**fields)
    assert "\n" not in str(caught.value)


# --- trained by the recipe


FIELDS = {
    "model_type": "deep_stack_rnn",
    "embedding_size": 12,
    "layers": [
        {"hidden_size": 12, "memory_size": 4},
        {"memory": "none", "hidden_size": 16, "inputs": [0, "embedding"]},
    ],
    "auxiliary_losses": [{"layer": 0, "weight": {"steps": 40}}],
}
IN_TRANSFORMER = {
    "model_type": "stack_transformer",
    "hidden_size": 12,
    "layers": [{"controller": "lstm", "hidden_size": 12, "memory_size": 4, "detach": True}, "attention"],
    "auxiliary_losses": FIELDS["auxiliary_losses"],
    "position_encoding": "rotary",
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module", params=[FIELDS, IN_TRANSFORMER], ids=lambda fields: fields["model_type"])
def trained(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("deep") / "run"
    train_small(directory, request.param, "generated:300", epochs=2, learning_rate=0.01, log_every=5)
    return directory


def test_training_logs_each_loss(trained):
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    training = [record for record in records if "train_nats_per_token" in record]
    assert all(0 < record["train_auxiliary_0_nats_per_token"] < 7 for record in training)
    first, last = training[0], training[-1]
    assert last["train_nats_per_token"] < first["train_nats_per_token"] < 7  # the sum would be twice as much
    assert 0 < records[-1]["eval_push_mean"] < 3
    assert "differentiable stack" in (trained / "README.md").read_text()


@pytest.mark.parametrize(
    ("mode", "fields"), [("sentences", FIELDS), ("continuous", FIELDS), ("sentences", IN_TRANSFORMER)]
)
def test_a_resumed_run_is_the_same(mode, fields, tmp_path):
    from safetensors.torch import load_file

    from stack_lm.training.config import DataConfig, LoopConfig, RunConfig
    from stack_lm.training.language_model import Trainer as OurTrainer

    text = {"validation": "generated:20", "sequence_length": 8} if mode == "continuous" else {"held_out": 20}
    loop = {"threads": 1, "loss_dtype": "float32", "max_steps": 6, "save_every": 3, "log_every": 2}
    made = RunConfig(
        str(tmp_path / "whole"),
        0,
        fields,
        data=DataConfig(source="generated:80", mode=mode, **text),
        training=LoopConfig(**loop),
    )
    OurTrainer(made, quiet=True).train()
    part = replace(made, output_dir=str(tmp_path / "part"))
    OurTrainer(replace(part, training=replace(made.training, max_steps=3)), quiet=True).train()
    OurTrainer(part, resume=True, quiet=True).train()
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
