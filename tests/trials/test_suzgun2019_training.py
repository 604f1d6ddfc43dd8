"""Training as in the code released with Suzgun et al. (2019), against the losses that its notebooks printed."""

import dataclasses
import math
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from stack_lm.training.trials.encoding import loss_weights, weighted_loss
from stack_lm.training.trials.run import load_table
from stack_lm.training.trials.trial import Trial


class Notebook(NamedTuple):
    """One of https://github.com/suzgunmirac/marnns: "Avg Loss" after 1 string and after 251."""

    preset: str
    seed: int
    hidden_size: int
    memory_size: int
    operations: int
    order: str  # in which its linear layers are made
    first_string: str
    printed: dict


NOTEBOOKS = {
    "Stack-Augmented RNNs.ipynb": Notebook(
        "stack_rnn_softmax",
        *(23, 8, 1, 2, "y n a r"),
        "[(([(([[([[()]]([[(())]([])]))]]))]))]",
        {1: 0.2677200118981196, 251: 0.08202969477102737},
    ),
    "Baby Neural Turing Machines.ipynb": Notebook(
        "baby_ntm_softmax",
        *(1729, 12, 5, 5, "r y n a"),
        "[([[[]]]())]",
        {1: 0.28577524031818285, 251: 0.0837031479525154},
    ),
}


def released_strings(seed, number, longest):
    """The first strings that the released code draws, which replaces a part that gets too long by nothing."""
    rules, pairs = random.Random(seed), np.random.RandomState(seed)

    def draw(written):
        if written >= longest:
            return ""
        rule = rules.random()
        string = ""
        if rule < 0.5:
            pair = pairs.choice(["()", "[]"])
            string = pair[0] + draw(written + 2) + pair[1]
        elif rule < 0.75:
            string = draw(written) + draw(written)
        return string if len(string) <= longest else ""

    strings = {}
    while len(strings) < number:
        if len(string := draw(0)) >= 2:
            strings[string] = None
    return list(strings)


def use_released_weights(model, notebook):
    """Torch's own modules, made in the order of the released code after its seed."""
    torch.manual_seed(notebook.seed)
    hidden, memory = notebook.hidden_size, notebook.memory_size
    sizes = {"y": (hidden, 4), "n": (hidden, memory), "a": (hidden, notebook.operations), "r": (memory, hidden)}
    rnn = nn.RNN(4, hidden, dtype=torch.double)
    layers = {name: nn.Linear(*sizes[name], dtype=torch.double) for name in notebook.order.split()}
    weights = {f"model.cell.controller.{name}": part for name, part in rnn.state_dict().items()}
    for kind in ("weight", "bias"):
        weights[f"score.{kind}"] = getattr(layers["y"], kind)
        weights[f"model.cell.controller.{kind}_reading"] = getattr(layers["r"], kind)
        emitted = [getattr(layers[name], kind) for name in ("n", "a")]
        weights[f"model.cell.controls.projection.{kind}"] = torch.cat(emitted)
    assert model.model.cell.controls.widths == [memory, notebook.operations]
    model.load_state_dict(weights)


class EarlierAdam:
    """Adam as it was in torch before 1.3: epsilon is added to the root of the mean before its correction."""

    def __init__(self, parameters, rate):
        self.rate, self.updates = rate, 0
        self.state = [(part, torch.zeros_like(part), torch.zeros_like(part)) for part in parameters]

    @torch.no_grad()
    def step(self):
        self.updates += 1
        rate = self.rate * math.sqrt(1 - 0.999**self.updates) / (1 - 0.9**self.updates)
        for part, first, second in self.state:
            first.lerp_(part.grad, 0.1)
            second.lerp_(part.grad.square(), 0.001)
            part.addcdiv_(first, second.sqrt() + 1e-8, value=-rate)


def torchs_adam(parameters, rate):
    """Adam as it is now, which the presets have."""
    return torch.optim.Adam(parameters, rate)


@pytest.mark.parametrize(
    ("adam", "tolerance"), [(EarlierAdam, 1e-12), pytest.param(torchs_adam, 2e-5, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_losses_of_the_released_notebooks(name, adam, tolerance):
    notebook = NOTEBOOKS[name]
    table = load_table(f"suzgun2019/{notebook.preset}", "suzgun2019/dyck2")
    config = table.config(table.rows[0])
    sizes = {"hidden_size": notebook.hidden_size, "memory_size": notebook.memory_size}
    trial = Trial(dataclasses.replace(config, model=config.model | sizes))
    task, model = trial.encoding.task, trial.model
    use_released_weights(model, notebook)
    strings = released_strings(notebook.seed, max(notebook.printed), 50)
    assert strings[0] == notebook.first_string  # printed, too
    optimizer = adam(list(model.parameters()), trial.loop.learning_rate)
    losses = []
    for string in strings:
        data = trial.encoding.encode([task.example(task.read(" ".join(string)))])
        weights = loss_weights(data.trained, trial.reduction, data.labels.shape[-1], model.dtype)
        loss = weighted_loss(model(data.inputs).logits, data.labels.double(), weights)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for number, mean in notebook.printed.items():
        assert sum(losses[:number]) / number == pytest.approx(mean, rel=tolerance)
