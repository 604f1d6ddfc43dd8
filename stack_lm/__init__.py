"""stack-lm: recurrent networks with a differentiable stack, their parses and their scores.

Importing this package loads nothing heavy, so that `stack-lm --help` is fast; its names load on first use. The
configurations are registered as soon as transformers' Auto classes are loaded, and the models when the first
configuration is made.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .import_hooks import after_import

if TYPE_CHECKING:
    from .cache import MemoryCache, MemoryGenerationMixin
    from .configuration_buffered import BufferedStackRNNConfig
    from .configuration_deep import DeepStackRNNConfig
    from .configuration_span_parser import SpanParserConfig
    from .configuration_stack_rnn import StackRNNConfig
    from .configuration_transformer import StackTransformerConfig
    from .layers import memories
    from .layers.cell import StackRNNCell
    from .layers.controlled import explain_backend, set_scan_backend
    from .layers.interventions import Intervention, intervene
    from .layers.memory_layer import MemoryLayer
    from .layers.stack_attention import StackAttention
    from .layers.stack_rnn import StackRNN
    from .model_kinds import ModelClass, ModelKind, register_model
    from .modeling_base import MemoryPreTrainedModel
    from .modeling_buffered import BufferedStackRNNForTransduction
    from .modeling_deep import DeepStackRNNForCausalLM, DeepStackRNNModel
    from .modeling_heads import (
        StackRNNForKHotPrediction,
        StackRNNForSequenceClassification,
        StackRNNForTokenClassification,
    )
    from .modeling_span_parser import SpanParserModel
    from .modeling_stack_rnn import StackRNNForCausalLM, StackRNNModel
    from .modeling_transformer import (
        StackTransformerForCausalLM,
        StackTransformerForSequenceClassification,
        StackTransformerForTokenClassification,
        StackTransformerModel,
    )
    from .scoring.parser import Parse, Parser
    from .scoring.sentences import ModelScorer
    from .scoring.surprisal import surprisal
    from .tokenization import train_subword_tokenizer, train_word_tokenizer
    from .trace import SentenceModel, Trace
    from .training.temperature import TemperatureSchedule

__version__ = "1.0.0rc1"
"""The version of the package."""


def register_configurations() -> None:
    """Register the configurations with transformers, so that `from_pretrained` of its Auto classes finds them."""
    from transformers import AutoConfig

    from .configuration_buffered import BufferedStackRNNConfig
    from .configuration_deep import DeepStackRNNConfig
    from .configuration_span_parser import SpanParserConfig
    from .configuration_stack_rnn import StackRNNConfig
    from .configuration_transformer import StackTransformerConfig

    recurrent = (StackRNNConfig, BufferedStackRNNConfig, DeepStackRNNConfig)
    for config in (*recurrent, StackTransformerConfig, SpanParserConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)


def register_models() -> None:
    """Load all model classes, which registers their kinds, also with transformers' Auto classes."""
    from . import models  # noqa: F401


def _hand_over_models() -> None:
    from .configuration_stack_rnn import ModelConfig

    ModelConfig.register_models = staticmethod(register_models)


def _hand_over_hub() -> None:
    from .modeling_base import MemoryPreTrainedModel

    MemoryPreTrainedModel.load_hub = staticmethod(lambda: import_module(f"{__name__}.hub.code"))


# From tqdm.auto, which transformers imports, in notebooks without ipywidgets: its bars are then plain text.
warnings.filterwarnings("ignore", message="IProgress not found")
after_import(f"{__name__}.configuration_stack_rnn", _hand_over_models)
after_import(f"{__name__}.modeling_base", _hand_over_hub)
after_import(f"{__name__}.model_kinds", register_models)
after_import("transformers.models.auto.configuration_auto", register_configurations)

_HOMES = {
    "MemoryCache": "cache",
    "MemoryGenerationMixin": "cache",
    "MemoryPreTrainedModel": "modeling_base",
    "ModelClass": "model_kinds",
    "ModelKind": "model_kinds",
    "memories": "layers",
    "register_model": "model_kinds",
    "BufferedStackRNNConfig": "configuration_buffered",
    "DeepStackRNNConfig": "configuration_deep",
    "SpanParserConfig": "configuration_span_parser",
    "SpanParserModel": "modeling_span_parser",
    "StackRNNConfig": "configuration_stack_rnn",
    "StackTransformerConfig": "configuration_transformer",
    "MemoryLayer": "layers.memory_layer",
    "BufferedStackRNNForTransduction": "modeling_buffered",
    "DeepStackRNNForCausalLM": "modeling_deep",
    "DeepStackRNNModel": "modeling_deep",
    "StackAttention": "layers.stack_attention",
    "StackRNN": "layers.stack_rnn",
    "StackRNNCell": "layers.cell",
    "StackRNNForCausalLM": "modeling_stack_rnn",
    "StackRNNForKHotPrediction": "modeling_heads",
    "StackRNNForSequenceClassification": "modeling_heads",
    "StackRNNForTokenClassification": "modeling_heads",
    "StackRNNModel": "modeling_stack_rnn",
    "StackTransformerForCausalLM": "modeling_transformer",
    "StackTransformerForSequenceClassification": "modeling_transformer",
    "StackTransformerForTokenClassification": "modeling_transformer",
    "StackTransformerModel": "modeling_transformer",
    "ModelScorer": "scoring.sentences",
    "Parse": "scoring.parser",
    "Parser": "scoring.parser",
    "SentenceModel": "trace",
    "TemperatureSchedule": "training.temperature",
    "Trace": "trace",
    "Intervention": "layers.interventions",
    "explain_backend": "layers.controlled",
    "intervene": "layers.interventions",
    "set_scan_backend": "layers.controlled",
    "surprisal": "scoring.surprisal",
    "train_subword_tokenizer": "tokenization",
    "train_word_tokenizer": "tokenization",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BufferedStackRNNConfig",
    "BufferedStackRNNForTransduction",
    "DeepStackRNNConfig",
    "DeepStackRNNForCausalLM",
    "DeepStackRNNModel",
    "Intervention",
    "MemoryCache",
    "MemoryGenerationMixin",
    "MemoryLayer",
    "MemoryPreTrainedModel",
    "ModelClass",
    "ModelKind",
    "ModelScorer",
    "Parse",
    "Parser",
    "SentenceModel",
    "SpanParserConfig",
    "SpanParserModel",
    "StackAttention",
    "StackRNN",
    "StackRNNCell",
    "StackRNNConfig",
    "StackRNNForCausalLM",
    "StackRNNForKHotPrediction",
    "StackRNNForSequenceClassification",
    "StackRNNForTokenClassification",
    "StackRNNModel",
    "StackTransformerConfig",
    "StackTransformerForCausalLM",
    "StackTransformerForSequenceClassification",
    "StackTransformerForTokenClassification",
    "StackTransformerModel",
    "TemperatureSchedule",
    "Trace",
    "__version__",
    "explain_backend",
    "intervene",
    "memories",
    "register_model",
    "set_scan_backend",
    "surprisal",
    "train_subword_tokenizer",
    "train_word_tokenizer",
]
