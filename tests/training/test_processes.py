"""Several processes: those of torchrun, accelerate launch and mpirun train one model, others are refused."""

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

from stack_lm.core.errors import InputError
from stack_lm.training import processes

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    ("device", "size", "given", "expected"),
    [("cuda", 1, None, "1"), ("cuda", 1, "0", "0"), ("cuda", 2, None, None), ("cpu", 1, None, None)],
)
def test_one_gpu_alone_captures_scans_unless_told_otherwise(tmp_path, monkeypatch, device, size, given, expected):
    accelerator = SimpleNamespace(num_processes=size, device=torch.device(device))
    monkeypatch.setattr(processes, "Accelerator", lambda **settings: accelerator)
    monkeypatch.setenv(processes.CUDA_GRAPHS, given or "")
    if given is None:
        monkeypatch.delenv(processes.CUDA_GRAPHS)
    assert processes.make_accelerator(None, None, tmp_path) is accelerator
    assert os.environ.get(processes.CUDA_GRAPHS) == expected


def test_a_launcher_that_starts_one_process_of_several_is_refused(tmp_path, monkeypatch):
    """`accelerate launch --cpu --num_processes 2`."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(InputError, match="was asked for several processes and has started one: use torchrun"):
        processes.make_accelerator(None, None, tmp_path)
    monkeypatch.delenv("MASTER_ADDR")
    assert processes.make_accelerator(None, None, tmp_path).num_processes == 1


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
    """On CPUs; only mpirun is told where they meet."""
    if shutil.which(LAUNCHERS[launcher][0]) is None:
        pytest.skip(f"{launcher} is not installed")
    directory = tmp_path / "run"
    command = [*LAUNCHERS[launcher], str(RECIPES / "train_lm.py"), *small(directory, "--json")]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"} if launcher == "mpirun" else {}
    status, out, err = launch(*command, **address)
    assert status == 0, err[-3000:]
    assert err.count("training on 2 process(es)") == 1
    assert json.loads(out[out.index("{") :])["step"] == 12  # of 90 sentences in batches of 4: 23 for two
    assert not (directory / ".lock").exists()
    (checkpoint,) = (directory / "checkpoints").iterdir()
    assert json.loads((checkpoint / "trainer_state.json").read_text())["processes"] == 2
