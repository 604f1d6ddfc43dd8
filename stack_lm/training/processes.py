"""Several processes: their launcher, and the environment in which Accelerate and torch find all of them.

Accelerate knows torchrun's variables, MPI's only if told to use CPUs, and Slurm's not at all. A process that missed the
others would train its own model and write it into the same directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import Accelerator, PartialState

from ..errors import InputError
from ..kernels.gpu.graphs import VARIABLE as CUDA_GRAPHS

_FIRST_PORT, _PORTS = 20_000, 12_000


class Launch(NamedTuple):
    """A process among those of one launcher.

    Attributes:
        launcher: its command.
        rank, size: the process's number, and the number of processes.
        local_rank, local_size: the same, on this machine.
        job: a name that is unique to the processes of this job; "" if there is none.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    job: str = ""


# For each launcher, the variables for size, rank, local size and local rank, and those that name the job. MPIs come
# before Slurm, which may have started them.
_LAUNCHERS = (
    ("torchrun", ("WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"), ()),
    (
        "mpirun",
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    (
        "mpirun",
        ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_RANK"),
        (),
    ),
    ("mpirun", ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"), ("PMI_JOBID",)),
)


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """This process among those of torchrun, `accelerate launch`, mpirun or srun; None if it was started alone.

    Raises:
        InputError: for variables of a launcher that are incomplete.
    """
    for launcher, names, of_job in _LAUNCHERS:
        if _number(environment, names[0]) > 1 and all(name in environment for name in names[1:]):
            size, rank, local_size, local_rank = (_number(environment, name) for name in names)
            job = next((environment[name] for name in of_job if name in environment), "")
            return Launch(launcher, rank, size, local_rank, local_size, job)
    # Only srun sets the number of a step's tasks; SLURM_NTASKS is also set in a batch script, which runs once.
    size = _number(environment, "SLURM_STEP_NUM_TASKS")
    if size > 1:
        rank, local_rank = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_LOCALID")
        job = ".".join(environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        return Launch("srun", rank, size, local_rank, _slurm_local_size(environment, size), job)
    for _, names, _ in _LAUNCHERS:
        if _number(environment, names[0]) > 1:
            missing = next(name for name in names if name not in environment)
            raise InputError(
                f"{names[0]} is {environment[names[0]]}, but {missing} is not set; start with torchrun, accelerate "
                "launch, mpirun or srun, or set RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE"
            )
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise InputError(f"the environment variable {name} must be a whole number; got {text!r}")
    return int(text)


def _slurm_local_size(environment: Mapping[str, str], size: int) -> int:
    """The number of tasks on this machine: the entry of this node in a list such as "2(x3),1"."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE", "")
    sizes = [int(number) for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]
    node = _number(environment, "SLURM_NODEID")
    return sizes[node] if node < len(sizes) else size


def connect_processes(environment: MutableMapping[str, str] = os.environ) -> None:
    """Complete the environment, so that Accelerate sees all processes; call it before creating its objects.

    Without a GPU the processes run on CPUs, without further settings.

    Raises:
        InputError: if the processes cannot find each other, have too few GPUs, or if there is only one although
            `accelerate launch` was to start several.
    """
    launch = find_launch(environment)
    if launch is None:
        _check_accelerate_launch(environment)
        return
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name, value in zip(names, (launch.rank, launch.size, launch.local_rank, launch.local_size), strict=True):
        environment.setdefault(name, str(value))
    if "MASTER_ADDR" not in environment:
        if launch.local_size < launch.size:
            raise InputError(
                f"{launch.launcher} started {launch.size} processes on several machines: set MASTER_ADDR to the name "
                "of the machine of rank 0, and MASTER_PORT to a free port there"
            )
        environment["MASTER_ADDR"] = "127.0.0.1"
    # The same for all processes of a job, and probably different for the next job on this machine.
    digest = int.from_bytes(hashlib.blake2b(launch.job.encode(), digest_size=4).digest(), "big")
    environment.setdefault("MASTER_PORT", str(_FIRST_PORT + digest % _PORTS if launch.job else 29_500))
    if not _uses_gpus(environment):
        environment["ACCELERATE_USE_CPU"] = "true"
        _set_threads(environment, launch)
    elif torch.cuda.is_available() and launch.local_rank >= torch.cuda.device_count():
        raise InputError(
            f"{launch.launcher} started {launch.local_size} processes on this machine, but process {launch.local_rank} "
            f"sees {torch.cuda.device_count()} GPU(s); each needs one of its own, and must see those of all (Slurm: "
            "--gpus-per-node, not --gpus-per-task). ACCELERATE_USE_CPU=true trains on CPUs"
        )


def make_accelerator(mixed_precision: str | None, tracker: str | None, logs: Path) -> Accelerator:
    """Make an Accelerator on all processes of the launcher. On one GPU, scans may then be captured as CUDA graphs.

    Args:
        mixed_precision: "no", "bf16" or "fp16"; None takes the setting of `accelerate launch`.
        tracker: one of Accelerate's, by name.
        logs: the directory of its logs.

    Raises:
        InputError: if the processes cannot be connected, or do not support the settings.
    """
    connect_processes()
    if mixed_precision == "fp16" and PartialState().device.type == "cpu":
        raise InputError("training.mixed_precision=fp16 needs a GPU; on a CPU it must be 'no' or 'bf16'")
    try:
        accelerator = Accelerator(mixed_precision=mixed_precision, log_with=tracker, project_dir=str(logs))
    except ValueError as error:
        raise InputError(f"training.tracker or mixed_precision: {error}") from error
    check_number(accelerator.num_processes)
    if accelerator.num_processes == 1 and accelerator.device.type == "cuda":
        os.environ.setdefault(CUDA_GRAPHS, "1")
    return accelerator


def check_number(num_processes: int, environment: Mapping[str, str] = os.environ) -> None:
    """Check that Accelerate sees all processes of the launcher.

    Raises:
        InputError: if it does not. They would train independently, into one directory.
    """
    launch = find_launch(environment)
    expected = 1 if launch is None else launch.size
    if launch is not None and num_processes != expected:
        raise InputError(
            f"{launch.launcher} started {expected} processes, but Accelerate sees {num_processes}: they would train "
            "independently; start with torchrun --nproc_per_node N"
        )


def _check_accelerate_launch(environment: Mapping[str, str]) -> None:
    # Where accelerate launch is given a number of processes but no GPUs, it sets an address for them to meet at, and
    # starts one.
    if "ACCELERATE_MIXED_PRECISION" in environment and {"MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        raise InputError(
            "accelerate launch was to start several processes and has started one, as it does on CPUs; start them with "
            "torchrun --nproc_per_node N, or with recipes/accelerate/two_cpu_processes.yaml (for one process: unset "
            "MASTER_ADDR)"
        )


def _uses_gpus(environment: Mapping[str, str]) -> bool:
    if environment.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on"):
        return False
    kind = torch.accelerator.current_accelerator(check_available=True)
    return kind is not None and kind.type != "mps"  # one that several processes cannot share


def _set_threads(environment: MutableMapping[str, str], launch: Launch) -> None:
    """Divide the cores among processes, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in environment:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = max(1, cores // launch.local_size)
        environment["OMP_NUM_THREADS"] = str(threads)
        torch.set_num_threads(threads)
