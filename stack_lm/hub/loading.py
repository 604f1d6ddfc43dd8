"""Load models and tokenizers from directories or the hub, with one-line errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..core.console import print_note, runs_command
from ..core.errors import InputError
from ..core.messages import explaining, shortened
from ..core.quiet import without_progress_bars
from ..models.kinds import kind_of
from .locating import cannot_load, locate, read_config
from .tokenizers import try_tokenizer

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Never run code from elsewhere, nor ask whether to: our own models use the code in this package, whatever `auto_map`
# says.
_OPTIONS: dict[str, Any] = {"trust_remote_code": False}


def load_pretrained(
    auto_class: Any,
    path: str,
    device: str | None = None,
    *,
    what: str = "language model",
    classes: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model, complete and on its device, and its tokenizer.

    Args:
        auto_class: such as `AutoModelForCausalLM`.
        path: see `locate`.
        device: such as "cpu" or "cuda:1"; None takes a GPU if there is one.
        what: the model, for messages.
        classes: Auto classes that replace `auto_class` for some kinds of models, by `model_type`.

    Raises:
        InputError: if it cannot be loaded, its weights are not finite or do not fit the model, its tokenizer has tokens
            that the model lacks, or there is no such device.
    """
    target = find_device(device)
    path = os.path.expanduser(path)
    try:
        options = _OPTIONS | locate(path)
        if Path(path).is_dir():
            kind_of(str(read_config(Path(path)).get("model_type")))  # which an installed plug-in may have
        config = AutoConfig.from_pretrained(path, **options)
        auto_class = classes.get(config.model_type, auto_class)
        if type(config) not in auto_class._model_mapping and not getattr(config, "auto_map", None):
            use = ", for `stack-lm parse` and `parse-f1` only" if config.model_type == "span_parser" else ""
            raise InputError(f"it is a model of type {config.model_type}{use}")
        with _output_as_notes():
            tokenizer = AutoTokenizer.from_pretrained(path, **options)
        with without_progress_bars():
            model, report = auto_class.from_pretrained(
                path, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
        _check_complete(report, what, config)
        _check_values(model, tokenizer)
        if tokenizer.init_kwargs.get("lowercase", "none") != "none":
            raise InputError("its tokenizer, of an earlier version, has its case rule outside tokenizer.json")
    except Exception as error:  # many kinds: of the hub, of safetensors, of json, ValueErrors of configurations
        raise cannot_load(what, path, error) from error
    return model.to(target), tokenizer


@contextmanager
def _output_as_notes() -> Iterator[None]:
    """In a command, print the output of compiled code as notes: tokenizers prints some, of any length and not in JSON.

    Elsewhere the process and its output belong to others, whose threads may print meanwhile.
    """
    if not runs_command():
        yield
        return
    try:
        output = os.dup(1)
    except OSError:  # a service that has closed it: nothing printed would arrive
        yield
        return
    with TemporaryFile() as notes:
        try:
            os.dup2(notes.fileno(), 1)
            yield
        finally:
            os.dup2(output, 1)
            os.close(output)
            notes.seek(0)
            for note in dict.fromkeys(notes.read().decode(errors="replace").splitlines()):
                print_note(shortened(note, 200))


def find_device(name: str | None = None) -> str:
    """A usable device: the one named, or else a GPU if there is one.

    Raises:
        InputError: if it is not usable.
    """
    device = name or ("cuda" if torch.cuda.is_available() else "cpu")
    with explaining(f"cannot use the device {device!r}", Exception):  # many kinds: of a missing one, or without data
        torch.ones(1, device=device).item()
    return device


def _check_complete(report: dict[str, Any], what: str, config: PreTrainedConfig) -> None:
    if report["missing_keys"]:
        kind = " and ".join(config.architectures or ["network without a class"])
        missing = ", ".join(sorted(report["missing_keys"])[:3])
        raise InputError(f"it is a {kind}, not a complete {what}: its weights lack {missing}")
    if report["mismatched_keys"]:
        name, stored, described = min(report["mismatched_keys"])
        raise InputError(f"its weights do not fit its config.json: {name} is {list(stored)}, not {list(described)}")


def _check_values(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    for name, weights in model.named_parameters():
        if weights.dtype in _FLOATS and weights.numel() and not all(map(torch.isfinite, weights.aminmax())):
            raise InputError(f"its weights are broken: {name} has values that are not finite")
    try_tokenizer(tokenizer)  # but for settings of padding
    size = getattr(model.config.get_text_config(), "vocab_size", None)
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if size is not None and largest >= size:
        raise InputError(f"its tokenizer has token ids up to {largest:,}, but the model only {size:,} tokens")
