"""Several processes on every launcher: seen, connected, and refused where they would train apart."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stack_lm.errors import InputError
from stack_lm.training import processes
from stack_lm.training.processes import Launch, check_number, connect_processes, find_launch

RECIPES = Path(__file__).parents[2] / "recipes"


def variables(text):
    return dict(pair.split("=") for pair in text.split())


TORCHRUN = variables("WORLD_SIZE=4 RANK=3 LOCAL_WORLD_SIZE=2 LOCAL_RANK=1")
OPEN_MPI = variables(
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
    "PMIX_NAMESPACE=1446838273"
)
MPICH = variables("PMI_SIZE=2 PMI_RANK=0 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0")
BATCH_SCRIPT = variables("SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0")
SRUN = BATCH_SCRIPT | variables(
    "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=3,1"
)


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        ({}, None),
        ({"WORLD_SIZE": "1", "RANK": "0"}, None),
        (TORCHRUN, Launch("torchrun", 3, 4, 1, 2)),
        (OPEN_MPI, Launch("mpirun", 1, 2, 1, 2, "1446838273")),
        (MPICH, Launch("mpirun", 0, 2, 0, 2)),
        (BATCH_SCRIPT, None),  # runs once, whatever srun will start
        (SRUN, Launch("srun", 3, 4, 0, 1, "7.0")),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, Launch("srun", 3, 4, 0, 2, "7.0")),
        (SRUN | TORCHRUN, Launch("torchrun", 3, 4, 1, 2)),  # torchrun on each machine of a job
        (SRUN | MPICH, Launch("mpirun", 0, 2, 0, 2)),  # mpirun within a job
        # srun --mpi=pmi2
        (SRUN | {"PMI_SIZE": "4", "PMI_RANK": "3"}, Launch("srun", 3, 4, 0, 1, "7.0")),
    ],
)
def test_launchers(environment, launch):
    assert find_launch(environment) == launch


def test_incomplete_and_wrong_variables():
    with pytest.raises(
        InputError, match="WORLD_SIZE is 2, but RANK is not set; start with torchrun, accelerate launch"
    ):
        find_launch({"WORLD_SIZE": "2"})
    with pytest.raises(InputError, match="WORLD_SIZE must be a whole number; got 'two'"):
        find_launch({"WORLD_SIZE": "two"})


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(processes.torch.accelerator, "current_accelerator", lambda check_available: None)
    monkeypatch.setattr(processes.torch, "set_num_threads", lambda number: None)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "environment", [OPEN_MPI, MPICH, SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "0"}]
)
def test_the_environment_is_completed(environment):
    launch, completed = find_launch(environment), dict(environment)
    connect_processes(completed)
    assert (completed["RANK"], completed["WORLD_SIZE"]) == (str(launch.rank), str(launch.size))
    assert (completed["LOCAL_RANK"], completed["LOCAL_WORLD_SIZE"]) == (str(launch.local_rank), str(launch.local_size))
    assert completed["MASTER_ADDR"] == "127.0.0.1"
    assert 20_000 <= int(completed["MASTER_PORT"]) < 32_000
    assert completed["ACCELERATE_USE_CPU"] == "true"
    assert int(completed["OMP_NUM_THREADS"]) >= 1
    again = dict(environment)
    connect_processes(again)
    assert again["MASTER_PORT"] == completed["MASTER_PORT"]  # on every process of the job
    given = environment | {"MASTER_ADDR": "first", "MASTER_PORT": "1", "OMP_NUM_THREADS": "3"}
    connect_processes(given)
    assert (given["MASTER_ADDR"], given["MASTER_PORT"], given["OMP_NUM_THREADS"]) == ("first", "1", "3")


@pytest.mark.usefixtures("no_gpu")
def test_one_process_is_left_as_it_is():
    for environment in ({}, BATCH_SCRIPT, {"MASTER_ADDR": "first", "MASTER_PORT": "1"}):
        after = dict(environment)
        connect_processes(after)
        assert after == environment


@pytest.mark.usefixtures("no_gpu")
def test_several_machines_need_an_address():
    with pytest.raises(InputError, match="srun started 4 processes on several machines: set MASTER_ADDR"):
        connect_processes(dict(SRUN))


def test_each_process_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(processes, "_uses_gpus", lambda environment: True)
    monkeypatch.setattr(processes.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(processes.torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match=r"started 2 processes on this machine, but process 1 sees 1 GPU\(s\)"):
        connect_processes(TORCHRUN | {"MASTER_ADDR": "first"})


@pytest.mark.parametrize(
    ("device", "size", "given", "expected"),
    [("cuda", 1, None, "1"), ("cuda", 1, "0", "0"), ("cuda", 2, None, None), ("cpu", 1, None, None)],
)
def test_one_gpu_alone_captures_scans_unless_told_otherwise(tmp_path, monkeypatch, device, size, given, expected):
    accelerator = SimpleNamespace(num_processes=size, device=torch.device(device))
    monkeypatch.setattr(processes, "Accelerator", lambda **settings: accelerator)
    monkeypatch.setattr(processes, "check_number", lambda size: None)
    monkeypatch.setenv(processes.CUDA_GRAPHS, given or "")
    if given is None:
        monkeypatch.delenv(processes.CUDA_GRAPHS)
    assert processes.make_accelerator(None, None, tmp_path) is accelerator
    assert os.environ.get(processes.CUDA_GRAPHS) == expected


def test_processes_that_accelerate_does_not_see_are_refused():
    check_number(1, {})
    check_number(4, TORCHRUN)
    with pytest.raises(InputError, match="torchrun started 4 processes, but Accelerate sees 1: they would train indep"):
        check_number(1, TORCHRUN)


# --- launched


def launch(*command, **environment):
    """Run a command without settings for processes; its status, standard output and standard error."""
    ours = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ACCELERATE_USE_CPU"}
    rest = {name: value for name, value in os.environ.items() if name not in ours}
    with subprocess.Popen(
        command,
        env=rest | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=500)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            raise
    return process.returncode, out, err


def small(directory, *options):
    return [
        *("data.source=generated:100", "training.epochs=1", "training.batch_size=4", "model.hidden_size=8"),
        *("training.loss_dtype=float32", f"output_dir={directory}", *options),
    ]


LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable],
    "accelerate": [
        *(sys.executable, "-m", "accelerate.commands.launch", "--config_file"),
        str(RECIPES / "accelerate" / "two_cpu_processes.yaml"),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_train_one_model(tmp_path, launcher):
    """On CPUs, without any settings."""
    if shutil.which(LAUNCHERS[launcher][0]) is None:
        pytest.skip(f"{launcher} is not installed")
    directory = tmp_path / "run"
    command = [*LAUNCHERS[launcher], str(RECIPES / "train_lm.py"), *small(directory, "--json")]
    status, out, err = launch(*command)
    assert status == 0, err[-3000:]
    assert err.count("training on 2 process(es)") == 1
    assert json.loads(out[out.index("{") :])["step"] == 12  # of 90 sentences in batches of 4: 23 for two
    assert not (directory / ".lock").exists()
    (checkpoint,) = (directory / "checkpoints").iterdir()
    assert json.loads((checkpoint / "trainer_state.json").read_text())["processes"] == 2


@pytest.mark.slow
def test_two_processes_train_one_classifier(tmp_path):
    file = tmp_path / "numpred.train"
    file.write_text("VBZ\tthe dog near the cats\nVBP\tthe dogs near the cat\n" * 40)
    command = [*LAUNCHERS["torchrun"], str(RECIPES / "train_classifier.py"), f"data.train={file}", "data.held_out=20"]
    command += ["training.epochs=2", "training.batch_size=5", "model.hidden_size=8", f"output_dir={tmp_path / 'run'}"]
    status, _, err = launch(*command)
    assert status == 0, err[-3000:]
    steps = sorted(int(path.name.split("-")[1]) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert steps == [6, 12]  # 60 sentences in batches of 2 x 5


@pytest.mark.slow
def test_accelerate_launch_that_starts_one_process_only_is_refused(tmp_path):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    status, _, err = launch(*command, str(RECIPES / "train_lm.py"), *small(tmp_path / "run"))
    assert status != 0
    assert "stack-lm: error: accelerate launch was to start several processes and has started one" in err
    assert not (tmp_path / "run").exists()
