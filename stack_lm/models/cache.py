"""`MemoryCache`: the states that a model's layers carry from call to call, and generation with them."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from transformers import Cache, GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ..memory import leaves, map_tensors

# transformers 5.24 renamed `past_key_values`, an argument of models and of `generate` and a field of their outputs.
_CACHE_NAMES = ("cache", "past_key_values")
# The name that the installed version uses: for `generate`, and for models of other packages.
CACHE_NAME = "cache" if hasattr(BaseModelOutputWithPast, "cache") else "past_key_values"


class CacheOutput:
    """A base class of outputs with `past_key_values`, which can then be read as `cache` with any transformers.

    It comes last, so that the fields of transformers' own outputs come first.
    """

    @property
    def cache(self) -> Any:
        """The cache."""
        return self.past_key_values  # type: ignore[attr-defined]


def name_cache(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """The arguments of a call, with a cache under this name if there is one.

    Raises:
        TypeError: for two caches.
    """
    other = next(each for each in _CACHE_NAMES if each != name)
    if other not in arguments:
        return arguments
    arguments = dict(arguments)
    given = arguments.pop(other)
    if given is not None and arguments.get(name) is not None:
        raise TypeError("cache and past_key_values are two names of one argument; give one of them")
    return arguments if given is None else arguments | {name: given}


def take_cache(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Let a model's forward take its cache under both names, and not only under the one in its signature."""
    declared = [name for name in _CACHE_NAMES if name in inspect.signature(forward).parameters]
    if len(declared) != 1 or hasattr(forward, "takes_cache"):
        return forward

    @functools.wraps(forward)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **name_cache(kwargs, declared[0]))

    wrapped.takes_cache = True  # type: ignore[attr-defined]
    return wrapped


class MemoryCache(Cache):
    """The states that a model carries from call to call: of memory layers, and of other layers with a state.

    Models take and return it as `cache`, or by its older name, `past_key_values`.

    A state is a tensor, or nested tuples of tensors; the first dimension of each is the batch. States are numbered by
    layer: the layers of `stack_lm.nn.recurrent_layers` come first, in that order, then the others. Attention stores
    its keys and values with `update`.

    A model updates its cache in place, as with transformers' own caches. To continue one prefix in two ways, `clone()`
    the cache first: no token can be taken back. To truncate backpropagation through time, `detach()` it.

    Attributes:
        states: the layers' states after the last token, by number. Only read it; `update_state` changes it.
    """

    is_compileable = is_croppable = False

    def __init__(self) -> None:
        # Not super().__init__(), which makes layers of keys and values. `generate` reads these attributes.
        self.layers: list[Any] = []
        self.layer_class_to_replicate = None
        self.offloading = False
        # All are replaced and never changed, like the states, so that a clone can share them.
        self.states: dict[int | str, Any] = {}
        self._seen: dict[int | str, int] = {}

    def __repr__(self) -> str:
        return f"MemoryCache(seen_tokens={self.get_seq_length()}, states={len(self.states)})"

    def state(self, layer: int | str = 0, batch_size: int | None = None) -> Any:
        """A layer's state after the last token; None before the first.

        Args:
            layer: its number, or a name for a state that no layer has.
            batch_size: the number of sequences in the next input.

        Raises:
            ValueError: if the state has another number of sequences.
        """
        state = self.states.get(layer)
        rows = next((tensor.shape[0] for tensor in leaves(state)), batch_size)
        if batch_size is not None and rows != batch_size:
            raise ValueError(f"past_key_values is the state of {rows} sequences; the input has {batch_size}")
        return state

    def update_state(self, layer: int | str, state: Any, new_tokens: int) -> None:
        """Store a layer's state after more tokens.

        Args:
            layer: its number, or a name for a state that no layer has.
            state: after them.
            new_tokens: the number of new tokens, padding included.
        """
        self.states = self.states | {layer: state}
        self._seen = self._seen | {layer: self._seen.get(layer, 0) + new_tokens}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values [B, heads, T, d] of an attention layer, with transformers' signature.

        Returns:
            The keys and values of all tokens so far.
        """
        new = (key_states, value_states)
        earlier = self.state(layer_idx, key_states.shape[0])  # `len` would fix the size of an exported program
        if earlier is not None:
            new = map_tensors(lambda old, part: torch.cat((old, part), dim=-2), earlier, new)
        self.update_state(layer_idx, new, key_states.shape[-2])
        return new

    def get_seq_length(self, layer_idx: int | str = 0) -> int:
        """The number of tokens that a layer has seen so far, padding included."""
        return self._seen.get(layer_idx, 0)

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """-1: states have no maximum length."""
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Number and offset of an attention layer's keys in a step with `query_length` tokens, for its mask."""
        return self.get_seq_length(layer_idx) + query_length, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep the states of the sequences `beam_idx` [B'], in that order."""
        self._map(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the states of the sequences `indices` [B']."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence's state `repeats` times."""
        self._map(lambda tensor: tensor.repeat_interleave(repeats, dim=0))

    def reset(self) -> None:
        """Return to the state before the first token."""
        self.states, self._seen = {}, {}

    @property
    def is_linear(self) -> list[bool]:
        """Not so, in transformers' sense: `generate` is to leave out the tokens of a prompt that the cache has seen."""
        return [False]

    def crop(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to remove tokens, which no recurrent state can.

        Raises:
            ValueError: always.
        """
        raise ValueError("a recurrent state cannot be cropped; clone() the cache before the tokens instead")

    def clone(self) -> MemoryCache:
        """A cache with the same states, which later calls through this one do not change."""
        return copy.copy(self)

    def detach(self) -> MemoryCache:
        """The same cache, detached from the graph: truncates backpropagation through time."""
        self._map(Tensor.detach)
        return self

    def _map(self, function: Callable[[Tensor], Tensor]) -> None:
        self.states = {layer: map_tensors(function, state) for layer, state in self.states.items()}


@dataclass(frozen=True)
class _Layers:
    """The numbers of a cache's layers, and the token count of each, in a form that is equal for all caches.

    A length that is a tracer's symbol cannot be part of a form, and is left out.
    """

    numbers: tuple[int | str, ...]
    seen: dict[int | str, int] = field(compare=False)


def _flatten(cache: MemoryCache) -> tuple[list[Any], _Layers]:
    seen = {layer: length for layer, length in cache._seen.items() if isinstance(length, int)}
    return list(cache.states.values()), _Layers(tuple(cache.states), seen)


def _unflatten(states: Iterable[Any], layers: _Layers) -> MemoryCache:
    cache = MemoryCache()
    cache.states, cache._seen = dict(zip(layers.numbers, states, strict=True)), dict(layers.seen)
    return cache


def _flatten_with_keys(cache: MemoryCache) -> tuple[list[tuple[Any, Any]], _Layers]:
    states, layers = _flatten(cache)
    return [(pytree.MappingKey(layer), state) for layer, state in zip(layers.numbers, states, strict=True)], layers


# `torch.utils._pytree` maps the states in a cache, and torch.compile and torch.export take them.
pytree.register_pytree_node(
    MemoryCache,
    _flatten,
    _unflatten,
    # Programs exported by the release candidate have its name without "models"; code saved with a model has its own.
    serialized_type_name=f"{__name__.replace('stack_lm.models', 'stack_lm')}.MemoryCache",
    to_dumpable_context=lambda layers: [list(layers.numbers), list(layers.seen.items())],
    from_dumpable_context=lambda dumped: _Layers(tuple(dumped[0]), dict(dumped[1])),
    flatten_with_keys_fn=_flatten_with_keys,
)


class MemoryGenerationMixin(GenerationMixin):
    """transformers' `generate` with a `MemoryCache`: greedy, by beams, sampled, of batches."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.forward = take_cache(cls.forward)  # type: ignore[attr-defined]
        # With label_smoothing_factor, transformers' Trainer takes label t + 1 for step t only if the class's name is in
        # this table, and otherwise trains a model to copy its input.
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[cls.__name__] = cls.__name__

    @functools.wraps(GenerationMixin.generate)
    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """See transformers; a cache may be given as `cache` or `past_key_values`.

        A streamer ends even if generation fails, so that a thread which reads it does not wait for ever.
        """
        parent: Any = super()
        try:
            return parent.generate(*args, **name_cache(kwargs, CACHE_NAME))
        except BaseException:
            if kwargs.get("streamer") is not None:
                kwargs["streamer"].end()
            raise

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                "a model with a memory carries its own states: cache_implementation must be None; "
                f"got {generation_config.cache_implementation!r}"
            )
        if model_kwargs.get(CACHE_NAME) is None and generation_config.use_cache is not False:
            model_kwargs[CACHE_NAME] = MemoryCache()
        else:
            parent: Any = super()
            parent._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse continuous batching (`generate_batch`), which needs a cache of keys and values in pages.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a model with a memory has no continuous batching (generate_batch); call generate with a batch"
        )

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        cache = model_kwargs.get(CACHE_NAME)
        if isinstance(cache, MemoryCache) and expand_size > 1:
            cache.batch_repeat_interleave(expand_size)
        parent: Any = super()
        return parent._expand_inputs_for_generation(expand_size, is_encoder_decoder, input_ids, **model_kwargs)
