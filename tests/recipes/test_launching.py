"""Files for launchers: each is one that its launcher reads."""

import subprocess
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
# Machines, processes and kind of each.
ACCELERATE = {
    "one_gpu": (1, 1, "NO"),
    "several_gpus": (1, 4, "MULTI_GPU"),
    "several_nodes": (2, 8, "MULTI_GPU"),
    "fsdp": (1, 4, "FSDP"),
    "two_cpu_processes": (1, 2, "MULTI_GPU"),
}


def test_every_file_is_tested():
    assert {path.stem for path in (RECIPES / "accelerate").iterdir()} == set(ACCELERATE)


@pytest.mark.parametrize("name", ACCELERATE)
def test_accelerate_reads_its_files(name):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(RECIPES / "accelerate" / f"{name}.yaml"))
    kind = getattr(config.distributed_type, "value", config.distributed_type)
    assert (config.num_machines, config.num_processes, kind) == ACCELERATE[name]


@pytest.mark.parametrize("path", sorted((RECIPES / "slurm").iterdir()), ids=lambda path: path.name)
def test_slurm_scripts_are_bash(path):
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    options = [line.split()[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert any(option.startswith("--signal=B:USR1@") for option in options)
    assert "--requeue" in options
    assert " --resume " in text
