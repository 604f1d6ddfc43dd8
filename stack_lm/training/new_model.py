"""New models, with a checked configuration and the weights of an initial model, if any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..core.checks import build, checks_of
from ..core.errors import InputError
from ..core.messages import explaining, shortened, unknown_name
from ..hub.loading import load_pretrained
from ..models.kinds import kind_of, library_class
from ..tasks.scores import evaluation_mode

Model = TypeVar("Model", bound=PreTrainedModel)
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def make_config(kind: type[PreTrainedModel], fields: Mapping[str, Any]) -> Any:
    """The configuration of a class of models, of any kind.

    Args:
        kind: the class.
        fields: the section `model` of a training configuration, and fields from the data.

    Raises:
        InputError: for a key or value that the configuration rejects, or a model of other things than text.
    """
    config_class: Any = kind.config_class
    values = {name: value for name, value in fields.items() if name != "model_type"}
    known = checks_of(config_class)
    # Some of transformers' models know no padding.
    tokens = {name: values.pop(name) for name in _TOKENS if name in values and name not in known}
    if not hasattr(config_class(), "vocab_size"):  # of text and pictures or sounds
        inner = getattr(config_class.sub_configs.get("text_config"), "model_type", "")
        note = f"; {inner!r} is" if library_class(inner) else ""
        raise InputError(f"model.model_type {config_class.model_type!r} is no model of text alone{note}")
    with explaining("model", InputError):
        config = build(config_class, values)
    for name, token in tokens.items():
        setattr(config, name, token)
    return config


def check_causal(model: PreTrainedModel) -> None:
    """Check that the predictions of one of transformers' language models do not depend on later tokens.

    Raises:
        InputError: if they do, as those of BERT without `is_decoder`, or if the model fails.
    """
    name = f"model.model_type {model.config.model_type!r}"
    if kind_of(model.config) is None and _sees(model, range(2), range(2, 4), f"{name} reads no text"):
        note = "; model.is_decoder=true may make it one" if hasattr(model.config, "is_decoder") else ""
        raise InputError(f"{name} is no causal language model: it sees later tokens{note}")


def check_packing(model: PreTrainedModel) -> None:
    """Check that one of transformers' language models keeps the texts of packed rows apart.

    Raises:
        InputError: if it does not, as networks whose state goes on from text to text.
    """
    what = f"training.packing must be false with model.model_type {model.config.model_type!r}"
    positions = torch.arange(6).remainder(3).unsqueeze(0)
    if kind_of(model.config) is None and _sees(model, range(3, 6), range(3), what, position_ids=positions):
        raise InputError(f"{what}, which reads on from text to text")


def _sees(model: PreTrainedModel, steps: range, tokens: range, what: str, **given: Tensor) -> bool:
    """Whether logits of one of transformers' models at some steps depend on some tokens.

    Args:
        model: the model.
        steps, tokens: numbers of steps; all that there are, together.
        what: the beginning of a message, if the model fails.
        **given: further arguments of its call.

    Raises:
        InputError: if it fails.
    """
    ids = torch.arange(len(steps) + len(tokens))
    other = ids.clone()
    other[tokens] += 1
    size = model.config.vocab_size
    with explaining(what, Exception), torch.no_grad(), evaluation_mode(model):  # many kinds: of its library
        batches = (x.remainder(size).unsqueeze(0) for x in (ids, other))
        # Some can read text, but their loss cannot.
        first, second = (model(x, labels=x, use_cache=False, **given).logits for x in batches)
    changes = (first - second).abs().amax((0, 2))
    # More than rounding: up to 1.2e-6 for 48 layers of experts; a BERT of one layer and four units changes by 2.8e-4.
    return bool(changes[steps].max() > 2e-5 * changes[tokens].max())


def new_model(kind: type[Model], fields: Mapping[str, Any]) -> Model:
    """A model with random weights.

    Args:
        kind: its class.
        fields: the fields of its configuration.

    Raises:
        InputError: for a key or value that the configuration or the class rejects, for fields of another kind of model,
            or if torch cannot allocate its weights.
    """
    config = make_config(kind, fields)
    kinds = config.architectures or [kind.__name__]
    if kinds != [kind.__name__]:
        raise InputError(f"model.architectures must be [{kind.__name__}], which is trained here; got {kinds}")
    with explaining("model", Exception):  # many kinds: of transformers' models
        return kind(config)


class InitialModel:
    """The initial model of a run, if any.

    Args:
        source: a directory, or a name on the hub; None starts with random weights.
        auto_class: the Auto class of transformers that loads such models: language models by default.
        what: the kind of model, for messages.

    Raises:
        InputError: if it cannot be loaded.
    """

    def __init__(
        self, source: str | None, auto_class: Any = AutoModelForCausalLM, what: str = "language model"
    ) -> None:
        self.source = source
        if source is not None:
            model, tokenizer = load_pretrained(auto_class, source, "cpu", what=what)
            self._config, self._weights, self._numbers = model.config, model.state_dict(), tokenizer.get_vocab()

    def fields(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a run's model: those of the section `model`, and for the others those of this model.

        Args:
            own: the section. If it names another kind of model, nothing is taken from this one.
        """
        theirs = {} if self.source is None else self._config.to_dict()
        if not theirs or own.get("model_type", theirs["model_type"]) != theirs["model_type"]:
            return dict(own)
        # The fields that describe the network: all but transformers' own.
        bases = type(self._config).__mro__
        own_classes = bases[: bases.index(PreTrainedConfig)]
        names = {"model_type", *(name for base in own_classes for name in vars(base).get("__annotations__", ()))}
        return {name: value for name, value in theirs.items() if name in names} | dict(own)

    def make(
        self, kind: type[Model], fields: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, **from_data: Any
    ) -> tuple[Model, list[str]]:
        """A new model for a run's tokenizer, which begins with the weights of this one, if any.

        Args:
            kind: its class.
            fields: the fields of its configuration; see `fields`.
            tokenizer: the tokenizer of the run.
            from_data: fields that replace those, as do the tokenizer's vocabulary and padding.

        Returns:
            The model, and the lines of `give`.

        Raises:
            InputError: as `new_model`, `check_causal` and `give`.
        """
        # As many embeddings as this model has, if the tokenizers are of one size.
        same = self.source is not None and len(tokenizer) == len(self._numbers)
        size = self._config.vocab_size if same else len(tokenizer)
        vocabulary = {"vocab_size": size, "pad_token_id": tokenizer.pad_token_id}
        model = new_model(kind, {**fields, **vocabulary, **from_data})
        check_causal(model)
        return model, self.give(model, tokenizer)

    def give(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """Copy its weights to a model.

        Args:
            model: the model that takes them.
            tokenizer: the tokenizer of that model.

        Returns:
            A line each about weights that the initial model lacks, which keep their initial values; about those of
            its body that the model does not have; and about tokens that it lacks or numbers differently.

        Raises:
            InputError: for a tokenizer of another size, and as `take_weights`.
        """
        if self.source is None:
            return []
        if model.config.vocab_size != self._config.vocab_size:
            sizes = f"{len(tokenizer):,} tokens, that of {self.source} has {len(self._numbers):,}"
            raise InputError(f"the run's tokenizer has {sizes}; without tokenizer.pretrained the run uses the latter")
        notes = []
        if missing := take_weights(model, self._weights, self.source):
            notes.append(f"{self.source} has no {', '.join(missing)}: they keep their initial values")
        own, body = model.state_dict(), f"{model.base_model_prefix}."  # a classifier has no use for the other's head
        if unused := [name for name in self._weights if name.startswith(body) and name not in own]:
            notes.append(f"weights of {self.source} that this model does not have: {shortened(', '.join(unused), 300)}")
        vocabulary = tokenizer.get_vocab()
        if others := sum(self._numbers.get(token) != number for token, number in vocabulary.items()):
            mapped = f"{others:,} of {len(vocabulary):,} tokens are not those of {self.source}"
            notes.append(f"{mapped}: they start with the embeddings of other tokens")
        return notes


def take_weights(model: PreTrainedModel, weights: Mapping[str, Tensor], source: str) -> list[str]:
    """Copy the weights of another model, by name.

    Args:
        model: the model that takes them.
        weights: the weights of the other model; those whose names this model does not have are left out.
        source: the name of the other model, for messages.

    Returns:
        The names of the weights that the other model lacks, which do not change.

    Raises:
        InputError: for weights of another shape, or if no name matches.
    """
    own = model.state_dict()
    for name, tensor in own.items():
        if name in weights and weights[name].shape != tensor.shape:
            here, there = list(tensor.shape), list(weights[name].shape)
            raise InputError(f"{source} has another shape of model: {name} is {here} here, there {there}")
    taken = {name: weights[name] for name in own if name in weights}
    if not taken:
        raise InputError(f"{source} has another kind of model: none of its weights is in {type(model).__name__}")
    model.load_state_dict(taken, strict=False, assign=model.device.type == "meta")
    return [name for name in own if name not in taken]


def freeze_weights(model: PreTrainedModel, names: Sequence[str]) -> None:
    """Freeze weights in training.

    Args:
        model: the model.
        names: names of its modules, or of single weights.

    Raises:
        InputError: for an unknown name, or if no weight is left to train.
    """
    parameters = list(model.named_parameters(remove_duplicate=False))  # tied weights under each of their names
    for name in names:
        frozen = [one for whole, one in parameters if whole == name or whole.startswith(f"{name}.")]
        if not frozen:
            modules = dict.fromkeys(whole[:i] for whole, _ in parameters for i, c in enumerate(whole) if c == ".")
            raise unknown_name("training.freeze", name, sorted(modules, key=lambda module: module.count(".")))
        for parameter in frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("training.freeze leaves no weight to train")
