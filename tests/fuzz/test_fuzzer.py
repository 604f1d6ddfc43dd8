"""The fuzzer: it finds faults that are put there, and none in the commands."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import faults, mutations
from fuzz.command_lines import Command, commands
from fuzz.faults import Case, digests, judge, make_case, run_case
from fuzz.inputs import write_inputs, write_runs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    write_runs(folder)
    return folder


def fake(folder, program, *arguments):
    """The outcome of a program in the place of a command, and what the fuzzer says to it."""
    folder.mkdir(exist_ok=True)
    (folder / "input.txt").write_text("the dog\n")
    case = Case(0, Command((), ()), list(arguments), "nothing", folder)
    before = digests(folder)
    outcome = run_case(case, program)
    return outcome, judge(case, outcome, before)


def say(*lines, status=2):
    def program(arguments):
        print(*lines, sep="\n", file=sys.stderr)
        return status

    return program


LOSES = ("parse", "--data", "input.txt", "--json")


def raises(arguments):
    raise KeyError("x")


def runs_forever(arguments):
    while True:
        pass


def takes_memory(arguments):
    return len(b"x" * 1_600_000_000) - 1_600_000_000


def overwrites(arguments):
    Path("input.txt").write_text("other")
    return 0


def leaves_a_part(arguments):
    Path(".x-1.partial.txt").write_text("the")
    return 0


def prints(text):
    def program(arguments):
        print(text)
        return 0

    return program


@pytest.mark.parametrize(
    ("program", "arguments", "fault"),
    [
        (say("fake: error: the file is empty"), (), None),
        (say("a note", "fake: error: the file is empty"), (), None),
        (prints('{"f1": 50, "parses": []}'), ("--json",), None),
        (raises, (), "a traceback: KeyError: 'x'"),
        pytest.param(runs_forever, (), "too slow: ", marks=pytest.mark.slow),
        pytest.param(takes_memory, (), "too much memory: ", marks=pytest.mark.slow),
        (overwrites, (), "changed: input.txt"),
        (leaves_a_part, (), "something half-written is left"),
        (say("fake: error: x", "and more"), (), "no one line of error but 2"),
        (say("fake: error: "), (), "no one line of error but 1"),
        (say(), (), "no one line of error"),
        (say("fake: error: x" * 1000), (), "a line of error that is too long"),
        (say("fake: error: x", status=0), (), "status 0, but fake: error: x"),
        (say("x", status=3), (), "status 3"),
        (say("fake: error: out of memory", status=1), (), "too much memory"),
        (prints('{"f1": NaN}'), ("--json",), "no JSON"),
        (prints("{}\n{}"), ("--json",), "no JSON"),
        (prints('{"f1": 101}'), ("--json",), "a result that cannot be: f1 is 101"),
        (prints('{"parses": [{"words": ["a", "b"], "spans": [], "brackets": ""}]}'), ("--json",), "a tree that"),
        (prints('{"parses": [{"words": ["the"], "spans": [], "brackets": ""}]}'), LOSES, "other words: "),
        (prints("│ push │   nan │"), (), "a table with nan"),
    ],
)  # fmt: skip
def test_faults_are_found(tmp_path, monkeypatch, program, arguments, fault):
    monkeypatch.setattr(faults, "SECONDS", 1 if program is runs_forever else 60)
    used = fake(tmp_path / "first", prints(""))[0].megabytes
    monkeypatch.setattr(faults, "MEMORY", used + 500)
    found = fake(tmp_path / "case", program, *arguments)[1]
    assert found is None if fault is None else found.startswith(fault)


@pytest.mark.slow
def test_a_seed_gives_the_same_cases(inputs, tmp_path):
    for number in range(5):
        cases = []
        for _ in range(2):
            case = make_case(5, number, inputs, tmp_path / "case")
            cases.append((case, digests(case.folder)))
            shutil.rmtree(case.folder)
        assert cases[0] == cases[1]


@pytest.mark.slow
def test_damage_of_every_kind(inputs):
    """Each kind of damage changes the files that it is for, most of the time."""
    for suffix, kinds in mutations.STRUCTURED.items():
        raw = next(path for path in sorted(inputs.rglob(f"*{suffix}"))).read_bytes()
        for damage in {*kinds, mutations.damage_bytes, mutations.damage_lines}:
            changed = [damage(random.Random(seed), raw) != raw for seed in range(30)]
            assert sum(changed) > 15, (suffix, damage.__name__)


@pytest.mark.slow
def test_every_command_reads_what_is_there(inputs):
    for command in commands():
        for name in command.reads:
            assert (inputs / name).is_file(), (command, name)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--undamaged",), ("--cases", "400", "--seed", "1")])
def test_no_command_has_a_fault(arguments):
    program = subprocess.run(
        [sys.executable, faults.__file__, *arguments], capture_output=True, text=True, timeout=1200, check=False
    )
    assert program.returncode == 0, program.stdout
    assert " 0 faults; " in program.stdout
