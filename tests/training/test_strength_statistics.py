"""Strengths over the validation sentences: their statistics, and what counts as a collapse."""

import json

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from conftest import tiny_config

from stack_lm import StackRNNForCausalLM
from stack_lm.nn import strengths_of
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.language_model import Trainer, evaluate_loss
from stack_lm.training.strength_statistics import StrengthStatistics

D1 = {"push_control": 1.0, "pop_control": "expected_value"}
FREE = {"push_control": "sigmoid", "pop_control": "expected_value"}


def statistics(fields=(), **strengths):
    """Of made-up strengths, numpy arrays of one length; a fixed strength is a number."""
    found = StrengthStatistics(StackRNNForCausalLM(tiny_config(**dict(fields))))
    n = max(np.size(values) for values in strengths.values())
    actions = {f"{name}_strength": torch.tensor(np.broadcast_to(v, n).copy())[None] for name, v in strengths.items()}
    found.add([actions], torch.ones(1, n, dtype=torch.bool))
    return found


@torch.no_grad()
def by_words(model, sentences):
    """Mean, spread and ends of each strength that is emitted, by name, over all words."""
    actions = [model(torch.tensor([sentence]), output_actions=True).actions for sentence in sentences]
    record = {}
    for name, control in strengths_of(model.model.cell).items():
        if control.width:
            values = np.concatenate([action[name][0].double().numpy() for action in actions])
            most = max(1, control.width - 1)
            key = "eval_" + name.replace("_strength", "")
            record[f"{key}_mean"], record[f"{key}_sd"] = values.mean(), values.std()
            record[f"{key}_low"] = (values < 0.05 * most).mean()
            record[f"{key}_high"] = (values > 0.95 * most).mean()
    return record


@torch.no_grad()
def read_below_top(model, sentences):
    """By the elements on the stack after each word, from the top."""
    below = reached = 0.0
    for sentence in sentences:
        state = None
        for token in sentence:
            outputs = model(torch.tensor([[token]]), past_key_values=state, use_cache=True, output_actions=True)
            state, rest = outputs.past_key_values, float(outputs.actions.read_strength)
            for i, strength in enumerate(reversed(state.state().memory.strengths[0].tolist())):
                below += min(strength, rest) if i else 0.0
                reached += min(strength, rest)
                rest -= min(strength, rest)
    return below / reached


@pytest.mark.parametrize("fields", [{}, D1, FREE, {"memory": "deque"}, {"memory": "none"}, {"memory": "superposition"}])
def test_they_are_those_of_all_words(fields):
    model = StackRNNForCausalLM(tiny_config(**fields)).eval()
    sentences = [torch.randint(1, 23, (length,)).tolist() for length in (7, 2, 12, 5, 9)]
    found = StrengthStatistics(model)
    evaluate_loss(model, sentences, Accelerator(), batch_tokens=20, observe=found.add)
    found.reduce(Accelerator())
    expected = by_words(model, sentences)
    if "memory" not in fields:
        expected["eval_read_below_top"] = read_below_top(model, sentences)
    assert found.record() == pytest.approx(expected, abs=1e-5)
    assert bool(found.summary()) == (fields.get("memory") in (None, "deque"))


def spread(mean, sd, n=1000):
    """Numbers of that mean and standard deviation."""
    values = np.random.default_rng(0).normal(size=n)
    return mean + sd * (values - values.mean()) / values.std()


# Push strengths of models with u = 1 on Wikipedia, their readings, and what lies on their stacks.
@pytest.mark.parametrize(
    ("mean", "sd", "read", "total", "signs"),
    [
        (2.91, 0.06, 1.9, 30.0, ["the push strength has collapsed", "used as a register"]),
        (2.91, 0.12, 1.9, 30.0, ["used as a register"]),
        (1.37, 0.27, 1.78, 7.0, []),
        (1.95, 0.10, 2.5, 20.0, []),
        (1.95, 0.04, 2.5, 20.0, ["the push strength has collapsed"]),  # the same at every word, early in training
        (0.2, 0.08, 1.0, 3.0, ["the push strength has collapsed"]),
    ],
)
def test_what_counts_as_a_collapse(mean, sd, read, total, signs):
    found = statistics(push=spread(mean, sd), pop=1.0, read=spread(read, 0.2), total=total)
    warnings = found.warnings()
    assert len(warnings) == len(signs)
    for warning, sign in zip(warnings, signs, strict=True):
        assert sign in warning


def test_the_range_of_a_sigmoid_is_one():
    pop = {"pop": spread(1.0, 0.3), "read": 1.0, "total": 3.0}
    warnings = statistics(FREE, push=spread(0.5, 0.01), **pop | {"read": spread(1.5, 0.3)}).warnings()
    about = "it is 0.50 (sd 0.010) at every word, common with little text"
    assert warnings == {"the push strength has collapsed": about}
    assert statistics(FREE, push=spread(0.5, 0.03), **pop | {"read": spread(1.5, 0.3)}).warnings() == {}


def test_a_run_logs_them_and_warns(tmp_path, capsys):
    config = RunConfig(
        output_dir=str(tmp_path / "run"),
        model={"embedding_size": 6, "hidden_size": 8, "memory_size": 3, "push_strength_init": 2.95},
        tokenizer=TokenizerConfig(vocab_size=200),
        data=DataConfig(source="generated:100", held_out=30),
        training=LoopConfig(epochs=1, batch_size=8, threads=1, loss_dtype="float32", eval_every=2),
    )
    result = Trainer(config).train()
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert records[-1] == result
    assert result["eval_push_mean"] == pytest.approx(2.95, abs=0.05)
    assert result["eval_push_high"] > 0.9
    printed = capsys.readouterr().err
    assert "\npush 2.9" in printed
    assert "0% of what is read lies below the top" in printed
    first, second, *_ = printed.split("validation perplexity")[1:]
    assert "collapsed" not in first  # it may not last
    assert "warning: the push strength has collapsed: it is 2.9" in second
    for sign in ("the push strength has collapsed", "the stack is used as a register"):
        assert printed.count(f"warning: {sign}") == 1


def test_heads_count_as_words():
    fields = {"pop_control": "expected_value", "memory_size": 4, "num_heads": 2}
    push = torch.tensor([[[0.0, 3.0], [0.1, 2.9], [1.5, 1.5]]])
    some = torch.ones_like(push)
    found = StrengthStatistics(StackRNNForCausalLM(tiny_config(**fields)))
    actions = {"push_strength": push, "pop_strength": some, "read_strength": some, "total_strength": some.sum(-1)}
    found.add([actions], torch.tensor([[True, True, False]]))
    record = found.record()
    assert record["eval_push_mean"] == pytest.approx(1.5)
    assert record["eval_push_low"] == record["eval_push_high"] == 0.5
    assert record["eval_pop_sd"] == 0
    assert "eval_read_below_top" not in record
