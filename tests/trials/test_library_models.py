"""Causal language models of transformers as rows: built from a configuration, trained and scored as ours are."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import yaml
from small_tasks import EchoLanguage  # noqa: F401  # registers the tasks
from transformers import AutoModelForCausalLM, GPT2Config

from stack_lm.cli.main import main as stack_lm
from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.models.kinds import class_named, library_class
from stack_lm.training.new_model import check_causal
from stack_lm.training.trials.computation import compute, load_task_model
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.learning import train
from stack_lm.training.trials.scores import predictions, run
from stack_lm.training.trials.traces import traces
from stack_lm.training.trials.trial import Trial

TINY = {
    "gpt2": {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 600},
    "mamba": {"hidden_size": 8, "num_hidden_layers": 1, "state_size": 4},
    "rwkv": {"hidden_size": 8, "num_hidden_layers": 2, "attention_hidden_size": 8},  # knows no padding
}
TINY_BERT = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


@pytest.mark.parametrize("model_type", TINY)
def test_a_language_model_of_transformers_is_trained_and_scored(model_type, tmp_path, capsys):
    fields = [f"model.{name}={value}" for name, value in TINY[model_type].items()]
    run = ["train", "lm", "data.source=generated:40", f"model.model_type={model_type}", *fields]
    assert stack_lm([*run, f"output_dir={tmp_path / 'run'}", "training.max_steps=2"]) == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    assert type(model) is library_class(model_type)
    assert "bfloat16" not in capsys.readouterr().err
    assert stack_lm(["perplexity", str(tmp_path / "run"), "--data", "generated:5", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["n_tokens"] == measured["n_words"] + 5  # the ends
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"transformers' {type(model).__name__}, made with stack-lm. It has {model.num_parameters():,} par" in card
    assert "import stack_lm" not in card
    assert "Merrill" not in card


@pytest.mark.parametrize("task", ["test/per_step", "test/sets", "test/language", "test/pair", "flare/first"])
def test_its_first_logits_answer_tasks(task, tmp_path):
    values = {"task": task, "model": {"model_type": "gpt2", **TINY["gpt2"], "resid_pdrop": 0.0, "embd_pdrop": 0.0}}
    values["training"] = {"epochs": 1, "batch_size": 4}
    if task == "flare/first":
        few = {"number": 8, "shortest": 0, "longest": 4}
        values["options"] = {"splits": dict.fromkeys(("train", "validation", "test"), few)}
    trial = Trial(dataclasses.replace(build(TaskConfig, values), seed=0))
    (result,) = train([trial])
    assert result["history"][0]["loss"] > 0
    assert set(result["scores"]["test"]) >= {trial.encoding.kind.shown[0], "by_length"}
    trial.save(tmp_path / "model")
    loaded = load_task_model(tmp_path / "model")
    assert loaded.encoding.library
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert torch.equal(loaded.model(ids).logits, trial.model.eval()(ids).logits)
    example = loaded.task.split("test", 0)[0]
    rows = loaded.encoding.encode([example])
    logits = run(loaded.model, rows.inputs, rows.labels.shape[1], loaded.encoding)[0].detach()
    sets = task == "test/sets"
    probabilities = torch.sigmoid(logits) if sets else torch.softmax(logits, -1)
    shown = compute(loaded, example)
    ((_, answers),) = predictions(loaded.model, loaded.encoding, rows)
    names = loaded.encoding.answers
    expected = ["/".join(names[k] for k in (row >= 0.5).nonzero().flatten()) for row in probabilities] if sets else None
    outputs = shown.outputs[-len(logits) :]  # a classifier's label after each prefix, of which the last is the answer
    assert outputs == (expected or [names[k] for k in logits.argmax(-1)])
    assert answers.split(" ") == [one for one, on in zip(outputs, rows.scored[0], strict=True) if on]
    (trace,) = traces(loaded, [rows.inputs[0].tolist()])
    np.testing.assert_allclose(trace["probabilities"][-len(logits) :], probabilities, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "bert", **TINY_BERT}, "it sees later"),
        ({"model_type": "t5"}, "or a causal language model of transformers, such as 'gpt2'"),
        ({"model_type": "reformer"}, "make sure that `is_decoder=True`"),
        ({"model_type": "xmod", **TINY_BERT}, "model.model_type 'xmod' reads no text: Input language unknown"),
        ({"model_type": "git", **TINY_BERT}, "model.model_type 'git' reads no text: Expected input batch_size"),
        ({"model_type": "gemma3n"}, "'gemma3n' is no model of text alone; 'gemma3n_text' is"),
        ({"model_type": "fuyu"}, "'fuyu' is no model of text alone\n"),
        ({"model_type": "gpt2", "n_embed": 8}, "model: unknown key 'n_embed'"),
        ({"model_type": "gpt2", "n_embd": 9, "n_head": 2}, "embed_dim"),
        ({"model_type": "gpt2", "architectures": ["StackRNNForCausalLM"]}, "or a causal language model of transf"),
    ],
)
@pytest.mark.parametrize("command", ["lm", "task"])
def test_bad_library_models_are_one_line(values, message, command, tmp_path, capsys):
    if command == "lm":
        run = ["train", "lm", str(tmp_path / "run.yaml"), f"output_dir={tmp_path / 'out'}"]
        config = {"model": values, "data": {"source": "generated:40"}}
    else:
        run = ["train", "task", str(tmp_path / "run.yaml"), "hao2018/reversal", "-o", str(tmp_path / "out")]
        config = {"model": values, "training": {"epochs": 1}}
        config["preset"] = {"paper": "none", "table": "none", "task": "any", "sizes": {}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    assert stack_lm(run) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_rounding_is_no_later_token():
    """A mixture of experts rounds a token by the tokens that share its experts."""
    model = library_class("gpt2")(GPT2Config(vocab_size=20, **TINY["gpt2"]))

    def experts(_, __, output):
        return output * (1 + 3e-6 * torch.rand(output.shape))

    model.transformer.ln_f.register_forward_hook(experts)
    check_causal(model)


def test_strings_longer_than_learned_positions_are_one_line():
    values = {"task": "test/per_step", "model": {"model_type": "gpt2", **TINY["gpt2"], "n_positions": 4}}
    values["training"] = {"epochs": 1}
    with pytest.raises(InputError, match=r"the model reads 4 symbols at most; a string has \d"):
        train([Trial(build(TaskConfig, values))])


def test_names_of_classes():
    assert class_named("GPT2LMHeadModel").__name__ == "GPT2LMHeadModel"
    assert class_named("GPT2Model") is None  # no head
    assert class_named("StackRNNForCausalLM", "language").__name__ == "StackRNNForCausalLM"
    assert class_named("StackRNNForCausalLM", "trees") is None
    assert class_named("Trainer") is None
    assert library_class("stack_rnn") is library_class("no_such_type") is None
