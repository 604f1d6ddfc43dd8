"""PEFT: adapters of every part of a model train, act, and merge into the weights that the compiled scan reads."""

import pytest
import torch
from conftest import MEMORIES, tiny_config
from transformers import AutoModelForCausalLM

from stack_lm import StackRNNForCausalLM, explain_backend

pytestmark = pytest.mark.slow
peft = pytest.importorskip("peft", reason="needs PEFT: pip install 'stack-lm[clients]'")

IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3]])
CONTROLLER = [f"cell.controller.{name}" for name in ("weight_ih_l0", "weight_hh_l0", "weight_reading")]
TARGETS = {
    "lm_head": {"target_modules": ["lm_head"]},
    "controls": {"target_modules": ["controls.projection"]},
    "controller": {"target_parameters": CONTROLLER},
    "all linear": {"target_modules": "all-linear"},
    "everything": {
        "target_modules": ["lm_head", "controls.projection", "embed_tokens"],
        "target_parameters": CONTROLLER,
    },
}


def adapted(targets, **fields):
    """A model, and it with adapters whose effect is not zero."""
    model = StackRNNForCausalLM(tiny_config(**fields)).eval()
    before = model(IDS).logits.detach()
    config = peft.LoraConfig(r=3, init_lora_weights=False, task_type="CAUSAL_LM", **targets)
    return before, peft.get_peft_model(model, config).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_unmerged_and_merged_are_equal_on_both_scans(targets):
    before, model = adapted(targets)
    unmerged = model(IDS).logits.detach()
    assert (unmerged - before).abs().max() > 0.01
    with model.disable_adapter():
        torch.testing.assert_close(model(IDS).logits, before)
    merged = model.merge_and_unload()
    assert type(merged) is StackRNNForCausalLM
    for backend in ("numba", "reference"):
        merged.set_scan_backend(backend)
        torch.testing.assert_close(merged(IDS).logits, unmerged, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_every_adapter_is_trained(targets):
    _, model = adapted(targets)
    model.train()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    optimizer = torch.optim.Adam(trained.values(), 0.05)
    losses = []
    for _ in range(5):
        loss = model(IDS, labels=IDS).loss
        loss.backward()
        for name, parameter in trained.items():
            assert parameter.grad.abs().sum() > 0, name
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore")
def test_the_scan_says_why_it_is_not_compiled():
    _, model = adapted(TARGETS["controls"])
    assert explain_backend(model).startswith("reference: numba cannot run this: controls.projection is a Linear")
    _, model = adapted(TARGETS["controller"])
    assert explain_backend(model).startswith("reference: numba cannot run this: controller is a ParamWrapper")
    _, model = adapted(TARGETS["lm_head"])
    assert explain_backend(model).startswith("numba: ")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda fields: "-".join(map(str, fields.values())))
def test_every_memory(memory):
    names = CONTROLLER if memory["memory"] != "none" else CONTROLLER[:2]
    torch.manual_seed(0)
    _, model = adapted({"target_parameters": names}, **memory)
    unmerged = model(IDS).logits.detach()
    torch.testing.assert_close(model.merge_and_unload()(IDS).logits, unmerged, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_is_saved_and_generates(tmp_path):
    StackRNNForCausalLM(tiny_config()).save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=3, init_lora_weights=False, task_type="CAUSAL_LM", **TARGETS["everything"])
    model = peft.get_peft_model(base, config).eval()
    expected = model(IDS).logits
    model.save_pretrained(tmp_path / "adapter")
    again = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    torch.testing.assert_close(again(IDS).logits, expected)
    arguments = {"max_new_tokens": 4, "do_sample": False}
    generated = model.generate(IDS[:, :3], **arguments)
    assert torch.equal(again.generate(IDS[:, :3], **arguments), generated)
    assert torch.equal(model.merge_and_unload().generate(IDS[:, :3], **arguments), generated)
