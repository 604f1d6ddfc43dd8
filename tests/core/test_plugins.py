"""Plug-ins: files and modules that `--import` names, and the entry points of installed distributions."""

import functools
import importlib
import json
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from conftest import run, run_json, tiny_config

from stack_lm import MemoryLayer, StackRNNConfig, StackRNNForCausalLM, train_word_tokenizer
from stack_lm.cli.main import COMMANDS
from stack_lm.core import plugins
from stack_lm.core.plugins import Imports, import_plugin
from stack_lm.memory import memory_class, memory_names
from stack_lm.parsing import CONVENTIONS
from stack_lm.tasks import make_task
from stack_lm.text import Sentence, open_corpus

RECIPES = Path(__file__).parents[2] / "recipes"
MEMORY = """
from stack_lm.memory import NeuralStack, register_memory

@register_memory("own_stack")
class OwnStack(NeuralStack):
    pass
"""
TASK = """
from stack_lm.tasks import Example, Split, Task, register_task

@register_task("own_echo")
class Echo(Task):
    vocabulary = ("a", "b")
    default_plan = {"train": Split(8, 2, 3), "test": Split(4, 2, 3)}

    def sample(self, rng, length):
        return self.example([rng.randrange(2) for _ in range(length)])

    def example(self, string):
        return Example(tuple(string), tuple(string), (True,) * len(string))
"""
# Its segmenter goes to the processes that tokenise.
CORPUS = """
from stack_lm.text import Corpus, Sentence, register_source
from stack_lm.text.corpora import DocumentStream

class Halves:
    def __call__(self, text):
        words = text.split()
        yield words[:3]
        yield words[3:]

class Texts:
    def load_state_dict(self, state):
        self.done = state["done"] if state else 0

    def state_dict(self):
        return {"done": self.done}

    def __iter__(self):
        while self.done < 400:
            self.done += 1
            yield {"text": f"the cat purrs the dog number{self.done % 7} barks"}

@register_source("own_texts")
def open_texts(request):
    stream = DocumentStream(request.source, Texts(), "text", Halves())
    return Corpus(request.source, stream.sentences, stream)
"""
CONVENTION = """
from stack_lm.parsing import Convention, register_convention

register_convention(Convention("own_rules", "a test", removed="period", whole_sentence="counted"))
"""
SOURCES = {"own_memory": MEMORY, "own_task": TASK, "own_corpus": CORPUS, "own_convention": CONVENTION}


@pytest.fixture
def files(tmp_path):
    """One plug-in of each kind."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def install(folder, entry_points):
    """Put a distribution with entry points into a folder, as an installer does."""
    information = folder / "own_plugins-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: own-plugins\nVersion: 1.2\n")
    lines = (f"[stack_lm.{group}]\n{points}\n" for group, points in entry_points.items())
    (information / "entry_points.txt").write_text("".join(lines))


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def command(*arguments, cwd):
    """A command in a process of its own, which has imported nothing yet."""
    program = (sys.executable, "-m", "stack_lm.cli.main", *map(str, arguments))
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, timeout=300)


# --- entry points


@pytest.mark.usefixtures("registries")
def test_entry_points_are_imported_when_a_name_is_missing(files, monkeypatch):
    install(files, {"memories": "any = own_memory", "tasks": "any = own_task:Echo", "corpora": "any = own_corpus"})
    monkeypatch.syspath_prepend(files)
    assert memory_class("stack").name == "stack"
    assert list(open_corpus("generated:2"))
    assert StackRNNConfig(memory="queue", memory_size=3).memory_size == 3
    assert MemoryLayer(3, "stack").reading_size == 16
    assert not {*SOURCES} & {*sys.modules}
    assert StackRNNConfig(memory="own_stack").memory == "own_stack"
    assert make_task("own_echo").vocabulary == ("a", "b")
    assert next(iter(open_corpus("own_texts"))).words == ["the", "cat", "purrs"]
    assert "own_convention" not in sys.modules  # which the distribution does not name


@pytest.mark.usefixtures("registries")
def test_entry_points_are_imported_when_names_are_listed(files, monkeypatch, capsys):
    install(files, {"memories": "a = own_memory", "tasks": "a = own_task", "conventions": "a = own_convention"})
    monkeypatch.syspath_prepend(files)
    assert "own_task" not in sys.modules
    assert "own_echo" in {task["name"] for task in run_json(capsys, "tasks")["tasks"]}
    assert "own_stack" in memory_names()
    assert "own_rules" in list(CONVENTIONS)
    assert len(CONVENTIONS) == len(list(CONVENTIONS))


def test_nothing_is_imported_at_the_start(files, monkeypatch):
    (files / "loud.py").write_text("print('imported')\n")
    install(files, dict.fromkeys(("memories", "tasks", "corpora", "conventions", "models"), "loud = loud"))
    monkeypatch.setenv("PYTHONPATH", str(files))
    for arguments in (("--help",), ("--version",), ("tasks", "show", "hao2018/xor")):
        done = command(*arguments, cwd=files)
        assert (done.returncode, "imported" in done.stdout) == (0, False), done.stderr
    assert "imported" in command("tasks", cwd=files).stdout


@pytest.mark.usefixtures("registries")
def test_a_broken_entry_point_is_one_line_and_stops_nothing(files, monkeypatch):
    (files / "broken.py").write_text("import nonesuch\n")
    (files / "leaving.py").write_text("raise SystemExit(3)\n")
    install(files, {"memories": "bad = broken\ngood = own_memory", "tasks": "bad = leaving\nlost = own_task:Nothing"})
    monkeypatch.syspath_prepend(files)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory_class("queue").name == "queue"  # which needs none
    message = (
        r"the plug-in 'bad' \(stack_lm.memories\) of own-plugins 1.2: cannot import broken: ModuleNotFoundError: No "
        "module named 'nonesuch'"
    )
    with pytest.warns(UserWarning, match=message):
        assert memory_class("own_stack").name == "own_stack"
    monkeypatch.setenv("PYTHONPATH", str(files))
    done = command("tasks", "--json", cwd=files)
    assert done.returncode == 0
    assert "own_echo" in {task["name"] for task in json.loads(done.stdout)["tasks"]}  # registered before the error
    about = "stack-lm: warning: the plug-in {!r} (stack_lm.tasks) of own-plugins 1.2: cannot import {}"
    assert done.stderr.splitlines() == [
        about.format("bad", "leaving: SystemExit: 3"),
        about.format("lost", "own_task: AttributeError: module 'own_task' has no attribute 'Nothing'"),
    ]


# --- --import


@pytest.mark.usefixtures("registries")
def test_a_file_is_imported_once(tmp_path, monkeypatch):
    path = tmp_path / "counted.py"
    path.write_text("import builtins\nbuiltins.counted = getattr(builtins, 'counted', 0) + 1\n")
    monkeypatch.setattr("builtins.counted", 0, raising=False)
    import_plugin(str(path))
    monkeypatch.chdir(tmp_path)
    import_plugin("counted.py")
    import_plugin("counted")
    import builtins

    import counted as module

    assert builtins.counted == 1
    assert module.__file__ == str(path)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("nowhere.py", None, "there is no such file"),
        ("nonesuch.module", None, "ModuleNotFoundError: No module named 'nonesuch'"),
        ("torn.py", "x = (", r"SyntaxError: '\(' was never closed \(torn.py, line 1\)"),
        ("leaving.py", "import sys; sys.exit(0)", "SystemExit: 0"),
        ("taking.py", MEMORY.replace("own_stack", "stack"), "ValueError: the memory name 'stack' is taken"),
        ("copy.py", "", r"'copy' is the name of another module \(.*copy.py\); rename the file"),
        ("a-b.py", "", "'a-b' cannot be the name of a module; rename the file"),
    ],
)
def test_what_cannot_be_imported_is_one_line(tmp_path, monkeypatch, capsys, name, source, message):
    monkeypatch.chdir(tmp_path)
    if source is not None:
        (tmp_path / name).write_text(source)
    before = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        run(capsys, "tasks", "--import", name)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    expected = rf"stack-lm tasks: error: cannot import {re.escape(name)}: {message}.* \(see stack-lm tasks --help\)\n"
    assert re.fullmatch(expected, err), err
    assert Path(name).stem not in set(sys.modules) - before


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("place", [0, 1, 2, 5])  # before the command, before and after its action, and at the end
def test_commands_import_what_they_are_told(files, capsys, place):
    arguments = ["tasks", "show", "own_echo", "-n", "1"]
    arguments[place:place] = ["--import", str(files / "own_task.py")]
    shown = run_json(capsys, *arguments)
    assert (shown["name"], len(shown["examples"])) == ("own_echo", 1)
    assert "--import" in shown["command"]


# --- models, runs and worker processes


@pytest.fixture
def model(files, registries, tmp_path):
    """A saved model whose memory is a plug-in's, which is then gone."""
    import_plugin(str(files / "own_memory.py"))
    tokenizer = train_word_tokenizer([Sentence(["the", "cat", "purrs"])], 10)
    path = tmp_path / "model"
    StackRNNForCausalLM(tiny_config(memory="own_stack", vocab_size=len(tokenizer))).save_pretrained(path)
    tokenizer.save_pretrained(path)
    forget(registries)
    return path


def forget(registries):
    """As in a process that has imported no plug-in."""
    for registry in registries.values():
        for name in [name for name in registry.registered if name.startswith("own_")]:
            del registry.registered[name]
    for name in SOURCES:
        sys.modules.pop(name, None)
    plugins._imported.clear()


MISSING = "(a {} of your own needs --import FILE)"


def test_a_model_needs_the_import_of_its_plugin(model, files, capsys):
    status, _, err = run(capsys, "parse", model, "the cat purrs")
    assert (status, len(err.splitlines())) == (2, 1)
    assert f"cannot load a language model from {model}: memory must be one of " in err
    assert MISSING.format("memory") in err
    with pytest.raises(ValueError, match="memory must be one of "):
        StackRNNForCausalLM.from_pretrained(model)
    arguments = ("parse", model, "the cat purrs", "--import", files / "own_memory.py")
    assert run_json(capsys, *arguments)["parses"]


def test_a_model_with_a_plugin_uploads_without_its_code(model, files, capsys, tmp_path):
    arguments = ("push", model, "someone/own", "--dry-run", tmp_path / "up")
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert err.startswith(f"stack-lm: error: cannot write the code of {model}: memory must be one of ")
    found = run_json(capsys, *arguments, "--import", files / "own_memory.py")["files"]
    assert "model.safetensors" in found
    assert not [name for name in found if name.endswith(".py")]


def test_a_model_does_not_have_anything_imported(model):
    """Neither from its directory nor from the working directory, whatever its files say, as earlier versions wrote."""
    for name in ("trap", "own_memory"):
        (model / f"{name}.py").write_text("open('sprung', 'w')\n" + MEMORY)
    config = json.loads((model / "config.json").read_text())
    config["plugins"] = {"memory": {"own_stack": "./trap.py"}, "task": {"own_echo": "trap"}}
    (model / "config.json").write_text(json.dumps(config))
    done = command("parse", ".", "the cat purrs", cwd=model)
    assert done.returncode == 2
    assert "cannot load a language model from .: memory must be one of " in done.stderr
    assert not (model / "sprung").exists()


@pytest.mark.slow
def test_a_language_models_run_with_workers(files, registries, tmp_path, capsys):
    """The segmenter of the corpus reaches the processes that tokenise."""
    run_directory = tmp_path / "run"
    settings = [
        "data.source=own_texts",
        "data.streaming=true",
        "data.pool=64",
        "data.workers=1",
        "training.max_steps=2",
    ]
    settings += ["model.memory=own_stack", "model.hidden_size=4", "model.memory_size=2", f"output_dir={run_directory}"]
    imports = ["--import", str(files / "own_memory.py"), "--import", str(files / "own_corpus.py")]
    train = recipe("train_lm")
    assert train([*imports, *settings]) == 0, capsys.readouterr().err
    saved = yaml.safe_load((run_directory / "training_config.yaml").read_text())
    saved["plugins"] = {"memory": {"own_stack": "own_memory.py"}}  # as earlier versions wrote
    (run_directory / "training_config.yaml").write_text(yaml.safe_dump(saved))
    assert train([*imports, *settings, "--resume", "training.max_steps=3"]) == 0, capsys.readouterr().err
    forget(registries)
    capsys.readouterr()
    again = [str(run_directory / "training_config.yaml"), f"output_dir={tmp_path / 'other'}"]
    corpus = "own_texts does not exist; a corpus must be one of: "
    memory = "model: memory must be one of "
    for arguments, missing in (
        ([*settings, "--resume"], corpus),
        ([*again, "model.memory=stack"], corpus),
        ([*again, *imports[2:]], memory),
    ):
        assert train(arguments) == 2
        assert capsys.readouterr().err.startswith(f"stack-lm: error: {missing}")
    # A plug-in that overrides have made needless is not missed.
    changes = ["model.memory=stack", "data.source=generated:100", "data.streaming=false"]
    assert train([*again, *changes]) == 0, capsys.readouterr().err


@pytest.mark.slow  # two processes are tested with tasks of a file too
def test_trials_in_two_processes(files, registries, tmp_path, capsys):
    preset = tmp_path / "preset.yaml"
    fields = {"architectures": ["StackRNNForTokenClassification"], "input_encoding": "one_hot", "hidden_size": 4}
    fields |= {"memory": "own_stack", "memory_size": 2}
    preset.write_text(yaml.safe_dump({"model": fields, "training": {"epochs": 1}}))
    runs = tmp_path / "runs"
    imports = ["--import", str(files / "own_task.py"), "--import", str(files / "own_memory.py")]
    train = recipe("train_task")
    arguments = ["own_echo", "--seeds", "2", "--jobs", "2", "--together", "1", f"output_dir={runs}"]
    assert train([str(preset), *arguments, *imports]) == 0, capsys.readouterr().err
    with open(runs / "table.yaml", "a", encoding="utf-8") as table:
        table.write("plugins: {task: {own_echo: own_task.py}}\n")  # as earlier versions wrote
    forget(registries)
    assert run_json(capsys, "results", runs)["rows"]  # which needs no plug-in
    assert train([str(runs / "table.yaml"), "--resume"]) == 2
    assert MISSING.format("task") in capsys.readouterr().err
    assert train([str(runs / "table.yaml"), "--resume", *imports]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("registries")
def test_a_process_that_unpickles_the_imports_imports_the_same(files, capfd):
    import_plugin(str(files / "own_corpus.py"))
    segmenter = sys.modules["own_corpus"].Halves()
    path = files / "pickled"
    path.write_bytes(pickle.dumps((Imports(), segmenter)))
    program = f"import pickle; print(pickle.load(open({str(path)!r}, 'rb')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(files / "own_corpus.py") in done.stdout


def test_every_command_and_recipe_has_the_option(capsys):
    mains = [functools.partial(run, capsys, name) for name in COMMANDS]
    mains += [lambda *arguments, path=path: recipe(path.stem)([*arguments]) for path in RECIPES.glob("*.py")]
    for main in mains:
        with pytest.raises(SystemExit) as ended:
            main("--import", "nowhere.py")
        assert ended.value.code == 2
        assert "error: cannot import nowhere.py: there is no such file (see" in capsys.readouterr().err
