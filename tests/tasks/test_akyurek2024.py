"""RegBench: documents against their automata, and the score of any symbol that may come next."""

import copy
import random

import pytest
import torch

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task
from stack_lm.tasks.checks import check_examples
from stack_lm.training.trials.encoding import Encoding
from stack_lm.training.trials.scores import score


def test_documents_are_strings_of_their_automaton():
    task = make_task("akyurek2024/regbench", longest=8)
    check_examples(task)
    for seed in range(30):
        example = copy.deepcopy(task.sample(random.Random(seed), 12))  # as workers get it
        automaton = task.automaton(random.Random(seed))
        assert 1 <= min(map(len, automaton.arcs.values())) <= max(map(len, automaton.arcs.values())) <= 3
        assert all(state not in row.values() for state, row in automaton.arcs.items())
        strings = [part.split() for part in task.write((*example.source, example.target[-1])).split("|")[1:-1]]
        assert len(strings) == 12
        assert {len(string) for string in strings} <= set(range(1, 9))
        sets = [symbols - {"</s>"} for string in strings for symbols in automaton.next_symbols(string)]
        found = [{task.vocabulary[symbol] for symbol in following} for following in task.continuations(example)]
        assert found == sets
        assert example.target[:-1] == example.source[1:]
        assert example.mask == tuple(task.vocabulary[symbol] != "|" for symbol in example.target)


class Oracle(torch.nn.Module):
    """Predicts one number for each step, whatever it reads."""

    device, config = torch.device("cpu"), None

    def __init__(self, answers, width):
        super().__init__()
        self.answers, self.width = answers, width

    def forward(self, inputs, **_):
        logits = torch.nn.functional.one_hot(self.answers[:, : inputs.shape[1]], self.width).float()
        return type("Output", (), {"logits": logits})


def test_an_answer_is_right_if_it_may_come_next():
    task = make_task("akyurek2024/regbench", longest=5)
    encoding = Encoding(task, "StackRNNForTokenClassification")
    example = task.sample(random.Random(1), 10)
    encoded = encoding.encode([example])
    width = len(task.vocabulary)
    largest = torch.tensor([[max(following) for following in example.following]])
    assert score(Oracle(largest, width), encoding, encoded)["accuracy"] == 1
    always = torch.zeros_like(largest)
    share = [0 in following for following, counts in zip(example.following, example.mask, strict=True) if counts]
    assert score(Oracle(always, width), encoding, encoded)["accuracy"] == pytest.approx(sum(share) / len(share))
    assert score(Oracle(always + width - 1, width), encoding, encoded)["accuracy"] == 0  # | is no answer


def test_numbers_are_those_of_the_released_code():
    task = make_task("akyurek2024/regbench")
    drawn = [task.sample(random.Random(seed), 10) for seed in range(40)]
    automata = [task.automaton(random.Random(seed)) for seed in range(400)]
    strings = [part.split() for each in drawn for part in task.write(each.source).split("|")[1:]]
    assert {len(string) for string in strings} == set(range(1, 50))
    assert {len(row) for automaton in automata for row in automaton.arcs.values()} == {1, 2, 3}
    assert max(len(automaton.arcs) for automaton in automata) == 12
    assert len(task.vocabulary) == 18 + 1
    numbers = [(plan.number, plan.shortest, plan.longest) for plan in task.default_plan.values()]
    assert numbers == [(5_000, 10, 19), (250, 10, 19), (250, 10, 19)]


def test_options():
    with pytest.raises(InputError, match="states must be"):
        make_task("akyurek2024/regbench", states=3)
