"""The rules of a language model."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedModel

from .rules import Check, rule

MODEL_CHECKS: list[Check] = []
"""The checks of `check_model`, in its order: functions of the model."""


def check_model(model: PreTrainedModel) -> None:
    """Check that a language model follows the rules on which training, generation and evaluation rely.

    The model itself is not changed. For a test of each rule, iterate over `MODEL_CHECKS`.

    Args:
        model: a small one with random weights, of a vocabulary of 10 tokens or more, on the CPU in float32.

    Raises:
        AssertionError: naming the first rule that is broken, and how.

    Example:
        >>> from stack_lm import StackRNNConfig, StackRNNForCausalLM
        >>> check_model(StackRNNForCausalLM(StackRNNConfig(vocab_size=20, hidden_size=8)))
    """
    for check in MODEL_CHECKS:
        check(model)


def _varied(model: Any) -> Any:
    """A copy with large weights, whose continuations differ from state to state."""
    model = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.data *= 3
    return model.eval()


def _tokens(model: Any, *shape: int) -> Tensor:
    pad = model.config.pad_token_id or 0
    ids = torch.randint(model.config.vocab_size - 1, shape)
    return ids + (ids >= pad).long()  # any but the padding token


@rule("a model computes the same after saving and loading", MODEL_CHECKS)
def saving(model: Any) -> None:
    """Save a model, load it with `AutoModelForCausalLM`, and compare names of weights and logits."""
    model = _varied(model)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        opened: Any = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    loaded, report = opened
    assert not report["missing_keys"], f"not saved: {sorted(report['missing_keys'])}"
    assert not report["unexpected_keys"], f"saved, but not loaded: {sorted(report['unexpected_keys'])}"
    batch = _tokens(model, 2, 6)
    torch.testing.assert_close(loaded(batch).logits, model(batch).logits, rtol=0, atol=0)


@rule("generation, token by token from a state, continues a text as predictions from the whole text do", MODEL_CHECKS)
def generation(model: Any) -> None:
    """Compare the continuations of two prompts, one padded on the left, with those of whole texts."""
    model = _varied(model)
    pad = model.config.pad_token_id or 0
    prompts = [_tokens(model, 1, length) for length in (4, 2)]
    batch = torch.cat((prompts[0], F.pad(prompts[1], (2, 0), value=pad)))
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    options: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": pad}
    generated = model.generate(batch, attention_mask=mask, eos_token_id=None, **options)
    for row, prompt in zip(generated, prompts, strict=True):
        for _ in range(4):
            prompt = torch.cat((prompt, model(prompt).logits[:, -1:].argmax(-1)), dim=1)
        expected, got = prompt[0, -4:].tolist(), row[4:].tolist()
        assert got == expected, f"generated {got}; the whole text is continued by {expected}"


@rule("a model computes and learns in bfloat16 and under autocast", MODEL_CHECKS)
def half_precision(model: Any) -> None:
    """Compare losses with the loss in float32, within 3%, and compute their gradients."""
    model, batch = copy.deepcopy(model), _tokens(model, 2, 6)
    exact = model(batch, labels=batch).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(batch, labels=batch).loss
    torch.testing.assert_close(loss.float(), exact, rtol=0.03, atol=0)
    loss.backward()
    loss = model.to(torch.bfloat16)(batch, labels=batch).loss
    torch.testing.assert_close(loss.float(), exact, rtol=0.03, atol=0)
    loss.backward()
