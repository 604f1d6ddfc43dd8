"""Converting the released state_dicts of Suzgun et al. (2019)."""

import re

import pytest
import torch
from conftest import REAL_DATA, needs_real_data, recipe
from torch import nn
from transformers import AutoTokenizer

from stack_lm import StackRNNForKHotPrediction
from stack_lm.tasks import make_task

CONVERT = recipe("convert_suzgun2019")
KINDS = ["stack_rnn", "stack_lstm", "baby_ntm", "rnn", "lstm"]


def checkpoint(directory, kind, **sizes):
    """A state_dict as the released code saves it, and its modules: 4 symbols, hidden 7, elements 3."""
    torch.manual_seed(1)
    sizes = {"hidden": 7, "layers": 1} | sizes
    hidden = sizes["hidden"]
    controller = nn.LSTM if "lstm" in kind else nn.RNN
    modules = {"lstm" if "lstm" in kind else "rnn": controller(4, hidden, sizes["layers"]), "W_y": nn.Linear(hidden, 4)}
    if kind not in ("rnn", "lstm"):
        modules["W_n"] = nn.Linear(hidden, 3)
        modules["W_a"] = nn.Linear(hidden, 5 if kind == "baby_ntm" else 2)
        modules["W_m" if kind == "baby_ntm" else "W_sh"] = nn.Linear(3, hidden)
    with torch.no_grad():
        for module in modules.values():
            for parameter in module.parameters():
                parameter *= 2
    state = {f"{name}.{key}": value for name, module in modules.items() for key, value in module.state_dict().items()}
    path = directory / "weights.pth"
    torch.save({name: value.double() for name, value in state.items()}, path)
    return path, modules


@torch.no_grad()
def by_the_equations(kind, modules, ids, cells):
    """Sections 3.1 to 3.3 of the paper, one symbol at a time, with lists of cells: probabilities [T, 4]."""
    controller = modules["lstm"] if "lstm" in kind else modules["rnn"]
    hidden = [torch.zeros(1, 1, 7)] * (2 if "lstm" in kind else 1)
    tape = [torch.zeros(3)] * cells
    results = []
    for symbol in ids:
        first = hidden[0]
        if "W_n" in modules:
            first = first + modules["W_m" if kind == "baby_ntm" else "W_sh"](tape[0])
        state = (first, *hidden[1:]) if "lstm" in kind else first
        inputs = torch.eye(4)[symbol].view(1, 1, 4)
        output, state = controller(inputs, state)
        hidden = list(state) if "lstm" in kind else [state]
        output = output.view(-1)
        results.append(torch.sigmoid(modules["W_y"](output)))
        if "W_n" not in modules:
            continue
        new, weights = torch.sigmoid(modules["W_n"](output)), modules["W_a"](output).softmax(-1)
        empty = torch.zeros(3)
        if kind == "baby_ntm":
            moved = [
                [*tape[1:], tape[0]],
                [tape[-1], *tape[:-1]],
                tape,
                [empty, *tape[:-1]],
                [*tape[1:], empty],
            ]
        else:
            moved = [[new, *tape[:-1]], [*tape[1:], empty]]
        tape = [sum(w * cell for w, cell in zip(weights, column, strict=True)) for column in zip(*moved, strict=True)]
        if kind == "baby_ntm":
            tape[0] = tape[0] + new
    return torch.stack(results)


@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_the_equations_say(kind, tmp_path):
    path, modules = checkpoint(tmp_path, kind)
    model = CONVERT.convert(path, cells=6)
    ids = torch.randint(0, 4, (12,))
    cells = 6 if kind == "baby_ntm" else 20
    expected = by_the_equations(kind, modules, ids.tolist(), cells)
    torch.testing.assert_close(model(ids.unsqueeze(0)).logits[0].sigmoid(), expected)


def test_the_command(tmp_path, capsys):
    path, _ = checkpoint(tmp_path, "stack_rnn")
    assert CONVERT.main([str(path), str(tmp_path / "out"), "--check", "5"]) == 0
    assert re.fullmatch(
        r"written: .*out\n\d of 5 fresh Dyck strings are right in every step\n", capsys.readouterr().out
    )
    model = StackRNNForKHotPrediction.from_pretrained(tmp_path / "out")
    assert (model.config.memory, model.config.memory_size) == ("superposition", 3)
    assert model.config.id2label == {0: "(", 1: ")", 2: "[", 3: "]"}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer("( [ ] )", return_tensors="pt")
    assert batch.input_ids.tolist() == [[0, 2, 3, 1]]
    assert model(**batch).logits.shape == (1, 4, 4)
    with pytest.raises(Exception, match="Missing .UNK. token"):
        tokenizer("( { } )")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda state: state.pop("W_y.weight"), [], "has no W_y.weight; it has rnn.weight_ih_l0"),
        (lambda state: state.update({"W_a.weight": torch.zeros(3, 7)}), [], "does not fit its own shapes"),
        (None, ["--symbols", "abc"], "--symbols must name the 4 symbols that the model reads, each once; got 'abc'"),
        (None, ["--symbols", "abc#", "--check", "3"], "--check is for Dyck languages"),
        (
            None,
            ["--operation-control", "gumbel_softmax", "--temperature", "0"],
            "temperature must be .* above 0; got 0",
        ),
    ],
)
def test_bad_input(change, options, message, tmp_path, capsys):
    path, _ = checkpoint(tmp_path, "stack_rnn")
    if change is not None:
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)
    assert CONVERT.main([str(path), str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not (tmp_path / "out").exists()


def test_several_layers_with_a_memory_are_refused(tmp_path, capsys):
    path, _ = checkpoint(tmp_path, "stack_rnn", layers=2)
    assert CONVERT.main([str(path), str(tmp_path / "out")]) == 2
    assert "has 2 layers, and the released code adds the reading to the state of each" in capsys.readouterr().err
    path, _ = checkpoint(tmp_path, "lstm", layers=2)
    assert CONVERT.convert(path).config.num_layers == 2


@needs_real_data
def test_the_released_stack_rnn_is_right_on_fresh_strings():
    """Table 2 of the paper: 99.96 to 100% on Dyck-2 strings of lengths 52 to 100."""
    model = CONVERT.convert(REAL_DATA / "checkpoints" / "suzgun2019_stack_rnn_d2.pth")
    assert sum(parameter.numel() for parameter in model.parameters()) == 191
    assert CONVERT.check(model, 1000, seed=1) >= 999


@needs_real_data
@torch.no_grad()
def test_the_tasks_targets_are_the_released_models_outputs():
    """On all strings that the model was trained for; of lengths 52 to 100 it is right on almost all."""
    model = CONVERT.convert(REAL_DATA / "checkpoints" / "suzgun2019_stack_rnn_d2.pth").eval()
    task = make_task("suzgun2019/dyck2", splits={"train": {"number": 300}, "test": {"number": 100}})
    right = {}
    for name, examples in task.splits(1).items():
        right[name] = 0
        for example in examples:
            predicted = model.predict(model(torch.tensor([example.source])).logits[0])
            right[name] += [frozenset(row.nonzero()[:, 0].tolist()) for row in predicted] == list(example.target)
    assert right["train"] == 300
    assert right["test"] >= 99
