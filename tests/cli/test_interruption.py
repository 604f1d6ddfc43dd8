"""Ctrl-C, which a terminal sends to a command and to the processes that it has started."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

COMMANDS = {
    "language model": ["train", "lm", "data.source=generated:500", "training.epochs=500"],
    "trials in processes": ["train", "task", "hao2018/linear_stack", "hao2018/reversal", "--seeds", "4", "--jobs", "2"],
    "list": ["presets"],
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs groups of processes")
@pytest.mark.parametrize("delay", [0.15, 0.4, 1, 2, 3.5, 5, 7, 10])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interruption_is_one_line_whenever_it_comes(name, delay, tmp_path):
    command = [sys.executable, "-m", "stack_lm", *COMMANDS[name]]
    if "train" in command:
        command.append(f"output_dir={tmp_path / 'run'}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    time.sleep(delay)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    if name == "list" and process.returncode == 0:
        return  # it had ended before
    # Python itself sends the signal again where C code saw it: for a shell that is 130, too.
    assert process.returncode in (130, -signal.SIGINT)
    assert err.endswith("stack-lm: interrupted\n")
