"""Traces against a loop over single steps, for every kind of network."""

import json

import numpy as np
import pyarrow.parquet
import pytest
import small_tasks
import torch
from conftest import run, run_json, tiny_config
from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

import stack_lm
from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.models.cache import CACHE_NAME
from stack_lm.tasks import Example, Task, make_task, registry
from stack_lm.training.trials.computation import choose_example, compute, load_task_model
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.trial import Trial

STACK = {"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": "sigmoid"}
NETWORKS = {
    "stack": {"memory": "stack", **STACK},
    "queue": {"memory": "queue", **STACK},
    "deque": {"memory": "deque", **STACK},
    "superposition": {"memory": "superposition"},
    "tape": {"memory": "baby_ntm", "memory_depth": 6},
    "nondeterministic": {"memory": "nondeterministic", "memory_size": None},
    "none": {"memory": "none", "memory_size": None},
}


def saved(directory, task="test/per_step", architecture=None, **model):
    values = small_tasks.config_values(task, architecture)
    values["model"] |= model
    if values["model"].get("memory_size", 0) is None:
        del values["model"]["memory_size"]
    trial = Trial(build(TaskConfig, values))
    trial.save(directory)
    return trial


@torch.no_grad()
def step_by_step(model, ids):
    """The outputs of the network after each symbol, and the states of its memory."""
    cache, steps, states = None, [], []
    for token in ids:
        out = model(torch.tensor([[token]]), **{CACHE_NAME: cache}, use_cache=True, output_hidden_states=True,
                    output_actions=True)  # fmt: skip
        cache = out[CACHE_NAME]
        steps.append(out)
        states.append(cache.state(0))
    return steps, states


@pytest.mark.parametrize("name", NETWORKS)
def test_a_trace_is_that_of_single_steps(tmp_path, name):
    saved(tmp_path / "m", **NETWORKS[name])
    source = load_task_model(tmp_path / "m")
    texts = ["a b b a a b", "b", "b a b"]
    found = stack_lm.traces(str(tmp_path / "m"), texts)
    assert [trace["symbols"] for trace in found] == [text.split() for text in texts]
    for trace in found:
        ids, close = trace["ids"].tolist(), {"rtol": 1e-4, "atol": 1e-6}
        steps, states = step_by_step(source.model, ids)
        for t, (out, state) in enumerate(zip(steps, states, strict=True)):
            np.testing.assert_allclose(trace["probabilities"][t], torch.softmax(out.logits[0, 0], -1), **close)
            for layer, hidden in enumerate(out.hidden_states):
                np.testing.assert_allclose(trace[f"hidden_states.{layer}"][t], hidden[0, 0], **close)
            for action, value in (out.actions or {}).items():
                np.testing.assert_allclose(trace[f"memory.0.{action}"][t], value[0, 0], **close)
            if name != "none":
                memory = source.model.base_model.cell.memory
                for part, value in memory.contents(state.memory).items():
                    now = trace[f"memory.0.contents.{part}"][t]
                    inside = now[tuple(slice(size) for size in value.shape[1:])]
                    np.testing.assert_allclose(inside, value[0], **close)
                    assert np.abs(now).sum() == pytest.approx(np.abs(inside).sum())
        if name in ("stack", "queue"):
            read = np.einsum("tn,tnd->td", trace["memory.0.reading_weights"], trace["memory.0.contents.values"])
            np.testing.assert_allclose(trace["memory.0.reading"], read, **close)


@pytest.mark.parametrize(
    ("task", "architecture", "text", "read"),
    [
        ("test/sets", None, "a b", "a b"),
        ("test/language", None, "a b", "<s> a b"),
        ("flare/first", "StackRNNForSequenceClassification", "1 0", "<s> 1 0"),
        ("test/per_step", "BufferedStackRNNForTransduction", "a b", "a b"),
    ],
)
def test_kinds_of_tasks(tmp_path, task, architecture, text, read):
    if architecture == "StackRNNForSequenceClassification":
        values = {"task": task, "model": {"architectures": [architecture], "hidden_size": 4, "memory_size": 2}}
        trial = Trial(build(TaskConfig, values))
        trial.save(tmp_path / "m")
    else:
        saved(tmp_path / "m", task, architecture)
    source = load_task_model(tmp_path / "m")
    (trace,) = stack_lm.traces(source, [text])
    assert trace["symbols"] == read.split()
    shown = compute(source, choose_example(source.task, text, None, 0)).panels["output"].numbers
    rows = trace["probabilities"].T
    assert len(shown) <= len(rows)
    for row in shown:
        known = row[np.isfinite(row)]  # in a figure outputs may end before the steps
        assert any(np.allclose(known, other[: len(known)], atol=1e-5) for other in rows)


def test_language_models(small_run):
    text = "the dog that the cats fear barks loudly"
    (trace,) = stack_lm.traces(small_run, [text])
    scorer = stack_lm.ModelScorer.from_pretrained(small_run)
    steps, _ = step_by_step(scorer.model, trace["ids"].tolist())
    np.testing.assert_allclose(trace["probabilities"][-1], torch.softmax(steps[-1].logits[0, 0], -1), rtol=1e-4)
    assert trace["symbols"] == scorer.tokenizer.convert_ids_to_tokens(trace["ids"].tolist())
    words = scorer.trace([text.split()])[0].actions[0]["push_strength"]
    np.testing.assert_allclose(trace["memory.0.push_strength"][-8:], words, rtol=1e-4)


def test_transformers_of_the_library_and_layers_of_memory():
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=12, vocab_size=9, n_positions=20)).train()
    (trace,) = stack_lm.traces(gpt2, [[1, 2, 3, 4]])
    assert gpt2.training
    assert trace["attention.1"].shape == (4, 3, 4)
    np.testing.assert_allclose(trace["attention.0"].sum(-1), 1, rtol=1e-5)
    assert (trace["attention.0"][0, :, 1:] == 0).all()
    assert trace["hidden_states.2"].shape == (4, 12)
    assert "symbols" not in trace
    assert gpt2.config._attn_implementation != "eager"
    mamba = MambaForCausalLM(MambaConfig(num_hidden_layers=2, hidden_size=8, vocab_size=9, state_size=4))
    (trace,) = stack_lm.traces(mamba, [[1, 2, 3]])
    assert trace["hidden_states.1"].shape == (3, 8)
    deep = stack_lm.DeepStackRNNForCausalLM(
        stack_lm.DeepStackRNNConfig(vocab_size=9, embedding_size=6, layers=[{"memory_size": 2}, {"memory_size": 3}])
    )
    (trace,) = stack_lm.traces(deep, [[1, 2, 3]])
    assert [trace[f"memory.{i}.contents.values"].shape for i in range(2)] == [(3, 3, 2), (3, 3, 3)]
    with pytest.raises(InputError, match="a model without its directory reads ids, not text; got 'a b'"):
        stack_lm.traces(deep, ["a b"])
    with pytest.raises(InputError, match="needs a string of at least one symbol"):
        stack_lm.traces(deep, [[]])


def test_files(capsys, tmp_path):
    saved(tmp_path / "m", **NETWORKS["stack"])
    texts = ["a b b", "b", "a a b a"]
    (tmp_path / "strings.txt").write_text("\n".join(texts) + "\n")
    found = stack_lm.traces(str(tmp_path / "m"), texts)
    for ending in ("npz", "json", "parquet"):
        told = run_json(
            capsys, "trace", tmp_path / "m", "--data", tmp_path / "strings.txt", "--output", tmp_path / f"t.{ending}"
        )
        assert (told["strings"], told["arrays"]["memory.0.contents.values"]) == (3, [3, 3, 2])
    rows = json.loads((tmp_path / "t.json").read_text())
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
    with np.load(tmp_path / "t.npz", allow_pickle=False) as arrays:
        assert arrays["offsets"].tolist() == [0, 3, 4, 8]
        for i, trace in enumerate(found):
            part = slice(*arrays["offsets"][i : i + 2])
            for name, value in trace.items():
                value = np.asarray(value)
                packed = arrays[name][part]
                inside = packed[tuple(slice(size) for size in value.shape)]
                if value.dtype.kind == "U":
                    assert rows[i][name] == table[i][name] == inside.tolist() == value.tolist()
                    continue
                for other in (inside, rows[i][name], table[i][name]):
                    np.testing.assert_allclose(np.array(other, float).reshape(value.shape), value, rtol=1e-6)
                assert packed.sum() == pytest.approx(inside.sum(), rel=1e-5)
    told = run_json(capsys, "trace", tmp_path / "m", "--split", "test", "--limit", 4, "--output", tmp_path / "t.npz")
    assert told["strings"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["M", "a c", "--output", "O.npz"], "'c' is not a symbol of test/per_step"),
        (["M", "--output", "O.npz"], "give strings, or --data FILE, or --split NAME"),
        (["M", "a", "--output", "O.txt"], "--output must end in one of .npz, .parquet, .json"),
        (["M", "--split", "dev", "--output", "O.npz"], "has no split 'dev'"),
        (["nowhere", "a", "--output", "O.npz"], "nowhere"),
        (["nowhere", "--split", "test", "--output", "O.npz"], "--split is for models of tasks"),
    ],
)
def test_bad_input(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "M")
    status, out, err = run(capsys, "trace", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert message in err
    assert not list(tmp_path.glob("O.*"))


def test_strings_of_a_task_that_only_draws(tmp_path, monkeypatch):
    class Drawn(Task):
        vocabulary, step_reduction = ("a", "b"), "mean"
        default_plan = dict.fromkeys(("train", "test"), small_tasks.PLAN["train"])

        def sample(self, rng, length):
            return Example((0,) * length, (1,) * length, (True,) * length)

    monkeypatch.setitem(registry.TASKS.registered, "test/drawn", Drawn)
    values = small_tasks.config_values("test/per_step") | {"task": "test/drawn"}
    Trial(build(TaskConfig, values)).save(tmp_path / "m")
    source = load_task_model(tmp_path / "m")
    computation = compute(source, choose_example(source.task, "a b b", None, 0))
    assert (computation.inputs, computation.targets, len(computation.outputs)) == (["a", "b", "b"], [""] * 3, 3)
    assert stack_lm.traces(source, ["a b b"])[0]["symbols"] == ["a", "b", "b"]
    with pytest.raises(InputError, match="'c' is not a symbol"):
        choose_example(make_task("test/drawn"), "c", None, 0)


def test_an_own_memory_shows_its_contents(tmp_path, registers):
    saved(tmp_path / "m", memory="registers", memory_depth=3)
    source = load_task_model(tmp_path / "m")
    (trace,) = stack_lm.traces(source, ["a b b a"])
    contents = trace["memory.0.contents.values"]
    assert contents.shape == (4, 3, 2)
    shown = compute(source, choose_example(source.task, "a b b a", None, 0)).panels["memory"]
    assert shown.name == "values: first number of each"
    np.testing.assert_allclose(shown.numbers, contents[:, : len(shown.labels), 0].T, rtol=1e-5)


def test_models_train_on_after_a_trace():
    model = stack_lm.StackRNNForCausalLM(tiny_config()).train()
    before = torch.random.get_rng_state()
    stack_lm.traces(model, [[1, 2]])
    assert model.training
    assert torch.equal(before, torch.random.get_rng_state())
