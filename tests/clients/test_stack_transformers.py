"""Stack transformers in other programs: PEFT, Trainer, torch.compile, half precision, without the package."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from conftest import train_small
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from stack_lm import (
    StackTransformerConfig,
    StackTransformerForCausalLM,
    explain_backend,
)

pytestmark = pytest.mark.slow

NONDETERMINISTIC = {"memory": "nondeterministic", "memory_symbols": 2, "memory_size": 2}
LAYERS = {
    "attention": ["attention", "attention"],
    "superposition": ["attention", "superposition"],
    "stack": ["stack", "attention"],
    "nondeterministic": ["attention", NONDETERMINISTIC],
}
STACKS = {name: layers for name, layers in LAYERS.items() if name != "attention"}
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3]])


def make(layers, seed=0, **fields):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 19, "hidden_size": 8, "num_attention_heads": 2, "pad_token_id": 0, "initializer_range": 0.5}
    still = {"dropout": 0.0, "attention_dropout": 0.0}
    return StackTransformerForCausalLM(StackTransformerConfig(**sizes | still | fields, layers=layers))


TARGETS = {
    "all linear": "all-linear",
    "stack": ["controls.projection", "attention.output"],
    "attention": ["in_proj", "out_proj", "lm_head"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("layers", STACKS.values(), ids=STACKS)
def test_adapters_train_are_saved_and_merge(layers, targets, tmp_path):
    peft = pytest.importorskip("peft", reason="needs PEFT: pip install 'stack-lm[clients]'")
    base = make(layers).eval()
    before = base(IDS).logits.detach()
    config = peft.LoraConfig(r=3, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=targets)
    model = peft.get_peft_model(base, config).eval()
    assert explain_backend(model).startswith("numba: ")  # the scan is given what the adapted layer has made
    unmerged = model(IDS).logits.detach()
    assert (unmerged - before).abs().max() > 0.01
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(make(layers), tmp_path).eval()
    torch.testing.assert_close(again(IDS).logits, unmerged)
    model(IDS, labels=IDS).loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == ("lora_" in name), name
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(IDS).logits, unmerged, atol=1e-5, rtol=1e-4)


def arguments(directory, **options):
    return TrainingArguments(
        output_dir=str(directory),
        max_steps=6,
        save_steps=3,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
        **options,
    )


@pytest.mark.filterwarnings("ignore")
def test_trainer_saves_resumes_and_evaluates(tmp_path):
    torch.manual_seed(2)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(1, 19, (16, 8)).tolist()]
    data = {"train_dataset": rows, "eval_dataset": rows}
    layers = ["attention", "stack", "superposition"]
    whole, resumed, checkpointed = make(layers), make(layers, seed=3), make(layers)
    Trainer(whole, arguments(tmp_path / "whole"), **data).train()
    trainer = Trainer(resumed, arguments(tmp_path / "resumed"), **data)
    trainer.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    Trainer(checkpointed, arguments(tmp_path / "checkpointed", gradient_checkpointing=True), **data).train()
    for one, two, three in zip(whole.parameters(), resumed.parameters(), checkpointed.parameters(), strict=True):
        assert torch.equal(one, two)
        torch.testing.assert_close(one, three, atol=1e-4, rtol=1e-3)
    ids = torch.tensor([row["input_ids"] for row in rows])
    with torch.no_grad():
        expected = whole.eval()(ids, labels=ids).loss.item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoint-6")
    assert torch.equal(saved(ids).logits, whole(ids).logits)


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_one_compiled_graph(layers):
    torch._dynamo.reset()
    model = make(layers)
    twin = copy.deepcopy(model)
    mask = torch.tensor([[1] * 7, [0, 0, *[1] * 5]])
    inputs = {"input_ids": IDS, "labels": IDS, "attention_mask": mask, "output_actions": True}
    outputs = [run(**inputs) for run in (model, torch.compile(twin, fullgraph=True, backend="aot_eager"))]
    for output in outputs:
        output.loss.backward()
    torch.testing.assert_close(outputs[1].loss, outputs[0].loss)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_half_precision(layers, dtype, tmp_path):
    model = make(layers, initializer_range=0.3).eval()
    model.save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}
    loss = half(IDS, labels=IDS).loss
    assert loss.item() == pytest.approx(model(IDS, labels=IDS).loss.item(), rel=0.02)
    loss.backward()
    assert half.generate(IDS, max_new_tokens=3, do_sample=False).shape == (2, 10)


@pytest.fixture(scope="module")
def run_of_a_transformer(tmp_path_factory):
    """A trained stack transformer as training leaves it: tokenizer, code and card."""
    directory = tmp_path_factory.mktemp("transformer") / "small"
    model = {"model_type": "stack_transformer", "hidden_size": 16, "layers": ["attention", "stack", "superposition"]}
    train_small(directory, model, "generated:300", held_out=40, epochs=1, learning_rate=0.01)
    return str(directory)


ELSEWHERE = """
import sys
sys.modules["stack_lm"] = None
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
ids = torch.tensor([[2, 5, 6, 7]])
print([round(x, 4) for x in model(ids).logits[0, -1, :5].tolist()])
print(model.generate(ids, max_new_tokens=4, do_sample=False).tolist())
"""


def test_without_the_package(run_of_a_transformer, tmp_path):
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", ELSEWHERE, run_of_a_transformer]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    model = AutoModelForCausalLM.from_pretrained(run_of_a_transformer)
    ids = torch.tensor([[2, 5, 6, 7]])
    logits, generated = map(eval, done.stdout.splitlines()[-2:])
    assert logits == pytest.approx(model(ids).logits[0, -1, :5].tolist(), abs=1e-3)
    assert generated == model.generate(ids, max_new_tokens=4, do_sample=False).tolist()
