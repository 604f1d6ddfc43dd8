"""What is left of each element: `ModelScorer.memory_contents`, and the distributions of a trace."""

import numpy as np
import pytest
import torch
from conftest import byte_level_tokenizer
from scoring_models import WORDS, word_scorer

from stack_lm.core.errors import InputError
from stack_lm.memory import NeuralStack, register_memory


def replay(pushes, pops):
    """What is left of each push after each step, by taking from the top."""
    left, rows = [], []
    for push, pop in zip(pushes, pops, strict=True):
        for i in reversed(range(len(left))):
            taken = min(left[i], pop)
            left[i], pop = left[i] - taken, pop - taken
        left.append(push)
        rows.append([*left, *[0.0] * (len(pushes) - len(left))])
    return np.array(rows)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pop_control": 1.0},
        {"push_control": 1.0},
        {"push_control": "sigmoid"},
        {"input_encoding": "one_hot", "embedding_size": None},
    ],
)
def test_against_a_replay_of_pushes_and_pops(fields):
    made = word_scorer(**fields)
    (trace,) = made.trace([WORDS])
    contents = made.memory_contents(WORDS)
    assert contents.shape == (10, 11)
    assert not contents[:, 0].any()
    np.testing.assert_allclose(
        contents[:, 1:], replay(trace.signals["push_strength"], trace.signals["pop_strength"]), atol=1e-5
    )
    np.testing.assert_allclose(contents.sum(1), trace.signals["total_strength"], atol=1e-5)


def test_what_the_beginning_pushed_belongs_to_no_word():
    made = word_scorer(special=True, pop_control=0.125)
    (trace,) = made.trace([WORDS])
    contents = made.memory_contents(WORDS)
    assert contents[0, 0] > 0
    np.testing.assert_allclose(contents.sum(1), trace.signals["total_strength"], atol=1e-5)


def test_words_of_several_tokens():
    made = word_scorer(tokenizer=byte_level_tokenizer(), pop_control=0.5)
    words = ["the", "naïve", "dog"]
    ids = made.tokenizer(" ".join(words)).input_ids
    assert len(ids) > 3
    (trace,) = made.trace([words])
    contents = made.memory_contents(words)
    actions = made.model(torch.tensor([ids]), output_actions=True).actions
    left = replay(actions.push_strength[0].tolist(), actions.pop_strength[0].tolist())[-1]
    word_of = np.array(made.tokenizer(" ".join(words)).word_ids())
    np.testing.assert_allclose(contents[-1, 1:], [left[word_of == i].sum() for i in range(3)], atol=1e-5)
    np.testing.assert_allclose(contents.sum(1), trace.signals["total_strength"], atol=1e-5)
    assert np.allclose(np.triu(contents[:, 1:], 1), 0)  # nothing is there before it was pushed


@pytest.mark.usefixtures("registries")
def test_memories_without_a_strength_for_each_step_are_refused():
    @register_memory("other")
    class Other(NeuralStack):
        """Has an element before the first step."""

        def initial_state(self, batch_size, length=None, **kwargs):
            empty = super().initial_state(batch_size, length, **kwargs)
            return empty._replace(values=empty.values.new_zeros(batch_size, 1, 3), strengths=torch.zeros(batch_size, 1))

    with pytest.raises(InputError, match="memory='other' have no strength for each step"):
        word_scorer(memory="other").memory_contents(WORDS)
    with pytest.raises(InputError, match="memory='none'"):
        word_scorer(memory="none").memory_contents(WORDS)


def test_distributions_of_a_trace():
    made = word_scorer(pop_control="sigmoid", max_push=4)
    for words, trace in zip([WORDS, WORDS[:3]], made.trace([WORDS, WORDS[:3]]), strict=True):
        assert set(trace.distributions) == {"push_distribution", "read_distribution"}
        push = trace.distributions["push_distribution"]
        assert push.shape == (len(words), 5)
        np.testing.assert_allclose(push.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(push @ np.arange(5), trace.signals["push_strength"], atol=1e-5)


def test_each_head_has_strengths_of_its_own_and_their_mean_makes_trees():
    made = word_scorer(memory_size=4, num_heads=2, pop_control="expected_value")
    (trace,) = made.trace([WORDS])
    names = [f"{name}_strength" for name in ("push", "pop", "read")]
    heads = {name: [f"{name}_head_{i}" for i in (0, 1)] for name in names}
    assert trace.signals.keys() == {*names, *(head for of_name in heads.values() for head in of_name), "total_strength"}
    for name in names:
        mean = np.mean([trace.signals[head] for head in heads[name]], axis=0)
        np.testing.assert_allclose(trace.signals[name], mean, rtol=1e-6)
    assert trace.distributions["push_distribution_head_1"].shape == (len(WORDS), 4)
    assert not trace.operations
    assert made.parsing_signal == "push_strength"
    with pytest.raises(InputError, match="have no strength for each step"):
        made.memory_contents(WORDS)
