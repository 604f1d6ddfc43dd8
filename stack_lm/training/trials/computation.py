"""The computation of a trained model on one string of its task: answers, actions and memory at each step."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.errors import InputError
from ...core.messages import explaining
from ...core.trace import StackRun
from ...figures.computation import MOST_STEPS, Computation, Panel, run_panels
from ...kernels.runs import tables_for
from ...memory import NondeterministicStack, Value
from ...memory.controls import Noise
from ...memory.emission import Fixed
from ...memory.viterbi import best_runs
from ...models.kinds import class_named
from ...nn import (
    actions_by_layer,
    draw_noise,
    memories,
    memory_states,
    operation_labels,
    recurrent_layers,
    strengths_of,
    with_noise,
)
from ...nn.controlled import ControlledMemory
from ...nn.interventions import Intervention, intervene
from ...scoring.encoding import run_of_words
from ...tasks import Example, Task, make_task
from ...tasks.base import unscored_example
from ...tasks.kinds import KINDS
from .config import TASK_FILE, check_task_models
from .encoding import Encoded, Encoding
from .scores import decide, run

_FITTING = 20  # symbols on a page
_NUMBERS = 12  # of a vector
_STRENGTHS = {
    "pop_strength": "pop strength (elements)",
    "push_strength": "push strength (elements)",
    "read_strength": "read strength (elements)",
    "input_pop_strength": "pop strength, input buffer (elements)",
    "output_push_strength": "push strength, output buffer (elements)",
    "input_strength": "left in the input buffer (elements)",
}


class TaskModel(NamedTuple):
    """A trained model with its task."""

    model: Any
    task: Task
    encoding: Encoding


def load_task_model(directory: str | Path) -> TaskModel:
    """Load the model saved by a trial.

    Raises:
        InputError: if the directory has no such model.
    """
    path = Path(directory)
    check_task_models(path)
    with explaining(f"{path} has no model that can be loaded", Exception):  # many kinds: of files, of safetensors
        about = json.loads((path / TASK_FILE).read_text(encoding="utf-8"))
        name, options = about["task"], about["options"]
        (architecture,) = json.loads((path / "config.json").read_text(encoding="utf-8"))["architectures"]
        model: Any = class_named(architecture, *KINDS)
        model = model.from_pretrained(path).eval()
        ids = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    with explaining(f"{path} is a model of a task that cannot be made here", InputError):
        task = make_task(name, **options)
    begin, end = model.config.bos_token_id, model.config.eos_token_id
    encoding = Encoding(task, architecture, one_boundary=begin is not None and begin == end)
    _check_symbols(path, task, "symbols", sorted(ids, key=ids.__getitem__), encoding.symbols)
    _check_symbols(path, task, "answers", list(model.config.id2label.values()), encoding.answers)
    return TaskModel(model, task, encoding)


def _check_symbols(path: Path, task: Task, what: str, trained: Sequence[str], now: Sequence[str]) -> None:
    """Reject a task whose symbols have other ids than in training, as after a change of its files."""
    pairs = zip_longest(trained, now, fillvalue="none")
    differ = next(((number, *pair) for number, pair in enumerate(pairs, start=1) if pair[0] != pair[1]), None)
    if differ is not None:
        number, before, after = differ
        change = f"number {number} was {before!r} and is {after!r}"
        raise InputError(f"{path} was trained on other {what} than {task} has now: {change}")


def given_example(task: Task, text: str) -> Example:
    """The example of a string's symbols, separated by spaces; without targets if the task cannot compute them."""
    string = task.read(text)
    if type(task).example is Task.example:
        return unscored_example(task, string)
    return task.fill(task.example(string), task.window(len(string)))


def choose_example(task: Task, text: str | None, length: int | None, seed: int) -> Example:
    """An example of a task, given as a string or drawn at random.

    Args:
        task: any task.
        text: the string's symbols, separated by spaces.
        length: the length of a string to draw, in the task's unit; None takes a training length that fits on a page.
        seed: the seed of the draw.

    Raises:
        InputError: if the string is empty or not in the task's language, or the task has none of that length.
    """
    if text is not None:
        example = given_example(task, text)
        if not example.source:
            raise InputError(f"a figure of {task} needs a string of at least one symbol")
        return example
    if length is not None and not 0 < length <= MOST_STEPS:
        raise InputError(f"a figure shows strings of a {task.unit} from 1 to {MOST_STEPS}; got {length}")
    window = task.planned("train")
    shortest, longest = (window.shortest, window.longest) if length is None else (length, length)
    possible = list(task.length_weights(shortest, longest))
    if not possible:
        raise InputError(f"{task} has no string of a {task.unit} from {shortest} to {longest}")
    fitting = [size for size in possible if size <= _FITTING or task.unit != "length"]
    size = max(fitting) if fitting else min(possible)
    return task.fill(task.sample(random.Random(seed), size), task.window(size))


@torch.no_grad()
def compute(source: TaskModel, example: Example) -> Computation:
    """Run a model on an example, with one fixed draw of the noise of choices.

    Args:
        source: a model. For a network between buffers, the columns are its steps; those of its input and output, which
            it reads and writes at its own pace, are positions in the string.
        example: an example of its task.
    """
    model, task, encoding = source
    rows = encoding.encode([example])
    count = rows.inputs.shape[1]
    if encoding.buffered:
        count = model.config.steps_per_token * count + model.config.extra_steps
    noise = draw_noise(model, (1, count), torch.Generator().manual_seed(0))
    with with_noise(model, noise):
        logits = _outputs(model, rows, encoding).double()
    sets = task.kind == "next_symbols"
    shares = (torch.sigmoid(logits) if sets else torch.softmax(logits, -1)).T.numpy()
    symbols, answers = encoding.symbols, encoding.answers
    if sets:
        members = decide(model, logits, encoding).tolist()
        outputs = ["/".join(a for a, on in zip(answers, row, strict=True) if on) for row in members]
        targets = ["/".join(answers[k] for k in sorted(row)) for row in example.target]  # type: ignore[arg-type]
    else:
        outputs = [answers[k] for k in shares.argmax(0)]
        scored = zip(rows.labels[0].tolist(), rows.scored[0].tolist(), strict=True)
        targets = [answers[k] if on else "" for k, on in scored]
        targets = [""] * (len(outputs) - len(targets)) + targets
    inputs = [symbols[k] for k in rows.inputs[0].tolist()]
    given = np.array([[symbol == read for read in inputs] for symbol in symbols], float)
    steps, by_step, best = _steps(model, rows.inputs, encoding, count, noise)
    where = ", by position" if encoding.buffered else ""
    right_symbols = {symbol for target in targets for symbol in (target.split("/") if sets else [target])}
    panels = {
        "input": _of_symbols(f"input{where}", symbols, given, set(inputs), steps),
        "output": _of_symbols(f"output{where} (probability)", answers, shares, right_symbols, steps),
    }
    return Computation(inputs, targets, outputs, panels | by_step, encoding.buffered, best)


def _outputs(model: Any, rows: Encoded, encoding: Encoding) -> Tensor:
    """The logits of each output [T, K]; for classification, as if the string ended at each step."""
    outputs = rows.labels.shape[1]
    if encoding.task.kind != "classification":
        return run(model, rows.inputs, outputs, encoding)[0]
    steps = torch.arange(rows.inputs.shape[1])
    ended = [rows.inputs.where(steps <= t, encoding.padding) for t in steps]
    return torch.cat([run(model, inputs, outputs, encoding)[0] for inputs in ended])


def _of_symbols(name: str, symbols: Sequence[str], shares: np.ndarray, needed: Set[str], steps: int) -> Panel:
    """The probabilities of symbols that are targets or have some probability, padded to the number of steps."""
    shown = [k for k, symbol in enumerate(symbols) if symbol in needed or shares[k].max() > 0.005]
    filled = np.full((len(shown), steps), np.nan)
    filled[:, : shares.shape[1]] = shares[shown, :steps]
    return Panel(name, [symbols[k] for k in shown], filled)


def describe_network(model: Any) -> dict[str, str]:
    """Describe a network in a few words: its controller, if any, and its memories."""
    config = model.config
    controller = {"controller": config.controller} if hasattr(config, "controller") else {}
    return controller | {"memory": ", ".join(config.memory_names) or "none"}


def _steps(
    model: Any, inputs: Tensor, encoding: Encoding, count: int, noise: Noise
) -> tuple[int, dict[str, Panel], StackRun | None]:
    """The number of steps; the input, actions and memory contents at each; and the most probable run, if any."""
    layers = memories(model) or recurrent_layers(model)
    if not layers:
        return count, {}, None
    layer, panels, best = layers[0], {}, None
    recorded = _record(model, layer, inputs, encoding, noise)
    actions = {name: values.double().numpy() for name, values in recorded.items()}  # [T, ...]
    emissions = strengths_of(layer)
    fixed = {name for name, emission in emissions.items() if isinstance(emission, Fixed)}
    for name in (*_STRENGTHS, *(name for name in emissions if name not in _STRENGTHS)):
        if name in actions and name not in fixed:
            limits = None if name == "input_strength" else (0.0, 1.0)
            title = _STRENGTHS.get(name, f"{name.replace('_', ' ')} (elements)")
            panels[name] = Panel(title, [""], actions[name][None], limits)
    for name, labels in operation_labels(layer).items():
        shown, weights = [label.replace("_", " ") for label in labels], actions[name]  # [T, S, O]
        panels[name] = Panel(f"{name} (weight)", shown, weights.reshape(len(weights), -1).T)
    memory = layer.memory
    if not memory.actions:
        return count, panels, None
    pushed = [actions[field.name] for field in memory.actions if isinstance(field, Value)]
    if pushed and any(part.size for part in pushed):
        panels["value"] = _vectors("pushed vector", np.concatenate(pushed, axis=1))
    panels["reading"] = _vectors("reading", actions["reading"])
    if isinstance(memory, NondeterministicStack):
        best = _best_run(memory, actions)
        panels |= run_panels(best)
    elif pushed and (contents := _contents_panel(layer, recorded)) is not None:
        panels["memory"] = contents
    return count, panels, best


def _record(model: Any, layer: ControlledMemory, inputs: Tensor, encoding: Encoding, noise: Noise) -> dict[str, Tensor]:
    """The actions on a layer's memory and its readings, by name, each [T, ...]."""
    # An intervention that changes nothing reports all actions, and the readings.
    recording = intervene(layer, Intervention()) if layer.memory.actions else nullcontext()
    with recording, with_noise(model, noise):
        if encoding.buffered:
            outputs = model(inputs, output_actions=True)
        else:
            outputs = model.base_model(inputs, use_cache=False, output_actions=True)
    (actions, *_) = actions_by_layer(outputs.actions) or ({},)
    return {name: values[0] for name, values in actions.items()}


def _best_run(memory: NondeterministicStack, actions: dict[str, np.ndarray]) -> StackRun:
    """The most probable run of T steps, from the weights of all moves [T, ...]."""
    given = {name: values[None] for name, values in actions.items()}
    count = given["pop_weight"].shape[1]
    (run,) = best_runs(memory, given, names=["the string"], fill=tables_for([count]))
    return run_of_words(run, np.arange(count))


def _vectors(name: str, vectors: np.ndarray) -> Panel:
    numbers = vectors.T
    if len(numbers) > _NUMBERS:
        name = f"{name}, first {_NUMBERS} of {len(numbers)} numbers"
    numbers = numbers[:_NUMBERS]
    limits = (0.0, 1.0) if numbers.min() >= 0 and numbers.max() <= 1 else None
    return Panel(name, [str(d + 1) for d in range(len(numbers))], numbers, limits)


def _contents_panel(layer: ControlledMemory, recorded: Mapping[str, Tensor]) -> Panel | None:
    """The strengths of all elements, from the bottom, or the first numbers of all cells, from the top.

    Of a memory from outside the package, the first numbers of what `Memory.contents` names first; None for nothing.
    """
    name, held = "", []
    for state in memory_states(layer, {key: values[None] for key, values in recorded.items()}):
        contents = layer.memory.contents(state)
        name = next((known for known in ("strengths", "cells") if known in contents), next(iter(contents), ""))
        if not name:
            return None
        part = contents[name][0]  # [N], [N, D], or [S, N, D + 1] of several stacks
        part = part[0] if part.dim() == 3 else part
        held.append((part if part.dim() == 1 else part[:, 0]).double().numpy())
    # Elements and cells that were never used are left out, except one.
    used = max([1, *(int(np.flatnonzero(np.abs(part) > 0.005).max(initial=-1)) + 1 for part in held)])
    numbers = np.full((used, len(held)), np.nan)
    for step, column in enumerate(held):
        numbers[: len(column), step] = column[:used]
    if name == "strengths":
        labels = [str(step) for step in range(1, used + 1)]
        return Panel("strength of each element, by the step that pushed it (elements)", labels, numbers)
    limits = None if np.nanmin(numbers) < 0 or np.nanmax(numbers) > 1 else (0.0, 1.0)
    title = "first number of each cell, from the top" if name == "cells" else f"{name}: first number of each"
    return Panel(title, [str(cell) for cell in range(used)], numbers, limits)
