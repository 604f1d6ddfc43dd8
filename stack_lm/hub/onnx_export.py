"""One step of a language model as an ONNX graph: token ids and a state to logits, actions and the next state."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers import AutoModelForCausalLM

from ..atomic import atomic_directory
from ..cache import CACHE_NAME, MemoryCache
from ..errors import InputError
from ..layers import recurrent_layers
from ..memory import MultipopSuperpositionStack, NondeterministicStack, StackState, SuperpositionStack, map_tensors
from ..model_kinds import kind_of
from .card import CARD
from .loading import load_pretrained
from .locating import check_model_directory
from .publishing import TOKENIZER_FILES, copy_model

GRAPH, DESCRIPTION = "model.onnx", "onnx.json"
_PACKAGES = ("onnx", "onnxscript")
_OTHERS = ("config.json", "generation_config.json", *TOKENIZER_FILES)
# The part of a card that says how to load the model, and its replacement.
_OWN_USE = re.compile(r"^## Use\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_USE = f"""## Use

`{GRAPH}` is one step of the model for ONNX runtimes: token ids and a state in, logits and the next state out.
`{DESCRIPTION}` names its tensors. The loop around it is in the package's `docs/deployment.md`.

"""
_FAR = 2**30  # steps after which a memory of limited size has reached its limit
_MORE = 3  # extra elements of an example over a first state, so that their number is not a special value
_IDS = "input_ids"


@dataclass(frozen=True)
class ExportedStep:
    """The result of an export to ONNX.

    Attributes:
        inputs, outputs: the inputs and outputs of the graph, as in onnx.json.
        bytes: total size of all files.
        files: their names.
    """

    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]
    bytes: int
    files: tuple[str, ...]


class _Part(NamedTuple):
    """A tensor of a state.

    Attributes:
        name: such as "memory_strengths".
        first: before the first step, of one sequence [1, ...].
        growing: the dimension that grows with each step; None: its size is fixed.
    """

    name: str
    first: Tensor
    growing: int | None

    @property
    def shape(self) -> list[int | str]:
        """Shapes for a batch, with names for the dimensions that vary."""
        names = {0: "batch", self.growing: "elements"}
        return [names.get(i, size) for i, size in enumerate(self.first.shape)]

    def example(self, batch_size: int, more: int) -> Tensor:
        """An example tensor of this form, with a few extra elements."""
        shape = [batch_size, *self.first.shape[1:]]
        if self.growing is not None:
            shape[self.growing] += more
        return torch.rand(shape).to(self.first.dtype)

    @property
    def description(self) -> dict[str, Any]:
        """The record for onnx.json."""
        numbers = self.first[0]
        first: Any = float(numbers.flatten()[0])
        if not bool((numbers == first).all()):  # a first state that was learned
            first = numbers.tolist()
        start = ["batch", *numbers.shape]
        return _tensor(self.name, self.first, self.shape) | {"initial_shape": start, "initial": first}


class StepModel(nn.Module):
    """One step of a language model, with only tensors as inputs and outputs.

    Args:
        model: a language model with memory layers.
        max_elements: the maximum number of elements of each memory; None: one per step.

    Raises:
        InputError: if a memory grows in two dimensions, does not say how it grows, or cannot be limited to the
            maximum asked for.
    """

    def __init__(self, model: nn.Module, max_elements: int | None = None) -> None:
        super().__init__()
        self.model, self.max_elements = model, max_elements
        cache = MemoryCache()
        growing: list[int | None] = []
        self.layers = recurrent_layers(model)
        limited = [max_elements is not None and _limit(layer.memory, max_elements) for layer in self.layers]
        if max_elements is not None and not any(limited):
            names = ", ".join(repr(layer.memory.name) for layer in self.layers)
            raise InputError(
                f"max_elements={max_elements} goes with stacks, queues, deques and superposition; the elements of "
                f"memory={names} cannot be limited"
            )
        for number, layer in enumerate(self.layers):
            state, dimensions = _empty(layer, max_elements)
            cache.update_state(number, state, 0)
            growing += dimensions
        flat, self.form = pytree.tree_flatten_with_path(cache)
        self.parts = [
            _Part(self._name(path), tensor, dimension) for (path, tensor), dimension in zip(flat, growing, strict=True)
        ]

    def _name(self, path: Sequence[Any]) -> str:
        keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        return "_".join([f"layer_{keys[0]}", *keys[1:]] if len(self.layers) > 1 else keys[1:] or keys)

    @property
    def state(self) -> list[_Part]:
        """The non-empty tensors of the state."""
        return [part for part in self.parts if 0 not in part.first.shape]

    def forward(self, input_ids: Tensor, *state: Tensor) -> dict[str, Tensor]:
        """Run one step.
        Args:
            input_ids: [B].
            state: the tensors of `state`, by name.

        Returns:
            `logits` [B, V], the actions of the step [B, ...], and the next state, named `next_...`.
        """
        given = iter(state)
        batch_size = input_ids.shape[0]
        whole = [
            part.first.new_zeros(batch_size, *part.first.shape[1:]) if 0 in part.first.shape else next(given)
            for part in self.parts
        ]
        cache: MemoryCache = pytree.tree_unflatten(whole, self.form)
        done = self.model(input_ids.unsqueeze(1), output_actions=True, **{CACHE_NAME: cache})
        results = {"logits": done.logits[:, 0]}
        actions = done.actions if isinstance(done.actions, tuple) else (done.actions,)
        numbers = [number for number, layer in enumerate(self.layers) if layer.memory.actions]
        for number, of_layer in zip(numbers, actions, strict=False):  # without a memory, an empty one
            prefix = f"layer_{number}_" if len(self.layers) > 1 else ""
            results |= {prefix + name: action[:, 0] for name, action in of_layer.items()}
        if self.max_elements is not None:
            for number in range(len(self.layers)):
                kept, dropped = _limited(cache.state(number), self.max_elements)
                cache.update_state(number, kept, 0)
                if dropped is not None:
                    results[f"layer_{number}_dropped" if len(self.layers) > 1 else "dropped"] = dropped
        last = zip(self.parts, pytree.tree_leaves(cache), strict=True)
        return results | {f"next_{part.name}": tensor for part, tensor in last if 0 not in part.first.shape}


def _empty(layer: Any, max_elements: int | None) -> tuple[Any, list[int | None]]:
    """A layer's state before the first step, for one sequence, and the dimension in which each of its tensors grows.

    A memory starts with a few empty elements, because ONNX graphs do not support empty tensors, and operations on a
    memory touch some elements.
    """
    memory = layer.memory
    if isinstance(memory, NondeterministicStack):  # and elements of zeros would not be empty
        raise InputError(f"memory={memory.name!r} has no step in ONNX: its state grows in two dimensions at once")
    first = layer.initial_state(1)
    form = map_tensors(lambda part: part.to("meta"), first.memory)
    far, farther = (memory.after(form, steps) for steps in (_FAR, _FAR + 1))
    if far is None:
        raise InputError(f"memory={memory.name!r} does not say how it grows (`Memory.after`), so it cannot be exported")
    growing = [_difference(*pair) for pair in zip(pytree.tree_leaves(far), pytree.tree_leaves(farther), strict=True)]
    grows = any(dimension is not None for dimension in growing)
    shapes = far if not grows else memory.after(form, max(1, getattr(memory, "max_pop", 0)))
    if max_elements is not None and isinstance(shapes, StackState):
        growing = [None] * len(growing)
        size = shapes.values.shape[2]
        shapes = StackState(shapes.values.new_empty(1, max_elements, size), shapes.strengths.new_empty(1, max_elements))
    empty = map_tensors(lambda part: torch.zeros(part.shape, dtype=part.dtype), shapes)
    state = first._replace(memory=empty)
    n_before = len(pytree.tree_leaves(first)) - len(growing) - 1  # the controller's; the reading comes last
    return state, [*[None] * n_before, *growing, None]


def _limit(memory: Any, most: int) -> bool:
    """Limit a memory in superposition to a number of elements; True if the memory can be limited at all."""
    if isinstance(memory, MultipopSuperpositionStack | SuperpositionStack):
        memory.depth, memory.overflow = min(most, memory.depth or most), "truncate"
        return True
    return memory.state_type is StackState


def _difference(first: Tensor, second: Tensor) -> int | None:
    differ = (i for i, (one, other) in enumerate(zip(first.shape, second.shape, strict=True)) if one != other)
    return next(differ, None)


def _limited(state: Any, most: int) -> tuple[Any, Tensor | None]:
    """A state cut to `most` elements, and the strength [B] lost by this; other memories have a fixed size."""
    memory = state.memory
    if not isinstance(memory, StackState):
        return state, None
    values, strengths = memory
    dropped = strengths.new_zeros(strengths.shape[0])
    while strengths.shape[1] > most:
        least = strengths.argmin(dim=1, keepdim=True)  # an element that is dead, if there is one
        dropped = dropped + strengths.gather(1, least).squeeze(1)
        places = torch.arange(strengths.shape[1] - 1).unsqueeze(0)
        places = places + (places >= least)
        strengths = strengths.gather(1, places)
        values = values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[2]))
    return state._replace(memory=StackState(values, strengths)), dropped


def check_packages() -> None:
    """Check that the packages of the extra `export` are installed.

    Raises:
        InputError: naming the first missing one.
    """
    for name in _PACKAGES:
        if find_spec(name) is None:
            raise InputError(f"an ONNX export needs {name}, which is not installed: pip install 'stack-lm[export]'")


def export_onnx(source: str | Path, target: str | Path, max_elements: int | None = None) -> ExportedStep:
    """Write one step of a language model for ONNX runtimes, with its tokenizer, its card and a description in JSON.

    Args:
        source: a model directory.
        target: the new directory, which must be absent or empty.
        max_elements: maximum number of elements of a memory, whose tensors have this size from the start. None: they
            grow with each step.

    Raises:
        InputError: if the model cannot be loaded, is not a language model with a state, or cannot be exported; or if
            packages are missing.
    """
    check_packages()
    source = Path(source)
    check_model_directory(source)
    with atomic_directory(target) as directory:
        model, tokenizer = load_pretrained(AutoModelForCausalLM, str(source), "cpu")
        if not recurrent_layers(model):
            raise InputError(f"{source} is a {type(model).__name__} without memory layers; it has no step with a state")
        kind = kind_of(model.config)
        if kind is not None and not kind.continuous:
            raise InputError(
                f"{source} is a {type(model).__name__}, which keeps more than the states of its memories, such as keys "
                "and values; its step cannot be exported"
            )
        step = StepModel(model.float().eval(), max_elements).eval()
        program, outputs = trace(step)
        program.save(directory / GRAPH, external_data=False)
        description = _describe(step, outputs, model, tokenizer)
        text = json.dumps(description, indent=2) + "\n"
        (directory / DESCRIPTION).write_text(text, encoding="utf-8")
        copy_model(source, directory, _OTHERS)
        if (source / CARD).is_file():
            card = (source / CARD).read_text(encoding="utf-8", errors="replace")
            (directory / CARD).write_text(_OWN_USE.sub(lambda _: _USE, card), encoding="utf-8")
        files = sorted(directory.iterdir())
        size, names = sum(file.stat().st_size for file in files), tuple(file.name for file in files)
    return ExportedStep(tuple(description["inputs"]), tuple(description["outputs"]), size, names)


def trace(step: StepModel) -> tuple[Any, dict[str, Tensor]]:
    """The graph of a step for any batch size and number of elements, and an example of its outputs."""
    batch, elements = torch.export.Dim("batch"), torch.export.Dim("elements")
    arguments = (torch.zeros(2, dtype=torch.long), *(part.example(2, _MORE) for part in step.state))
    dynamic = tuple({0: batch} | ({} if p.growing is None else {p.growing: elements}) for p in step.state)
    with torch.no_grad(), _quiet():
        outputs = step(*arguments)
        program = torch.onnx.export(
            step,
            arguments,
            dynamo=True,
            dynamic_shapes=({0: batch}, dynamic),
            input_names=[_IDS, *(part.name for part in step.state)],
            output_names=list(outputs),
            verbose=False,
        )
    return program, outputs


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's notes on unneeded packages and its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _tensor(name: str, tensor: Tensor, shape: Sequence[int | str]) -> dict[str, Any]:
    return {"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(shape)}


def _describe(step: StepModel, outputs: dict[str, Tensor], model: Any, tokenizer: Any) -> dict[str, Any]:
    """The content of onnx.json."""
    described = []
    parts = {f"next_{part.name}": part for part in step.state}
    for name, tensor in outputs.items():
        shape: list[int | str] = ["batch", *tensor.shape[1:]]
        part = parts.get(name)
        if part is not None and part.growing is not None:
            added = tensor.shape[part.growing] - part.example(1, _MORE).shape[part.growing]
            shape[part.growing] = f"elements + {added}"
        described.append(_tensor(name, tensor, shape) | ({} if part is None else {"state": part.name}))
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    return {
        "graph": GRAPH,
        "architecture": type(model).__name__,
        "memory": [layer.memory.name for layer in step.layers],
        "max_elements": step.max_elements,
        "inputs": [
            {"name": _IDS, "dtype": "int64", "shape": ["batch"]},
            *(part.description for part in step.state),
        ],
        "outputs": described,
        "special_tokens": {
            name: {"token": getattr(tokenizer, name), "id": getattr(tokenizer, f"{name}_id")}
            for name in names
            if getattr(tokenizer, name) is not None
        },
    }
