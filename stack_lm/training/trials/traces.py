"""The computation of a network at each step of strings, as arrays: for probes and figures of your own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.atomic import atomic_file
from ...core.errors import InputError
from ...memory.strength import NeuralQueue, NeuralStack
from ...models.modeling_base import MemoryPreTrainedModel
from ...nn import actions_by_layer, memories, memory_states
from ...nn.controlled import ControlledMemory
from ...nn.interventions import Intervention, intervene
from ...tasks.scores import evaluation_mode
from .computation import TaskModel, given_example, load_task_model
from .config import is_task_model
from .encoding import Encoding

Trace = dict[str, Any]
_BATCH = 64  # strings


@torch.no_grad()
def traces(model: Any, strings: Sequence[str | Sequence[int]]) -> list[Trace]:
    """Trace a network over strings, step by step.

    A network of this package runs on the reference, with every memory layer reporting its actions; the contents of
    the memory follow from these. Choices with noise are drawn with a fixed seed.

    Args:
        model: the directory of a task's model (`load_task_model`) or of a causal language model; a name on the hub; a
            `TaskModel`; or a model, for strings of ids.
        strings: texts, in a task the symbols of a string, separated by spaces; or the ids that the network reads, one
            or more.

    Returns:
        For each string a dictionary of arrays over its T steps, L from 0 being the number of a layer:
            "ids" [T], and "symbols", T of them, if the model has names for them
            "probabilities" [T, V], after each step: of the outputs, of a set's symbols, or of labels
            "hidden_states.L" [T, H]: the inputs of the first layer, then the outputs of each
            "attention.L" [T, A, T]: the weights of A heads on earlier steps, in transformers of the library
            "memory.L.NAME" [T, ...]: actions, strengths (elements), weights of operations, and "reading" [T, R]
            "memory.L.contents.NAME" [T, N, ...]: the memory after each step (see `Memory.contents`), zeros where it
                has no element yet. The elements of stacks and queues are in the order of the steps that pushed them.
            "memory.L.reading_weights" [T, N]: of stacks and queues, the weight of each element in the reading
        For a network between buffers, "memory.L" has its own steps, and "probabilities" the positions of its output.

    Raises:
        InputError: if the model cannot be loaded, or a string cannot be read.
    """
    network, read, names, encoding = _opened(model)
    rows = [read(string) if isinstance(string, str) else list(string) for string in strings]
    for row, string in zip(rows, strings, strict=True):
        if not row:
            raise InputError(f"a trace needs a string of at least one symbol; got {string!r}")
    by_length: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(place)
    found: list[Trace] = [{} for _ in rows]
    with evaluation_mode(network):
        for places in (same[i : i + _BATCH] for same in by_length.values() for i in range(0, len(same), _BATCH)):
            ids = torch.tensor([rows[place] for place in places], device=network.device)
            for name, values in _run(network, ids, encoding).items():
                for place, value in zip(places, values.float().cpu().numpy(), strict=True):
                    found[place][name] = value
    return [
        {"ids": np.array(row)} | ({"symbols": names(row)} if names else {}) | of
        for row, of in zip(rows, found, strict=True)
    ]


def write_traces(path: str, found: Sequence[Trace]) -> None:
    """Write traces to a file, all of one model.

    Args:
        path: .json and .parquet have a row for each string, with nested lists. In .npz the arrays of all strings follow
            one another: those of string i begin at `offsets[i]` and end at `offsets[i + 1]`. Arrays with other steps,
            of buffered networks, have `offsets.NAME`; smaller contents are filled with zeros.
        found: as `traces` returned them.
    """
    columns = {name: [np.asarray(trace[name]) for trace in found] for name in found[0]}
    with atomic_file(path) as temporary:
        if path.endswith(".json"):
            rows = [{name: np.asarray(value).tolist() for name, value in trace.items()} for trace in found]
            Path(temporary).write_text(json.dumps(rows) + "\n", encoding="utf-8")
        elif path.endswith(".parquet"):
            import pyarrow
            from pyarrow import parquet

            table = pyarrow.table({name: [value.tolist() for value in values] for name, values in columns.items()})
            parquet.write_table(table, temporary)
        else:
            arrays: dict[str, np.ndarray] = {"offsets": _offsets(columns["ids"])}
            for name, values in columns.items():
                arrays[name] = np.concatenate(_filled(values))
                if not np.array_equal(_offsets(values), arrays["offsets"]):
                    arrays[f"offsets.{name}"] = _offsets(values)
            with open(temporary, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]


def _offsets(values: Sequence[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, values)])


def _filled(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays [T, ...] of one size but for T."""
    largest = np.max([value.shape[1:] for value in values], axis=0)
    sizes = [[(0, 0), *((0, most - size) for most, size in zip(largest, v.shape[1:], strict=True))] for v in values]
    return [np.pad(v, size) if any(map(any, size)) else v for v, size in zip(values, sizes, strict=True)]


def _opened(model: Any) -> tuple[Any, Any, Any, Encoding | None]:
    """A network; what reads a string as its ids; what names ids, if there is something; and the encoding of its task,
    if it has one."""
    if isinstance(model, str | Path) and is_task_model(model):
        model = load_task_model(model)
    if isinstance(model, TaskModel):
        network, task, encoding = model

        def read(text: str) -> list[int]:  # with `<s>`, blanks and the like
            return encoding.encode([given_example(task, text)]).inputs[0].tolist()

        return network, read, lambda ids: [encoding.symbols[i] for i in ids], encoding
    if isinstance(model, str | Path):
        from ...scoring.sentences import ModelScorer

        scorer = ModelScorer.from_pretrained(str(model))
        tokenizer = scorer.tokenizer
        return scorer.model, lambda text: tokenizer(text)["input_ids"], tokenizer.convert_ids_to_tokens, None
    return model, _no_tokenizer, None, None


def _no_tokenizer(text: str) -> list[int]:
    raise InputError(f"a model without its directory reads ids, not text; got {text!r}")


def _run(model: Any, ids: Tensor, encoding: Encoding | None) -> dict[str, Tensor]:
    """The trace of strings of one length [B, T], each tensor [B, ...]."""
    layers, own = memories(model), isinstance(model, MemoryPreTrainedModel)
    architecture = type(model).__name__
    buffered, labels = hasattr(model, "transduce"), architecture.endswith("ForSequenceClassification")
    arguments: dict[str, Any] = {} if buffered else {"use_cache": False, "output_hidden_states": True}
    if own:
        arguments["output_actions"] = True
    with ExitStack() as stack, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention = getattr(model.config, "_attn_implementation", None)
        if not own and attention is not None:  # only this one returns its weights
            stack.callback(model.set_attn_implementation, attention)
            model.set_attn_implementation("eager")
            arguments["output_attentions"] = True
        for layer in layers:
            # An intervention that changes nothing reports all actions, and the readings.
            stack.enter_context(intervene(layer, Intervention()))
        outputs = (model.base_model if labels else model)(ids, **arguments)
    logits = model.score(outputs.last_hidden_state) if labels else outputs.logits
    sets = architecture.endswith("ForKHotPrediction")
    if encoding is not None and encoding.library:
        logits, sets = logits[..., : len(encoding.answers)], encoding.task.kind == "next_symbols"
    trace: dict[str, Tensor] = {"probabilities": torch.sigmoid(logits) if sets else torch.softmax(logits.float(), -1)}
    for kind, name in (("hidden_states", "hidden_states"), ("attentions", "attention")):
        parts = getattr(outputs, kind, None) or ()
        trace |= {f"{name}.{i}": part.transpose(1, 2) if part.dim() == 4 else part for i, part in enumerate(parts)}
    for i, (layer, actions) in enumerate(
        zip(layers, actions_by_layer(getattr(outputs, "actions", None)), strict=False)
    ):
        trace |= {f"memory.{i}.{name}": part for name, part in {**actions, **_contents(layer, actions)}.items()}
    return trace


def _contents(layer: ControlledMemory, actions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The contents of a memory after each step, and the weights of its reading, each [B, T, N, ...]."""
    parts: dict[str, list[Tensor]] = {}
    memory = layer.memory
    for step, state in enumerate(memory_states(layer, actions)):
        for name, part in memory.contents(state).items():
            parts.setdefault(f"contents.{name}", []).append(part)
        if isinstance(memory, (NeuralStack, NeuralQueue)):
            weights = memory.reading_weights(state, actions["read_strength"][:, step])
            parts.setdefault("reading_weights", []).append(weights)
    return {name: _stacked(steps) for name, steps in parts.items()}


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Tensors [B, ...] of growing sizes as one [B, T, ...], with zeros where one is smaller."""
    largest = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    stacked = parts[0].new_zeros(largest[0], len(parts), *largest[1:])
    for step, part in enumerate(parts):
        place: tuple[Any, ...] = (slice(None), step, *(slice(size) for size in part.shape[1:]))
        stacked[place] = part
    return stacked
