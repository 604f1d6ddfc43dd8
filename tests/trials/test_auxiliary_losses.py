"""The losses of recognisers against their formulas (Butoi et al. 2025), and trials that train on them."""

import dataclasses
import json
import logging

import pytest
import torch
from torch.nn.functional import logsigmoid

from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.training.base_config import resume_invariants
from stack_lm.training.trials.auxiliary import auxiliary_loss
from stack_lm.training.trials.computation import load_task_model
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.learning import can_join, train
from stack_lm.training.trials.trial import Trial

WEIGHTS = {"low": 0.01, "high": 10.0}
BOTH = [{"next_symbol": 2.0, "next_symbols": 3.0}]


def trial(task="flare/first", seed=0, model=None, number=24, **training):
    values = {
        "task": task,
        "model": {"hidden_size": 6, "memory": "none", "input_encoding": "one_hot"} | (model or {}),
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, **training},
        "options": {"splits": {"train": {"number": number, "longest": 8}}},
    }
    values["model"].setdefault("architectures", ["StackRNNForSequenceClassification"])
    for name in ("validation", "validation_long", "test", "test_short_held_out"):
        values["options"]["splits"][name] = {"number": 5, "longest": 12}
    return Trial(dataclasses.replace(build(TaskConfig, values), seed=seed))


def plain_losses(model, task, string):
    """Those of one string [n symbols], by the formulas; nothing of a string that is no member."""
    if not task.accepts(string):
        return 0.0, 0.0
    begin, outputs = len(task.symbols), [*task.symbols, "</s>"]
    ids = torch.tensor([[begin, *map(task.symbols.index, string)]])
    hidden = model.model(ids).last_hidden_state[0]
    language = symbols = 0.0
    for state, following, symbol in zip(hidden, task.next_symbols(string), [*string, "</s>"], strict=True):
        scores = model.auxiliary_heads["next_symbol"](state)
        language -= scores.log_softmax(-1)[outputs.index(symbol)] / (len(string) + 1)
        for score, output in zip(model.auxiliary_heads["next_symbols"](state), outputs, strict=True):
            sign = 1 if output in following else -1
            symbols -= logsigmoid(sign * score) / (len(string) + 1) / len(outputs)
    return language, symbols


@pytest.mark.parametrize("task", ["flare/dyck_2_3", "flare/compute_sqrt", "flare/first"])
def test_losses_are_those_of_the_formulas(task):
    """Of a padded batch, with strings that are no members."""
    experiment = trial(task, auxiliary=BOTH, dtype="float64")
    model, language = experiment.model, experiment.encoding.task
    data = experiment.training_data()
    strings = [tuple(language.write(row[1:steps]).split()) for row, steps in zip(data.inputs, data.steps, strict=True)]
    members = [string for string in strings if language.accepts(string)]
    assert 0 < len(members) < len(strings)
    assert data.steps.unique().numel() > 1
    parts = [plain_losses(model, language, string) for string in strings]
    for weights in ({"next_symbol": 2.0, "next_symbols": 3.0}, {"next_symbol": 0.5}, {"next_symbols": 0.0}):
        given = {name: torch.tensor(weight, dtype=torch.float64) for name, weight in weights.items()}
        logits, further = auxiliary_loss(model, data.inputs, data.continuations, given)
        expected = sum(
            weight * sum(part[name == "next_symbols"] for part in parts) / len(members)
            for name, weight in weights.items()
        )
        torch.testing.assert_close(further, torch.as_tensor(expected), atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(logits, model(data.inputs).logits.unsqueeze(1))
    others = torch.tensor([not language.accepts(string) for string in strings])
    _, further = auxiliary_loss(model, data.inputs[others], data.continuations[others], given)
    assert further == 0


def test_the_loss_of_labels_is_the_binary_cross_entropy_of_the_difference():
    experiment = trial(auxiliary=BOTH, batch_size=24, shuffle=False, epochs=1)
    data = experiment.training_data()
    with torch.no_grad():
        logits = experiment.model(data.inputs).logits
        weights = {name: torch.tensor(weight) for name, weight in experiment.auxiliary.items()}
        _, further = auxiliary_loss(experiment.model, data.inputs, data.continuations, weights)
    difference, labels = logits[:, 1] - logits[:, 0], data.labels[:, 0].float()
    of_labels = torch.nn.functional.binary_cross_entropy_with_logits(difference, labels)
    (result,) = train([experiment])
    assert result["history"][0]["loss"] == pytest.approx((of_labels + further).item(), rel=1e-5)
    assert result["auxiliary"] == BOTH[0]


def test_each_trial_draws_its_own_weights():
    variants = [{}, {"next_symbol": WEIGHTS}, {"next_symbols": WEIGHTS}, {"next_symbol": WEIGHTS, "next_symbols": 1.0}]
    trials = [trial(seed=seed, auxiliary=variants) for seed in range(8)]
    named = [{name for name, weight in one.auxiliary.items() if weight} for one in trials]
    assert named == [set(variant) for variant in variants] * 2
    drawn = [one.auxiliary["next_symbol"] for one in trials if one.auxiliary["next_symbol"]]
    assert len(set(drawn)) == 4
    assert all(0.01 <= weight <= 10 for weight in drawn)
    many = [trial(seed=seed, auxiliary=variants[1:2]).auxiliary["next_symbol"] for seed in range(40)]
    assert min(many) < 0.03 < 3 < max(many)
    # The labels' part of the network begins as without heads.
    torch.testing.assert_close(trials[1].model.score.weight, trial(seed=1).model.score.weight, rtol=0, atol=0)
    json.dumps(resume_invariants(trials[0].config))


def test_trials_at_once_learn_as_alone():
    variants = [{"next_symbol": WEIGHTS}, {"next_symbols": WEIGHTS}, {}]
    together, alone = ([trial(seed=seed, auxiliary=variants) for seed in range(3)] for _ in range(2))
    assert can_join(together[0])
    results = train(together)
    for one, result in zip(alone, results, strict=True):
        (expected,) = train([one])
        losses = [[record["loss"] for record in each["history"]] for each in (result, expected)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        assert result["auxiliary"] == expected["auxiliary"]


def test_heads_are_trained_and_not_saved(tmp_path, caplog):
    experiment = trial(auxiliary=BOTH)
    before = experiment.model.auxiliary_heads["next_symbol"].weight.detach().clone()
    train([experiment])
    assert (experiment.model.auxiliary_heads["next_symbol"].weight != before).any()
    with caplog.at_level(logging.WARNING):
        experiment.save(tmp_path)
        loaded = load_task_model(tmp_path).model
    assert not caplog.records
    assert not hasattr(loaded, "auxiliary_heads")
    data = experiment.training_data()
    experiment.model.eval()
    torch.testing.assert_close(loaded(data.inputs).logits, experiment.model(data.inputs).logits)


@pytest.mark.parametrize(
    ("task", "auxiliary", "message"),
    [
        ("flare/first", [{"next_symbol": 0.0}], r"training\.auxiliary\[0\]\.next_symbol must be"),
        ("flare/first", [{"next_symbol": {"low": 2.0, "high": 1.0}}], r"auxiliary\[0\]\.next_symbol must go from low"),
    ],
)
def test_losses_that_cannot_be(task, auxiliary, message):
    with pytest.raises(InputError, match=message):
        trial(task, auxiliary=auxiliary)


def test_other_tasks_do_not_say_what_may_follow():
    values = {"task": "deletang2023/parity_check", "training": {"auxiliary": BOTH}}
    values["model"] = {"architectures": ["StackRNNForTokenClassification"]}
    with pytest.raises(InputError, match=r"training\.auxiliary needs a language to recognise, .*parity_check is none"):
        Trial(build(TaskConfig, values))
