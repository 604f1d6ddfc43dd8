"""StackRNNConfig: all fields of the model, flat and validated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal

from transformers import GenerationConfig, PreTrainedConfig

from ..core.checks import Check, CountOrZero, Integer, Probability, checks_of
from ..core.messages import did_you_mean
from ..memory import memory_class
from ..memory.fields import Parts, Size
from ..memory.settings import MemoryName, complete_settings, setting_check

Tokens = Annotated[int, Integer(1, 2**27)]  # a larger model would hang, and never fit

# Keyword arguments that transformers itself passes to a configuration, in addition to its fields.
_TRANSFORMERS_KEYS = frozenset(
    "model_type num_labels name_or_path torch_dtype output_attentions attn_implementation experts_implementation "
    "per_layer_config auto_map quantization_config".split()
).union(GenerationConfig._get_default_generation_params())


# The default of a field that the memory, or another field, decides; Any, so that the field keeps its own type.
UNDECIDED: Any = None


class ModelConfig(PreTrainedConfig):
    """The base of this package's configurations: it checks values, rejects unknown keys and names plug-ins."""

    keys_to_ignore_at_inference = ["cache", "past_key_values"]  # noqa: RUF012
    # Called whenever a configuration is made; `stack_lm` sets it to register the models with the Auto classes. These
    # find a model by its configuration, so the first one is early enough; loading the models takes over a second.
    register_models: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __post_init__(self, **kwargs: Any) -> None:
        known = _TRANSFORMERS_KEYS.union(self.attribute_map, self.further_keys())
        unknown = sorted(key for key in kwargs if key not in known and not key.startswith("_"))
        if unknown:
            fields = sorted({*checks_of(type(self)), *self.further_keys()})
            hint = did_you_mean(unknown[0], fields) or f"; its fields are {', '.join(fields)}"
            raise ValueError(f"{type(self).__name__} has no field {unknown[0]!r}{hint}")
        super().__post_init__(**({"auto_map": {}} | kwargs))  # other programs read it unguarded
        self.complete()
        ModelConfig.register_models()

    def to_dict(self) -> dict[str, Any]:
        """The fields, with `auto_map` only if a model has its code beside it."""
        return {key: value for key, value in super().to_dict().items() if key != "auto_map" or value}

    @property
    def memory_names(self) -> list[str]:
        """The names of the memories of its models, "none" for a recurrent layer without one."""
        return []

    def further_keys(self) -> Iterable[str]:
        """Keys other than the fields, such as the settings of a memory from outside the package."""
        return ()

    def complete(self) -> None:
        """Fill in the fields that are None, and reject incompatible values.

        Models call it again, because fields may have been set after the configuration was made.

        Raises:
            ValueError: with the incompatible pair, and the reason.
        """

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """transformers' `from_dict`, without the key `plugins` of earlier versions.

        Raises:
            ValueError: as for the arguments of a configuration.
        """
        return super().from_dict({key: value for key, value in config_dict.items() if key != "plugins"}, **kwargs)

    def check_of(self, key: str) -> Check | None:
        """The check of a field's values, in the vocabulary of `stack_lm.core.checks`."""
        return checks_of(type(self)).get(key)

    def __setattr__(self, key: str, value: Any) -> None:
        key = self.attribute_map.get(key, key)
        check = self.check_of(key)
        super().__setattr__(key, check(key, value) if check else value)


class LanguageModelConfig(ModelConfig):
    """The base of configurations of recurrent networks and transformers.

    Args:
        vocab_size: number of token ids.
        output_dropout: dropout on the last hidden state, before the head.
        tie_word_embeddings: share input and output embeddings; they must be of one size.
        use_cache: return the network's state in `cache`.
        pad_token_id: the token that pads sequences.
        bos_token_id: the token that begins sequences.
        eos_token_id: the token, or tokens, that end sequences.
    """

    vocab_size: Tokens = 10_000
    output_dropout: Probability = 0.0
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: CountOrZero | None = None
    bos_token_id: CountOrZero | None = None
    eos_token_id: CountOrZero | list[CountOrZero] | None = None

    @property
    def head_bias(self) -> Any:
        """True if heads have biases."""
        fields: Any = self
        return fields.bias

    @property
    def head_input_size(self) -> Any:
        """Size of the head's input vectors: output_size, or hidden_size if that is None or no field."""
        fields: Any = self
        size = getattr(fields, "output_size", None)
        return fields.hidden_size if size is None else size

    def _check_tied_embeddings(self, embedding_size: int) -> None:
        if self.tie_word_embeddings and embedding_size != self.head_input_size:
            raise ValueError(
                "tie_word_embeddings needs embedding_size to be the size of the head's input, output_size or that of "
                f"the last layer; got {embedding_size} and {self.head_input_size}"
            )


class StackRNNConfig(LanguageModelConfig):
    """Configuration of a recurrent network with a differentiable memory.

    The defaults are the language model of Merrill et al. (2019) with the pop strength fixed to 1 ("u = 1"). A setting
    that the chosen memory does not use is rejected, except with `memory="none"`, so that a baseline can differ from a
    model in its memory alone.

    Args:
        input_encoding: "embedding" (learned vectors) or "one_hot" (nothing learned; the vocabulary's size decides
            embedding_size).
        embedding_size: size of a token embedding, E: 50 unless given.
        hidden_size: size of the controller's output, H: 100 unless given, or that of `[x_t; r_{t-1}]` for "direct".
        output_size: size of a layer `tanh(W_o o_t + b_o)` between the controller's output and the head (Grefenstette et
            al. 2015, section 3.4); None omits it.
        num_layers: layers of the controller. The reading enters the first; the last emits the actions.
        controller: "linear" (a layer of H outputs), "sigmoid" (one with a sigmoid), "direct" (nothing: the controls and
            the head are the linear layers, as in Hao et al. 2018), "rnn" (Elman, tanh), "rnn_relu",
            "rnn_sigmoid", "gru" or "lstm".
        bias: whether controller, controls and heads have biases.
        input_skip_connections: give x_t to every layer of the controller, not only to the first, as in the deep LSTMs
            of Grefenstette et al. (2015).
        reading_entry: where the reading enters: beside x_t ("input"), or added to the first layer's previous state
            through a learned map ("hidden_state", Suzgun et al. 2019).
        reading_exit: whether the output also sees the reading within the same step: "none", as in the papers, or
            "output", for a stack. The head, or the output layer, then gets `o_t + W [v_t; b_t]`, with the pushed
            element and the reading below it (`NeuralStack.output_features`). Without it, r_t does not affect the
            prediction of token t + 1. W starts at zero, so this can be added to a trained model.
        initialization: initial weights: "torch" (the defaults of torch's own modules), "normal_rows" (the released code
            of Hao et al. 2018), "xavier" (that of DuSell and Chiang 2020) or "truncated_normal" (that of Delétang et
            al. 2023); see `stack_lm.nn.initialization`.
        memory: "none" (a plain recurrent network) or the name of a registered memory, such as "stack".
        memory_size: size of one memory element, D.
        memory_depth: maximum number of elements on a superposition stack (None: no limit), or the number of cells of a
            tape, or of slots of DeltaStack's stack.
        memory_overflow: response of a full superposition stack to losing its bottom element: "raise" or "truncate".
        num_stacks: number of parallel superposition stacks, each with its own operations and values.
        read_depth: number of elements read from the top of a superposition stack.
        empty_value: the reading of an empty cell of a superposition stack.
        no_op: whether doing nothing is among a superposition stack's operations.
        memory_states: states of a nondeterministic stack, Q.
        memory_symbols: symbols of a nondeterministic stack, S; without vectors its `memory_size` is 0.
        memory_window: number of steps that a nondeterministic stack remembers, D (None: all).
        normalize_actions: make the weights of the moves from each state and symbol sum to 1, as in DuSell and Chiang
            (2020).
        read_states: read states and symbols of a nondeterministic stack, not only symbols.
        bottom: whether the bottom of a nondeterministic stack can be replaced and uncovered ("open", 2023) or not
            ("fixed", 2020 and 2022).
        bottom_vector: vector of this bottom: "ones", "zeros", or "learned", with the activation of pushed vectors.
        push_control: how the push strength is emitted: "sigmoid" (in (0, 1)), "expected_value" (the mean of a softmax
            over {0, ..., max}), or a number: fixed to that strength.
        pop_control: how the pop strength is emitted; see `push_control`.
        read_control: how the read strength is emitted; see `push_control`.
        max_push: largest value of the expected-value support of the push strength.
        max_pop: largest value of that support of the pop strength; also the maximum number of elements that a multipop
            superposition stack pops.
        max_read: largest value of that support of the read strength.
            NOTE: Merrill et al. print k = 4; their released code has 4 logits, the support {0, 1, 2, 3}, as here.
        operation_control: how operations are chosen: "softmax", "softmax_temperature" or "gumbel_softmax".
        temperature: temperature of "softmax_temperature" and "gumbel_softmax"; training may lower it.
        evaluation_noise: keep the Gumbel noise in evaluation, as Suzgun et al. (2019) do.
        evaluation_argmax: in evaluation, use only the most probable operation.
        push_value_activation: activation of the pushed element: "tanh", "sigmoid", "exp" or "identity" (none); or
            "hidden": the controller's output itself is pushed, so memory_size must be hidden_size.
        push_strength_init: the push strength under the initial biases of its control, in elements, above 0 and below 1
            ("sigmoid") or max_push; logit i of an expected value starts at i times one number. None keeps the
            projection's default, about half of the range. A fixed strength has none.
        pop_strength_init: the pop strength at the start; see `push_strength_init`. Grefenstette et al. (2015,
            supplement) and Hao et al. (2018) have a bias of -1, which is 0.26894.
        read_strength_init: the read strength at the start; see `push_strength_init`.
        bottom_strength_init: a deque's push and pop strength at the bottom at the start, if they differ from those at
            the top; see `push_strength_init`. A small one makes it a stack at first, whose bottom is only read.
        read_order: whether a stack, queue or deque reads "after_push", as in the papers, or "before_push": a step then
            reads what earlier steps pushed, and older elements have a gradient from the start.
        num_heads: stacks, queues, deques or memories of the delta rule side by side, each with its own strengths and
            1 / num_heads of the element.
        write_control: how the strength of a write by the delta rule, at most 1, is emitted; see `push_control`.
        max_write: largest value of the expected-value support of that strength.
        write_strength_init: that strength at the start; see `push_strength_init`.
        negative_eigenvalues: double the strengths of writes by the delta rule: those of "sigmoid" are then in (0, 2),
            and the eigenvalues of a step in [-1, 1] in place of [0, 1] (Grazzi et al. 2025).
        convolution_width: width of short convolutions over time of the keys, queries and values of the delta rule, 4 in
            DeltaNet and DeltaStack; 0: none.
        normalize_reading: normalise each head's reading of a memory of the delta rule, as both do.
        learn_initial_state: learn the controller's first state; otherwise it is zero.
        forget_bias: number added to the initial biases of an LSTM's forget gates, so that it remembers at first; 1 in
            Jozefowicz et al. (2015).
        embedding_dropout: dropout on token embeddings.
        hidden_dropout: dropout between the controller's layers.
        prediction_threshold: the lowest probability at which `StackRNNForKHotPrediction` predicts a label.

    Raises:
        ValueError: for a value that its field does not allow, incompatible values, or an unknown keyword argument.

    Example:
        >>> config = StackRNNConfig(vocab_size=1000, push_control=1.0, pop_control="expected_value")  # "d = 1"
    """

    model_type = "stack_rnn"
    attribute_map = {"num_hidden_layers": "num_layers"}  # noqa: RUF012 - the base class's own idiom

    input_encoding: Literal["embedding", "one_hot"] = "embedding"
    embedding_size: Size = UNDECIDED
    hidden_size: Size = UNDECIDED
    output_size: Size | None = None
    num_layers: Parts = 1
    controller: Literal["linear", "sigmoid", "direct", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm"] = "lstm"
    bias: bool = True
    input_skip_connections: bool = False
    reading_entry: Literal["input", "hidden_state"] = "input"
    reading_exit: Literal["none", "output"] = "none"
    learn_initial_state: bool = False
    forget_bias: float = 0.0
    initialization: Literal["torch", "normal_rows", "xavier", "truncated_normal"] = "torch"
    memory: MemoryName = "stack"
    memory_size: int = UNDECIDED
    memory_depth: int | None = None
    memory_overflow: str = UNDECIDED
    num_stacks: int = UNDECIDED
    read_depth: int = UNDECIDED
    empty_value: float = UNDECIDED
    no_op: bool = UNDECIDED
    memory_states: int = UNDECIDED
    memory_symbols: int = UNDECIDED
    memory_window: int | None = None
    normalize_actions: bool = UNDECIDED
    read_states: bool = UNDECIDED
    bottom: str = UNDECIDED
    bottom_vector: str = UNDECIDED
    push_control: str | float = UNDECIDED
    pop_control: str | float = UNDECIDED
    read_control: str | float = UNDECIDED
    max_push: int = UNDECIDED
    max_pop: int = UNDECIDED
    max_read: int = UNDECIDED
    operation_control: str = UNDECIDED
    temperature: float = UNDECIDED
    evaluation_noise: bool = UNDECIDED
    evaluation_argmax: bool = UNDECIDED
    push_value_activation: str = UNDECIDED
    push_strength_init: float | None = None
    pop_strength_init: float | None = None
    read_strength_init: float | None = None
    bottom_strength_init: float | None = None
    read_order: str = UNDECIDED
    num_heads: int = UNDECIDED
    write_control: str | float = UNDECIDED
    max_write: int = UNDECIDED
    write_strength_init: float | None = None
    negative_eigenvalues: bool = UNDECIDED
    convolution_width: int = UNDECIDED
    normalize_reading: bool = UNDECIDED
    embedding_dropout: Probability = 0.0
    hidden_dropout: Probability = 0.0
    prediction_threshold: Probability = 0.5

    @property
    def memory_names(self) -> list[str]:
        return [self.memory]

    def further_keys(self) -> Iterable[str]:
        return memory_class(self.memory).settings

    def complete(self) -> None:
        memory = complete_settings(self)
        if self.input_encoding == "one_hot":
            self._decide("embedding_size", self.vocab_size, "input_encoding='one_hot', the vocabulary's size")
        elif self.embedding_size is None:
            self.embedding_size = 50
        if self.controller == "direct":
            self._decide("hidden_size", self.embedding_size + memory.reading_size, "controller='direct'")
            if self.num_layers > 1:
                raise ValueError(f"num_layers must be 1 with controller='direct'; got {self.num_layers}")
        elif self.hidden_size is None:
            self.hidden_size = 100
        if self.controller in ("linear", "sigmoid", "direct"):
            into_state = self.reading_entry == "hidden_state" and self.memory != "none"
            if self.learn_initial_state or into_state:
                setting = "learn_initial_state" if self.learn_initial_state else "reading_entry='hidden_state'"
                raise ValueError(f"{setting} needs a recurrent controller; got controller={self.controller!r}")
        if self.forget_bias and (self.controller != "lstm" or not self.bias):
            raise ValueError(
                f"forget_bias needs controller='lstm' and bias=True; got {self.controller!r} and {self.bias}"
            )
        if self.reading_exit == "output" and self.memory != "none" and not memory.output_size:
            raise ValueError(f"reading_exit='output' needs a memory with an exit, such as 'stack'; got {self.memory!r}")
        if self.tie_word_embeddings and self.input_encoding == "one_hot":
            raise ValueError("tie_word_embeddings needs input embeddings; got input_encoding='one_hot'")
        self._check_tied_embeddings(self.embedding_size)

    def _decide(self, name: str, only: int, reason: str) -> None:
        """Set a field that is None to the one value that another field allows."""
        value = getattr(self, name)
        if value is None:
            setattr(self, name, only)
        elif value != only:
            raise ValueError(f"{name} must be {only} with {reason}; got {value}")

    def check_of(self, key: str) -> Check | None:
        return setting_check(vars(self).get("memory", "none"), key) or super().check_of(key)
