"""Examples of a task as tensors, for the kinds of models that the task fits.

All networks here run from left to right, so padding after a string's end does not affect its steps and needs no mask.
Networks with an input buffer are the exception: for them, as in the released code of Hao et al. (2018), all strings of
a split have the same length, with null symbols after their ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import InputError
from ...models.cache import MemoryGenerationMixin
from ...models.kinds import choose_class, class_named, classes_for, kind_of
from ...tasks import Example, Task
from ...tasks.formats import padded
from ...tasks.kinds import BEGIN, KINDS, NULL, PAD, NextSymbol


class Encoded(NamedTuple):
    """N examples, the steps after an example's end padded.

    Attributes:
        inputs: token ids [N, T].
        labels: the class of each output [N, T], or whether each of K symbols may come next [N, T, K].
        trained: the mask of the outputs that are trained on, [N, T] bool.
        scored: the mask of those that are scored: the same, unless the task scores only a part.
        steps: T of each example alone, [N].
        sizes: the length of each string, in symbols, [N]: of a source without null symbols at its end.
        edits: see `Example` [N]; -1 where unknown.
        continuations: for members of a language to recognise, the mask of the K symbols that may follow each prefix
            [N, T, K]; False elsewhere. [N, 0] unless requested.
    """

    inputs: Tensor
    labels: Tensor
    trained: Tensor
    scored: Tensor
    steps: Tensor
    sizes: Tensor
    edits: Tensor
    continuations: Tensor

    def rows(self, numbers: Tensor, *, trim: bool) -> Encoded:
        """A selection of the examples; `trim` removes the padding after the longest of them."""
        end = int(self.steps[numbers].max()) if trim else None
        return Encoded(*(field[numbers, :end] if field.dim() > 1 else field[numbers] for field in self))


def fit_head(model: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The section `model` of a configuration, with the head that a user's own task needs.

    A preset has the head for its paper's tasks. Another task uses only the network, if its kind of model has a class
    for the task; the papers' own tasks use presets unchanged.

    Args:
        model: the section.
        task: any task.
    """
    if task.paper:
        return dict(model)
    chosen, fitting = choose_class(model, *KINDS), classes_for(task.kind)
    kind = None if chosen.config_class is None else kind_of(chosen.config_class.model_type)
    heads = [] if kind is None else [own.__name__ for own in kind.models if own.__name__ in fitting]
    if not heads or chosen.__name__ in heads:
        return dict(model)
    return {**model, "architectures": heads[:1]}


class Encoding:
    """The encoding of a task's examples for a kind of model.

    Args:
        task: any.
        architecture: the model's class.
        one_boundary: for a language, whether `<s>` also ends strings; see `TaskTrainingConfig`.

    Attributes:
        kind: the kind of the task, with its rows and scores.
        symbols, answers: those of the kind.
        fields: the fields of the model's configuration, which follow from these.
        padding: the token id after the end of a string.
        library: whether the model is a causal language model of transformers, whose first logits are the answers.

    Raises:
        InputError: if the task does not fit the model.
    """

    def __init__(self, task: Task, architecture: str, *, one_boundary: bool = False) -> None:
        fitting = classes_for(task.kind)
        model_class = class_named(architecture, task.kind)
        if model_class is None:
            needs = f"a {task.kind} task needs a {' or '.join(fitting)}; `stack-lm presets` lists them"
            raise InputError(f"a {architecture} does not fit the task {task.name!r}: {needs}")
        self.task, self.architecture = task, architecture
        self.buffered = architecture == "BufferedStackRNNForTransduction"
        one_boundary = one_boundary and task.kind == "language"
        self.kind = NextSymbol(task, one_boundary=True) if one_boundary else KINDS[task.kind](task)
        self.symbols, self.answers = self.kind.symbols, self.kind.answers
        # In a language it is a symbol, such as the mark of marked reversal.
        self._null = self.symbols.index(NULL) if NULL in self.symbols and task.kind != "language" else None
        self.fields: dict[str, int | None] = {"vocab_size": len(self.symbols)}
        self.library = architecture not in fitting
        if self.library:  # not the numbers of a text's tokens
            self.fields |= {"bos_token_id": None, "eos_token_id": None}
        if one_boundary:
            self.fields["bos_token_id"] = self.fields["eos_token_id"] = self.symbols.index(BEGIN)
        self.padding = self._null or 0
        if task.kind == "classification":  # its model asks the padding where a string ends
            self.padding = self.symbols.index(PAD)
            self.fields["pad_token_id"] = self.padding
        if self.library:
            self.fields["vocab_size"] = max(len(self.symbols), len(self.answers))
        elif self.buffered:
            self.fields["target_vocab_size"] = len(self.answers)
        elif not issubclass(model_class, MemoryGenerationMixin):
            self.fields["num_labels"] = len(self.answers)

    def encode(self, examples: Sequence[Example], *, continuations: bool = False) -> Encoded:
        """Tensors of examples.

        Args:
            examples: examples of the task, at least one.
            continuations: whether to find the symbols that may follow prefixes; scores that need them have them anyway.

        Raises:
            InputError: for strings of several lengths that cannot be filled for a network between buffers.
        """
        rows = [self.kind.row(example) for example in examples]
        inputs, labels, masks = zip(*rows, strict=True)
        steps = torch.tensor([len(row) for row in inputs])
        if self.buffered and self._null is None and steps.unique().numel() > 1:
            raise InputError(f"strings of {self.task} differ in length, and it has no null symbol {NULL!r}")
        continuations |= self.task.any_continuation
        trained = padded([self.kind.trained(*pair) for pair in zip(examples, rows, strict=True)], False)
        sizes = torch.tensor([self._size(example.source) for example in examples])
        edits = torch.tensor([-1 if example.edits is None else example.edits for example in examples])
        following = steps.new_zeros(len(steps), 0).bool()
        if continuations:
            following = self._continuations(examples, int(steps.max()))
        outputs = padded(labels, self.kind.no_label), trained, padded(masks, False)
        return Encoded(padded(inputs, self.padding), *outputs, steps, sizes, edits, following)

    def _continuations(self, examples: Sequence[Example], longest: int) -> Tensor:
        following = torch.zeros(len(examples), longest, len(self.task.vocabulary), dtype=torch.bool)
        for own, example in zip(following, examples, strict=True):
            for may, symbols in zip(own, self.task.continuations(example), strict=False):
                may[sorted(symbols)] = True
        return following

    def _size(self, source: Sequence[int]) -> int:
        size = len(source)
        while size and source[size - 1] == self._null:
            size -= 1
        return size


def loss_weights(mask: Tensor, reduction: str, width: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weight of each output's loss in the loss of its batch.

    Args:
        mask: the scored outputs of batches [..., B, T].
        reduction: "mean" over all scored outputs of a batch; "strings": the sum over those of a string, the mean over
            strings; "step_mean": the mean over those of a step, the sum over steps; or "step_sum": the sum of all.
        width: numbers per output, which the mean also averages over.
        dtype: the dtype of the weights.

    Returns:
        [..., B, T].
    """
    weights = mask.to(dtype)
    if reduction == "step_sum":
        return weights
    if reduction == "strings":
        return weights / weights.shape[-2]
    over = -2 if reduction == "step_mean" else (-2, -1)
    return weights / (weights.sum(over, keepdim=True).clamp(min=1) * width)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """The cross-entropy of classes [B, T], in nats, or the squared error of symbols' probabilities, labels [B, T, K].

    The probabilities come from a sigmoid, as in Suzgun et al. (2019), section 4.1.
    """
    if labels.dim() == 3:
        return ((torch.sigmoid(logits) - labels).square().sum(-1) * weights).sum()
    # Not F.cross_entropy, whose rule for several models at once takes several times as long.
    losses = -F.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (losses * weights).sum()
