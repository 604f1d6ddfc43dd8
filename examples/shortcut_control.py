r"""A control for gains of a stack's exit: the output layer sees the output through a small tanh layer, and no stack.

    stack-lm train lm merrill2019/brown_lstm --import examples/shortcut_control.py \
        model.architectures=[ShortcutForCausalLM]

It adds `W tanh(V o_t + c)` to the controller's output `o_t`, with W = 0 at the start, so it begins as the plain model.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stack_lm import StackRNNConfig, StackRNNForCausalLM, StackRNNModel
from stack_lm.models.kinds import TEXT, ModelClass, ModelKind, register_model


@dataclass
class ShortcutConfig(StackRNNConfig):
    """As `StackRNNConfig`.

    Args:
        shortcut_size: units of the tanh layer.
    """

    model_type = "shortcut_rnn"

    shortcut_size: int = 32


class ShortcutModel(StackRNNModel):
    """The network with the shortcut."""

    config_class = ShortcutConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.shortcut_in = nn.Linear(config.hidden_size, config.shortcut_size)
        self.shortcut_out = nn.Linear(config.shortcut_size, config.hidden_size, bias=False)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is getattr(self, "shortcut_out", None):
            nn.init.zeros_(module.weight)

    def transform(self, outputs: Tensor, readings: Tensor | None = None) -> Tensor:
        return super().transform(outputs + self.shortcut_out(torch.tanh(self.shortcut_in(outputs))), readings)


class ShortcutForCausalLM(StackRNNForCausalLM):
    """The language model."""

    config_class = ShortcutConfig
    body_class = ShortcutModel


classes = (ModelClass(ShortcutModel, "AutoModel"), ModelClass(ShortcutForCausalLM, "AutoModelForCausalLM", (TEXT,)))
register_model(ModelKind(ShortcutConfig, classes, head_apart=True, continuous=True))
