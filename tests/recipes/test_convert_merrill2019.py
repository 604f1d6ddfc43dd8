"""Converting the released AllenNLP checkpoints."""

import json
import re

import pytest
import torch
from conftest import REAL_DATA, needs_real_data, recipe
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

CONVERT = recipe("convert_merrill2019")
TOKENS = ["@@UNKNOWN@@", "NN", "VB", "IN"]
LABELS = ["VB", "NN", ".", "IN"]  # another order, and a label that is no token


def vocabulary(directory, labels=LABELS):
    path = directory / "vocabulary"
    path.mkdir(exist_ok=True)
    (path / "tokens.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    (path / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    return path


def checkpoint(directory, cell="LSTM", outputs=6, stack=True, embeddings=5, plain_names=False):
    """A state_dict as the released code saves it, with sizes embedding 5, hidden 7, stack 3."""
    torch.manual_seed(1)
    state = {"_embedder.token_embedder_tokens.weight": torch.randn(embeddings, 5)}
    if plain_names:
        module = getattr(nn, cell)(5, 7, batch_first=True)
        state |= {f"_rnn.{name}": value for name, value in module.state_dict().items()}
    else:
        module = getattr(nn, cell + "Cell")(5 + 3 * stack, 7)
        state |= {f"_rnn_cell.{name}": value for name, value in module.state_dict().items()}
    if stack:
        for name, rows in (("vector", 3), ("push", 1), ("pop", 4), ("read", 4)):
            state[f"_control_layer._{name}_map.weight"] = torch.randn(rows, 7)
            state[f"_control_layer._{name}_map.bias"] = torch.randn(rows)
    head = "_linear" if plain_names and outputs == 1 else "_classifier"
    state |= {f"{head}.weight": torch.randn(outputs, 7), f"{head}.bias": torch.randn(outputs)}
    path = directory / "model.th"
    torch.save(state, path)
    return path, state, module


def convert(*arguments):
    return CONVERT.main([str(argument) for argument in arguments])


def released_stack_model(state, cell, ids, fixed):
    """What the released code computes, written from the paper's equations: (hidden states, push, pop)."""
    linear = nn.functional.linear
    hidden = memory = torch.zeros(1, 7)
    reading, elements, results = torch.zeros(1, 3), [], []
    for token in ids:
        embedded = state["_embedder.token_embedder_tokens.weight"][token].unsqueeze(0)
        features = torch.cat((embedded, reading), dim=1)
        if isinstance(cell, nn.LSTMCell):
            hidden, memory = cell(features, (hidden, memory))
        else:
            hidden = cell(features, hidden)
        maps = {
            name: linear(hidden, state[f"_control_layer._{name}_map.weight"], state[f"_control_layer._{name}_map.bias"])
            for name in ("vector", "push", "pop", "read")
        }
        expected = {k: (maps[k].softmax(-1) * torch.arange(4)).sum().item() for k in ("pop", "read")}
        push, pop = {"push": (1.0, expected["pop"]), "pop": (expected["pop"], 1.0)}.get(
            fixed, (maps["push"].sigmoid().item(), expected["pop"])
        )
        left = pop
        for element in reversed(elements):
            taken = min(element[0], left)
            element[0], left = element[0] - taken, left - taken
        elements.append([push, maps["vector"].tanh()])
        reading, left = torch.zeros(1, 3), expected["read"]
        for strength, vector in reversed(elements):
            weight = min(strength, left)
            reading, left = reading + weight * vector, left - weight
        results.append((hidden, push, pop))
    return results


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
@pytest.mark.parametrize("fixed", ["push", "pop", "none"])
def test_language_model(tmp_path, cell, fixed):
    path, state, module = checkpoint(tmp_path, cell)
    assert convert(path, vocabulary(tmp_path), tmp_path / "out", "--fixed", fixed) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_tokens_to_ids(["@@PADDING@@", *TOKENS, "."]) == [0, 1, 2, 3, 4, 5]
    ids = tokenizer("NN . VB IN xyz NN").input_ids
    assert ids == [2, 5, 3, 4, 1, 2]
    outputs = model(torch.tensor([ids]), output_actions=True)
    released_ids = [1 if i == 5 else i for i in ids]  # the full stop was no input token
    for t, (hidden, push, pop) in enumerate(released_stack_model(state, module, released_ids, fixed)):
        logits = (hidden @ state["_classifier.weight"].T + state["_classifier.bias"])[0]
        for place, label in enumerate(LABELS):
            token = tokenizer.convert_tokens_to_ids(label)
            assert outputs.logits[0, t, token].item() == pytest.approx(logits[place].item(), abs=1e-4)
        assert outputs.actions.push_strength[0, t].item() == pytest.approx(push, abs=1e-4)
        assert outputs.actions.pop_strength[0, t].item() == pytest.approx(pop, abs=1e-4)
    never = outputs.logits[0, :, [0, 1]]  # padding and the unknown token were never labels
    assert torch.isfinite(never).all()
    assert (never < -1000).all()


@pytest.mark.parametrize("stack", [True, False])
def test_classifier(tmp_path, stack):
    path, state, module = checkpoint(tmp_path, "GRU", outputs=1, stack=stack, embeddings=9, plain_names=not stack)
    arguments = ("--fixed", "push") if stack else ()
    assert convert(path, vocabulary(tmp_path, ["0", "1"]), tmp_path / "out", *arguments) == 0
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {0: "VBZ", 1: "VBP"}
    ids = [2, 3, 4, 1]
    if stack:
        hidden = released_stack_model(state, module, ids, "push")[-1][0]
    else:
        hidden = module(state["_embedder.token_embedder_tokens.weight"][ids].unsqueeze(0))[1][0]
    weight = state["_classifier.weight" if stack else "_linear.weight"]
    logit = hidden @ weight.T + state["_classifier.bias" if stack else "_linear.bias"]
    probability = model(torch.tensor([ids])).logits.softmax(-1)[0, 1]
    assert probability.item() == pytest.approx(logit.sigmoid().item(), abs=1e-5)


def test_plain_language_model(tmp_path, capsys):
    path, state, module = checkpoint(tmp_path, "LSTM", stack=False, plain_names=True)
    assert convert(path, vocabulary(tmp_path), tmp_path / "out") == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'out'}\n"
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model.config.memory, model.config.hidden_size, model.config.vocab_size) == ("none", 7, 6)
    hidden, _ = module(state["_embedder.token_embedder_tokens.weight"][[2, 3, 4]].unsqueeze(0))
    expected = (hidden @ state["_classifier.weight"].T + state["_classifier.bias"])[0, -1, :4]
    torch.testing.assert_close(model(torch.tensor([[2, 3, 4]])).logits[0, -1, [3, 2, 5, 4]], expected)


@needs_real_data
def test_the_released_checkpoint_computes_what_the_authors_code_computes(tmp_path):
    source = REAL_DATA / "checkpoints"
    assert convert(source / "stack-brown.th", source / "vocabulary-brown", tmp_path / "out", "--fixed", "push") == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    labels = (source / "vocabulary-brown" / "labels.txt").read_text().splitlines()
    columns = tokenizer.convert_tokens_to_ids(labels)
    examples = json.loads((source / "merrill2019_brown_reference.json").read_text())["stack-brown.th"]
    for example in examples:
        ids = torch.tensor([example["ids"]])
        whole = model(ids, output_actions=True)
        logits, actions, cache = None, [], None
        for t in range(ids.shape[1]):
            step = model(ids[:, t : t + 1], past_key_values=cache, use_cache=True, output_actions=True)
            logits, cache = step.logits[0, -1], step.past_key_values
            actions.append(step.actions)
        expected = torch.tensor(example["logits_last"])[: len(labels)]
        for found in (whole.logits[0, -1], logits):
            assert (found[columns] - expected).abs().max() < 1e-4
        for key, name in (("push", "push_strength"), ("pop", "pop_strength"), ("total_strength", "total_strength")):
            reference = torch.tensor(example[key])
            assert (whole.actions[name][0] - reference).abs().max() < 1e-4
            assert (torch.cat([a[name] for a in actions], dim=1)[0] - reference).abs().max() < 1e-4


class Evil:
    def __reduce__(self):
        return (print, ("this must not run",))


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (lambda d: d / "none.th", ("--fixed", "push"), "no such checkpoint"),
        ("evil", ("--fixed", "push"), "it is a pickle with more in it than tensors, which is refused"),
        ("empty", ("--fixed", "push"), "has no _embedder.token_embedder_tokens.weight"),
        ("good", (), "no file says which of its strengths was fixed: give --fixed push, pop or none"),
        ("there", ("--fixed", "push"), "out exists and is not empty"),
    ],
)
def test_bad_input(capsys, tmp_path, make, arguments, message):
    path, _, _ = checkpoint(tmp_path, embeddings=3 if make == "few" else 5)
    words = vocabulary(tmp_path)
    if make == "evil":
        torch.save({"a": Evil()}, path)
    elif make == "empty":
        torch.save({}, path)
    elif make == "there":
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("x")
    elif make == "novocabulary":
        words = tmp_path / "elsewhere"
    elif callable(make):
        path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert convert(path, words, tmp_path / "out", *arguments) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(f"convert_merrill2019: error: .*{re.escape(message)}.*\n", captured.err), captured.err
    assert captured.out == ""
    assert sorted(tmp_path.rglob("*")) == before
