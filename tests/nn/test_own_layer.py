"""Layers from outside the package in a transformer: causal, with padding, a cache, and saved models."""

import json

import pytest
import torch
from torch import nn

from stack_lm import StackTransformerConfig, StackTransformerForCausalLM
from stack_lm.hub.code import has_code

SIZES = {"vocab_size": 19, "hidden_size": 8, "num_attention_heads": 2}
MAMBA = "transformers.models.mamba.modeling_mamba.MambaMixer"


class RunningSum(nn.Module):
    """A causal layer, also with an output as a tuple."""

    def __init__(self, size, scale=1.0):
        super().__init__()
        self.map, self.scale = nn.Linear(size, size), scale

    def forward(self, hidden):
        return self.map(hidden.cumsum(1) * self.scale), None


class Mean(RunningSum):
    """It sees what comes later."""

    def forward(self, hidden):
        return hidden - hidden.mean(1, keepdim=True)


class Wide(RunningSum):
    """It changes the size."""

    def forward(self, hidden):
        return torch.cat((hidden, hidden), -1)


def make(module, **settings):
    torch.manual_seed(0)
    layers = [{"module": module, "settings": settings}, "stack"]
    return StackTransformerForCausalLM(StackTransformerConfig(layers=layers, **SIZES)).eval()


@pytest.mark.parametrize(
    ("module", "settings"), [(f"{__name__}.RunningSum", {"scale": 0.5}), (MAMBA, {"state_size": 4})]
)
def test_a_layer_from_elsewhere(module, settings, tmp_path):
    model, ids = make(module, **settings), torch.randint(1, 19, (3, 6))
    expected = model(ids).logits
    for pad in ((2, 0), (0, 2), (1, 1)):
        padded = nn.functional.pad(ids, pad)
        found = model(padded, attention_mask=(padded != 0).long()).logits[:, pad[0] : pad[0] + 6]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    cache = model(ids[:, :2], use_cache=True).cache
    torch.testing.assert_close(model(ids[:, 2:], cache=cache).logits, expected[:, 2:], rtol=1e-4, atol=1e-5)
    options = {"num_beams": 2, "max_new_tokens": 3, "do_sample": False}
    assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))
    model.train()(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.save_pretrained(tmp_path)
    loaded = StackTransformerForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(loaded(ids).logits, expected)
    assert has_code(model.config) == (module == MAMBA)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["layers"][0] == {"module": module, "settings": settings}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"module": "nowhere.Layer"}, r"layers\[0\].module: cannot import nowhere.Layer: .*\(--import FILE.py"),
        ({"module": "torch.nn.Nothing"}, r"layers\[0\].module: cannot import torch.nn.Nothing"),
        ({"module": "torch.optim.Adam"}, r"layers\[0\].module must be the import path of a torch module"),
        ({"module": MAMBA, "sizes": 3}, "unknown key 'layers"),
        ({"module": MAMBA, "settings": {"state_size": "x"}}, r"layers\[0\].settings are not for transformers"),
        ({"module": f"{__name__}.RunningSum", "settings": {"scal": 1}}, r"layers\[0\].settings are not for .*'scal'"),
        ({"module": f"{__name__}.Mean"}, r"layers\[0\] must be causal"),
        ({"module": f"{__name__}.Wide"}, r"layers\[0\] must keep the shape \[2, 4, 8\]; got \[2, 4, 16\]"),
    ],
)
def test_layers_that_cannot_be(layer, message):
    with pytest.raises(ValueError, match=message):
        StackTransformerForCausalLM(StackTransformerConfig(layers=[layer], **SIZES))(torch.ones(1, 3, dtype=torch.long))
