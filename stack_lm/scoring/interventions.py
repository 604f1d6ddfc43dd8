"""A language model under interventions on its memory: mean or shuffled actions, restricted contents or readings.

Means are those of the untouched model over a text. Shuffles give the untouched model's actions on a sentence to other
tokens of the same sentence. The model reads whole sentences from an empty memory, never from a saved state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..core.messages import check_name
from ..memory import Choice, Strength
from ..memory.emission import Fixed
from ..memory.fields import Value
from ..nn.controlled import ControlledMemory
from ..nn.interventions import Intervention, intervene
from .encoding import Sentences
from .sentences import ModelScorer


class Plan(NamedTuple):
    """A named intervention, from which each batch's `Intervention` is made.

    Attributes:
        name: such as "push-mean".
        mean: actions fixed to their means.
        shuffled: actions shuffled among the tokens of a sentence, all with the same permutation.
        one_element: whether the memory holds only the element just pushed.
        reading: the replacement of the memory's reading; None keeps it.
    """

    name: str
    mean: tuple[str, ...] = ()
    shuffled: tuple[str, ...] = ()
    one_element: bool = False
    reading: Literal["zero", "mean"] | None = None


def plans_of(layer: ControlledMemory) -> list[Plan]:
    """The interventions that a memory layer allows: only on actions that are not fixed."""
    fields = layer.memory.actions
    free = [
        field.name
        for field in fields
        if isinstance(field, (Strength, Choice)) and not isinstance(layer.controls.emission(field.name).of_one, Fixed)
    ]
    groups: dict[str, tuple[str, ...]] = {name.replace("_strength", "").replace("_", "-"): (name,) for name in free}
    if len(free) > 1:
        groups["all"] = tuple(free)
    values = tuple(field.name for field in fields if isinstance(field, Value))
    return [
        *(Plan(f"{group}-mean", mean=names) for group, names in groups.items()),
        *(Plan(f"{group}-shuffled", shuffled=names) for group, names in groups.items()),
        *([Plan("values-shuffled", shuffled=values)] if values else []),
        Plan("one-element", one_element=True),
        Plan("reading-mean", reading="mean"),
        Plan("reading-zero", reading="zero"),
    ]


class InterventionScorer(ModelScorer):
    """A `ModelScorer` whose model can be put under interventions on one memory layer; see the base for its arguments.

    Raises:
        InputError: if the model has no memory, or several of which none was named.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **settings: Any) -> None:
        super().__init__(model, tokenizer, **settings)
        if not self.memories:
            raise self.no_memory(" to intervene on")
        self.intervened = self.memories[self.layer]
        self.plans = {plan.name: plan for plan in plans_of(self.intervened)}
        self._means: dict[str, Tensor] = {}
        self._plan: Plan | None = None
        self._seed = 0

    @torch.inference_mode()
    def measure_means(self, sentences: Sentences, tags: Sentences | None = None) -> dict[str, Tensor]:
        """Measure the means of the untouched memory over all tokens of a text, including special ones, for `under`.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags; see `trace`.

        Returns:
            By name, each [*shape]: of the actions, the `reading`, and the `exit` if the memory has one.
        """
        sums: dict[str, Tensor] = {}
        sequences = [encoding.ids for encoding in self._encoder.encode(sentences, tags)]
        plan, self._plan = self._plan, None
        try:
            for batch, ids in self._batches(sequences):
                lengths = torch.tensor([len(sequences[i]) for i in batch], device=ids.device)
                mask = torch.arange(ids.shape[1], device=ids.device) < lengths.unsqueeze(1)
                for name, values in self._record(ids).items():
                    total = values[mask].double().sum(0)
                    sums[name] = sums[name] + total if name in sums else total
        finally:
            self._plan = plan
        n = sum(map(len, sequences))
        self._means = {name: total / n for name, total in sums.items()}
        return self._means

    @contextmanager
    def under(self, name: str, seed: int = 0) -> Iterator[None]:
        """Context manager: put the model under an intervention, in all its methods.

        Args:
            name: the name of one of `plans`.
            seed: the seed of the shuffles.

        Raises:
            InputError: for an unknown name, or if it needs means and `measure_means` has not been called.
        """
        check_name("the intervention", name, self.plans)
        plan = self.plans[name]
        if (plan.mean or plan.reading == "mean") and not self._means:
            raise InputError(f"{name} needs means: call measure_means with a text first")
        before = self._plan, self._seed
        self._plan, self._seed = plan, seed
        try:
            yield
        finally:
            self._plan, self._seed = before

    def _batches(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor]]:
        """Batches, each read under the intervention."""
        plan = self._plan
        for batch, ids in super()._batches(sequences):
            if plan is None:
                yield batch, ids
                continue
            actions: dict[str, float | Tensor] = {name: self._means[name] for name in plan.mean}
            if plan.shuffled:
                places = self._shuffle(batch, ids, [len(sequences[i]) for i in batch])
                recorded = self._record(ids)
                rows = torch.arange(len(ids), device=ids.device).unsqueeze(1)
                actions |= {name: recorded[name][rows, places] for name in plan.shuffled}
            intervention = Intervention(actions, plan.one_element, self._read("reading"), self._read("exit"))
            with intervene(self.intervened, intervention):
                yield batch, ids

    def _read(self, name: str) -> Tensor | None:
        """The vector of that name that replaces the reading or the exit under the plan."""
        sizes = {"reading": self.intervened.memory.reading_size, "exit": self.intervened.memory.output_size}
        if self._plan is None or self._plan.reading is None or not sizes[name]:
            return None
        return self._means[name] if self._plan.reading == "mean" else torch.zeros(sizes[name])

    def _shuffle(self, batch: Sequence[int], ids: Tensor, lengths: Sequence[int]) -> Tensor:
        """For each token the source of its actions [B, T]; special tokens keep theirs.

        It depends on the seed and a sentence's number, but not on batches.
        """
        places = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
        special = np.isin(ids.cpu().numpy(), [*self._encoder.begin, *self._encoder.end])
        for row, (number, length) in enumerate(zip(batch, lengths, strict=True)):
            (words,) = np.nonzero(~special[row, :length])
            places[row, words] = np.random.default_rng([self._seed, number]).permutation(words)
        return torch.from_numpy(places).to(ids.device)
