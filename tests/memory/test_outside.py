"""Memories with several choices and with weights, in cells, layers and models."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import run, run_json, tiny_config

from stack_lm import MemoryLayer, StackRNNCell, StackRNNForCausalLM
from stack_lm.memory import make_memory
from stack_lm.memory.base import MEMORIES as MEMORIES_OF_ALL


@pytest.fixture(scope="module", autouse=True)
def outside():
    """Registered for the tests of this file alone."""
    before = dict(MEMORIES_OF_ALL.registered)
    import outside

    for memory in (outside.TwoChoices, outside.Weighed):
        MEMORIES_OF_ALL.registered[memory.name] = memory
    yield
    MEMORIES_OF_ALL.registered = before


MEMORIES = ["two_choices", "weighed"]


def cell(memory):
    return StackRNNCell(tiny_config(memory=memory)).train()


def test_each_choice_has_its_own_noise():
    noise = cell("two_choices").controls.draw_noise((400,), torch.empty(0))
    assert {name: tuple(part.shape) for name, part in noise.items()} == {"write": (400, 1, 3), "mode": (400, 2, 4)}
    columns = torch.cat([part.flatten(1) for part in noise.values()], dim=1)
    correlations = torch.corrcoef(columns.T) - torch.eye(11)
    assert correlations.abs().max() < 0.25


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_scan_equals_its_steps_with_the_same_noise(memory):
    module, inputs = cell(memory), torch.randn(2, 5, 5)
    noise = module.controls.draw_noise((2, 5), inputs)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]]).bool()
    with module.controls.with_noise(noise):
        scan = module.scan(inputs, mask=mask, output_actions=True)
    state = module.initial_state(2)
    for t in range(5):
        of_step = {name: part[:, t] for name, part in noise.items()}
        _, actions, state = module.step(inputs[:, t], state, mask[:, t], noise=of_step)
        for name, values in actions.items():
            torch.testing.assert_close(values, scan.actions[name][:, t])
    torch.testing.assert_close(state.reading, scan.state.reading)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_layer_of_given_vectors_runs_it(memory):
    layer, hidden = MemoryLayer(7, memory).eval(), torch.randn(2, 5, 7)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]]).bool()
    readings, state, actions = layer(hidden, mask=mask, output_actions=True)
    one = None
    for t in range(5):
        reading, one, of_step = layer.step(hidden[:, t], one, mask[:, t])
        torch.testing.assert_close(readings[:, t], reading.masked_fill(~mask[:, t, None], 0))
        for name, values in of_step.items():
            torch.testing.assert_close(values, actions[name][:, t])
    torch.testing.assert_close(one.reading, state.reading)


def test_weights_are_logarithms():
    layer = MemoryLayer(7, "weighed")
    _, _, actions = layer(torch.randn(2, 4, 7), mask=torch.tensor([[1, 1, 1, 0]] * 2).bool(), output_actions=True)
    assert actions.move_weight.shape == (2, 4, 3, 3)
    assert (actions.move_weight[:, 3] == -math.inf).all()  # a weight of 0
    assert "norm" in actions
    memory = make_memory(tiny_config(memory="weighed"))
    state, logs = memory.initial_state(1), torch.full((1, 3, 3), -math.inf)
    _, reading = memory.step(state, memory.action_type(torch.ones(1, 3), logs))
    assert reading.tolist() == [[1.0] * 3]
    for wrong in (math.nan, math.inf):
        with pytest.raises(ValueError, match=f"move_weight must be logarithms of weights, below infinity; got {wrong}"):
            memory.step(state, memory.action_type(torch.ones(1, 3), torch.full((1, 3, 3), wrong)))


@pytest.mark.parametrize("memory", MEMORIES)
def test_models_have_it(memory, tmp_path):
    model = StackRNNForCausalLM(tiny_config(memory=memory)).eval()
    ids = torch.randint(1, 23, (2, 6))
    logits = model(ids).logits
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(StackRNNForCausalLM.from_pretrained(tmp_path)(ids).logits, logits)
    assert model.generate(ids, max_new_tokens=4, do_sample=False, num_beams=2).shape == (2, 10)
    model.train()(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


SENTENCE = "the dog that the cats fear chases a rabbit ."


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_language_model_has_it_from_training_to_its_scores(memory, tmp_path, capsys):
    """As a user types it, without a line in the package."""
    recipe, plugin = Path(__file__).parents[2] / "recipes" / "train_lm.py", Path(__file__).with_name("outside.py")
    settings = {"data.source": "generated:200", "data.held_out": 20, "training.epochs": 1, "training.threads": 1}
    settings |= {"model.memory": memory, "model.hidden_size": 12, "output_dir": tmp_path / "run"}
    arguments = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [sys.executable, recipe, "--import", plugin, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    trained = str(tmp_path / "run")
    found = run_json(capsys, "inspect", trained, SENTENCE, "--output", tmp_path / "page.html", "--device", "cpu")
    assert found["memory"] == memory
    assert len(found["move_weight" if memory == "weighed" else "mode"]) == len(SENTENCE.split())
    scored = run_json(capsys, "agreement", trained, "--data", "1:9", "--format", "generated", "--device", "cpu")
    assert 0 <= scored["accuracy"] <= 100
    status, _, error = run(capsys, "parse", trained, SENTENCE, "--device", "cpu")
    assert status == 2
    assert re.fullmatch(f"stack-lm: error: memory='{memory}' has no single pair of push and pop strengths .*\n", error)
