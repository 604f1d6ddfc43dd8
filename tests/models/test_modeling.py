"""The Hugging Face contract: saving, Auto classes, Trainer, precision, checkpointing."""

import copy

import pytest
import torch
from accelerate import cpu_offload
from conftest import checkpoint_activations, tiny_config
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DynamicCache,
    Trainer,
    TrainingArguments,
)

from stack_lm import (
    StackRNNForCausalLM,
    StackRNNForSequenceClassification,
    StackRNNModel,
    train_word_tokenizer,
)
from stack_lm.memory.strength import read_weights

D1 = {"push_control": 1.0, "pop_control": "expected_value"}
EXIT = {"reading_exit": "output"}


def make_lm(scale=4.0, **fields):
    """A model with large random weights, whose continuations differ from state to state."""
    model = StackRNNForCausalLM(tiny_config(**fields))
    if model.model.reading_exit is not None:
        torch.nn.init.normal_(model.model.reading_exit.weight)  # it starts at zero
    for parameter in model.parameters():
        parameter.data *= scale
    return model.eval()


def ids(*shape):
    return torch.randint(1, 23, shape)


# --- saving and loading


@pytest.mark.parametrize(
    ("auto", "cls"),
    [
        (AutoModel, StackRNNModel),
        (AutoModelForCausalLM, StackRNNForCausalLM),
        (AutoModelForSequenceClassification, StackRNNForSequenceClassification),
    ],
)
def test_auto_classes_and_round_trip(auto, cls, tmp_path):
    model = auto.from_config(tiny_config(learn_initial_state=True, num_layers=2, pop_strength_init=0.5, **D1)).eval()
    assert type(model) is cls
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)  # so that initialising again would show
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is cls
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    batch = ids(2, 5)
    assert torch.equal(loaded(batch)[0], model(batch)[0])


def test_a_base_model_saved_alone_opens_with_a_new_head(tmp_path):
    StackRNNModel(tiny_config()).save_pretrained(tmp_path)
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {"lm_head.weight", "lm_head.bias"}
    bound = 7**-0.5
    assert 0 < model.lm_head.weight.abs().max() <= bound  # torch's default, not zeros or memory garbage


def test_initialisation_is_torch_default_and_seeded():
    torch.manual_seed(5)
    first = StackRNNForCausalLM(tiny_config(pop_strength_init=0.5, **D1))
    torch.manual_seed(5)
    second = StackRNNForCausalLM(tiny_config(pop_strength_init=0.5, **D1))
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert torch.isfinite(a).all()
    cell = first.model.cell
    assert cell.controller.weight_hh_l0.abs().max() <= 7**-0.5
    assert cell.controls.projection.bias[3:7].tolist() == pytest.approx([0.0, -1.012, -2.024, -3.036], abs=1e-4)
    assert first.model.embed_tokens.weight.std() > 0.7  # N(0, 1)


def test_tied_embeddings(tmp_path):
    model = StackRNNForCausalLM(tiny_config(tie_word_embeddings=True, embedding_size=7))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    loaded = StackRNNForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    batch = ids(2, 4)
    assert torch.equal(loaded(batch).logits, model(batch).logits)


def test_resize_token_embeddings():
    model = make_lm()
    before = model(ids(1, 4)).logits.shape[-1]
    batch = ids(2, 4)
    expected = model(batch).logits
    model.resize_token_embeddings(31, mean_resizing=False)
    assert (before, model.config.vocab_size) == (23, 31)
    logits = model(batch, labels=batch).logits
    assert logits.shape[-1] == 31
    torch.testing.assert_close(logits[..., :23], expected)


# --- forward


@pytest.mark.parametrize("fields", [{}, D1, EXIT, {"memory": "none"}, {"num_layers": 2, "controller": "gru"}], ids=str)
def test_padding_and_chunks(fields):
    model = make_lm(**fields)
    sentence = ids(1, 5)
    expected = model(sentence).logits
    other = ids(1, 8)
    for left in (0, 1, 3):
        padded = torch.zeros(1, 8, dtype=torch.long)
        padded[0, left : left + 5] = sentence
        batch = torch.cat((padded, other))
        mask = torch.ones_like(batch)
        mask[0] = 0
        mask[0, left : left + 5] = 1
        torch.testing.assert_close(model(batch, attention_mask=mask).logits[:1, left : left + 5], expected)
    first = model(sentence[:, :2], use_cache=True)
    second = model(sentence[:, 2:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat((first.logits, second.logits), dim=1), expected)


def test_outputs():
    model = make_lm(num_layers=2)
    batch = ids(2, 5)
    outputs = model(batch, labels=batch, output_hidden_states=True, output_actions=True)
    assert [tuple(h.shape) for h in outputs.hidden_states] == [(2, 5, 5), (2, 5, 7), (2, 5, 7)]
    shapes = {name: tuple(value.shape) for name, value in outputs.actions.items()}
    strengths = {f"{name}_strength": (2, 5) for name in ("push", "pop", "read", "total")}
    assert shapes == strengths | {"push_distribution": (2, 5, 4), "read_distribution": (2, 5, 4)}
    shifted = torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
    torch.testing.assert_close(outputs.loss, shifted)
    as_tuple = model(batch, labels=batch, return_dict=False)
    assert torch.equal(as_tuple[0], outputs.loss)
    assert model(batch, use_cache=False).past_key_values is None
    torch.testing.assert_close(model(batch, logits_to_keep=1).logits, outputs.logits[:, -1:])


@pytest.mark.parametrize("output_size", [None, 4])
@pytest.mark.parametrize("fields", [{}, D1, {"push_control": "sigmoid", "read_control": 1.0}, {"memory": "none"}])
def test_a_reading_leaves_to_the_output_of_its_step(fields, output_size):
    """Logits from o_t + W [v_t; b_t]: the element that step t pushed, and what it read beneath."""
    model = make_lm(1.0, reading_exit="output", output_size=output_size, **fields)
    cell, sentences, expected = model.model.cell, ids(2, 6), []
    state = cell.initial_state(2)
    for token in model.model.embed_tokens(sentences).unbind(1):
        layers, actions, after = cell.step(token, state)
        hidden = layers[-1]
        if "memory" not in fields:
            values, strengths = after.memory
            rest = torch.relu(actions.read_strength - strengths[:, -1])
            beneath = read_weights(strengths[:, :-1], rest).unsqueeze(-1) * values[:, :-1]
            parts = torch.cat((values[:, -1], beneath.sum(1)), dim=-1)
            hidden = hidden + parts @ model.model.reading_exit.weight.T
        if output_size is not None:
            hidden = model.model.output_layer(hidden).tanh()
        expected.append(model.lm_head(hidden))
        state = after
    torch.testing.assert_close(model(sentences).logits, torch.stack(expected, dim=1))
    assert (model.model.reading_exit is None) == ("memory" in fields)


@pytest.mark.parametrize("initialization", ["torch", "normal_rows", "xavier", "truncated_normal"])
def test_an_exit_starts_closed(initialization):
    model = StackRNNForCausalLM(tiny_config(reading_exit="output", initialization=initialization)).eval()
    plain = StackRNNForCausalLM(tiny_config(initialization=initialization)).eval()
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    assert torch.equal(model(ids := torch.arange(12).view(2, 6)).logits, plain(ids).logits)


@pytest.mark.parametrize("skip_logits", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
def test_loss_is_that_without_padding(side, skip_logits):
    """A padded step predicts nothing, also not the first token after padding on the left."""
    model = make_lm()
    sentences = [ids(1, n) for n in (4, 6)]
    pads = [(2, 0) if side == "left" else (0, 2), (0, 0)]
    batch = torch.cat([torch.nn.functional.pad(s, pad) for s, pad in zip(sentences, pads, strict=True)])
    mask = (batch != 0).long()
    labels = batch.masked_fill(mask == 0, -100)
    nats = sum(model(sentence, labels=sentence).loss * (sentence.shape[1] - 1) for sentence in sentences)
    run = {"attention_mask": mask, "skip_logits": skip_logits}
    torch.testing.assert_close(model(batch, labels=labels, **run).loss, nats / 8)
    counted = int((labels[:, 1:] != -100).sum())  # as a trainer counts; with the first token after padding
    assert counted == (9 if side == "left" else 8)
    for number in (counted, torch.tensor(counted)):
        torch.testing.assert_close(model(batch, labels=labels, num_items_in_batch=number, **run).loss, nats / 8)
    nothing = model(batch, labels=torch.full_like(labels, -100), num_items_in_batch=counted, **run)
    assert nothing.loss == 0
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    torch.testing.assert_close(model(batch, shift_labels=shifted, **run).loss, nats / 8)
    torch.testing.assert_close(model(batch, shift_labels=shifted, num_items_in_batch=counted, **run).loss, nats / 8)
    longer = torch.nn.functional.pad(mask, (3, 0), value=1)  # of a longer mask the last columns count
    torch.testing.assert_close(model(batch, labels=labels, **run | {"attention_mask": longer}).loss, nats / 8)
    assert labels.equal(batch.masked_fill(mask == 0, -100))  # the caller's are as they were


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dims", [3, 4])
def test_a_causal_mask_of_pairs_is_that_of_its_tokens(side, dims):
    model, batch = make_lm().train(), ids(2, 5)
    mask = torch.ones(2, 5, dtype=torch.long)
    mask[1, slice(0, 2) if side == "left" else slice(3, 5)] = 0
    pairs = mask.unsqueeze(1).expand(2, 5, 5).tril()  # as trainers make it: rows of padding see real tokens too
    pairs = pairs.unsqueeze(1) if dims == 4 else pairs
    expected, found = (model(batch, attention_mask=each, labels=batch) for each in (mask, pairs))
    assert torch.equal(expected.loss, found.loss)
    states = [model.model(batch, attention_mask=each).last_hidden_state for each in (mask, pairs)]
    assert torch.equal(*states)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give exactly one of input_ids and inputs_embeds"),
        ({"input_ids": "ids", "attention_mask": "short"}, r"attention_mask must be \[2, 4\] or longer"),
        ({"input_ids": "ids", "past_key_values": "dynamic"}, "must be a MemoryCache; got DynamicCache"),
        ({"input_ids": "ids", "past_key_values": "other"}, "is the state of 3 sequences; the input has 2"),
        ({"input_ids": "ids", "attention_mask": "bidirectional"}, "must be causal: each token sees all before it but"),
        ({"input_ids": "ids", "attention_mask": "float pairs"}, r"of bool or integers; got \[2, 4, 4\], torch.float32"),
        ({"input_ids": "ids", "attention_mask": "oblong"}, r"must be \[B, T, T\] or \[B, 1, T, T\].*got \[2, 4, 3\]"),
        ({"input_ids": "empty"}, "the input has no tokens"),
        ({"inputs_embeds": "short"}, r"inputs_embeds must be \[B, T, E\]; got \[2, 3\]"),
        ({"input_ids": "ids", "labels": "short"}, "labels must be integers; got torch.float32"),
        ({"input_ids": "ids", "labels": "empty"}, r"labels must be \[2, 4\], one for each token; got \[2, 0\]"),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_bad_arguments(arguments, message, training):
    model = make_lm().train(training)
    values = {
        "ids": ids(2, 4),
        "empty": ids(2, 0),
        "short": torch.ones(2, 3),
        "bidirectional": torch.ones(2, 4, 4).long(),
        "float pairs": torch.ones(2, 4, 4).tril(),
        "oblong": torch.ones(2, 4, 3).long(),
        "dynamic": DynamicCache(),
        "other": model(ids(3, 2), use_cache=True).past_key_values,
    }
    with pytest.raises(ValueError, match=message):
        model(**{name: values[value] for name, value in arguments.items()})


# --- heads


def test_classifier_reads_the_last_token_that_is_not_padding():
    model = StackRNNForSequenceClassification(tiny_config(num_labels=3)).eval()
    sentence = ids(1, 4)
    expected = model(sentence).logits
    for left, right in ((0, 3), (3, 0), (1, 2)):
        padded = torch.nn.functional.pad(sentence, (left, right))
        torch.testing.assert_close(model(padded).logits, expected)  # padding found by pad_token_id
        torch.testing.assert_close(model(padded, attention_mask=(padded != 0).long()).logits, expected)
    hidden = model.model(sentence).last_hidden_state[:, -1]
    torch.testing.assert_close(expected, model.score(hidden))
    loss = model(sentence, labels=torch.tensor([2])).loss
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(expected, torch.tensor([2])))


@pytest.mark.parametrize("controller", ["lstm", "direct", "gru"])
def test_a_classifier_takes_a_sequence_in_chunks(controller):
    """Also where a chunk of a sequence is all padding, before its tokens."""
    model = StackRNNForSequenceClassification(tiny_config(num_labels=3, controller=controller, output_size=4)).eval()
    sentences = [ids(1, n) for n in (2, 7, 4)]
    whole = torch.cat([model(sentence).logits for sentence in sentences])
    pads = [7 - sentence.shape[1] for sentence in sentences]
    batch = torch.cat([torch.nn.functional.pad(s, (p, 0)) for s, p in zip(sentences, pads, strict=True)])
    cache, order = None, torch.tensor([2, 0, 1])
    for number, chunk in enumerate(batch.split(2, dim=1)):
        outputs = model(chunk, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        if number == 0:
            untouched = (chunk == 0).all(1)
            assert outputs.logits[untouched].isnan().all()
            assert outputs.logits[~untouched].isfinite().all()
        if number == 1:
            cache.reorder_cache(order)
            batch, whole = batch[order], whole[order]
            rest = batch.split(2, dim=1)[2:]
            break
    for chunk in rest:
        outputs = model(chunk, past_key_values=cache)
    torch.testing.assert_close(outputs.logits, whole)
    cache.reset()
    assert cache.states == {}


def test_a_label_for_a_sequence_without_tokens_is_refused():
    model = StackRNNForSequenceClassification(tiny_config(num_labels=3)).eval()
    batch = torch.tensor([[3, 4, 5], [0, 0, 0]])
    with pytest.raises(ValueError, match="sequence 1 of the batch has a label but no token: all of it is padding"):
        model(batch, labels=torch.tensor([0, 1]))
    assert model(batch).logits[1].isnan().all()


def test_regression_head():
    model = StackRNNForSequenceClassification(tiny_config(num_labels=1)).eval()
    batch, labels = ids(3, 4), torch.rand(3)
    outputs = model(batch, labels=labels)
    torch.testing.assert_close(outputs.loss, ((outputs.logits.squeeze() - labels) ** 2).mean())


# --- checkpoints of activations


@pytest.mark.parametrize("fields", [{}, {"memory": "none"}, {"num_layers": 2, **D1}, EXIT], ids=str)
def test_activation_checkpointing_gives_the_same_gradients(fields):
    model = make_lm(**fields).train()
    batch = ids(2, 11)
    mask = torch.ones_like(batch)
    mask[0, :4] = 0
    expected = torch.autograd.grad(model(batch, attention_mask=mask, labels=batch).loss, list(model.parameters()))
    checkpoint_activations(model)
    outputs = model(batch, attention_mask=mask, labels=batch, output_actions=True, output_hidden_states=True)
    outputs.loss.backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    if "memory" not in fields:
        assert outputs.actions.push_strength.shape == (2, 11)
    assert outputs.hidden_states[-1].shape == (2, 11, 7)


def test_reentrant_checkpointing_is_refused():
    model = make_lm().train()
    checkpoint_activations(model, {"use_reentrant": True})
    with pytest.raises(ValueError, match="needs use_reentrant=False; got True"):
        model(ids(1, 4))


def test_activation_checkpointing_saves_memory():
    """What autograd keeps grows with the square root of the length."""
    model = make_lm().train()

    def kept(length):
        total = 0

        def pack(tensor):
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(ids(1, length), use_cache=False).logits.sum()
        return total

    plain = kept(100)
    checkpoint_activations(model)
    assert kept(100) < plain / 4


# --- real clients


def tokenizer_of(n_words=20):
    words = [f"w{i}" for i in range(n_words)]
    return train_word_tokenizer([(words, None)])


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(1, 23, (6,), generator=generator) for _ in range(24)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def trainer(model, directory, **arguments):
    settings = {
        "output_dir": str(directory),
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "learning_rate": 0.02,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    return Trainer(
        model,
        TrainingArguments(**(settings | arguments)),
        train_dataset=Sentences(),
        eval_dataset=Sentences(),
    )


@pytest.mark.filterwarnings("ignore")
def test_trainer(tmp_path):
    model = StackRNNForCausalLM(tiny_config())
    run = trainer(model, tmp_path, num_train_epochs=3, save_strategy="epoch", gradient_checkpointing=True)
    before = run.evaluate()["eval_loss"]
    run.train()
    assert run.evaluate()["eval_loss"] < before
    prediction = run.predict(Sentences())
    assert prediction.predictions.shape == (24, 6, 23)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-18")
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    # The Trainer writes use_cache=False into its checkpoints; generation still caches.
    assert loaded.generate(ids(1, 3), max_new_tokens=3, do_sample=False).shape == (1, 6)


def test_weights_that_accelerate_offloads():
    """A scan reads all weights of a cell, so hooks on its parts come too late: an error says how to offload."""
    model, tokens = make_lm().eval(), ids(2, 5)
    expected = model(tokens).logits.detach()
    whole = cpu_offload(copy.deepcopy(model), torch.device("cpu"), preload_module_classes=["StackRNNCell"])
    torch.testing.assert_close(whole(tokens).logits, expected)
    with pytest.raises(ValueError, match="on meta; .*preload_module_classes=.'StackRNNCell'"):
        cpu_offload(model, torch.device("cpu"))(tokens)
