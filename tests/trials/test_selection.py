"""What trials are validated on, by which score, and which of them a table shows."""

import dataclasses
from collections import Counter

import pytest
from test_auxiliary_losses import trial

from stack_lm.core.errors import InputError
from stack_lm.training.trials.learning import train
from stack_lm.training.trials.results import measure
from stack_lm.training.trials.scores import score
from stack_lm.training.trials.trial import Trial


def record(seed, test, validation=0.5, losses=(), **training):
    scores = {"validation": {"accuracy": validation, "nats": 1.0}, "validation_long": {"accuracy": 0.5, "nats": 1.0}}
    history = [{"loss": 1.0, "strings": 1}]
    return {
        "row": "r",
        "seed": seed,
        "config": {"training": training},
        "scores": scores | {"test": {"accuracy": test, "nats": test}},
        "auxiliary": dict.fromkeys(losses, 1.0),
        "history": history,
    }


@pytest.mark.parametrize("split", ["validation", "validation_long"])
def test_the_best_epoch_is_that_of_the_lowest_loss_on_the_chosen_strings(split):
    experiment = trial("flare/first", validate=split, validation_score="nats", keep="best", epochs=6, learning_rate=0.3)
    (result,) = train([experiment])
    by_epoch = [epoch["validation"]["nats"] for epoch in result["history"]]
    assert result["scores"][split]["nats"] == pytest.approx(min(by_epoch), rel=1e-5)


def test_scores_by_the_edits_of_strings_that_are_no_members():
    experiment = trial("flare/dyck_2_3")
    examples = experiment.encoding.task.split("test_edit_distance", 0)
    found = score(experiment.model, experiment.encoding, experiment.encoding.encode(examples))
    by_edits = found["by_edits"]["accuracy"]
    assert {int(edits): number for edits, (_, number) in by_edits.items()} == Counter(e.edits for e in examples)
    assert sum(value * number for value, number in by_edits.values()) / 50 == pytest.approx(found["accuracy"])


def test_the_score_that_decided_is_named_whatever_its_place():
    """And not in trials of earlier versions: there it is the first."""
    (result,) = train([trial("flare/first", epochs=1)])
    assert result["validation_score"] == "accuracy"
    records = [record(0, 0.1, 0.9), record(1, 0.2, 0.4)]
    assert measure(records, "accuracy.best") == 0.1
    for each in records:
        validation = each["scores"]["validation"]
        each["scores"]["validation"] = {"nats": validation["accuracy"], "accuracy": validation["accuracy"]}
        each["validation_score"] = "accuracy"
    assert measure(records, "accuracy.best") == 0.1


def test_strings_and_scores_that_there_are_not():
    with pytest.raises(InputError, match=r"training\.validate must be True, False or a split of .*; got 'valid'"):
        trial("flare/first", validate="valid")
    with pytest.raises(InputError, match=r"training\.validation_score must be one of accuracy, nats; got 'loss'"):
        trial("flare/first", validation_score="loss")
    config = trial("flare/first").config
    off = dataclasses.replace(config, training=dataclasses.replace(config.training, validate=False))
    experiment = Trial(off)
    experiment.prepare()
    assert experiment._validation is None


def test_the_mean_of_the_best_loss():
    records = [record(i, test, losses=("next_symbol",) * (i % 2)) for i, test in enumerate([0.2, 0.6, 0.9, 0.7])]
    assert measure(records, "accuracy.mean_of_best_loss") == pytest.approx(0.65)
    assert measure(records, "nats.mean_of_best_loss") == pytest.approx(0.55)
    assert measure(records, "accuracy.maximum") == 0.9


def test_the_best_trial_is_that_of_its_own_validation():
    records = [record(0, 0.1, validation=0.9), record(1, 0.2, validation=0.4)]
    assert measure(records, "accuracy.best") == 0.1
    for one in records:
        one["config"]["training"] = {"validate": "validation_long", "validation_score": "nats"}
    records[1]["scores"]["validation_long"]["nats"] = 0.3
    assert measure(records, "accuracy.best") == 0.2
