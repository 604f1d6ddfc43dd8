"""The base class of models with memory layers: this package's and yours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from transformers import PreTrainedModel

from ..nn import memories
from ..nn.controlled import ControlledMemory, set_scan_backend
from .cache import take_cache


class MemoryPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialising of models that have memory layers."""

    _skip_keys_device_placement = ["cache", "past_key_values"]  # noqa: RUF012
    # `stack_lm` sets this to load `stack_lm.hub.code`, which imports the models and is therefore not imported by them.
    load_hub: ClassVar[Any] = None

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        generation = getattr(self, "generation_config", None)
        if generation is not None and hasattr(type(config), "temperature"):
            generation.temperature = None  # transformers has copied the field, which is that of the memory's controls

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.forward = take_cache(cls.forward)

    def memories(self) -> list[ControlledMemory]:
        """The memory layers, in order; see `stack_lm.nn.memories`."""
        return memories(self)

    def begin_update(self, step: int) -> None:
        """Hook that training calls before each update of the weights, for models that depend on the number of updates.

        Args:
            step: number of updates so far.
        """

    @classmethod
    def from_pretrained(cls, *args: Any, scan_backend: str | None = None, **kwargs: Any) -> Any:
        """transformers' `from_pretrained`, which also takes the backend of the scan (see `set_scan_backend`)."""
        result = super().from_pretrained(*args, **kwargs)
        if scan_backend is not None:
            model = result[0] if isinstance(result, tuple) else result  # with the loading info, if requested
            model.set_scan_backend(scan_backend)
        return result

    def set_scan_backend(self, name: str) -> None:
        """Run the scan on "auto" (the fastest that can), "reference", "numba" (CPU) or "triton" (GPU).

        The setting belongs to the process, not the model: it is not saved.

        Raises:
            ValueError: for another name. Only the scan checks that the backend can run.
        """
        set_scan_backend(self, name)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # torch's own initialisation, as in most of the papers' code. transformers guards torch's functions here, so
        # that weights just loaded are left alone. Modules without parameters of their own are not visited.
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()

    def save_pretrained(self, save_directory: Any, *args: Any, code: bool = False, **kwargs: Any) -> Any:
        """transformers' `save_pretrained`, which also writes the model's code.

        Args:
            save_directory: where to save.
            *args: see transformers.
            code: write the model's code beside it, and name it in config.json, so that the model loads with
                `trust_remote_code`; see `stack_lm.hub.code`.
            **kwargs: see transformers.

        Raises:
            ValueError: if the code of the model, or of its memory, cannot be saved.
        """
        if not self.is_remote_code():  # transformers copies the files from which such a model was loaded
            if getattr(self.config, "auto_map", None):
                self.config.auto_map = {}  # of files that may be missing
            if code and self.load_hub is not None:
                self.load_hub().add_code(self.config, Path(save_directory))
        return super().save_pretrained(save_directory, *args, **kwargs)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:  # type: ignore[override]
        """Upload the model with its code and a card; see `stack_lm.hub.code.push_model` for the options."""
        if self.load_hub is None:  # in the code saved with a model
            parent: Any = super()
            return str(parent.push_to_hub(repo_id, **options))
        return str(self.load_hub().push_model(self, repo_id, **options))
