"""Shared fixtures. All tests run offline."""

import contextlib
import functools
import importlib.util
import itertools
import json
import operator
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:  # one of a process for each core
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

# Triton decides when it is imported whether kernels are interpreted, which on a CPU is the only way to run them; and
# transformers imports it.
if not torch.cuda.is_available():
    with pytest.MonkeyPatch.context() as _patch, contextlib.suppress(ImportError):
        _patch.setenv("TRITON_INTERPRET", "1")
        import triton  # noqa: F401

from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from stack_lm import StackRNNConfig

# Examples that take long to draw or to check show a busy machine, not a fault.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Real data that some tests check against; it is not part of the project, and those tests skip without it.
REAL_DATA = Path(os.environ.get("STACK_LM_REAL_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_real_data = pytest.mark.skipif(
    not REAL_DATA.is_dir(), reason=f"no real data at {REAL_DATA}; set STACK_LM_REAL_DATA"
)
# NLTK looks for its corpora when it is first imported.
if REAL_DATA.is_dir():
    os.environ.setdefault("NLTK_DATA", str(REAL_DATA / "nltk_data"))


def all_binary_trees(start, stop):
    """Every set of spans of two words or more that a binary tree over [start, stop) can have."""
    if stop - start == 1:
        yield frozenset()
        return
    for middle in range(start + 1, stop):
        for left in all_binary_trees(start, middle):
            for right in all_binary_trees(middle, stop):
                yield left | right | {(start, stop)}


# What the conformance tests run over: every registered memory, in the settings that change what it computes; and every
# controller. All pairs are legal, and test_configuration.py has those that are not.
MEMORIES = (
    {"memory": "none"},
    {"memory": "stack", "push_control": "expected_value", "pop_control": 1.0},
    {"memory": "stack", "push_control": 1.0, "pop_control": "expected_value", "max_pop": 5},
    {"memory": "stack", "push_control": "sigmoid", "pop_control": "sigmoid", "read_order": "before_push"},
    {"memory": "queue"},
    {"memory": "deque", "pop_control": "expected_value"},
    {"memory": "deque", "pop_control": "sigmoid", "read_order": "before_push", "memory_size": 4, "num_heads": 2},
    {"memory": "superposition"},
    {"memory": "superposition", "num_stacks": 2, "read_depth": 2, "empty_value": -1.0, "no_op": True},
    {"memory": "superposition", "memory_depth": 3, "memory_overflow": "truncate"},
    {"memory": "multipop_superposition", "num_stacks": 2},
    {"memory": "multipop_superposition", "max_pop": 1, "memory_depth": 3, "memory_overflow": "truncate"},
    {"memory": "baby_ntm", "memory_depth": 4, "operation_control": "softmax_temperature", "temperature": 0.7},
    {"memory": "baby_ntm", "memory_depth": 1},
    {
        "memory": "nondeterministic",
        "memory_size": 0,
        "memory_states": 1,
        "memory_symbols": 2,
        "normalize_actions": True,
    },
    {"memory": "nondeterministic", "memory_size": 2, "memory_symbols": 1, "memory_window": 3, "bottom": "fixed"},
    {"memory": "deltanet", "memory_size": 4, "num_heads": 2, "negative_eigenvalues": True},
    {"memory": "deltastack", "memory_depth": 3, "convolution_width": 3, "normalize_reading": True},
)
CONTROLLERS = ("linear", "sigmoid", "direct", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm")


def tiny_config(**fields) -> StackRNNConfig:
    """A model of a few hundred weights, with every size different."""
    if fields.get("controller") == "direct":
        fields.setdefault("hidden_size", None)  # it decides its own
    sizes = {"vocab_size": 23, "embedding_size": 5, "hidden_size": 7, "memory_size": 3, "pad_token_id": 0}
    return StackRNNConfig(**(sizes | fields))


def thinned(*axes, every=3):
    """Parameters of all combinations of the axes' values: every third in `make test`, all in `make test-slow`.

    Those of `make test` lie on diagonals, which meet each value of an axis if another axis has at least `every`.
    A tuple is the values of several parameters; dictionaries are joined into one.
    """
    parameters = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        parts = [_parameter([*axis][place]) for axis, place in zip(axes, places, strict=True)]
        values = [value for part in parts for value in part.values]
        if all(isinstance(value, dict) for value in values):
            values = [functools.reduce(operator.or_, values)]
        marks = [mark for part in parts for mark in part.marks] + [pytest.mark.slow] * (sum(places) % every > 0)
        ids = [part.id for part in parts if part.id]
        parameters.append(pytest.param(*values, marks=marks, id="-".join(ids) if len(ids) == len(parts) else None))
    return parameters


def _parameter(value):
    if isinstance(value, type(pytest.param())):
        return value
    return pytest.param(*value) if isinstance(value, tuple) else pytest.param(value)


def byte_level_tokenizer(**special):
    """A byte-level BPE, as GPT-2's: a word's first token has the space before it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>"]
    )
    tokenizer.train_from_iterator(["the dog that cats fear barks loudly near old bridges"] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", **special)


def checkpoint_activations(model, *settings):
    """Switch activation checkpointing on, by the name that the installed transformers has for it."""
    (getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable)(*settings)


def recipe(name):
    """A script of recipes/, as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(capsys, *arguments):
    """Exit status, standard output and standard error of a command."""
    from stack_lm.cli.main import main  # loads NLTK, which by now knows where its corpora are

    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_json(capsys, *arguments):
    status, out, err = run(capsys, *arguments, "--json")
    assert status == 0, err
    assert out.count("\n") == 1
    return json.loads(out)


@pytest.fixture(scope="session")
def treebank(tmp_path_factory):
    """A file of 40 trees of the generated English."""
    from stack_lm.text import generate_corpus

    path = tmp_path_factory.mktemp("treebank") / "generated.mrg"
    trees = [" ".join(str(s.tree).split()) for s in generate_corpus(40, seed=8)]
    path.write_text("".join(f"( {tree} )\n" for tree in trees))
    return path


@pytest.fixture(scope="session")
def evaluate_cache(tmp_path_factory):
    """`evaluate` copies the modules that it loads; not to the user's cache, and to one place in a process."""
    import evaluate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


@pytest.fixture(scope="module")
def uninitialised_is_nan():
    """Memory that nobody has written to holds NaN, or the largest number there is, in numpy and in torch on a CPU."""
    empty, deterministic = np.empty, torch.are_deterministic_algorithms_enabled()

    def filled(*arguments, **options):
        array = empty(*arguments, **options)
        array.fill(
            np.nan if array.dtype.kind == "f" else True if array.dtype.kind == "b" else np.iinfo(array.dtype).max
        )
        return array

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", filled)
        patch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
        if not torch.cuda.is_available():  # where some operations have no such form
            torch.use_deterministic_algorithms(True)
        yield
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def registries(monkeypatch, tmp_path_factory):
    """All registries by kind; what is registered and imported in a test is gone after it."""
    from stack_lm.core import plugins

    for registry in plugins._registries.values():
        monkeypatch.setattr(registry, "registered", dict(registry.registered))
        monkeypatch.setattr(registry, "_has_all", False)
    monkeypatch.setattr(plugins, "_imported", {})
    before = set(sys.modules)
    yield plugins._registries
    for module in set(sys.modules) - before:
        if (getattr(sys.modules[module], "__file__", None) or "").startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[module]


def load_registers():
    """Import the memory of examples/registers.py, which registers it."""
    spec = importlib.util.spec_from_file_location("registers", Path(__file__).parents[1] / "examples" / "registers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def registers(registries):
    """The memory of examples/registers.py, registered for one test."""
    return load_registers()


def train_small(directory, model, source="generated:200", held_out=40, **training):
    """Train a small language model in a directory; returns what its training returned."""
    from stack_lm.training.config import DataConfig, LoopConfig, RunConfig
    from stack_lm.training.language_model import Trainer

    config = RunConfig(
        output_dir=str(directory),
        model=model,
        data=DataConfig(source=source, held_out=held_out),
        training=LoopConfig(threads=1, loss_dtype="float32", **training),
    )
    return Trainer(config, quiet=True).train()


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """The directory of a small trained model with its tokenizer, its code and its card, as training leaves it."""
    directory = tmp_path_factory.mktemp("run") / "small"
    sizes = {"hidden_size": 24, "embedding_size": 12, "memory_size": 4}
    train_small(directory, sizes, "generated:1500", held_out=60, epochs=2, learning_rate=0.01)
    return str(directory)
