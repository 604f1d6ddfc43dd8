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

if TYPE_CHECKING:  # aliases, by which type checkers know public names
    from .cache import MemoryCache as MemoryCache
    from .cache import MemoryGenerationMixin as MemoryGenerationMixin
    from .configuration_buffered import BufferedStackRNNConfig as BufferedStackRNNConfig
    from .configuration_deep import DeepStackRNNConfig as DeepStackRNNConfig
    from .configuration_span_parser import SpanParserConfig as SpanParserConfig
    from .configuration_stack_rnn import StackRNNConfig as StackRNNConfig
    from .configuration_transformer import StackTransformerConfig as StackTransformerConfig
    from .layers import memories as memories
    from .layers.cell import StackRNNCell as StackRNNCell
    from .layers.controlled import explain_backend as explain_backend
    from .layers.controlled import set_scan_backend as set_scan_backend
    from .layers.interventions import Intervention as Intervention
    from .layers.interventions import intervene as intervene
    from .layers.memory_layer import MemoryLayer as MemoryLayer
    from .layers.stack_attention import StackAttention as StackAttention
    from .layers.stack_rnn import StackRNN as StackRNN
    from .model_kinds import ModelClass as ModelClass
    from .model_kinds import ModelKind as ModelKind
    from .model_kinds import register_model as register_model
    from .modeling_base import MemoryPreTrainedModel as MemoryPreTrainedModel
    from .modeling_buffered import BufferedStackRNNForTransduction as BufferedStackRNNForTransduction
    from .modeling_deep import DeepStackRNNForCausalLM as DeepStackRNNForCausalLM
    from .modeling_deep import DeepStackRNNModel as DeepStackRNNModel
    from .modeling_heads import StackRNNForKHotPrediction as StackRNNForKHotPrediction
    from .modeling_heads import StackRNNForSequenceClassification as StackRNNForSequenceClassification
    from .modeling_heads import StackRNNForTokenClassification as StackRNNForTokenClassification
    from .modeling_span_parser import SpanParserModel as SpanParserModel
    from .modeling_stack_rnn import StackRNNForCausalLM as StackRNNForCausalLM
    from .modeling_stack_rnn import StackRNNModel as StackRNNModel
    from .modeling_transformer import StackTransformerForCausalLM as StackTransformerForCausalLM
    from .modeling_transformer import (
        StackTransformerForSequenceClassification as StackTransformerForSequenceClassification,
    )
    from .modeling_transformer import StackTransformerForTokenClassification as StackTransformerForTokenClassification
    from .modeling_transformer import StackTransformerModel as StackTransformerModel
    from .scoring.parser import Parse as Parse
    from .scoring.parser import Parser as Parser
    from .scoring.sentences import ModelScorer as ModelScorer
    from .scoring.surprisal import surprisal as surprisal
    from .tokenization import train_subword_tokenizer as train_subword_tokenizer
    from .tokenization import train_word_tokenizer as train_word_tokenizer
    from .trace import SentenceModel as SentenceModel
    from .trace import Trace as Trace
    from .training.temperature import TemperatureSchedule as TemperatureSchedule

__version__ = "1.0.0rc1"
"""The version of the package."""

__all__ = ["__version__"]
# The module of each public name, which loads when the name is first used.
_HOMES = {
    "BufferedStackRNNConfig": "configuration_buffered",
    "BufferedStackRNNForTransduction": "modeling_buffered",
    "DeepStackRNNConfig": "configuration_deep",
    "DeepStackRNNForCausalLM": "modeling_deep",
    "DeepStackRNNModel": "modeling_deep",
    "Intervention": "layers.interventions",
    "MemoryCache": "cache",
    "MemoryGenerationMixin": "cache",
    "MemoryLayer": "layers.memory_layer",
    "MemoryPreTrainedModel": "modeling_base",
    "ModelClass": "model_kinds",
    "ModelKind": "model_kinds",
    "ModelScorer": "scoring.sentences",
    "Parse": "scoring.parser",
    "Parser": "scoring.parser",
    "SentenceModel": "trace",
    "SpanParserConfig": "configuration_span_parser",
    "SpanParserModel": "modeling_span_parser",
    "StackAttention": "layers.stack_attention",
    "StackRNN": "layers.stack_rnn",
    "StackRNNCell": "layers.cell",
    "StackRNNConfig": "configuration_stack_rnn",
    "StackRNNForCausalLM": "modeling_stack_rnn",
    "StackRNNForKHotPrediction": "modeling_heads",
    "StackRNNForSequenceClassification": "modeling_heads",
    "StackRNNForTokenClassification": "modeling_heads",
    "StackRNNModel": "modeling_stack_rnn",
    "StackTransformerConfig": "configuration_transformer",
    "StackTransformerForCausalLM": "modeling_transformer",
    "StackTransformerForSequenceClassification": "modeling_transformer",
    "StackTransformerForTokenClassification": "modeling_transformer",
    "StackTransformerModel": "modeling_transformer",
    "TemperatureSchedule": "training.temperature",
    "Trace": "trace",
    "explain_backend": "layers.controlled",
    "intervene": "layers.interventions",
    "memories": "layers",
    "register_model": "model_kinds",
    "set_scan_backend": "layers.controlled",
    "surprisal": "scoring.surprisal",
    "train_subword_tokenizer": "tokenization",
    "train_word_tokenizer": "tokenization",
}
__all__.extend(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def register_configurations() -> None:
    """Register the configurations with transformers, so that `from_pretrained` of its Auto classes finds them."""
    from transformers import AutoConfig

    for name in _HOMES:
        if name.endswith("Config"):
            config = __getattr__(name)
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
