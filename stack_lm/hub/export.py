"""Small copies of models: weights in half precision, without code and training files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from ..core.atomic import atomic_directory
from ..core.errors import InputError
from ..core.messages import explaining
from ..models.kinds import kind_of
from .card import CARD, is_card, write_card
from .locating import check_model_directory
from .publishing import TOKENIZER_FILES, copy_model

Storage = Literal["float16", "bfloat16", "float32"]
WEIGHTS, CONFIG = "model.safetensors", "config.json"
# What a copy has besides these two: tokenizer, generation settings, card. The code is in the package.
_OTHERS = (*TOKENIZER_FILES, "generation_config.json", "*.md")


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        parameters: number of stored parameters.
        bytes: total size of all files.
        largest_error: largest absolute difference between a stored weight and the original.
        files: their names.
    """

    parameters: int
    bytes: int
    largest_error: float
    files: tuple[str, ...]


def export_model(source: str | Path, target: str | Path, dtype: Storage = "float16") -> Exported:
    """Copy a model with its tokenizer and its card, with weights stored in another precision.

    config.json says float32, so transformers loads and computes in float32; only the stored numbers are rounded. The
    copy has no code: loading it requires this package. `stack-lm push` adds the code.

    Args:
        source: a model directory, such as that of a run or a checkpoint.
        target: the new directory, which must be absent or empty.
        dtype: the dtype of the stored weights.

    Raises:
        InputError: if the source is no such directory, or a weight is too large for the precision.
    """
    source = Path(source)
    check_model_directory(source, WEIGHTS)
    with explaining(f"cannot read the model in {source}", Exception):  # of safetensors, of json
        weights = load_file(source / WEIGHTS)
        config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    kind = getattr(torch, dtype)
    stored = {name: weight.to(kind) if weight.is_floating_point() else weight for name, weight in weights.items()}
    largest = 0.0
    for name, weight in weights.items():
        difference = (stored[name].double() - weight.double()).abs().max().item() if weight.numel() else 0.0
        if not difference < float("inf"):
            worst, most = weight.abs().max().item(), torch.finfo(kind).max
            raise InputError(f"{dtype} cannot store {name}: it has {worst:g}, and {most:g} is the most")
        largest = max(largest, difference)
    with atomic_directory(target) as directory:
        save_file(stored, directory / WEIGHTS, metadata={"format": "pt"})
        (directory / WEIGHTS).chmod(0o644)
        settings = {key: value for key, value in config.items() if key != "auto_map"} | {"dtype": "float32"}
        text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
        (directory / CONFIG).write_text(text, encoding="utf-8")
        copy_model(source, directory, _OTHERS)
        card = directory / CARD
        if is_card(card) or (not card.exists() and kind_of(str(config.get("model_type")))):
            # It says how to load the model, and its name.
            write_card(directory, run=source, name=Path(target).resolve().name)
        files = sorted(directory.iterdir())
        size, names = sum(file.stat().st_size for file in files), tuple(file.name for file in files)
    return Exported(sum(weight.numel() for weight in weights.values()), size, largest, names)
