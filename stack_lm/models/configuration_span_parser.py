"""SpanParserConfig: a parser that scores spans, taught by trees or by the votes of other parsers."""

from __future__ import annotations

from ..core.checks import CountOrZero, Probability
from ..memory.fields import Parts, Size
from .configuration_stack_rnn import ModelConfig, Tokens


class SpanParserConfig(ModelConfig):
    """Configuration of a `SpanParserModel`.

    Args:
        vocab_size: number of token ids.
        embedding_size: size of the token embeddings.
        hidden_size: units of the LSTM in each direction.
        num_layers: layers of the LSTM.
        span_size: units of the layer between the LSTM and the score of a span.
        embedding_dropout: dropout on the embeddings.
        dropout: dropout between the LSTM's layers and after the last one.
        pad_token_id: the token that pads sentences.
        bos_token_id: the token that begins sentences.
        eos_token_id: the token that ends sentences.

    Raises:
        ValueError: for a value that its field does not allow, or an unknown keyword argument.
    """

    model_type = "span_parser"

    vocab_size: Tokens = 10_000
    embedding_size: Size = 100
    hidden_size: Size = 150
    num_layers: Parts = 2
    span_size: Size = 150
    embedding_dropout: Probability = 0.2
    dropout: Probability = 0.3
    pad_token_id: CountOrZero | None = None
    bos_token_id: CountOrZero | None = None
    eos_token_id: CountOrZero | None = None
