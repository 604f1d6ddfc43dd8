"""Own tasks in worker processes, whether a plug-in or the program itself has registered them."""

import os
import subprocess
import sys

import pytest
from small_tasks import FIELDS, RECIPE

TASK = """
from stack_lm.tasks import Example, Split, Task, register_task

class Echo(Task):
    vocabulary = ("a", "b")
    default_plan = {"train": Split(8, 2, 3), "test": Split(4, 2, 3)}

    def sample(self, rng, length):
        string = tuple(rng.randrange(2) for _ in range(length))
        return Example(string, string, (True,) * length)
"""
SCRIPT = """
register_task("own/echo")(Echo)

def main():
    from stack_lm.training.trials.config import Table
    from stack_lm.training.trials.run import Experiment

    rows = [{{"cells": ["echo"], "preset": "preset.yaml", "task": "own/echo"}}]
    table = Table.build({{"title": "", "columns": ["task"], "measures": ["accuracy.mean"], "rows": rows}})
    Experiment(table, output_dir="script", seeds=2, jobs=2).run()

{run}
"""
GUARDED = 'if __name__ == "__main__":\n    main()'


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--import", "script", "unguarded"])
def test_own_tasks_in_two_processes(tmp_path, way):
    fields = FIELDS["StackRNNForTokenClassification"] | {"architectures": ["StackRNNForTokenClassification"]}
    (tmp_path / "preset.yaml").write_text(f"model: {fields}\ntraining: {{epochs: 1}}\n")
    program = tmp_path / "own.py"
    if way == "--import":
        program.write_text(f'{TASK}\nregister_task("own/echo")(Echo)\n')
        command = [RECIPE, "preset.yaml", "own/echo", "--import", program, "--seeds", "2", "--jobs", "2"]
        command += ["output_dir=script"]
    else:
        program.write_text(TASK + SCRIPT.format(run=GUARDED if way == "script" else "main()"))
        command = [program]
    environment = os.environ | {"STACK_LM_SCAN_BACKEND": "reference"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    if way == "unguarded":
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(
            "stack_lm.core.errors.InputError: a worker process could not start"
        )
    else:
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "script" / "results.jsonl").read_text().splitlines()) == 2
