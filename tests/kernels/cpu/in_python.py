"""Every kernel as plain Python equals the reference; `test_in_python` runs this file with NUMBA_DISABLE_JIT=1."""

import numpy as np
import pytest
import torch
from conftest import CONTROLLERS
from docs.test_docs import examples
from kernels import comparison
from kernels import test_cross_entropy as cross_entropy
from kernels.cpu import test_buffer as buffered
from kernels.cpu import test_parts as parts

from stack_lm import MemoryLayer
from stack_lm.kernels.cpu import gemm
from stack_lm.kernels.cpu.compilation import IN_PYTHON

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
MEMORIES = {
    "none": {"memory": "none"},
    "stack": {"memory": "stack", "push_control": "sigmoid", "pop_control": "sigmoid"},
    "queue": {"memory": "queue"},
    "deque": {"memory": "deque"},
    "superposition": {"memory": "superposition", "num_stacks": 2, "read_depth": 2, "empty_value": -1.0, "no_op": True},
    "multipop": {"memory": "multipop_superposition", "memory_depth": 3, "memory_overflow": "truncate"},
    "tape": {"memory": "baby_ntm", "memory_depth": 4, "operation_control": "gumbel_softmax"},
    "nondeterministic": {"memory": "nondeterministic", "memory_symbols": 2, "memory_size": 2, "memory_window": 4},
}


def check_given_inputs(**fields):
    cell = comparison.make_cell(**fields)
    state = comparison.random_state(cell, 2, torch.float64, steps=2)
    comparison.check(cell, length=4, batch_size=2, state=state, mask=comparison.some_mask(2, 4))


def check_input_buffer(**fields):
    buffered.check(buffered.make_model(steps_per_token=1, **fields), batch_size=2, length=3, padding="left")


@pytest.mark.parametrize("memory", [name for name in MEMORIES if name != "none"])
def test_given_vectors(memory):
    layer = MemoryLayer(5, **{"memory_size": 3} | MEMORIES[memory]).double()
    comparison.check_layer(layer, length=4, batch_size=2, mask=comparison.some_mask(2, 4), first_steps=2)


@pytest.mark.parametrize("check", [check_given_inputs, check_input_buffer])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_every_scan(check, memory, controller):
    assert IN_PYTHON
    check(controller=controller, **MEMORIES[memory])


def test_layers_and_the_readings_entry():
    cell = comparison.make_cell(controller="gru", num_layers=2, reading_entry="hidden_state", memory="superposition")
    comparison.check(cell, length=4, batch_size=2)


def test_the_script_of_the_page_on_architecture(capsys):
    (script,) = (code for code in examples("architecture.md") if "materialize_grads" in code)
    exec(script, {})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines][:2] == ["loss", "inputs"]
    assert len(lines) == 9
    assert all(float(difference) < 1e-12 for _, difference in lines)


def test_one_hot_inputs():
    cell = comparison.make_cell(num_layers=2, input_skip_connections=True)
    comparison.check(cell, length=4, batch_size=2, one_hot=True)


def test_single_precision():
    cell = comparison.make_cell(torch.float32, memory="deque")
    comparison.check(cell, length=4, batch_size=2, dtype=torch.float32, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(dtype, monkeypatch):
    for room in (gemm.BLOCK_BYTES, 2 * gemm.INNER * 8):  # what comes from the left is used where it lies, or copied
        monkeypatch.setattr(gemm, "BLOCK_BYTES", room)
        parts.check_products(11, 5, 37, 0, dtype)


@pytest.mark.parametrize("name", parts.EXACT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions(name, dtype):
    parts.check_function(name, np.linspace(-80, 80, 400, dtype=dtype))


@pytest.mark.parametrize("dtype", cross_entropy.DTYPES)
def test_cross_entropy(dtype):
    run = cross_entropy.Runs(cross_entropy.CompiledSoftmax)
    cross_entropy.check(run, 2, 9, 10.0, True, dtype, 0)
    cross_entropy.test_the_edges_of_numbers(run, dtype)
    cross_entropy.test_bfloat16_is_rounded_as_torch_rounds(run)
