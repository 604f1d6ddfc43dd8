"""stack-lm: recurrent networks with a differentiable stack, their parses and their scores.

Importing this package loads nothing heavy, so that `stack-lm --help` is fast; its names load on first use. The
configurations are registered as soon as transformers' Auto classes are loaded, and the models when the first
configuration is made.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.import_hooks import after_import

if TYPE_CHECKING:  # aliases, by which type checkers know public names
    from .core.trace import SentenceModel as SentenceModel
    from .core.trace import Trace as Trace
    from .models.cache import MemoryCache as MemoryCache
    from .models.cache import MemoryGenerationMixin as MemoryGenerationMixin
    from .models.configuration_buffered import BufferedStackRNNConfig as BufferedStackRNNConfig
    from .models.configuration_deep import DeepStackRNNConfig as DeepStackRNNConfig
    from .models.configuration_span_parser import SpanParserConfig as SpanParserConfig
    from .models.configuration_stack_rnn import StackRNNConfig as StackRNNConfig
    from .models.configuration_transformer import StackTransformerConfig as StackTransformerConfig
    from .models.kinds import ModelClass as ModelClass
    from .models.kinds import ModelKind as ModelKind
    from .models.kinds import register_model as register_model
    from .models.modeling_base import MemoryPreTrainedModel as MemoryPreTrainedModel
    from .models.modeling_buffered import BufferedStackRNNForTransduction as BufferedStackRNNForTransduction
    from .models.modeling_deep import DeepStackRNNForCausalLM as DeepStackRNNForCausalLM
    from .models.modeling_deep import DeepStackRNNModel as DeepStackRNNModel
    from .models.modeling_heads import StackRNNForKHotPrediction as StackRNNForKHotPrediction
    from .models.modeling_heads import StackRNNForSequenceClassification as StackRNNForSequenceClassification
    from .models.modeling_heads import StackRNNForTokenClassification as StackRNNForTokenClassification
    from .models.modeling_span_parser import SpanParserModel as SpanParserModel
    from .models.modeling_stack_rnn import StackRNNForCausalLM as StackRNNForCausalLM
    from .models.modeling_stack_rnn import StackRNNModel as StackRNNModel
    from .models.modeling_transformer import StackTransformerForCausalLM as StackTransformerForCausalLM
    from .models.modeling_transformer import (
        StackTransformerForSequenceClassification as StackTransformerForSequenceClassification,
    )
    from .models.modeling_transformer import (
        StackTransformerForTokenClassification as StackTransformerForTokenClassification,
    )
    from .models.modeling_transformer import StackTransformerModel as StackTransformerModel
    from .nn import memories as memories
    from .nn.cell import StackRNNCell as StackRNNCell
    from .nn.controlled import explain_backend as explain_backend
    from .nn.controlled import set_scan_backend as set_scan_backend
    from .nn.interventions import Intervention as Intervention
    from .nn.interventions import intervene as intervene
    from .nn.memory_layer import MemoryLayer as MemoryLayer
    from .nn.stack_attention import StackAttention as StackAttention
    from .nn.stack_rnn import StackRNN as StackRNN
    from .scoring.parser import Parse as Parse
    from .scoring.parser import Parser as Parser
    from .scoring.sentences import ModelScorer as ModelScorer
    from .scoring.surprisal import surprisal as surprisal
    from .text.tokenization import train_subword_tokenizer as train_subword_tokenizer
    from .text.tokenization import train_word_tokenizer as train_word_tokenizer
    from .training.loss_parts import LossParts as LossParts
    from .training.temperature import TemperatureSchedule as TemperatureSchedule
    from .training.trials.traces import traces as traces

__version__ = "1.0.0rc1"
"""The version of the package."""

__all__ = ["__version__"]
# The module of each public name, which loads when the name is first used.
_HOMES = {
    "BufferedStackRNNConfig": "models.configuration_buffered",
    "BufferedStackRNNForTransduction": "models.modeling_buffered",
    "DeepStackRNNConfig": "models.configuration_deep",
    "DeepStackRNNForCausalLM": "models.modeling_deep",
    "DeepStackRNNModel": "models.modeling_deep",
    "Intervention": "nn.interventions",
    "LossParts": "training.loss_parts",
    "MemoryCache": "models.cache",
    "MemoryGenerationMixin": "models.cache",
    "MemoryLayer": "nn.memory_layer",
    "MemoryPreTrainedModel": "models.modeling_base",
    "ModelClass": "models.kinds",
    "ModelKind": "models.kinds",
    "ModelScorer": "scoring.sentences",
    "Parse": "scoring.parser",
    "Parser": "scoring.parser",
    "SentenceModel": "core.trace",
    "SpanParserConfig": "models.configuration_span_parser",
    "SpanParserModel": "models.modeling_span_parser",
    "StackAttention": "nn.stack_attention",
    "StackRNN": "nn.stack_rnn",
    "StackRNNCell": "nn.cell",
    "StackRNNConfig": "models.configuration_stack_rnn",
    "StackRNNForCausalLM": "models.modeling_stack_rnn",
    "StackRNNForKHotPrediction": "models.modeling_heads",
    "StackRNNForSequenceClassification": "models.modeling_heads",
    "StackRNNForTokenClassification": "models.modeling_heads",
    "StackRNNModel": "models.modeling_stack_rnn",
    "StackTransformerConfig": "models.configuration_transformer",
    "StackTransformerForCausalLM": "models.modeling_transformer",
    "StackTransformerForSequenceClassification": "models.modeling_transformer",
    "StackTransformerForTokenClassification": "models.modeling_transformer",
    "StackTransformerModel": "models.modeling_transformer",
    "TemperatureSchedule": "training.temperature",
    "Trace": "core.trace",
    "explain_backend": "nn.controlled",
    "intervene": "nn.interventions",
    "memories": "nn",
    "register_model": "models.kinds",
    "set_scan_backend": "nn.controlled",
    "surprisal": "scoring.surprisal",
    "traces": "training.trials.traces",
    "train_subword_tokenizer": "text.tokenization",
    "train_word_tokenizer": "text.tokenization",
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
    from .models import registered as models  # noqa: F401


def _hand_over_models() -> None:
    from .models.configuration_stack_rnn import ModelConfig

    ModelConfig.register_models = staticmethod(register_models)


def _hand_over_hub() -> None:
    from .models.modeling_base import MemoryPreTrainedModel

    MemoryPreTrainedModel.load_hub = staticmethod(lambda: import_module(f"{__name__}.hub.code"))


# From tqdm.auto, which transformers imports, in notebooks without ipywidgets: its bars are then plain text.
warnings.filterwarnings("ignore", message="IProgress not found")
after_import(f"{__name__}.models.configuration_stack_rnn", _hand_over_models)
after_import(f"{__name__}.models.modeling_base", _hand_over_hub)
after_import(f"{__name__}.models.kinds", register_models)
after_import("transformers.models.auto.configuration_auto", register_configurations)
