"""The pieces of the compiled scan: functions, products, and where compiled code is kept."""

import importlib
import itertools
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.comparison import threads
from numba import config, njit
from numba.core.dispatcher import Dispatcher
from numba.core.event import trigger_event

from stack_lm.kernels.cpu import autograd, compilation, gemm, math, packing
from stack_lm.kernels.cpu import threads as torch_threads


@cache
def over(name):
    """A compiled scalar function, over an array."""
    function = getattr(math, name)

    @njit(error_model="numpy", fastmath=math.FAST)
    def apply(values):
        results = np.empty_like(values)
        for i in range(values.shape[0]):
            results[i] = function(values[i])
        return results

    return apply


EXACT = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def check_function(name, values):
    found = over(name)(values)
    exact = EXACT[name](values.astype(np.longdouble))
    unit = np.spacing(np.abs(exact).astype(values.dtype)).astype(np.longdouble)
    assert found.dtype == values.dtype
    assert np.max(np.abs(found - exact) / unit) < 6


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_right_to_a_few_units_in_the_last_place(name, dtype):
    generator = np.random.default_rng(0)
    values = np.concatenate(
        [generator.normal(size=4000) * scale for scale in (1e-6, 1e-2, 1, 10, 80)] + [[0.0, -0.0, 1.0, -1.0]]
    ).astype(dtype)
    check_function(name, values[np.abs(values) < 85])


def test_logarithms_are_right_to_a_few_units_in_the_last_place():
    generator = np.random.default_rng(0)
    values = np.concatenate([np.exp(generator.uniform(-700, 700, 4000)), 1 + generator.normal(size=4000) / 30, [1.0]])
    found, exact = over("log")(values), np.log(values.astype(np.longdouble))
    assert np.max(np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float64))) < 6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_at_the_ends(dtype):
    ends = np.array([-np.inf, -1e30, 1e30, np.inf, np.nan], dtype)
    assert np.allclose(over("sigmoid")(ends), [0, 0, 1, 1, np.nan], atol=1e-30, equal_nan=True)
    assert np.array_equal(over("tanh")(ends), np.array([-1, -1, 1, 1, np.nan], dtype), equal_nan=True)
    assert np.isnan(over("exp")(ends)[-1])


@pytest.mark.parametrize(("dtype", "zero", "infinity"), [(np.float32, -103.97, 88.72), (np.float64, -745.13, 709.78)])
def test_exponentials_reach_zero_and_infinity_where_the_exact_ones_do(dtype, zero, infinity):
    last = np.array([zero + 0.01, infinity - 0.01, zero - 0.02, infinity + 0.02, -1e4, 1e4, -np.inf, np.inf], dtype)
    found = over("exp")(last)
    assert 0 < found[0] < np.finfo(dtype).tiny
    assert np.finfo(dtype).max / 2 < found[1] < np.inf
    assert found[2:].tolist() == [0, np.inf] * 3
    edges = np.array([-infinity + 0.01, -infinity - 0.02, -1e4, -np.inf], dtype)
    assert (over("sigmoid")(edges) > 0).tolist() == [True, False, False, False]


def packed(matrix, weight_is_transposed):
    """A matrix [K, N] as panels, from a weight [N, K] or [K, N]; in two parts at a time, as a layer's are, each in two
    shares, as of two threads."""
    inner, columns = matrix.shape
    panels = gemm.panels(inner, columns, matrix.dtype)
    rows, split = inner // 2, columns // 3
    for k, n in itertools.product((slice(0, rows), slice(rows, inner)), (slice(0, split), slice(split, columns))):
        part = np.ascontiguousarray(matrix[k, n])
        for share in (1, 0):
            if weight_is_transposed:
                packing.put(True, panels[None, None], 0, np.ascontiguousarray(part.T)[None], k.start, n.start, share, 2)
            else:
                packing.put(False, panels[None, None], 0, part[None], n.start, k.start, share, 2)
    return panels


@compilation.compiled(from_python=True)
def multiply_add(a, a_start, a_row, rows, panels, c, c_start, c_row):
    gemm.multiply_add(a, a_start, a_row, rows, panels, c, c_start, c_row)


@compilation.compiled(from_python=True)
def add_transposed_product(a, a_row, b, b_row, n, rows, columns, c, room):
    gemm.add_transposed_product(a, a_row, b, b_row, n, rows, columns, c, room)


def check_products(rows, inner, columns, seed, dtype):
    """Both products, with rows that lie apart and what must not be touched beside them."""
    generator = np.random.default_rng(seed)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    a, matrix = (generator.normal(size=shape).astype(dtype) for shape in ((rows, inner + 3), (inner, columns)))
    for panels in (packed(matrix, False), packed(matrix, True)):
        wide = gemm.padded(columns, a.dtype)
        result = np.ones((rows, wide), dtype)
        multiply_add(a.reshape(-1), 2, inner + 3, rows, panels, result.reshape(-1), 0, wide)
        expected = 1 + a[:, 2 : 2 + inner] @ matrix
        assert np.allclose(result[:, :columns], expected, rtol=tolerance, atol=tolerance)
        assert (result[:, columns:] == 1).all()

    a, b = (generator.normal(size=(rows, size + 1)).astype(dtype) for size in (max(inner, 1), columns))
    result = np.ones((a.shape[1] - 1, gemm.padded(columns, a.dtype)), dtype)
    room = np.full(gemm.packing_room(a.shape[1], a.itemsize), np.nan, dtype)
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    add_transposed_product(flat_a, a.shape[1], flat_b, columns + 1, rows, len(result), columns, result, room)
    expected = 1 + a[:, :-1].T @ b[:, :-1]
    assert np.allclose(result[:, :columns], expected, rtol=tolerance, atol=tolerance)
    assert (result[:, columns:] == 1).all()


@given(rows=st.integers(1, 20), inner=st.integers(0, 12), columns=st.integers(1, 70), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_equal_numpys(rows, inner, columns, seed, dtype):
    check_products(rows, inner, columns, seed, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "sizes", [(9, 2 * gemm.INNER + 5, 37), (gemm.INNER + 3, 2 * gemm.INNER + 13, 70), (600, 70, 33)]
)
def test_products_in_pieces_equal_numpys(sizes, dtype):
    """Inner dimensions of several pieces, and so much from the left that it is copied in several blocks."""
    check_products(*sizes, 0, dtype)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_run_once_each_on_any_number_of_threads(parts):
    with threads(2):
        assert torch_threads.run_parts(lambda part: part * part, parts) == [part * part for part in range(parts)]


def test_an_error_in_a_part_is_raised_here():
    def run(part):
        if part == 1:
            raise ZeroDivisionError("in a part")
        return part

    with pytest.raises(ZeroDivisionError, match="in a part"):
        torch_threads.run_parts(run, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="torch's OpenMP library is looked for on Linux only")
def test_torchs_threads_are_found():
    assert torch_threads.available() == torch.get_num_threads()


def test_compiled_code_is_kept_by_what_is_in_all_sources():
    """Whichever module is imported first: Numba itself would look at one file's date."""
    folder = Path(compilation.__file__).parent
    modules = [importlib.import_module(f"{compilation.__package__}.{path.stem}") for path in folder.glob("*.py")]
    functions = [f for module in modules for f in vars(module).values() if isinstance(f, Dispatcher)]
    assert len(functions) > 50
    own = Path(compilation.code_folder(config.CACHE_DIR)).name
    assert all(own in Path(function.stats.cache_path).parts for function in functions)


# Programs that print a digest of sums over many numbers.
SOFTMAX = """
import hashlib, numpy as np
from stack_lm.kernels.cpu.softmax import cross_entropy_rows
random = np.random.default_rng(0)
logits, bias = random.normal(size=(64, 2000)).astype("f"), random.normal(size=2000).astype("f")
numbers, sums, losses = np.empty_like(bias), np.zeros_like(bias), np.empty(64, "f")
cross_entropy_rows(logits, bias, random.integers(0, 2000, 64), True, losses, numbers, sums)
print(hashlib.sha256(logits.tobytes() + sums.tobytes() + losses.tobytes()).hexdigest())
"""
MODELS = """
import hashlib, torch
from stack_lm import MemoryLayer, StackRNNConfig, StackRNNForCausalLM
torch.manual_seed(0)
torch.set_num_threads(1)
digest, ids = hashlib.sha256(), torch.randint(0, 500, (4, 20))
networks = [
    StackRNNForCausalLM(StackRNNConfig(vocab_size=500, controller=controller, memory=memory))
    for memory in ("stack", "superposition", "nondeterministic", "baby_ntm")
    for controller in ("lstm", "gru")
]
for network in networks:
    network(ids, labels=ids).loss.backward()
layers = [MemoryLayer(30, memory) for memory in ("stack", "superposition", "nondeterministic")]
for layer in layers:
    layer(torch.randn(4, 20, 30))[0].square().sum().backward()
for parameter in [weight for module in (*networks, *layers) for weight in module.parameters()]:
    digest.update(parameter.grad.numpy().tobytes())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("program", [SOFTMAX, pytest.param(MODELS, marks=pytest.mark.slow)], ids=["softmax", "models"])
def test_code_just_compiled_computes_as_code_that_was_kept(program, tmp_path):
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "-c", program]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, env=environment, check=True) for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert ("compiling" in first.stderr, "compiling" in second.stderr) == (program == MODELS, False)
    assert list(tmp_path.rglob("*.nbc"))


@pytest.mark.parametrize("compiles", [True, False])
def test_a_notice_of_compilation_and_not_of_reading_kept_code(monkeypatch, capsys, compiles):
    """On a busy machine either is slow."""
    monkeypatch.setattr(autograd, "_PATIENCE", 0.01)
    monkeypatch.setattr(autograd, "_called", set())
    plan = SimpleNamespace(dtype=np.dtype("float32"), block=None)
    with autograd._first_call("forward pass", plan), trigger_event("numba:compile") if compiles else nullcontext():
        time.sleep(0.1)
    said = capsys.readouterr().err
    assert ("compiling the forward pass" in said, "compiled the forward pass" in said) == (compiles, compiles)
