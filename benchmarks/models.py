"""The subjects of the scan's benchmark: `nn.LSTM`, cells, whole language models, and ways to generate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.nn.cell import StackRNNCell

VOCABULARY = 10_000
# The models of Merrill et al. (2019); the other memories with strengths; an LSTM; and pushes of a fixed strength with
# pops of half of it, so that half of the pushed strength stays.
_READ = {"read_control": "expected_value", "max_read": 3}
_PUSH = {"push_control": "expected_value", "max_push": 3}
_POP = {"pop_control": "expected_value", "max_pop": 3}
PUSH_STRENGTHS = (1.0, 0.5, 0.1, 0.02)
PRESETS: dict[str, dict[str, Any]] = {
    "u1": {"memory": "stack", "pop_control": 1.0, **_PUSH, **_READ},
    "d1": {"memory": "stack", "push_control": 1.0, **_POP, **_READ},
    **{memory: {"memory": memory, **_PUSH, **_POP, **_READ} for memory in ("stack", "queue", "deque")},
    "lstm": {"memory": "none"},
    **{
        f"d={push}": {"memory": "stack", "push_control": push, "pop_control": push / 2, "read_control": 1.0}
        for push in PUSH_STRENGTHS
    },
}


class Size(NamedTuple):
    """A measured preset and its sizes."""

    preset: str = "u1"
    batch: int = 32
    length: int = 64
    hidden: int = 100
    element: int = 16
    embedding: int = 50

    def config(self) -> StackRNNConfig:
        """The model's configuration."""
        fields = dict(PRESETS[self.preset])
        if fields["memory"] != "none":
            fields["memory_size"] = self.element
        return StackRNNConfig(vocab_size=VOCABULARY, embedding_size=self.embedding, hidden_size=self.hidden, **fields)


def lstm_run(size: Size, device: torch.device, backward: bool) -> Callable[[], None]:
    """`nn.LSTM` over random inputs, in its default layout: time first."""
    lstm = nn.LSTM(size.embedding, size.hidden).to(device)
    shape = (size.length, size.batch)
    return _run(lambda inputs: lstm(inputs)[0], lstm, shape, size, device, backward)


def cell_run(size: Size, device: torch.device, backward: bool, backend: str = "auto") -> Callable[[], None]:
    """A stack RNN's cell over random inputs."""
    cell = StackRNNCell(size.config()).to(device)
    cell.scan_backend = backend
    shape = (size.batch, size.length)
    return _run(lambda inputs: cell.scan(inputs).outputs, cell, shape, size, device, backward)


def _run(
    function: Callable[[Tensor], Tensor],
    module: nn.Module,
    shape: tuple[int, int],
    size: Size,
    device: torch.device,
    backward: bool,
) -> Callable[[], None]:
    inputs = torch.randn(*shape, size.embedding, device=device, requires_grad=backward)
    gradient = torch.randn(*shape, size.hidden, device=device)

    def forward_only() -> None:
        with torch.no_grad():
            function(inputs)

    def forward_and_backward() -> None:
        module.zero_grad(set_to_none=True)
        inputs.grad = None
        function(inputs).backward(gradient)

    return forward_and_backward if backward else forward_only


class PlainLSTM(nn.Module):
    """A language model in plain torch: embedding, `nn.LSTM`, `cross_entropy(linear(h))`."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """The loss []."""
        logits = self.head(self.lstm(self.embedding(ids))[0][:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def step_runs(size: Size, device: torch.device, adam: bool = False) -> dict[str, Callable[[], None]]:
    """Forward and backward passes of whole language models; with `adam`, weight updates too."""
    ids = torch.randint(VOCABULARY, (size.batch, size.length), device=device)
    plain = PlainLSTM(VOCABULARY, size.embedding, size.hidden)
    models: dict[str, Any] = {
        "stack": StackRNNForCausalLM(size.config()),
        "bfloat16": StackRNNForCausalLM(size.config()),
        "reference": StackRNNForCausalLM(size.config()),
        "own_lstm": StackRNNForCausalLM(size._replace(preset="lstm").config()),
    }
    models["reference"].set_scan_backend("reference")

    def stepping(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.Adam(model.to(device).train().parameters(), fused=True)

        def run() -> None:
            model.zero_grad(set_to_none=True)
            loss().backward()
            if adam:
                optimizer.step()

        return run

    def own_loss(model: Any, **options: Any) -> Tensor:
        loss: Tensor = model(ids, labels=ids, use_cache=False, **options).loss
        return loss

    runs = {"lstm": stepping(plain, partial(plain, ids))}
    for name, model in models.items():
        options = {"loss_dtype": "bfloat16"} if name == "bfloat16" else {}
        runs[name] = stepping(model, partial(own_loss, model, **options))
    return runs


def _by_generate(model: Any, ids: Tensor, count: int) -> None:
    ids = ids.to(model.device)
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)


def _by_forward(model: StackRNNForCausalLM, ids: Tensor, count: int) -> None:
    ids, cache = ids.to(model.device), None
    for _ in range(count):
        outputs = model(ids, cache=cache, use_cache=True)
        ids, cache = outputs.logits.argmax(-1), outputs.cache


def _by_step(model: Any, ids: Tensor, count: int) -> None:
    cell = model.model.cell
    ids, state = ids.to(model.device)[:, 0], cell.initial_state(1)
    for _ in range(count):
        layers, _actions, state = cell.step(model.model.embed_tokens(ids), state)
        ids = model.lm_head(layers[-1]).argmax(-1)


GENERATION: dict[str, Callable[[Any, Tensor, int], None]] = {
    "model.generate, greedy": _by_generate,
    "model(...) with its cache, argmax": _by_forward,
    "cell.step, lm_head, argmax": _by_step,
}
