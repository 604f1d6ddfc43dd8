"""Heads with a common forward: a class of the sequence, a class of each step, or the set of labels of each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutputWithPast
from transformers.utils import can_return_tuple

from ..core.labels import IGNORED
from ..nn.controlled import Actions
from .arguments import check_shape, refuse_packed, token_mask
from .cache import CacheOutput, MemoryCache
from .modeling_stack_rnn import (
    HeadArguments,
    StackRNNModel,
    StackRNNModelOutput,
    StackRNNPreTrainedModel,
)


@dataclass
class StackRNNClassifierOutput(SequenceClassifierOutputWithPast, CacheOutput):
    """transformers' `SequenceClassifierOutputWithPast` with the memory's `actions`."""

    actions: Actions | None = None


class _Head(StackRNNPreTrainedModel, ABC):
    """A linear layer on the output of a stack RNN.

    Args:
        config: sizes, controller, memory and controls; `num_labels`.
    """

    body_class: ClassVar[type[StackRNNPreTrainedModel]] = StackRNNModel

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels or 2
        self.model: StackRNNPreTrainedModel = self.body_class(config)
        self.dropout = nn.Dropout(config.output_dropout)
        self.score = nn.Linear(config.head_input_size, self.num_labels, bias=config.head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        cache: MemoryCache | None = None,
        **kwargs: Unpack[HeadArguments],
    ) -> StackRNNClassifierOutput:
        """Classify; see `StackRNNModel.forward` for the arguments that are not listed here.

        Args:
            labels: see the class.
            **kwargs: see `HeadArguments`.

        Returns:
            The logits, and the loss if there are labels: see the class.

        Raises:
            ValueError: if labels do not have the form that the class requires.
            TypeError: for an unknown argument.
        """
        attention_mask = self._mask(input_ids, token_mask(attention_mask))
        outputs, of_loss = self.run_model(
            kwargs, input_ids=input_ids, attention_mask=attention_mask, cache=cache, inputs_embeds=inputs_embeds
        )
        logits = self.score(self.dropout(self._select(outputs.last_hidden_state, attention_mask, labels)))
        loss = None if labels is None else self._loss(logits, labels, **of_loss)
        return outputs.answered(StackRNNClassifierOutput, loss, logits)

    def _mask(self, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor | None:
        """The mask of the steps without padding; None if nothing defines it."""
        return attention_mask

    def _select(self, hidden: Any, mask: Tensor | None, labels: Tensor | None) -> Any:
        """The input of the linear layer, from the outputs of all steps [B, T, H]: these."""
        return hidden

    @abstractmethod
    def _loss(self, logits: Tensor, labels: Tensor, **kwargs: Any) -> Tensor:
        """The loss of the logits."""


class StackRNNForSequenceClassification(_Head):
    """A stack RNN that classifies a sequence by the controller's output at its last token: logits [B, K].

    Labels are class ids [B], or real targets for regression. Without an attention mask, tokens equal to
    `config.pad_token_id` are padding. Without any token the logits are NaN, and labels are rejected (on a CPU: on a GPU
    the check would wait).

    NOTE: the released classifiers of Merrill et al. (2019) read the last step of the padded batch; this one reads the
    last token that is not padding.

    Args:
        config: sizes, controller, memory and controls; `num_labels`.
    """

    def run_model(self, arguments: HeadArguments, **inputs: Any) -> tuple[StackRNNModelOutput, dict[str, Any]]:
        refuse_packed(arguments, inputs["attention_mask"])  # there is one answer for a row
        return super().run_model(arguments, **inputs)

    def _mask(self, input_ids: Tensor | None, attention_mask: Tensor | None) -> Tensor | None:
        if attention_mask is None and input_ids is not None and self.config.pad_token_id is not None:
            return (input_ids != self.config.pad_token_id).long()
        return attention_mask

    def _select(self, hidden: Any, mask: Tensor | None, labels: Tensor | None) -> Any:
        """The outputs at each sequence's last token [B, H]; NaN without one."""
        if mask is None:
            return hidden[:, -1]
        steps = torch.arange(hidden.shape[1], device=hidden.device)
        real = mask[:, -hidden.shape[1] :].bool()
        has_token = real.any(-1, keepdim=True)
        if labels is not None and has_token.device.type == "cpu" and not bool(has_token.all()):
            row = int(has_token.long().argmin())
            raise ValueError(f"sequence {row} of the batch has a label but no token: all of it is padding")
        last = hidden[torch.arange(hidden.shape[0], device=hidden.device), (real * steps).argmax(-1)]
        return last.masked_fill(~has_token, float("nan"))

    def _loss(self, logits: Tensor, labels: Tensor, **kwargs: Any) -> Tensor:
        loss: Tensor = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return loss


class StackRNNForTokenClassification(_Head):
    """A stack RNN that gives every step a class: labels [B, T] are class ids, the loss is the cross-entropy in nats.

    Labels are not shifted: those of step t belong to the answer after x_t. Labels of -100, required at padding, are
    ignored. The loss is the mean over the rest, or their sum divided by `num_items_in_batch` if a trainer gives that.

    Args:
        config: sizes, controller, memory and controls; `num_labels`.
    """

    def _loss(self, logits: Tensor, labels: Tensor, **kwargs: Any) -> Tensor:
        check_shape(labels, logits.shape[:2])
        loss: Tensor = self.loss_function(logits=logits, labels=labels, config=self.config, **kwargs)
        return loss


class StackRNNForKHotPrediction(_Head):
    """A stack RNN that predicts at every step the subset of K labels that hold (Suzgun et al. 2019).

    Labels [B, T, K] are 0 or 1. The loss is the mean-squared error of `sigmoid(W_y h_t + b_y)` over steps and labels
    (section 4.1); a label is predicted if its sigmoid is at least `config.prediction_threshold`. For the possible next
    symbols of a formal language, K is the vocabulary's size. As for `StackRNNForTokenClassification`, labels are not
    shifted and -100 is ignored.

    Args:
        config: sizes, controller, memory and controls; `num_labels`, K; `prediction_threshold`.
    """

    def _loss(
        self,
        logits: Tensor,
        labels: Tensor,
        num_items_in_batch: int | Tensor | None = None,
        ignore_index: int = IGNORED,
        **kwargs: Any,
    ) -> Tensor:
        check_shape(labels, logits.shape)
        counted = labels != ignore_index
        probabilities = torch.sigmoid(logits.to(torch.promote_types(logits.dtype, torch.float32)))
        errors = torch.where(counted, probabilities - labels.to(probabilities.dtype), 0).square().sum()
        if num_items_in_batch is None:
            return errors / counted.sum()
        return errors / torch.as_tensor(num_items_in_batch, device=errors.device)

    def predict(self, logits: Tensor) -> Tensor:
        """The predicted labels, bool [..., K], from logits [..., K]."""
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return torch.sigmoid(wide) >= self.config.prediction_threshold
