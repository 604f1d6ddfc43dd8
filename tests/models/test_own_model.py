"""A kind of model from outside the package, examples/memory_transformer.py: it gets what the built-in ones do."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import run_json
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

import stack_lm
from stack_lm import MemoryCache, ModelClass, ModelKind, ModelScorer, StackRNNConfig, register_model
from stack_lm.hub.code import has_code
from stack_lm.models.cache import CACHE_NAME
from stack_lm.nn import memories
from stack_lm.testing import check_model

SOURCE = Path(__file__).parents[2] / "examples" / "memory_transformer.py"
RECIPE = Path(__file__).parents[2] / "recipes" / "train_lm.py"
SENTENCE = "the dog that the cats fear chases a rabbit ."


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def own():
    """The user's module, imported as a program would."""
    yield load("memory_transformer", SOURCE)
    del sys.modules["memory_transformer"]


@pytest.fixture(scope="module")
def trained(own, tmp_path_factory):
    """The directory of a run of recipes/train_lm.py from a YAML file."""
    directory = tmp_path_factory.mktemp("own")
    (directory / "own.yaml").write_text(
        "model: {model_type: memory_transformer, hidden_size: 16, memories: [stack, superposition], memory_size: 4}\n"
        "data: {source: 'generated:300', held_out: 40}\n"
        "training: {epochs: 2, learning_rate: 0.01, threads: 1, loss_dtype: float32}\n"
        f"output_dir: {directory / 'run'}\n"
    )
    assert load("train_lm", RECIPE).main([str(directory / "own.yaml")]) == 0
    return str(directory / "run")


def make(own, **fields):
    model = own.MemoryTransformerForCausalLM(
        own.MemoryTransformerConfig(vocab_size=19, hidden_size=16, memory_size=3, pad_token_id=0, **fields)
    ).eval()
    for parameter in model.parameters():
        parameter.data *= 1.5
    return model


def ids(*shape):
    return torch.randint(1, 19, shape)


def test_it_keeps_the_rules(own):
    check_model(make(own, memories=["stack", "superposition"]))
    check_model(own.MemoryTransformerForCausalLM(own.MemoryTransformerConfig()))


def test_it_says_which_memories_it_has(own):
    model = make(own, memories=["stack", "superposition"])
    assert (
        [layer.memory.name for layer in model.memories()]
        == ["stack", "superposition"]
        == [layer.memory.name for layer in memories(torch.nn.Sequential(model, torch.nn.Linear(2, 2)))]
    )
    stack, superposition = model(ids(2, 5), output_actions=True).actions
    assert stack.push_strength.shape == (2, 5)
    assert superposition.operation.dim() == 4
    assert memories(stack_lm.StackRNNForCausalLM(StackRNNConfig(memory="none"))) == []


def test_a_cache_continues_as_the_whole_does(own):
    model = make(own, memories=["stack", "superposition"])
    sentence = ids(3, 7)
    cache = model(sentence[:, :4], use_cache=True).past_key_values
    copy = cache.clone()
    rest = model(sentence[:, 4:], past_key_values=cache).logits
    torch.testing.assert_close(rest, model(sentence).logits[:, 4:])
    assert (cache.get_seq_length(), cache.get_seq_length(3), copy.get_seq_length(), set(cache.states)) == (
        *(7, 7, 4), {0, 1, 2, 3, 4},
    )  # fmt: skip
    copy.batch_select_indices(torch.tensor([2, 0]))
    torch.testing.assert_close(model(sentence[[2, 0], 4:], past_key_values=copy).logits, rest[[2, 0]])
    with pytest.raises(ValueError, match="is the state of 2 sequences; the input has 3"):
        model(sentence, past_key_values=copy)


def test_training_writes_its_metrics(trained):
    records = [json.loads(line) for line in (Path(trained) / "metrics.jsonl").read_text().splitlines()]
    validated = [record for record in records if "eval_perplexity" in record]
    assert validated[-1]["eval_perplexity"] < validated[0]["eval_perplexity"] < 250
    assert 0 < validated[-1]["eval_push_0_mean"] < 3
    assert "eval_push_1_mean" not in validated[-1]  # it has no strengths
    card = (Path(trained) / "README.md").read_text()
    assert "needs the package stack-lm" in card


def test_it_is_scored_and_parsed(trained, capsys):
    scorer = ModelScorer.from_pretrained(trained, device="cpu")
    assert (scorer.layer, scorer.parsing_signal) == (0, "push_strength")
    sentences = [SENTENCE.split(), SENTENCE.split()[:4]]
    traces = scorer.trace(sentences)
    for words, trace in zip(sentences, traces, strict=True):
        tokens = torch.tensor([[scorer.tokenizer.bos_token_id, *scorer.tokenizer(" ".join(words)).input_ids[1:]]])
        outputs = scorer.model(tokens, output_actions=True)
        expected = outputs.logits.log_softmax(-1)[0, :-1].gather(-1, tokens[0, 1:, None])[:, 0]
        np.testing.assert_allclose(trace.logprobs, expected.detach(), atol=1e-4)
        strengths, operations = (outputs.actions[0].push_strength, outputs.actions[1].operation)
        np.testing.assert_allclose(trace.signals["push_strength"], strengths[0, 1:].detach(), atol=1e-5)
        np.testing.assert_allclose(trace.actions[1]["operation"], operations[0, 1:].detach(), atol=1e-5)
    contents = scorer.memory_contents(sentences[0])
    np.testing.assert_allclose(contents.sum(1), traces[0].signals["total_strength"], atol=1e-5)
    parsed = run_json(capsys, "parse", trained, SENTENCE, "--device", "cpu")
    assert parsed["signal"] == "push_strength"
    assert re.sub("[()]", "", parsed["parses"][0]["tree"]) == SENTENCE


def test_it_is_saved_with_its_code(own, trained, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(trained)
    assert type(model) is own.MemoryTransformerForCausalLM
    model.save_pretrained(tmp_path / "model", code=True)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["auto_map"] == {
        "AutoConfig": "memory_transformer.MemoryTransformerConfig",
        "AutoModel": "memory_transformer.MemoryTransformer",
        "AutoModelForCausalLM": "memory_transformer.MemoryTransformerForCausalLM",
    }
    assert (tmp_path / "model" / SOURCE.name).read_text() == SOURCE.read_text()
    model.push_to_hub("someone/model", dry_run=tmp_path / "pushed", tags=["mine"])
    assert {"README.md", SOURCE.name, "model.safetensors"} <= {path.name for path in (tmp_path / "pushed").iterdir()}
    model.save_pretrained(tmp_path / "plain")
    assert not json.loads((tmp_path / "plain" / "config.json").read_text()).get("auto_map")


LOAD = """
import sys, torch, transformers
from safetensors.torch import save_file
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
save_file({"logits": model(torch.tensor([[3, 4, 5]])).logits.detach()}, sys.argv[2])
"""


@pytest.mark.slow
def test_its_code_runs_elsewhere(own, trained, tmp_path, monkeypatch):
    from safetensors.torch import load_file

    model = AutoModelForCausalLM.from_pretrained(trained).eval()
    model.save_pretrained(tmp_path / "model", code=True)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-c", LOAD, str(tmp_path / "model"), str(tmp_path / "found.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = model(torch.tensor([[3, 4, 5]])).logits
    torch.testing.assert_close(load_file(tmp_path / "found.safetensors")["logits"], expected)
    without = [sys.executable, "-c", "import sys\nsys.modules['stack_lm'] = None\n" + LOAD, *command[3:]]
    done = subprocess.run(without, capture_output=True, text=True)
    assert done.returncode == 1
    assert "stack_lm" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_commands_import_it(trained):
    command = [sys.executable, "-c", "from stack_lm.cli.main import main; main()", "parse", trained, SENTENCE]
    done = subprocess.run([*command, "--import", str(SOURCE)], capture_output=True, text=True)
    assert re.sub("[()]", "", done.stdout.splitlines()[0]) == SENTENCE, done.stderr
    done = subprocess.run(command, capture_output=True, text=True)
    assert re.search(r"stack-lm: error: cannot load .*|parse: error: cannot load", done.stderr), done.stderr


def test_attention_of_transformers_keeps_its_keys_in_the_cache():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=19, **sizes)).eval()
    sentence, cache = ids(2, 6), MemoryCache()
    parts = [model(part, use_cache=True, **{CACHE_NAME: cache}).logits for part in sentence.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(sentence).logits)
    options = {"num_beams": 3, "max_new_tokens": 4, "do_sample": False, "attention_mask": torch.ones_like(sentence)}
    generated = model.generate(sentence, **{CACHE_NAME: MemoryCache()}, **options)
    assert torch.equal(generated, model.generate(sentence, **options))


def test_names_of_kinds_are_kept(own):
    class Other(GPT2Config):
        model_type = "stack_rnn"

    with pytest.raises(ValueError, match="the model_type name 'stack_rnn' is taken"):
        register_model(ModelKind(Other, ()))
    load("memory_transformer", SOURCE)  # again, as from a notebook
    again = sys.modules["memory_transformer"]
    assert type(AutoConfig.for_model("memory_transformer")) is again.MemoryTransformerConfig
    load("memory_transformer", SOURCE)
    own.register_model(ModelKind(own.MemoryTransformerConfig, (ModelClass(own.MemoryTransformerForCausalLM),)))
    assert not has_code(GPT2Config())
