"""The stack transformer: its formulas, published sizes, caches, GPT-2 as a special case, errors."""

import math

import pytest
import torch
from conftest import checkpoint_activations
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from stack_lm import (
    MemoryCache,
    StackTransformerConfig,
    StackTransformerForCausalLM,
    StackTransformerForSequenceClassification,
    StackTransformerForTokenClassification,
)
from stack_lm.core.checks import build
from stack_lm.core.config_files import read_config
from stack_lm.models import modeling_layers
from stack_lm.tasks import make_task
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.encoding import Encoding
from stack_lm.training.trials.trial import make_model

STACKS = ["superposition", "stack", {"memory": "nondeterministic", "memory_symbols": 2, "memory_size": 2}]
CELL = {"controller": "lstm", "memory": "stack", "hidden_size": 6, "memory_size": 3, "push_strength_init": 0.5}
STACKS += [CELL, {"controller": "gru", "memory": "none"}]
POSITIONS = ["sinusoidal", "learned", "rotary", "none"]


def make(*layers, kind=StackTransformerForCausalLM, **fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": 19, "hidden_size": 8, "num_attention_heads": 2, "pad_token_id": 0, "initializer_range": 0.5}
    return kind(StackTransformerConfig(**sizes | {"layers": list(layers) or None} | fields)).eval()


def ids(*shape):
    return torch.randint(1, 19, shape)


def test_an_empty_batch():
    model = StackTransformerForCausalLM(StackTransformerConfig(vocab_size=9))
    assert model(torch.zeros(0, 5, dtype=torch.long)).logits.shape == (0, 5, 9)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


# The numbers of parameters that DuSell and Chiang's released code (2024) makes.
PUBLISHED = {
    "marked_reversal": (43_044, 40_964, 33_273),
    "unmarked_reversal": (42_979, 40_899, 33_216),
    "padded_reversal": (43_044, 40_964, 36_633),
    "dyck": (43_109, 41_029, 33_330),
    "hardest_cfl": (43_304, 41_224, 36_861),
}
# NOTE: the number for padded reversal is that of three symbols; its strings have two, of which one is the padding.
SYMBOLS = {"padded_reversal": 4}


@pytest.mark.parametrize("task", PUBLISHED)
def test_parameters_are_those_of_the_released_code(task):
    states = "_3_states" if task in ("padded_reversal", "hardest_cfl") else ""
    presets = ("", "_superposition", f"_nondeterministic{states}")
    for preset, published in zip(presets, PUBLISHED[task], strict=True):
        values = read_config(f"dusell2024/transformer{preset}") | {"task": f"dusell2020/{task}"}
        encoding = Encoding(make_task(values["task"]), "StackTransformerForCausalLM", one_boundary=True)
        encoding.fields["vocab_size"] = SYMBOLS.get(task, encoding.fields["vocab_size"])
        assert count(make_model(build(TaskConfig, values), encoding)) == published


def test_it_equals_its_formulas():
    """`y = x + stack(LN(x))`, `y + FF(LN(y))`, one last layer norm, embeddings times root d and sinusoids."""
    model = make("superposition", "attention", dropout=0.0).double()
    tokens = ids(2, 6)
    x = model.model.embed_tokens(tokens) * math.sqrt(8)
    for t in range(6):
        for i in range(8):
            angle = t / 10_000 ** (2 * (i // 2) / 8)
            x[:, t, i] += math.cos(angle) if i % 2 else math.sin(angle)
    for layer in model.model.layers:
        given = layer.attention_norm(x)
        if layer.number == 0:
            mixed = layer.attention(given)[0]
        else:
            query, key, value = (layer.attention.in_proj(given)[..., 8 * i : 8 * i + 8] for i in range(3))
            heads = []
            for head in (slice(0, 4), slice(4, 8)):
                scores = query[..., head] @ key[..., head].mT / 2
                scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
                heads.append(scores.softmax(-1) @ value[..., head])
            mixed = layer.attention.out_proj(torch.cat(heads, -1))
        y = x + mixed
        x = y + layer.down(torch.relu(layer.up(layer.feed_forward_norm(y))))
    expected = model.lm_head(model.model.norm(x))
    # Sinusoids are of float32.
    torch.testing.assert_close(model(tokens).logits, expected, rtol=1e-5, atol=1e-5)
    bare = make("superposition", "attention", position_encoding="none", scale_embeddings=False).double()
    state = bare.model.embed_tokens(tokens)
    for layer in bare.model.layers:
        state = layer(state, None)[0]
    torch.testing.assert_close(bare(tokens).logits, bare.lm_head(bare.model.norm(state)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_without_a_memory_it_is_gpt2(implementation):
    torch.manual_seed(1)
    sizes = {"vocab_size": 31, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3}
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    for parameter in gpt2.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    config = StackTransformerConfig(
        vocab_size=31, hidden_size=12, layers=["attention"] * 2, num_attention_heads=3, hidden_act="gelu_new",
        position_encoding="learned", max_position_embeddings=16, scale_embeddings=False, tie_word_embeddings=True,
        head_bias=False, attn_implementation=implementation,
    )  # fmt: skip
    model = StackTransformerForCausalLM(config).eval()
    names = {
        "wte": "embed_tokens", "wpe": "embed_positions", "ln_f": "norm", "ln_1": "attention_norm", "h": "layers",
        "ln_2": "feed_forward_norm", "attn": "attention", "c_attn": "in_proj", "c_fc": "up",
    }  # fmt: skip
    weights = {}
    for name, part in gpt2.transformer.state_dict().items():
        name = name.replace("mlp.c_proj", "down").replace("attn.c_proj", "attn.out_proj").replace("mlp.", "")
        name = ".".join(names.get(piece, piece) for piece in name.split("."))
        weights[name] = part.T if part.dim() == 2 and "embed" not in name else part
    model.model.load_state_dict(weights)
    assert count(model) == count(gpt2)
    tokens, mask = torch.randint(31, (2, 9)), torch.ones(2, 9).long()
    torch.testing.assert_close(model(tokens).logits, gpt2(tokens).logits, rtol=1e-5, atol=1e-5)
    mask[0, 6:] = 0
    found, expected = (m(tokens, attention_mask=mask).logits[mask.bool()] for m in (model, gpt2))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    positions = torch.randint(16, (2, 9)).sort(dim=1).values
    found, expected = (m(tokens, position_ids=positions).logits for m in (model, gpt2))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"position_ids must be \[2, 9\]; got \[2, 8\]"):
        model(tokens, position_ids=positions[:, 1:])


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_chunks_steps_and_padding_change_nothing(stack, position):
    model, tokens = make("attention", stack, "attention", position_encoding=position).double(), ids(2, 7)
    whole = model(tokens).logits
    for sizes in ((4, 3), (1,) * 7):
        cache = MemoryCache()
        parts = [model(part, past_key_values=cache).logits for part in tokens.split(sizes, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)
    padded = torch.nn.functional.pad(tokens, (2, 3))
    mask = (padded != 0).long()
    assert torch.allclose(model(padded, attention_mask=mask).logits[:, 2:9], whole, atol=1e-5)
    for reach in (0, 1):  # masks of all tokens so far, and of the chunk's own
        cache = MemoryCache()
        parts = [
            model(padded[:, i : i + 3], attention_mask=mask[:, i * reach : i + 3], past_key_values=cache).logits
            for i in range(0, 12, 3)
        ]
        assert torch.allclose(torch.cat(parts, 1)[:, 2:9], whole, atol=1e-5)


@pytest.mark.parametrize("stack", ["attention", *STACKS], ids=str)
def test_generation_with_and_without_a_cache_by_beams_and_in_batches(stack):
    model = make("attention", stack)
    prompts = torch.cat((ids(1, 5), torch.nn.functional.pad(ids(1, 3), (2, 0))))
    given = {"attention_mask": (prompts != 0).long(), "max_new_tokens": 5, "do_sample": False}
    for options in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
        cached, fresh = (model.generate(prompts, use_cache=use, **given, **options) for use in (True, False))
        assert torch.equal(cached, fresh)
    greedy = model.generate(prompts, **given)
    assert torch.equal(model.generate(prompts, prefill_chunk_size=2, **given), greedy)
    single = model.generate(prompts[1:, 2:], max_new_tokens=5, do_sample=False)
    assert torch.equal(greedy[1, 2:], single[0])


@pytest.mark.parametrize("detach", [True, False])
def test_a_recurrent_cell_and_the_loss_on_it_equal_their_formulas(detach):
    """Step by step, in outputs, losses and all gradients; in evaluation the loss is the head's."""
    losses = [{"layer": 0, "weight": 0.25}]
    model = make(CELL | {"detach": detach}, auxiliary_losses=losses, position_encoding="none", dropout=0.0).double()
    tokens, layer = ids(3, 6), model.model.layers[0]
    hidden = model.model.embed_tokens(tokens) * math.sqrt(8)
    normed, state, own = layer.attention_norm(hidden), layer.attention.cell.initial_state(3), []
    for t in range(6):
        outputs, _, state = layer.attention.cell.step(normed[:, t], state)
        own.append(outputs[-1])
    of_cell = torch.stack(own, 1)
    hidden = hidden + layer.attention.output(of_cell.detach() if detach else of_cell)
    hidden = model.model.norm(hidden + layer.down(layer.up(layer.feed_forward_norm(hidden)).relu()))
    main, auxiliary = (
        torch.nn.functional.cross_entropy(head(part)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        for head, part in ((model.lm_head, hidden), (model.auxiliary_heads[0].lm_head, of_cell))
    )
    weights = dict(model.named_parameters())
    expected = torch.autograd.grad(main + 0.25 * auxiliary, list(weights.values()))
    outputs = model.train()(tokens, labels=tokens)
    torch.testing.assert_close(outputs.loss, main, rtol=1e-12, atol=0)
    torch.testing.assert_close(outputs.loss_parts, {"main": main, "auxiliary_0": auxiliary}, rtol=1e-12, atol=0)
    found = torch.autograd.grad(outputs.loss, list(weights.values()))
    for name, one, other in zip(weights, found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)
    evaluated = model.eval()(tokens, labels=tokens)
    torch.testing.assert_close(evaluated.loss, main, rtol=1e-6, atol=0, check_dtype=False)
    assert evaluated.loss_parts is None


def test_losses_on_every_kind_of_layer():
    """With the model's head and with heads of their own, also under checkpoints and resized embeddings."""
    losses = [{"layer": 0, "head": "shared"}, {"layer": 1, "head": "shared"}, {"layer": 2, "output_size": 5}]
    model, tokens = make(CELL, "stack", "attention", auxiliary_losses=losses, dropout=0.0).train(), ids(2, 6)
    expected = model(tokens, labels=tokens).loss_parts
    assert list(expected) == ["main", "auxiliary_0", "auxiliary_1", "auxiliary_2"]
    checkpoint_activations(model)
    found = model(tokens, labels=tokens, use_cache=False)
    torch.testing.assert_close(found.loss_parts["auxiliary_0"], expected["auxiliary_0"])
    found.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.resize_token_embeddings(21)
    assert model.auxiliary_heads[2].lm_head.out_features == 21
    assert not make(CELL, auxiliary_losses=losses[:1]).eval()(tokens, labels=tokens).loss_parts


def test_training_reaches_all_weights_also_with_checkpoints():
    model = make("attention", "stack", "superposition", CELL, dropout=0.0, attention_dropout=0.0).train()
    tokens = ids(2, 9)
    gradients = []
    for checkpoints in (False, True):
        if checkpoints:
            checkpoint_activations(model)
        model.zero_grad()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert one.any()
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match="activation checkpointing cannot continue from past_key_values"):
        model(tokens, past_key_values=MemoryCache())


def test_the_layers_after_the_last_memory_need_not_run():
    tokens, ran = ids(2, 4), []
    model = make("attention", "stack", {"controller": "rnn", "memory": "none"}, "attention").eval()
    expected = model(tokens, output_actions=True).actions
    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda *_, i=i: ran.append(i))
    outputs = model.model(tokens, use_cache=False, actions_only=True)
    assert ran == [0, 1]
    assert list(outputs) == ["actions"]
    for name, values in expected.items():
        torch.testing.assert_close(outputs.actions[name], values, rtol=0, atol=0)
    assert not make("attention").model(tokens, use_cache=False, actions_only=True).actions
    with pytest.raises(ValueError, match="actions_only .* takes use_cache=False"):
        model.model(tokens, actions_only=True)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (StackTransformerForSequenceClassification, torch.tensor([0, 2])),
        (StackTransformerForTokenClassification, torch.tensor([[0, 1, 2, 1, 0], [2, 1, 0, -100, -100]])),
    ],
)
def test_heads(kind, labels, tmp_path):
    model, tokens = make("attention", "stack", kind=kind, num_labels=3), ids(2, 5)
    tokens[1, 3:] = 0
    mask = (tokens != 0).long()
    outputs = model(tokens, attention_mask=mask, labels=labels)
    outputs.loss.backward()
    alone = model(tokens[1:, :3]).logits
    torch.testing.assert_close(outputs.logits[1:] if alone.dim() == 2 else outputs.logits[1:, :3], alone)
    model.save_pretrained(tmp_path)
    assert torch.equal(kind.from_pretrained(tmp_path)(tokens, attention_mask=mask).logits, outputs.logits)


def test_a_configuration_is_complete_and_saved(tmp_path):
    config = StackTransformerConfig(layers=["attention", {"memory": "superposition", "memory_size": 3}])
    assert config.layers[1]["no_op"] is True
    assert config.layers[1]["push_value_activation"] == "identity"
    assert config.memory_names == ["superposition"]
    recurrent = StackTransformerConfig(layers=[CELL, {"controller": "gru", "memory": "none"}]).layers
    assert (recurrent[0]["pop_control"], recurrent[0]["push_strength_init"]) == (1.0, 0.5)
    assert recurrent[1] == {"memory": "none", "controller": "gru", "hidden_size": 128, "detach": False}
    assert StackTransformerConfig(layers=recurrent).layers == recurrent
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).layers == config.layers
    assert [layer if isinstance(layer, str) else layer["memory"] for layer in StackTransformerConfig().layers] == [
        "attention", "attention", "stack", "attention", "attention",
    ]  # fmt: skip
    assert type(AutoModelForCausalLM.from_config(config)) is StackTransformerForCausalLM


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"layers": ["attention", "atention"]},
            r"layers\[1\] must be 'attention' or have a memory: memory must be one",
        ),
        ({"layers": ["none"]}, r"layers\[0\] must be .*: memory='none' reads nothing"),
        ({"layers": [CELL | {"detach": True}]}, r"layers\[0\] has no loss to learn from: it is detached"),
        ({"hidden_size": 10}, "num_attention_heads must divide hidden_size=10; got 4"),
        ({"hidden_size": 12, "position_encoding": "rotary"}, "position_encoding='rotary' needs heads of an even size"),
    ],
)
def test_errors_have_one_line(fields, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        StackTransformerConfig(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", ["own", "shared"])
def test_auxiliary_losses_arise_under_a_loss_of_ones_own(head):
    """On the network's hidden states or on the logits, with padding, the gradient is that of the model's own loss."""
    losses = [{"layer": 0, "weight": 0.25, "head": head}]
    model = make(CELL | {"detach": True}, auxiliary_losses=losses, dropout=0.0).double().train()
    tokens = torch.nn.functional.pad(ids(3, 6), (2, 0))
    tokens[0, 2:4] = 0
    mask = (tokens != 0).long()
    labels = tokens.masked_fill(tokens == 0, -100)
    weights = list(model.parameters())
    expected = torch.autograd.grad(model(tokens, mask, labels=labels, skip_logits=False).loss, weights)
    counted = labels[:, 1:].masked_fill(mask[:, :-1] == 0, -100).flatten()
    for logits in (model(tokens, mask).logits, model.lm_head(model.base_model(tokens, mask).last_hidden_state)):
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), counted)
        for found, own in zip(torch.autograd.grad(loss, weights), expected, strict=True):
            torch.testing.assert_close(found, own, rtol=1e-5, atol=1e-7)  # the loss of logits is in float32
    alone = torch.autograd.grad(model(tokens[:, :1]).logits.sum(), weights, allow_unused=True)  # it predicts nothing
    assert all(grad is None or bool(grad.isfinite().all()) for grad in alone)


def test_training_without_what_auxiliary_losses_need_says_so_once(caplog, monkeypatch):
    logger = modeling_layers.logger
    monkeypatch.setattr(logger, "warning_once", logger.warning)
    logger.addHandler(caplog.handler)
    model = make(CELL | {"detach": True}, "attention", auxiliary_losses=[{"layer": 0}]).train()
    embedded = model.model.embed_tokens(ids(2, 6)).detach()
    model(ids(2, 6), labels=ids(2, 6))
    model(ids(2, 6))
    model(inputs_embeds=embedded, labels=ids(2, 6))
    with torch.no_grad():
        model(inputs_embeds=embedded)
    model.eval()(inputs_embeds=embedded)
    assert not caplog.records
    for call in (
        lambda: model.train()(inputs_embeds=embedded),
        lambda: type(model.model)(model.config).train()(ids(2, 6)),
    ):
        call()
        assert "layers that only they reach (detach: true) keep their weights" in caplog.text
        caplog.clear()
    logger.removeHandler(caplog.handler)


def test_attention_weights_of_eager_attention():
    """Each layer of self-attention has them, and generation returns them; they mix the values as they should."""
    model, tokens = make("attention", "stack", "attention", dropout=0.0), ids(2, 5)
    with pytest.raises(ValueError, match="output_attentions needs attn_implementation='eager'.*it is 'sdpa'"):
        model(tokens, output_attentions=True)
    expected = model(tokens).logits
    model.set_attn_implementation("eager")
    assert model(tokens).attentions is None
    outputs = model(torch.nn.functional.pad(tokens, (1, 0)), (torch.arange(6) > 0).expand(2, 6), output_attentions=True)
    torch.testing.assert_close(outputs.logits[:, 1:], expected)
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(2, 2, 6, 6)] * 2
    for weights in outputs.attentions:
        torch.testing.assert_close(weights[:, :, 1:].sum(-1), torch.ones(2, 2, 5))
        assert not weights[:, :, 1:, 0].any()
        assert not weights[:, :, 1:, 1:].triu(1).any()
    inputs, attention = [], model.model.layers[0].attention
    attention.register_forward_hook(lambda module, given, output: inputs.append((given[0], output)))
    (first, _), hidden = model(tokens, output_attentions=True).attentions, inputs[0][0]
    values = attention.in_proj(hidden).unflatten(-1, (3, 2, -1))[:, :, 2].transpose(1, 2)
    torch.testing.assert_close(attention.out_proj((first @ values).transpose(1, 2).flatten(2)), inputs[0][1])
    options = {"output_attentions": True, "return_dict_in_generate": True, "max_new_tokens": 2, "do_sample": False}
    steps = model.generate(tokens, **options).attentions
    assert [[tuple(weights.shape[2:]) for weights in step] for step in steps] == [[(5, 5)] * 2, [(1, 6)] * 2]
