"""Heads that answer at every step: one class a step, or the set of labels that hold there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils import can_return_tuple

from .cell import Actions
from .configuration_stack_rnn import StackRNNConfig
from .modeling_stack_rnn import StackRNNCache, StackRNNModel, StackRNNPreTrainedModel

IGNORED = -100


@dataclass
class StackRNNPerStepOutput(TokenClassifierOutput):
    """transformers' `TokenClassifierOutput` (logits [B, T, K]) with the state and the memory's `actions`."""

    past_key_values: StackRNNCache | None = None
    actions: Actions | None = None


class _PerStep(StackRNNPreTrainedModel, ABC):
    """A linear layer on what the stack RNN gives out at each step.

    Args:
        config: sizes, controller, memory and controls; `num_labels`.
    """

    def __init__(self, config: StackRNNConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels or 2
        self.model = StackRNNModel(config)
        self.dropout = nn.Dropout(config.output_dropout)
        self.score = nn.Linear(config.head_input_size, self.num_labels, bias=config.bias)
        self.post_init()

    @abstractmethod
    def _loss(self, logits: Tensor, labels: Tensor, **kwargs: Any) -> Tensor:
        """The loss of logits [B, T, K]."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: StackRNNCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_actions: bool = False,
        **kwargs: Any,
    ) -> StackRNNPerStepOutput:
        """Give logits [B, T, K]; see `StackRNNModel.forward` for the arguments that are not listed here.

        Args:
            labels: what the class says of them. They are not shifted: those of step t belong to the answer after x_t.
                Where they are -100, as they must be at padding, they are ignored. The loss is the mean over the rest,
                or their sum divided by `num_items_in_batch` where a trainer gives that.

        Raises:
            ValueError: if labels have another shape than the class says.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            output_actions=output_actions,
        )
        logits = self.score(self.dropout(outputs.last_hidden_state))
        return StackRNNPerStepOutput(
            loss=None if labels is None else self._loss(logits, labels, **kwargs),
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            actions=outputs.actions,
        )


def _check_labels(labels: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(labels.shape) != shape:
        raise ValueError(f"labels must be {list(shape)}; got {list(labels.shape)}")


class StackRNNForTokenClassification(_PerStep):
    """A stack RNN that gives every step a class: labels [B, T] are class ids, the loss is the cross-entropy in nats.

    Args:
        config: sizes, controller, memory and controls; `num_labels`.
    """

    def _loss(self, logits: Tensor, labels: Tensor, **kwargs: Any) -> Tensor:
        _check_labels(labels, tuple(logits.shape[:2]))
        loss: Tensor = self.loss_function(logits=logits, labels=labels, config=self.config, **kwargs)
        return loss


class StackRNNForKHotPrediction(_PerStep):
    """A stack RNN that predicts at every step which of K labels hold, any number of them (Suzgun et al. 2019).

    Labels [B, T, K] are 0 or 1. The loss is the mean-squared error of `sigmoid(W_y h_t + b_y)` over steps and labels
    (section 4.1); a label is predicted where that is at least `config.prediction_threshold`. For the symbols that may
    come next in a formal language, K is the vocabulary's size.

    Args:
        config: sizes, controller, memory and controls; `num_labels`, K; `prediction_threshold`.
    """

    def _loss(
        self, logits: Tensor, labels: Tensor, num_items_in_batch: int | Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        _check_labels(labels, tuple(logits.shape))
        counted = labels != IGNORED
        probabilities = torch.sigmoid(logits.float())
        errors = torch.where(counted, probabilities - labels.to(probabilities.dtype), 0).square().sum()
        if num_items_in_batch is None:
            return errors / counted.sum()
        return errors / torch.as_tensor(num_items_in_batch, device=errors.device)

    def predict(self, logits: Tensor) -> Tensor:
        """Logits [..., K] to the labels that are predicted, bool [..., K]."""
        return torch.sigmoid(logits.float()) >= self.config.prediction_threshold


AutoModelForTokenClassification.register(StackRNNConfig, StackRNNForTokenClassification, exist_ok=True)
