"""Blocks in Triton's tiles: on a CPU in Triton's interpreter, and on a GPU where there is one."""

import os

import pytest
import torch
from kernels.compiling import run_compiling
from kernels.parallel.test_parallel import (
    GRIDS,
    MEMORIES,
    NAMES,
    furthest,
    in_parallel,
    random_case,
    results,
)

from stack_lm import MemoryLayer
from stack_lm.kernels.parallel import scan

ON_GPU = torch.cuda.is_available()
INTERPRETED = not ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"
pytest.importorskip("triton", reason="triton is not installed")
with pytest.MonkeyPatch.context() as patch:
    if INTERPRETED:
        patch.setenv("TRITON_INTERPRET", "1")
    from stack_lm.kernels.parallel import tiles


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def device(request, monkeypatch):
    if (request.param == "cuda") == INTERPRETED:
        pytest.skip("needs a CUDA device" if INTERPRETED else "TRITON_INTERPRET=1 runs kernels on the CPU")
    if INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setattr(tiles, "SIDE", 4)
        monkeypatch.setattr(scan, "_IN_TILES", 6)
    return torch.device(request.param)


def some_slow(memory, name):
    fast = name in ("stack-after_push", "deque-before_push")
    return pytest.param(memory, id=name, marks=[] if fast else pytest.mark.slow)


def without_tiles(*arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan.Sequence, "in_tiles", False)
        return results(*arguments, in_parallel)


@pytest.mark.parametrize("masked", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "numbers", [GRIDS[0], *(pytest.param(grid, marks=pytest.mark.slow) for grid in (*GRIDS[1:], None))], ids=str
)
@pytest.mark.parametrize("memory", [some_slow(*pair) for pair in zip(MEMORIES, NAMES, strict=True)])
def test_they_equal_the_blocks_without(device, memory, numbers, masked):
    """In readings, states and all gradients: at ties, padding and dead elements, over several tiles and blocks."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda shape: 2 * torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    length, first = (9, 5) if INTERPRETED else (2_500, 70)
    state, actions = random_case(memory, 2, length, first, numbers or draw, generator, device=device)
    mask = torch.rand(2, length, generator=generator).to(device) > 0.3 if masked else None
    expected = without_tiles(memory, state, actions, mask)
    assert furthest(expected, results(memory, state, actions, mask, in_parallel)) < 1e-12


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float16, 0.02)], ids=str)
def test_vectors_of_other_types(device, dtype, tolerance):
    generator = torch.Generator().manual_seed(1)
    state, actions = random_case(MEMORIES[0], 2, 9, 3, GRIDS[0], generator, dtype, device)
    given = (MEMORIES[0], state, actions, None)
    expected, found = (
        [part.float() for part in parts] for parts in (without_tiles(*given), results(*given, in_parallel))
    )
    assert furthest(expected, found) < tolerance


def test_what_is_not_finite_is_not_hidden(device):
    for name in ("push_strength", "pop_strength", "read_strength", "push_value"):
        state, actions = random_case(MEMORIES[0], 2, 9, 3, GRIDS[0], torch.Generator().manual_seed(2), device=device)
        getattr(actions, name)[0, 5] = torch.nan
        readings, _ = in_parallel(MEMORIES[0], state, actions, None)
        assert not readings[0, 5].isfinite().all(), name
        assert readings[1].isfinite().all()


def test_where_they_run(device, monkeypatch):
    layer = MemoryLayer(5, memory_size=3).to(device)
    layer.scan_backend = "parallel"
    ran = []
    monkeypatch.setattr(tiles.Tiles, "read", lambda self: ran.append(self) or self.values[:, : self.by.shape[2]])
    layer(torch.randn(2, 5, 5, device=device))
    monkeypatch.setattr(scan, "_LARGEST", 2)
    layer(torch.randn(2, 5, 5, device=device))
    layer(torch.randn(0, 5, 5, device=device))
    assert len(ran) == 1


COMPILES = """
import torch
from kernels.compiling import Compiled, compiled, pretend_gpu
pretend_gpu(ARCHITECTURE)
from stack_lm import MemoryLayer
from stack_lm.kernels.parallel import scan, tile_kernels
for name in ("least_cuts", "read", "read_back"):
    setattr(tile_kernels, name, Compiled(getattr(tile_kernels, name)))
scan.Sequence.in_tiles = True
layer = MemoryLayer(5, MEMORY, memory_size=64, pop_control="sigmoid").to(DTYPE)
layer.scan_backend = "parallel"
layer(torch.randn(2, 70, 5, dtype=DTYPE))[0].sum().backward()
print(len({each.kernel.__name__ for each in compiled}), min(len(each.asm["cubin"]) for each in compiled) > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("memory", ["stack", "deque"])
def test_they_compile_for_gpus(device, tmp_path, memory, dtype, architecture):
    code = COMPILES.replace("ARCHITECTURE", str(architecture)).replace("MEMORY", repr(memory))
    assert run_compiling(code.replace("DTYPE", str(dtype)), tmp_path).split() == ["3", "True"]
