"""One run in a directory at a time."""

import signal
import subprocess
import sys

import pytest

from stack_lm.core.errors import InputError
from stack_lm.training.lock import RunLock

HOLDER = """
import sys, time
from pathlib import Path
from stack_lm.training.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_it_dies_with_its_holder(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="in use by another run"):
            RunLock(tmp_path).acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    RunLock(tmp_path).acquire()  # the file is still there
