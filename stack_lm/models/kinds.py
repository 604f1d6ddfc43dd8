"""Kinds of models: one entry has all that training, scoring and the hub need to know about a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import transformers
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..core.errors import InputError
from ..core.messages import did_you_mean, unknown_name
from ..core.plugins import Registry

TEXT, TREES = "text", "trees"


class ModelClass(NamedTuple):
    """A class of models of one kind.

    Attributes:
        model: the class.
        auto: the name of transformers' Auto class that builds it from a configuration; "" for none.
        trains_on: its training data: "text" (a language model, by `stack-lm train lm`), "trees" (a parser, by
            `stack-lm train parser`), or kinds of formal tasks (by `stack-lm train task`; see
            `stack_lm.tasks.Task.kind`).
    """

    model: type[PreTrainedModel]
    auto: str = ""
    trains_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelKind:
    """A kind of models, by the `model_type` of its configuration.

    Attributes:
        config: the class of its configurations.
        classes: those of its models, first the bare network.
        head_apart: whether a language model's logits are its `get_output_embeddings()`, a linear layer, applied
            directly to the `last_hidden_state` of its `base_model`. Scoring and validation then compute logits in
            parts, and only where they need them.
        continuous: whether its language model trains on continuous text (`data.mode`): all its state is in its memory
            layers, whose `reset` restarts a row, and its loss takes `shift_labels`.
        actions_only: whether the `forward` of its bare network takes `actions_only`: it then returns only the actions,
            and does not run the layers after the last memory. Parsing needs no more.
    """

    config: type[PreTrainedConfig]
    classes: tuple[ModelClass, ...]
    head_apart: bool = False
    continuous: bool = False
    actions_only: bool = False

    @property
    def name(self) -> str:
        """The `model_type`."""
        return self.config.model_type

    @property
    def models(self) -> tuple[type[PreTrainedModel], ...]:
        """The model classes."""
        return tuple(entry.model for entry in self.classes)


_KINDS: Registry[ModelKind] = Registry("model_type", "stack_lm.models.registered")


def register_model(kind: ModelKind) -> ModelKind:
    """Register a kind of models for the recipes, scoring, the hub code and transformers' Auto classes.

    A module that runs again registers its classes again.

    Raises:
        ValueError: if another kind has its name.
    """
    earlier = _KINDS.registered.get(kind.name)
    if earlier is not None and earlier.config.__qualname__ == kind.config.__qualname__:
        del _KINDS.registered[kind.name]
    _KINDS.register(kind.name, kind)
    AutoConfig.register(kind.name, kind.config, exist_ok=True)
    for entry in kind.classes:
        if entry.auto:
            getattr(transformers, entry.auto).register(kind.config, entry.model, exist_ok=True)
    return kind


def kind_of(config: PreTrainedConfig | str) -> ModelKind | None:
    """The kind of a configuration, or of a `model_type`; None if it is not registered, such as GPT-2's."""
    return _KINDS.get(config if isinstance(config, str) else config.model_type)


def classes_for(*purposes: str) -> dict[str, type[PreTrainedModel]]:
    """The classes that train on any of the given kinds of data (see `ModelClass.trains_on`), by name."""
    entries = [entry for kind in _KINDS.values() for entry in kind.classes]
    return {entry.model.__name__: entry.model for entry in entries if set(purposes) & set(entry.trains_on)}


def library_class(model_type: Any) -> type[PreTrainedModel] | None:
    """The causal language model of transformers of a type, such as "gpt2"; None for other types, and for ours."""
    if kind_of(str(model_type)) is not None or model_type not in CONFIG_MAPPING:
        return None
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(CONFIG_MAPPING[model_type], None)
    return None if isinstance(found, tuple) else found


def class_named(architecture: str, *purposes: str) -> type[PreTrainedModel] | None:
    """A class by its name: one of `classes_for`, or a causal language model of transformers; None for other names."""
    own = classes_for(*purposes).get(architecture)
    library = getattr(transformers, architecture, None)
    config = getattr(library, "config_class", None)
    known = own is None and config is not None and library_class(config.model_type) is library
    return library if known else own


def choose_class(fields: Mapping[str, Any], *purposes: str) -> type[PreTrainedModel]:
    """The class that the section `model` of a training configuration names.

    Args:
        fields: fields of the section: `model_type`, a kind ("stack_rnn" by default) or a causal language model of
            transformers such as "gpt2"; or `architectures`, a list of one class.
        purposes: its training data; see `ModelClass.trains_on`.

    Raises:
        InputError: if there is no such kind, or it has no such class.
    """
    library = library_class(fields.get("model_type")) if {TEXT, "per_step"} & set(purposes) else None
    if library is not None and fields.get("architectures") in (None, [library.__name__]):
        return library
    classes = classes_for(*purposes)
    names = fields.get("architectures")
    name = fields.get("model_type", None if names else "stack_rnn")
    if name is not None:
        kinds = {kind.name: kind for kind in _KINDS.values() if set(kind.models) & set(classes.values())}
        if name not in kinds:
            error = unknown_name("model.model_type", name, kinds)
            raise InputError(f"{error}; or a causal language model of transformers, such as 'gpt2'")
        classes = {key: each for key, each in classes.items() if each in kinds[name].models}
    if names and names not in [[key] for key in classes]:
        near = did_you_mean(names[0], classes) if isinstance(names, list) else ""
        raise InputError(f"model.architectures must be one of {', '.join(classes)}; got {names}{near}")
    return classes[names[0]] if names else next(iter(classes.values()))


def body_and_head(model: PreTrainedModel) -> tuple[nn.Module, nn.Module | None]:
    """Split a language model into its network and its head, a linear layer on `last_hidden_state`.

    If its entry does not allow this (`ModelKind.head_apart`): the whole model, and None.
    """
    kind = kind_of(model.config)
    if kind is None or not kind.head_apart:
        return model, None
    return model.base_model, model.get_output_embeddings()
