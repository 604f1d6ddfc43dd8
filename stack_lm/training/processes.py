"""The processes of a run, as Accelerate finds them: those of torchrun, `accelerate launch` or, on CPUs, mpirun."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from accelerate import Accelerator

from ..core.errors import InputError
from ..core.messages import explaining, first_line
from ..kernels.protocol import CUDA_GRAPHS


def start_tracker(accelerator: Accelerator, name: str, logs: Path) -> str | None:
    """Start the tracker, with its files in a directory; Weights & Biases runs offline if it cannot log in.

    Args:
        accelerator: the accelerator, which has the tracker.
        name: the name of the tracker.
        logs: the directory of its logs.

    Returns:
        A line that says so, if it runs offline.
    """
    if name != "wandb":
        accelerator.init_trackers("stack-lm")
        return None
    import wandb

    os.environ.setdefault("WANDB_SILENT", "true")
    logs.mkdir(parents=True, exist_ok=True)
    options = {"dir": str(logs)}
    try:
        accelerator.init_trackers("stack-lm", init_kwargs={name: options})
    except wandb.Error as error:
        accelerator.trackers.clear()
        accelerator.init_trackers("stack-lm", init_kwargs={name: options | {"mode": "offline"}})
        reason = first_line(error).rstrip(".")
        return f"wandb runs offline ({reason}); `wandb sync {logs}/wandb/offline-run-*` uploads its files"
    return None


def make_accelerator(mixed_precision: str | None, tracker: str | None, logs: Path) -> Accelerator:
    """Make an Accelerator on all processes of the launcher. On one GPU, scans may then be captured as CUDA graphs.

    Args:
        mixed_precision: "no", "bf16" or "fp16"; None takes the setting of `accelerate launch`.
        tracker: one of Accelerate's, by name.
        logs: the directory of its logs.

    Raises:
        InputError: if the processes cannot find each other, or do not support the settings.
    """
    no_gpu = torch.accelerator.current_accelerator(check_available=True) is None  # Accelerate must be told
    with explaining("training cannot start (processes, training.tracker, mixed_precision)", ValueError):
        accelerator = Accelerator(cpu=no_gpu, mixed_precision=mixed_precision, log_with=tracker, project_dir=str(logs))
    if mixed_precision == "fp16" and accelerator.device.type == "cpu":
        raise InputError("training.mixed_precision=fp16 needs a GPU; on a CPU it must be 'no' or 'bf16'")
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if accelerator.num_processes == 1 and on_cpu and {"MASTER_ADDR", "WORLD_SIZE"} & {*os.environ} == {"MASTER_ADDR"}:
        file = "recipes/accelerate/two_cpu_processes.yaml"
        hint = f"use torchrun, or leave out --cpu and set use_cpu: true in its file, as in {file}"
        raise InputError(f"accelerate launch --cpu was asked for several processes and has started one: {hint}")
    if accelerator.num_processes == 1 and accelerator.device.type == "cuda":
        os.environ.setdefault(CUDA_GRAPHS, "1")
    return accelerator
