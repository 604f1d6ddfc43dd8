"""BufferedStackRNNConfig: a stack RNN between an input and an output buffer."""

from __future__ import annotations

from typing import Annotated

from ..core.checks import Integer
from ..memory.fields import Elements, StrengthControl, check_strength_init
from .configuration_stack_rnn import StackRNNConfig, Tokens

Steps = Annotated[int, Integer(0, 10_000)]


class BufferedStackRNNConfig(StackRNNConfig):
    """Configuration of a stack RNN that works between two buffers (Hao et al. 2018, section 2.3).

    It has all fields of `StackRNNConfig`, with their defaults, and these:

    Args:
        target_vocab_size: number of output symbols; None: `vocab_size`.
        input_pop_control: control of the strength popped from the input at each step: "sigmoid", as in the paper,
            "expected_value", or a number: fixed to that strength. With 1 for both, the network reads and writes one
            symbol per step.
        output_push_control: control of the push strength of each step's output; see `input_pop_control`.
        max_input_pop: largest value of the expected-value support of input_pop_control.
        max_output_push: largest value of that support of output_push_control.
        input_pop_strength_init: strength of input_pop_control at the start, as `pop_strength_init`. The released code
            of Hao et al. (2018) has biases of 1, which is 0.73106, for this one and the next.
        output_push_strength_init: strength of output_push_control at the start.
        steps_per_token: steps the network takes for each symbol of its input, if a call gives no number.
            NOTE: the paper does not say; the authors' released code has 2 for XOR.
        extra_steps: steps beyond that.
        output_delay: strength lost at the front of the output buffer, in elements. In the paper it is 1, because the
            buffer is popped before every reading, even the first.

    Raises:
        ValueError: as `StackRNNConfig`.

    Example:
        >>> config = BufferedStackRNNConfig(vocab_size=3, controller="direct", push_control="sigmoid")
    """

    model_type = "buffered_stack_rnn"

    target_vocab_size: Tokens | None = None
    input_pop_control: StrengthControl = "sigmoid"
    output_push_control: StrengthControl = "sigmoid"
    max_input_pop: Elements = 1
    max_output_push: Elements = 1
    input_pop_strength_init: float | None = None
    output_push_strength_init: float | None = None
    steps_per_token: Steps = 2
    extra_steps: Steps = 0
    output_delay: Steps = 0

    def complete(self) -> None:
        super().complete()
        for control in ("input_pop", "output_push"):
            check_strength_init(self, control)
        if self.steps_per_token + self.extra_steps == 0:
            raise ValueError("steps_per_token and extra_steps must not both be 0, or the network takes no step")
        if self.reading_exit != "none":
            raise ValueError(f"reading_exit must be 'none' in a buffered network; got {self.reading_exit!r}")
        if self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings must be False: inputs and outputs may be of different vocabularies")
