"""The code saved with a model: it computes what the package computes, and runs without the package."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import CONTROLLERS, MEMORIES, tiny_config
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import stack_lm
from stack_lm import (
    BufferedStackRNNConfig,
    SpanParserConfig,
    StackRNNForCausalLM,
    StackRNNForSequenceClassification,
    StackRNNForTokenClassification,
    StackRNNModel,
    StackTransformerConfig,
)
from stack_lm.hub.code import CONFIGURATION, MODELING, auto_map, model_code, write_code
from stack_lm.memory import NeuralStack, register_memory
from stack_lm.models.registered import BUFFERED, DEEP, SPAN_PARSER, STACK_RNN, TRANSFORMER

IDS = torch.tensor([[3, 4, 5, 6, 7, 8], [9, 8, 7, 0, 0, 0]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    """A model of the package on the reference scan, and the saved code's with the same weights.

    The saved files are imported where the package cannot be.
    """
    folder = tmp_path_factory.mktemp("code")

    def both(config, name):
        place = folder / f"saved_{config.model_type}"
        with pytest.MonkeyPatch.context() as patch:
            for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "stack_lm"]:
                patch.delitem(sys.modules, loaded)
            patch.setitem(sys.modules, "stack_lm", None)  # importing it is an ImportError
            patch.syspath_prepend(folder)
            configuration = importlib.import_module(f"{place.name}.{CONFIGURATION}")
            modeling = importlib.import_module(f"{place.name}.{MODELING}")
        assert not issubclass(getattr(modeling, name), getattr(stack_lm, name))
        model = getattr(stack_lm, name)(config).eval()
        model.set_scan_backend("reference")
        saved_config = getattr(configuration, type(config).__name__).from_dict(json.loads(config.to_json_string()))
        saved = getattr(modeling, name)(saved_config).eval()
        saved.load_state_dict(model.state_dict())
        return model, saved

    for kind in (STACK_RNN, DEEP, TRANSFORMER, BUFFERED, SPAN_PARSER):
        write_code(kind, folder / f"saved_{kind.name}")
        (folder / f"saved_{kind.name}" / "__init__.py").touch()
    return both


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_every_memory_gives_the_same_logits(standalone, memory):
    for controller in CONTROLLERS if memory == MEMORIES[1] else CONTROLLERS[-1:]:
        model, saved = standalone(tiny_config(controller=controller, **memory), "StackRNNForCausalLM")
        arguments = {"attention_mask": MASK, "labels": IDS, "output_actions": True}
        torch.manual_seed(0)
        expected = model(IDS, **arguments)
        torch.manual_seed(0)
        result = saved(IDS, **arguments)
        assert torch.equal(result.logits, expected.logits)
        assert torch.equal(result.loss, expected.loss)
        for name, values in expected.actions.items():
            assert torch.equal(result.actions[name], values)


def test_training_takes_the_same_steps(standalone):
    model, saved = standalone(tiny_config(), "StackRNNForCausalLM")
    for each in (model, saved):
        each.train()(IDS, attention_mask=MASK, labels=IDS).loss.backward()
    for (name, expected), result in zip(model.named_parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(result.grad, expected.grad, msg=name)


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("StackRNNModel", "last_hidden_state"),
        ("StackRNNForSequenceClassification", "logits"),
        ("StackRNNForTokenClassification", "logits"),
        ("StackRNNForKHotPrediction", "logits"),
    ],
)
def test_every_class_is_there(standalone, name, outputs):
    model, saved = standalone(tiny_config(num_labels=3), name)
    assert torch.equal(saved(IDS, MASK)[outputs], model(IDS, MASK)[outputs])


def test_a_span_parser(standalone):
    config = SpanParserConfig(vocab_size=23, embedding_size=4, hidden_size=5, span_size=6, pad_token_id=0)
    model, saved = standalone(config, "SpanParserModel")
    arguments = {"fences": torch.tensor([[0, 1, 2, 4], [0, 1, -1, -1]]), "votes": torch.rand(2, 4, 4)}
    expected, result = (each(IDS, attention_mask=MASK, **arguments) for each in (model, saved))
    assert torch.equal(result.logits, expected.logits)
    assert torch.equal(result.loss, expected.loss)


def test_generation_and_buffers(standalone):
    model, saved = standalone(tiny_config(), "StackRNNForCausalLM")
    arguments = {"max_new_tokens": 5, "do_sample": False, "num_beams": 2}
    assert torch.equal(saved.generate(IDS[:1], **arguments), model.generate(IDS[:1], **arguments))
    config = BufferedStackRNNConfig(vocab_size=11, embedding_size=4, hidden_size=6, memory_size=3, target_vocab_size=11)
    model, saved = standalone(config, "BufferedStackRNNForTransduction")
    assert torch.equal(saved(IDS).logits, model(IDS).logits)


def test_a_transformer(standalone):
    cell = {"controller": "gru", "memory": "none", "hidden_size": 5}
    layers = ["attention", {"memory": "stack", "memory_size": 3}, cell]
    config = StackTransformerConfig(vocab_size=11, hidden_size=8, num_attention_heads=2, layers=layers)
    model, saved = standalone(config, "StackTransformerForCausalLM")
    assert torch.equal(saved(IDS, MASK).logits, model(IDS, MASK).logits)


def test_a_compiled_scan_needs_the_package(standalone):
    _, saved = standalone(tiny_config(), "StackRNNForCausalLM")
    saved.set_scan_backend("numba")
    with pytest.raises(ValueError, match="'numba' needs the package stack-lm, which is not installed"):
        saved(IDS)
    with pytest.raises(
        ValueError, match="scan_backend must be one of auto, reference, numba, triton, parallel; got 'c'"
    ):
        saved.set_scan_backend("c")


def test_save_pretrained_writes_code_if_asked(tmp_path):
    model = StackRNNForCausalLM(tiny_config())
    model.save_pretrained(tmp_path / "with", code=True)
    config = json.loads((tmp_path / "with" / "config.json").read_text())
    assert config["auto_map"] == auto_map(STACK_RNN)
    assert {path.name for path in (tmp_path / "with").glob("*.py")} == set(model_code(STACK_RNN))
    # No question whether to run it: the package is imported, so its classes are taken.
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "with")
    assert type(loaded) is StackRNNForCausalLM
    loaded.save_pretrained(tmp_path / "without")
    assert "auto_map" not in json.loads((tmp_path / "without" / "config.json").read_text())
    assert not list((tmp_path / "without").glob("*.py"))
    assert tiny_config().auto_map == {}  # other programs read it of any configuration


@pytest.mark.usefixtures("registries")
def test_a_memory_from_outside_has_no_code_here(tmp_path):
    @register_memory("saved_outside")
    class Outside(NeuralStack):
        pass

    model = StackRNNForCausalLM(tiny_config(memory="saved_outside"))
    with pytest.raises(ValueError, match="memory='saved_outside' is not part of stack-lm; save the model without code"):
        model.save_pretrained(tmp_path, code=True)
    model.save_pretrained(tmp_path)


LOAD = """
import json, sys
BLOCKED = json.loads(sys.argv[2])
for name in BLOCKED:
    sys.modules[name] = None
import torch, transformers
from safetensors.torch import save_file
found = {}
ids = torch.tensor([[3, 4, 5, 6]])
for name in sys.argv[3:]:
    model = getattr(transformers, name).from_pretrained(sys.argv[1] + "/" + name, trust_remote_code=True).eval()
    found[name] = model(ids)[0].detach().contiguous()
    if name == "AutoModelForCausalLM":
        found["generated"] = model.generate(ids, max_new_tokens=4, do_sample=False)
        model.save_pretrained(sys.argv[1] + "/again")
        again = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1] + "/again", trust_remote_code=True)
        found["again"] = again(ids).logits.detach().contiguous()
        if "stack_lm" not in BLOCKED:
            import stack_lm
            print(stack_lm.explain_backend(model))
generate = transformers.pipeline("text-generation", sys.argv[1] + "/AutoModelForCausalLM", trust_remote_code=True)
print(generate("a b", max_new_tokens=3, do_sample=False)[0]["generated_text"])
save_file(found, sys.argv[1] + "/found.safetensors")
assert (sys.modules.get("stack_lm") is None) == ("stack_lm" in BLOCKED)
"""


@pytest.mark.slow
@pytest.mark.parametrize("blocked", [["stack_lm", "numba"], []], ids=["without the package", "with the package"])
def test_trust_remote_code(tmp_path, blocked):
    tokenizer = stack_lm.train_word_tokenizer([("a b c d e f g h i j k l m n".split(), None)])
    models = {
        "AutoModel": StackRNNModel,
        "AutoModelForCausalLM": StackRNNForCausalLM,
        "AutoModelForSequenceClassification": StackRNNForSequenceClassification,
        "AutoModelForTokenClassification": StackRNNForTokenClassification,
    }
    expected = {}
    for name, kind in models.items():
        model = kind(tiny_config(vocab_size=len(tokenizer))).eval()
        model.save_pretrained(tmp_path / name, code=True)
        tokenizer.save_pretrained(tmp_path / name)
        expected[name] = model(IDS[:1, :4])[0].detach()
        if kind is StackRNNForCausalLM:
            expected["again"] = expected[name]
            expected["generated"] = model.generate(IDS[:1, :4], max_new_tokens=4, do_sample=False)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", LOAD, str(tmp_path), json.dumps(blocked), *models]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = load_file(tmp_path / "found.safetensors")
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, msg=lambda text, name=name: f"{name}: {text}")
    assert done.stdout.splitlines()[-1].startswith("a b ")
    if not blocked:
        assert done.stdout.startswith("numba: ")
