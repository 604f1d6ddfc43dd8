"""Compiling Triton kernels to machine code where there is no GPU, in a process of its own."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple


class Kernel(NamedTuple):
    """A kernel that was compiled, and what it became: "ptx" and "cubin"."""

    kernel: object
    asm: dict


compiled = []


class Compiled:
    """A kernel whose launches compile it, as on a GPU, and do nothing else."""

    def __init__(self, kernel):
        self.kernel, self.known = kernel, set()

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            import torch

            given = [a.dtype if isinstance(a, torch.Tensor) else a for a in arguments]
            result = self.kernel.warmup(*given, grid=grid, **constants)
            if result.hash not in self.known:
                self.known.add(result.hash)
                compiled.append(Kernel(self.kernel, result.asm))

        return launch


def pretend_gpu(architecture):
    """Make Triton compile for a GPU of which there is nothing but its name."""
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", architecture, 32)
    triton.runtime.driver.set_active(
        types.SimpleNamespace(
            get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device: 0
        )
    )


def run_compiling(code, cache):
    """The output of a program that uses this module, with Triton's cache in a folder of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    tests = str(Path(__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": tests},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout
