"""The most probable run of a model's nondeterministic stack: of words, of the chosen layer, and only if asked for."""

import numpy as np
import pytest
import torch
from conftest import byte_level_tokenizer, tiny_config
from scoring_models import WORDS, sharpened

from stack_lm import DeepStackRNNConfig, DeepStackRNNForCausalLM, ModelScorer, Parser, StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.memory.viterbi import best_runs
from stack_lm.parsing import tree_from_distances

OPTIONS = {"memory": "nondeterministic", "memory_size": 0, "memory_states": 2, "memory_symbols": 2}


def make(**fields):
    tokenizer = byte_level_tokenizer()
    return sharpened(StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **OPTIONS, **fields)), 8), tokenizer


def test_the_run_of_words_is_that_after_their_last_tokens():
    model, tokenizer = make()
    (trace, _) = ModelScorer(model, tokenizer).trace([WORDS, WORDS[:2]], logprobs=False)
    ids = tokenizer(" ".join(WORDS), return_offsets_mapping=True)
    ends = np.cumsum([len(word) + 1 for word in WORDS]) - 1
    last = [max(t for t, (_, stop) in enumerate(ids.offset_mapping) if stop <= end) for end in ends]
    assert len(ids.input_ids) > len(WORDS)
    with torch.no_grad():
        actions = model(torch.tensor([ids.input_ids]), output_actions=True).actions
    (run,) = best_runs(model.model.cell.memory, actions, [last[-1] + 1])
    assert trace.run.moves == tuple(run.moves[t] for t in last)
    assert trace.run.stacks == [run.stacks[t] for t in last]
    for name in ("states", "symbols", "depths"):
        np.testing.assert_array_equal(getattr(trace.run, name), getattr(run, name)[last])
    words = np.searchsorted(last, np.arange(len(ids.input_ids)))
    wanted = [-1 if run.elements[t] < 0 else words[run.elements[t]] for t in last]
    assert trace.run.elements.tolist() == wanted
    np.testing.assert_array_equal(trace.signals["run_depth"], trace.run.depths)
    assert trace.run.weight == pytest.approx(run.weight, abs=1e-4)


def test_the_run_is_found_when_asked_for(monkeypatch):
    found = []

    def counting(*arguments, **options):
        found.append(options["names"])
        return best_runs(*arguments, **options)

    monkeypatch.setattr("stack_lm.scoring.sentences.best_runs", counting)
    traces = ModelScorer(*make()).trace([WORDS, WORDS[:3]])
    assert found == []
    assert traces[1].run is traces[1].run
    assert found == [["sentence 2"]]


def test_without_a_nondeterministic_stack_there_is_none():
    tokenizer = byte_level_tokenizer()
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer)))
    (trace,) = ModelScorer(model, tokenizer).trace([WORDS])
    assert trace.run is None
    assert "run_depth" not in trace.signals


def test_its_decoder_is_gap_unless_another_is_named():
    parse = Parser(*make())(WORDS, is_split_into_words=True)
    assert parse.tree == tree_from_distances(WORDS, parse.distances, "gap")
    other = Parser(*make(), decoder="algorithm1")
    assert (Parser(*make()).decoder, other.decoder) == ("gap", "algorithm1")


def test_of_several_layers_one_is_named():
    tokenizer = byte_level_tokenizer()
    layers = [{**OPTIONS, "hidden_size": 6}, {**OPTIONS, "memory_states": 1, "memory_symbols": 3, "hidden_size": 5}]
    config = DeepStackRNNConfig(vocab_size=len(tokenizer), embedding_size=5, pad_token_id=0, layers=layers)
    model = sharpened(DeepStackRNNForCausalLM(config), 8)
    with pytest.raises(InputError, match=r"2 memory layers: name one with layer .* parse with: 0, 1"):
        Parser(model, tokenizer)
    runs = [ModelScorer(model, tokenizer, layer=layer).trace([WORDS])[0].run for layer in (0, 1)]
    assert runs[0].weight != pytest.approx(runs[1].weight)
    assert set(runs[1].states.tolist()) == {0}
    (trace,) = ModelScorer(model, tokenizer).trace([WORDS])
    assert trace.run is None
