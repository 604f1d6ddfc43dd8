"""One trial: training, stopping, and scores against their definitions."""

import dataclasses
import itertools
import math

import pytest
import torch
from small_tasks import MODEL_OF, config_values

from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.tasks import DelimitedFormat, evaluate_transduction, make_task
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.learning import can_join, train
from stack_lm.training.trials.scores import run, score
from stack_lm.training.trials.trial import Trial


def trained(experiment):
    (result,) = train([experiment])
    return result


def trial(task, architecture=None, seed=0, **training):
    return Trial(dataclasses.replace(build(TaskConfig, config_values(task, architecture, **training)), seed=seed))


@pytest.mark.parametrize("task", [*MODEL_OF, "buffered"])
def test_a_trial_is_the_same_for_a_seed(task):
    architecture = "BufferedStackRNNForTransduction" if task == "buffered" else None
    name = "test/per_step" if task == "buffered" else task
    reduction = "steps" if name in ("test/per_step", "test/summed") else "mean"
    results = [trained(trial(name, architecture, seed=seed, loss_reduction=reduction)) for seed in (0, 0, 1)]
    for result in results:
        assert result["epochs"] == len(result["history"]) == 2
        assert result["updates"] == 6  # twelve strings in batches of five, twice
        assert [record["strings"] for record in result["history"]] == [12, 24]
        for record in result["history"]:
            assert record["loss"] > 0
        assert set(result["scores"]) == {"validation", "test"}
    assert results[0]["history"] == results[1]["history"] != results[2]["history"]
    assert results[0]["scores"] == results[1]["scores"]


def test_an_update_is_that_of_the_plain_loss():
    """A whole epoch of one batch, against torch's own loss and optimizer on a copy of the model."""
    ours = trial("test/per_step", loss_reduction="steps", shuffle=False, batch_size=12, epochs=1, weight_decay=0.01)
    plain = trial("test/per_step", loss_reduction="steps").model
    optimizer = torch.optim.Adam(plain.parameters(), 1e-3, weight_decay=0.01)
    data = ours.encoding.encode(ours.encoding.task.split("train", 0))
    logits = plain(data.inputs).logits
    loss = 0
    for t in range(logits.shape[1]):
        scored = data.scored[:, t]
        if scored.any():
            loss = loss + torch.nn.functional.cross_entropy(logits[scored, t], data.labels[scored, t])
    loss.backward()
    optimizer.step()
    result = trained(ours)
    assert result["history"][0]["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(ours.model.get_parameter(name), parameter, rtol=1e-4, atol=1e-6)


def test_a_trial_begins_with_the_weights_of_an_earlier_one(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    earlier = [trial("test/language", seed=seed) for seed in (0, 1)]
    for each in earlier:
        trained(each)
        each.save(tmp_path / "models" / str(each.config.seed))
    later = [trial("test/language", seed=seed, initial_model="~/models/{seed}") for seed in (0, 1)]
    for before, after in zip(earlier, later, strict=True):
        for name, parameter in before.model.state_dict().items():
            torch.testing.assert_close(after.model.state_dict()[name], parameter, rtol=0, atol=0)
    with pytest.raises(InputError, match=r"nowhere has no model of a task \(no task.json\)"):
        trial("test/language", initial_model=f"{tmp_path}/nowhere")
    with pytest.raises(InputError, match=r"has another shape of model: .* is \[.*\] here, there \["):
        trial("test/per_step", initial_model=f"{tmp_path}/models/0")
    (tmp_path / "models" / "1" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="1 has no model that can be loaded"):
        trial("test/language", seed=1, initial_model=f"{tmp_path}/models/{{seed}}")


def test_a_last_batch_that_is_smaller_can_be_left_out():
    result = trained(trial("test/per_step", drop_last=True))
    assert (result["updates"], result["history"][0]["strings"]) == (4, 10)
    result = trained(trial("test/per_step", drop_last=True, batch_size=13))  # none is larger
    assert (result["updates"], result["history"][0]["strings"]) == (2, 12)


def test_the_learning_rate_falls_and_the_best_model_is_kept(monkeypatch):
    nats = iter([2.0, 3.0, 1.0, 4.0, 5.0, 6.0])
    experiment = trial("test/language", keep="best", decay_patience=1, decay_factor=0.5, learning_rate=0.1)
    monkeypatch.setattr("stack_lm.training.trials.trial.score", lambda *rest: {"nats": next(nats), "by_length": {}})
    experiment.prepare()
    rates, weights = [], []
    for _ in range(6):
        torch.nn.init.normal_(experiment.model.lm_head.weight)
        weights.append(experiment.model.lm_head.weight.detach().clone())
        experiment.end_epoch(1.0, 12, 3)
        rates.append(experiment.learning_rate)
    assert rates == [0.1, 0.05, 0.05, 0.025, 0.0125, 0.00625]
    monkeypatch.setattr(experiment, "_score", lambda split: {})
    assert experiment.result()["learning_rate"] == 0.1
    torch.testing.assert_close(experiment.model.lm_head.weight, weights[2])


def test_learning_rates():
    def rates(rate, number=3):
        return [trial("test/sets", seed=seed, learning_rate=rate).learning_rate for seed in range(number)]

    assert rates(0.25) == [0.25] * 3
    assert rates([0.1, 0.2]) == [0.1, 0.2, 0.1]
    drawn = rates({"low": 5e-4, "high": 1e-2}, 30)  # log-uniformly
    assert 5e-4 <= min(drawn) < 1e-3 < 5e-3 < max(drawn) <= 1e-2
    assert len(set(drawn)) == 30


def test_the_schedule_of_learning_rates():
    planned = {"epochs": 6, "warmup_epochs": 2, "learning_rate": 0.3}
    for schedule, after in (("constant", [0.3] * 4), ("cosine", [0.3, 0.2560660, 0.15, 0.0439340])):
        experiment, rates = trial("test/sets", schedule=schedule, **planned), []
        for epoch in range(6):
            experiment.history = [{}] * epoch
            rates.append(experiment.rate)
        assert rates == pytest.approx([0.1, 0.2, *after])
    slow, fast = (trained(trial("test/sets", schedule=schedule, **planned)) for schedule in ("cosine", "constant"))
    assert slow["history"][2] == fast["history"][2]
    assert slow["history"][-1]["loss"] != fast["history"][-1]["loss"]


@pytest.mark.parametrize("rate", [0, -1.0, [], [0.1, "x"], {"low": 0.1}, {"low": 0.2, "high": 0.1}])
def test_a_learning_rate_that_is_none(rate):
    with pytest.raises(InputError, match=r"training\.learning_rate"):
        trial("test/sets", learning_rate=rate)


def test_a_loss_that_is_no_number_ends_the_trial():
    experiment = trial("test/per_step", epochs=50)
    torch.nn.init.constant_(experiment.model.score.bias, math.nan)
    result = trained(experiment)
    assert (result["diverged"], result["epochs"]) == (True, 1)
    assert result["history"][-1]["loss"] is None
    assert result["scores"]["test"]["accuracy"] == 0


def test_batches_by_length():
    """Lengths of different batches overlap in no more than one; each string comes once, in another order each epoch."""
    ours = trial("test/per_step", batch_by_length=True, batch_size=10)
    steps = torch.arange(96) % 7
    orders = []
    for _ in range(3):
        orders.append(ours.order(steps))
        ours.history.append({})
    for order in orders:
        assert sorted(order.tolist()) == list(range(96))
        batches = [steps[batch] for batch in order.split(10)]
        assert [len(batch) for batch in batches] == [10] * 9 + [6]
        ranges = sorted((int(batch.min()), int(batch.max())) for batch in batches[:-1])
        assert all(high <= low for (_, high), (low, _) in itertools.pairwise(ranges))
    firsts = [[int(steps[batch[0]]) for batch in order.split(10)[:-1]] for order in orders]
    assert any(first != sorted(first) for first in firsts)  # batches come in any order too
    assert len({tuple(order.tolist()) for order in orders}) == 3
    of_one = {frozenset(order[:10].tolist()) for order in orders}
    assert len(of_one) == 3
    assert len({tuple(first) for first in firsts}) == 3
    few = trial("test/per_step", batch_by_length=True, batch_size=10).order(torch.tensor([3, 1, 2]))
    assert sorted(few.tolist()) == [0, 1, 2]
    with pytest.raises(InputError, match=r"^training\.batch_by_length needs training\.shuffle=true$"):
        trial("test/per_step", batch_by_length=True, shuffle=False).config.check()


# --- several at once


def several(task, architecture=None, seeds=4, **training):
    return [trial(task, architecture, seed=seed, **training) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("task", "architecture", "training"),
    [
        ("test/per_step", None, {"loss_reduction": "steps", "weight_decay": 0.01, "drop_last": True}),
        ("test/per_step", "BufferedStackRNNForTransduction", {"loss_reduction": "steps"}),
        ("test/sets", None, {"dtype": "float64", "batch_size": 1, "shuffle": False}),
        ("test/pair", None, {"optimizer": "rmsprop", "max_grad_norm": 0.1, "learning_rate": [0.01, 0.02]}),
        ("test/language", None, {"optimizer": "sgd", "max_grad_value": 0.01, "loss_reduction": "strings"}),
        ("test/language", None, {"batch_by_length": True, "batch_size": 4, "loss_reduction": "strings"}),
    ],
)
def test_trials_at_once_are_as_those_alone(task, architecture, training):
    together, alone = (several(task, architecture, **training) for _ in range(2))
    assert can_join(together[0])
    at_once, one_by_one = train(together), [trained(experiment) for experiment in alone]
    for one, other, first, second in zip(at_once, one_by_one, together, alone, strict=True):
        assert one["together"] == 4
        assert [r["loss"] for r in one["history"]] == pytest.approx([r["loss"] for r in other["history"]], rel=1e-4)
        for name, parameter in first.model.named_parameters():
            torch.testing.assert_close(parameter, second.model.get_parameter(name), rtol=1e-3, atol=1e-5)


def test_trials_that_are_over_leave_the_others_as_they_are(monkeypatch):
    """Of four, two end early, then one; the others go on with their own optimizer's state."""
    ends = {0: 2, 1: 4, 2: 2, 3: 6}
    original = Trial.end_epoch

    def end_epoch(self, *arguments):
        return original(self, *arguments) or len(self.history) == ends[self.config.seed]

    monkeypatch.setattr(Trial, "end_epoch", end_epoch)
    options = {"loss_reduction": "steps", "epochs": 9, "learning_rate": 0.01}
    at_once = train(several("test/per_step", **options))
    alone = [trained(experiment) for experiment in several("test/per_step", **options)]
    assert [result["epochs"] for result in at_once] == list(ends.values())
    for one, other in zip(at_once, alone, strict=True):
        assert [r["loss"] for r in one["history"]] == pytest.approx([r["loss"] for r in other["history"]], rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_learning_rate_that_falls_leaves_the_others_as_they_are(monkeypatch, optimizer):
    """All begin with one rate; from the second epoch on that of one is lower, and later all have one again."""
    original = Trial.end_epoch

    def end_epoch(self, *arguments):
        over = original(self, *arguments)
        if len(self.history) == 1 + self.config.seed:
            self.learning_rate *= 0.5
        return over

    monkeypatch.setattr(Trial, "end_epoch", end_epoch)
    options = {"epochs": 5, "learning_rate": 0.05, "optimizer": optimizer, "shuffle": False}
    together, alone = (several("test/language", seeds=2, **options) for _ in range(2))
    at_once, one_by_one = train(together), [trained(experiment) for experiment in alone]
    assert [[trial.learning_rate for trial in trials] for trials in (together, alone)] == [[0.025, 0.025]] * 2
    for one, other in zip(at_once, one_by_one, strict=True):
        assert [r["loss"] for r in one["history"]] == pytest.approx([r["loss"] for r in other["history"]], rel=1e-4)


def test_a_trial_whose_loss_is_no_number_leaves_the_others_as_they_are():
    group, alone = several("test/per_step"), several("test/per_step")
    torch.nn.init.constant_(group[1].model.score.bias, math.nan)
    results = train(group)
    assert [result["diverged"] for result in results] == [False, True, False, False]
    assert results[2]["history"][-1]["loss"] == pytest.approx(trained(alone[2])["history"][-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("task", ["test/sets", "test/language"])
def test_each_trial_has_noise_of_its_own(task):
    """A trial draws the same noise alone and beside others, in training, validation and test."""
    values = config_values(task, epochs=2)
    values["model"] |= {"memory": "superposition", "operation_control": "gumbel_softmax", "evaluation_noise": True}
    configs = [dataclasses.replace(build(TaskConfig, values), seed=seed) for seed in range(3)]
    at_once = train([Trial(config) for config in configs])
    assert [result["together"] for result in at_once] == [3] * 3
    for together, config in zip(at_once, configs, strict=True):
        alone = trained(Trial(config))
        assert [r["loss"] for r in together["history"]] == pytest.approx([r["loss"] for r in alone["history"]])
        for name in ("accuracy", "nats") if task == "test/language" else ("accuracy",):
            for split, scores in together["scores"].items():
                assert scores[name] == pytest.approx(alone["scores"][split][name], abs=1e-5)
    assert len({result["history"][-1]["loss"] for result in at_once}) == 3


@pytest.mark.parametrize("memory", ["none", "stack", "superposition"])
@pytest.mark.parametrize("training", [{}, {"batch_by_length": True, "batch_size": 4}])
def test_each_trial_has_dropout_of_its_own(memory, training):
    """Between layers a trial drops the same numbers alone and beside others, whose strings are longer."""
    values = config_values("test/language", epochs=3, learning_rate=0.01, **training)
    values["model"] |= {"memory": memory, "num_hidden_layers": 3, "hidden_dropout": 0.5}
    together, alone, without = (
        [Trial(dataclasses.replace(build(TaskConfig, values), seed=seed)) for seed in range(3)] for _ in range(3)
    )
    assert [result["together"] for result in train(together)] == [3] * 3
    for one, other, plain in zip(together, alone, without, strict=True):
        trained(other)
        assert [r["loss"] for r in one.history] == pytest.approx([r["loss"] for r in other.history], rel=1e-4)
        for name, parameter in one.model.named_parameters():
            torch.testing.assert_close(parameter, other.model.get_parameter(name), rtol=1e-3, atol=1e-5)
        plain.model.model.cell.dropout = 0.0
        assert trained(plain)["history"][0]["loss"] != pytest.approx(other.history[0]["loss"], rel=1e-5)


def with_registers(seed=0):
    values = config_values("test/per_step")
    values["model"] |= {"memory": "registers", "memory_depth": 3}
    return Trial(dataclasses.replace(build(TaskConfig, values), seed=seed))


def test_own_memories_are_trained_at_once_too(registers):
    together, alone = ([with_registers(seed) for seed in range(3)] for _ in range(2))
    assert can_join(together[0])
    for one, other in zip(train(together), map(trained, alone), strict=True):
        assert one["together"] == 3
        assert [r["loss"] for r in one["history"]] == pytest.approx([r["loss"] for r in other["history"]], rel=1e-4)


def test_a_memory_that_looks_at_numbers_is_trained_alone(registers, monkeypatch):
    memory = type(with_registers().model.model.cell.memory)
    update = memory.update
    monkeypatch.setattr(
        memory, "update", lambda self, state, actions: update(self, state, actions) if actions.read.sum() >= 0 else None
    )
    assert not can_join(with_registers())


ATTENTION = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "dropout": 0, "attention_dropout": 0}
ATTENTION |= {"architectures": ["StackTransformerForCausalLM"], "layers": ["attention", "stack"]}


@pytest.mark.parametrize(
    ("task", "architecture", "fields"),
    [
        ("test/language", None, {"num_hidden_layers": 2, "hidden_dropout": 0.5, "output_dropout": 0.5}),
        ("test/language", None, ATTENTION),
        # The steps of buffers are not those of the strings, so noise is drawn as it goes.
        *(
            ("test/per_step", "BufferedStackRNNForTransduction", fields)
            for fields in (
                {"memory": "superposition", "operation_control": "gumbel_softmax"},
                {"num_hidden_layers": 2, "hidden_dropout": 0.5},
            )
        ),
    ],
)
def test_networks_that_are_trained_alone(task, architecture, fields):
    values = config_values(task, architecture, epochs=1)
    values["model"] = fields if fields is ATTENTION else values["model"] | fields
    configs = [dataclasses.replace(build(TaskConfig, values), seed=seed) for seed in range(2)]
    assert not can_join(Trial(configs[0]))
    assert [result["together"] for result in train(list(map(Trial, configs)))] == [1, 1]


# --- scores


def outputs(experiment, split="test"):
    examples = experiment.encoding.task.split(split, 0)
    rows = experiment.encoding.encode(examples)
    experiment.model.eval()
    with torch.no_grad():
        return examples, rows, run(experiment.model, rows.inputs, rows.labels.shape[1], experiment.encoding)


@pytest.mark.parametrize("task", ["test/per_step", "buffered"])
def test_accuracy_of_scored_positions(task):
    experiment = trial("test/per_step", "BufferedStackRNNForTransduction" if task == "buffered" else None)
    examples, rows, logits = outputs(experiment)
    right = owed = 0
    by_length = {}
    for i, example in enumerate(examples):
        hits = [
            int(logits[i, t].argmax()) == symbol
            for t, (symbol, scored) in enumerate(zip(example.target, example.mask, strict=True))
            if scored
        ]
        right, owed = right + sum(hits), owed + len(hits)
        by_length.setdefault(len(example.source), []).append(hits)
    scores = score(experiment.model, experiment.encoding, rows)
    assert scores["accuracy"] == pytest.approx(right / owed)
    for length, of_strings in by_length.items():
        share = sum(map(sum, of_strings)) / sum(map(len, of_strings))
        assert scores["by_length"]["accuracy"][str(length)] == [pytest.approx(share), len(of_strings)]


def test_a_string_is_right_where_all_sets_are():
    experiment = trial("test/sets", epochs=30, learning_rate=0.05, dtype="float64")
    trained(experiment)
    examples, rows, logits = outputs(experiment)
    right = 0
    for i, example in enumerate(examples):
        sets = [
            frozenset(k for k in range(2) if torch.sigmoid(logits[i, t, k]) >= 0.5) for t in range(len(example.source))
        ]
        right += sets == list(example.target)
    assert score(experiment.model, experiment.encoding, rows)["accuracy"] == pytest.approx(right / len(examples))


def test_transductions_score_as_their_greedy_outputs():
    experiment = trial("test/pair", epochs=25, learning_rate=0.02)
    trained(experiment)
    examples, rows, _ = outputs(experiment, "train")
    scores = score(experiment.model, experiment.encoding, rows)
    *_, begin, separator, end = range(len(experiment.encoding.symbols))
    form = DelimitedFormat(separator, end, begin)
    pairs = [(example.source, example.target) for example in examples]
    greedy = evaluate_transduction(experiment.model, form, pairs)
    assert scores["coarse"] == pytest.approx(greedy.exact_match)
    fine = 0.0
    with torch.no_grad():
        produced = form.outputs(
            experiment.model.eval(),
            [type("Pair", (), dict(zip(("source", "target"), pair, strict=True))) for pair in pairs],
        )
    for output, (_, target) in zip(produced, pairs, strict=True):
        ended = [*output, end] if len(output) <= len(target) else output
        wanted = [*target, end]
        hits = [place < len(ended) and ended[place] == symbol for place, symbol in enumerate(wanted)]
        fine += (hits.index(False) if False in hits else len(hits)) / len(wanted)
    assert scores["fine"] == pytest.approx(fine / len(pairs))
    assert 0 < scores["fine"] < 1


def test_nats_of_a_language():
    experiment = trial("test/language")
    examples, rows, logits = outputs(experiment)
    logs = torch.log_softmax(logits, -1)
    nats = -sum(float(logs[i, t, symbol]) for i, e in enumerate(examples) for t, symbol in enumerate(e.target))
    scores = score(experiment.model, experiment.encoding, rows)
    assert scores["nats"] == pytest.approx(nats / sum(len(example.target) for example in examples), rel=1e-5)


def test_the_difference_to_the_lower_bound():
    """A model that knows no more than its vocabulary, on a language whose strings are known: w m w reversed."""
    splits = {"train": {"number": 10}, "validation": {"number": 6}, "test": {"number": 2, "longest": 43}}
    values = config_values("test/language") | {"task": "dusell2020/marked_reversal", "options": {"splits": splits}}
    scores = trained(Trial(build(TaskConfig, values)))["scores"]
    task = make_task("dusell2020/marked_reversal", splits=splits)
    examples = task.split("test", 0)
    bound = task.lower_bound(examples, "test")
    assert scores["test"]["difference"] == pytest.approx(scores["test"]["nats"] - bound)
    assert scores["validation"]["difference"] > 0
    weighted = [
        (value, number * int(length)) for length, (value, number) in scores["test"]["by_length"]["difference"].items()
    ]
    total = sum(weight for _, weight in weighted)
    assert sum(value * weight for value, weight in weighted) / total == pytest.approx(scores["test"]["difference"])
    # As in the released figures: 41 symbols of which the first 20 are random, the centre and the end are not.
    by_length = scores["test"]["by_length"]
    for size, free in (("42", 20), ("44", 21)):
        above = by_length["nats"][size][0] - free * math.log(2) / int(size)
        assert by_length["difference_given_length"][size] == [pytest.approx(above), 2]
