"""stack-lm: recurrent networks with a differentiable stack, their parses and their scores.

Importing this package registers `StackRNNConfig` and, with the first config made, the models with transformers'
Auto classes; the heavier parts load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig

from .configuration_buffered import BufferedStackRNNConfig
from .configuration_stack_rnn import StackRNNConfig

if TYPE_CHECKING:
    from .cell import StackRNNCell, explain_backend
    from .memory.module import MemoryModule
    from .modeling_buffered import BufferedStackRNNForTransduction
    from .modeling_heads import (
        StackRNNForKHotPrediction,
        StackRNNForSequenceClassification,
        StackRNNForTokenClassification,
    )
    from .modeling_stack_rnn import StackRNNCache, StackRNNForCausalLM, StackRNNModel
    from .scoring.sentences import ModelScorer
    from .tokenization import train_word_tokenizer
    from .trace import SentenceModel, Trace
    from .training.temperature import TemperatureSchedule

__version__ = "0.1.0"
"""The version of the package."""

AutoConfig.register(StackRNNConfig.model_type, StackRNNConfig, exist_ok=True)
AutoConfig.register(BufferedStackRNNConfig.model_type, BufferedStackRNNConfig, exist_ok=True)


def register_models() -> None:
    """Load all model classes, which registers them with transformers' Auto classes."""
    from . import modeling_buffered, modeling_heads, modeling_stack_rnn  # noqa: F401


StackRNNConfig.register_models = staticmethod(register_models)

_HOMES = {
    "MemoryModule": "memory.module",
    "BufferedStackRNNForTransduction": "modeling_buffered",
    "StackRNNCell": "cell",
    "StackRNNCache": "modeling_stack_rnn",
    "StackRNNForCausalLM": "modeling_stack_rnn",
    "StackRNNForKHotPrediction": "modeling_heads",
    "StackRNNForSequenceClassification": "modeling_heads",
    "StackRNNForTokenClassification": "modeling_heads",
    "StackRNNModel": "modeling_stack_rnn",
    "ModelScorer": "scoring.sentences",
    "SentenceModel": "trace",
    "TemperatureSchedule": "training.temperature",
    "Trace": "trace",
    "explain_backend": "cell",
    "train_word_tokenizer": "tokenization",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BufferedStackRNNConfig",
    "BufferedStackRNNForTransduction",
    "MemoryModule",
    "ModelScorer",
    "SentenceModel",
    "StackRNNCache",
    "StackRNNCell",
    "StackRNNConfig",
    "StackRNNForCausalLM",
    "StackRNNForKHotPrediction",
    "StackRNNForSequenceClassification",
    "StackRNNForTokenClassification",
    "StackRNNModel",
    "TemperatureSchedule",
    "Trace",
    "__version__",
    "explain_backend",
    "train_word_tokenizer",
]
