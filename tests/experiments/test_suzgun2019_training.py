"""Training as in the code released with Suzgun et al. (2019), against the losses that its notebook printed."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from stack_lm.experiments.encoding import loss_weights, weighted_loss
from stack_lm.experiments.run import load_table
from stack_lm.experiments.trial import Trial

SEED = 23
# "Stack-Augmented RNNs.ipynb" of https://github.com/suzgunmirac/marnns: "Avg Loss" after 1 string and 251.
PRINTED = {1: 0.2677200118981196, 251: 0.08202969477102737}


def released_strings(number, longest):
    """The first strings that the released code draws, which replaces a part that gets too long by nothing."""
    rules, pairs = random.Random(SEED), np.random.RandomState(SEED)

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


def use_released_weights(model):
    """Torch's own modules, made in the order of the released code after its seed."""
    torch.manual_seed(SEED)
    rnn = nn.RNN(4, 8, dtype=torch.double)
    head, value, action, reading = (nn.Linear(*sizes, dtype=torch.double) for sizes in ((8, 4), (8, 1), (8, 2), (1, 8)))
    cell = model.model.cell
    weights = {f"model.cell.controller.{name}": part for name, part in rnn.state_dict().items()}
    for kind in ("weight", "bias"):
        weights[f"score.{kind}"] = getattr(head, kind)
        weights[f"model.cell.controller.{kind}_reading"] = getattr(reading, kind)
        weights[f"model.cell.controls.projection.{kind}"] = torch.cat((getattr(value, kind), getattr(action, kind)))
    assert cell.controls.widths == [1, 2]
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


@pytest.mark.parametrize(("adam", "tolerance"), [(EarlierAdam, 1e-12), (torchs_adam, 1e-6)])
def test_the_losses_of_the_released_notebook(adam, tolerance):
    table = load_table("suzgun2019/stack_rnn_softmax", "suzgun2019/dyck2")
    trial = Trial(table.config(table.rows[0]))
    task, model = trial.encoding.task, trial.model
    use_released_weights(model)
    strings = released_strings(max(PRINTED), 50)
    assert strings[0] == "[(([(([[([[()]]([[(())]([])]))]]))]))]"  # printed, too
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
    for number, mean in PRINTED.items():
        assert sum(losses[:number]) / number == pytest.approx(mean, rel=tolerance)
