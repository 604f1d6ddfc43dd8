"""The registered kinds of models of this package."""

from .configuration_buffered import BufferedStackRNNConfig
from .configuration_deep import DeepStackRNNConfig
from .configuration_span_parser import SpanParserConfig
from .configuration_stack_rnn import StackRNNConfig
from .configuration_transformer import StackTransformerConfig
from .kinds import TEXT, TREES, ModelClass, ModelKind, register_model
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

# Classes by the Auto class that builds them, and the data that they train on.
BODY = ("AutoModel",)
LANGUAGE_MODEL = ("AutoModelForCausalLM", (TEXT, "language", "transduction"))
SEQUENCE_CLASSIFIER = ("AutoModelForSequenceClassification", ("classification",))
TOKEN_CLASSIFIER = ("AutoModelForTokenClassification", ("per_step", "language", "delayed"))

STACK_RNN = register_model(
    ModelKind(
        StackRNNConfig,
        (
            ModelClass(StackRNNModel, *BODY),
            ModelClass(StackRNNForCausalLM, *LANGUAGE_MODEL),
            ModelClass(StackRNNForSequenceClassification, *SEQUENCE_CLASSIFIER),
            ModelClass(StackRNNForTokenClassification, *TOKEN_CLASSIFIER),
            ModelClass(StackRNNForKHotPrediction, trains_on=("next_symbols",)),
        ),
        head_apart=True,
        continuous=True,
    )
)
DEEP = register_model(
    ModelKind(
        DeepStackRNNConfig,
        (ModelClass(DeepStackRNNModel, *BODY), ModelClass(DeepStackRNNForCausalLM, LANGUAGE_MODEL[0], (TEXT,))),
        head_apart=True,
        continuous=True,
        actions_only=True,
    )
)
TRANSFORMER = register_model(
    ModelKind(
        StackTransformerConfig,
        (
            ModelClass(StackTransformerModel, *BODY),
            ModelClass(StackTransformerForCausalLM, *LANGUAGE_MODEL),
            ModelClass(StackTransformerForSequenceClassification, *SEQUENCE_CLASSIFIER),
            ModelClass(StackTransformerForTokenClassification, *TOKEN_CLASSIFIER),
        ),
        head_apart=True,
        actions_only=True,
    )
)
BUFFERED = register_model(
    ModelKind(
        BufferedStackRNNConfig, (ModelClass(BufferedStackRNNForTransduction, "AutoModelForSeq2SeqLM", ("per_step",)),)
    )
)
SPAN_PARSER = register_model(ModelKind(SpanParserConfig, (ModelClass(SpanParserModel, *BODY, (TREES,)),)))
