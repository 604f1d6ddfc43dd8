"""What the project promises of itself: light imports, one direction, no unsafe loading."""

import re
import subprocess
import sys

import pytest
from import_graph import FOLDERS, ROOT, at_run_time, circles, graph, imports, modules

from stack_lm.text import Sentence

# The rooms, from the outside in: a module may import those of its own room and of rooms below.
ROOMS = [
    "__main__",
    "cli",
    "stack_lm",  # the names that the package offers, each loaded when it is first used
    "testing",
    "training",
    "scoring",
    "figures",
    "hub",
    "models",
    "nn",
    "kernels",
    "memory",
    "eval",
    "parsing",
    "tasks",
    "text",
    "core",
]
# What these rooms may import besides themselves, for type checkers too. They know no model: they see one as a `Trace`,
# or as an object that is handed to them.
READERS = {"text.brackets", "text.conllu", "text.escapes", "text.files", "text.formats", "text.records", "text.plain"}
MODEL_FREE = {
    "tasks": {"core", "text.files", "text.formats", "text.plain"},
    "parsing": {"core", *READERS},
    "eval": {"core", *READERS, "text.inflection", "text.generated", "parsing"},
    "figures": {"core", "parsing"},
}


def room(name):
    """The room of a module: the folder in the package that it is in."""
    return name.split(".")[1] if "." in name else name


def test_imports_run_one_way():
    for name in modules():
        assert room(name) in ROOMS, f"{name} is in no room"
    for seen in at_run_time():
        above, below = ROOMS.index(room(seen.importer)), ROOMS.index(room(seen.imported))
        assert above <= below, f"{seen.importer} must not import {seen.imported}"


def test_nothing_is_loose():
    loose = {path.name for path in (ROOT / "stack_lm").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}


def test_no_modules_import_each_other_in_a_circle():
    """Not for type checkers either."""
    assert circles([(seen.importer, seen.imported) for seen in graph()]) == []


@pytest.mark.parametrize("library", sorted(MODEL_FREE))
def test_a_library_knows_no_model(library):
    for seen in graph():
        if room(seen.importer) == library != room(seen.imported):
            local = seen.imported.removeprefix("stack_lm.")
            allowed = any(f"{local}.".startswith(f"{name}.") for name in MODEL_FREE[library])
            assert allowed, f"{seen.importer} must not import {seen.imported}"


def test_imports_are_seen_wherever_they_are():
    known = {"stack_lm", *(f"stack_lm.{name}" for name in ("a", "b", "c", "d", "e", "e.f", "e.g", "h", "i", "j"))}
    source = """
import importlib
from importlib import import_module as load
from typing import TYPE_CHECKING

from . import a
from .b import something

if TYPE_CHECKING:
    from .c import Type
else:
    from .d import Type

TABLE = {"first": "e.f", "second": "e.g"}


class Loader:
    import stack_lm.h

    def find(self, name, key):
        from .i import late

        importlib.util.find_spec(name)
        load(".j", __package__)
        return importlib.import_module(f"{__package__}.{TABLE[key]}")
"""
    found = {(i.imported.removeprefix("stack_lm."), i.kind, i.by_name) for i in imports("stack_lm.x", source, known)}
    assert {seen for seen in found if f"stack_lm.{seen[0]}" in known} == {
        ("a", "top", False),
        ("b", "top", False),
        ("c", "typing", False),
        ("d", "top", False),
        ("h", "top", False),
        ("i", "deferred", False),
        ("j", "deferred", True),
        ("e.f", "deferred", True),
        ("e.g", "deferred", True),
    }
    (folder,) = {
        i.imported for i in imports("stack_lm.e", "__import__(f'{__name__}.{x}')", {"stack_lm.e.f", "stack_lm.b"})
    }
    assert folder == "stack_lm.e.f"
    with pytest.raises(ValueError, match=r"stack_lm.x, line 1: cannot see what load\(name\) loads"):
        imports("stack_lm.x", "from importlib import import_module as load; load(name)", known)


def test_circles():
    assert circles([("a", "b"), ("b", "c"), ("a", "c")]) == []
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "e")]) == [["a", "b", "c"], ["e"]]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout


def loaded_by(code):
    """What a program has loaded at its end: the names of modules up to the first dot, and of two further ones."""
    loaded = python(f"import sys\n{code}\nprint()\nprint(*sys.modules)").splitlines()[-1].split()
    return {name.partition(".")[0] for name in loaded} | set(loaded)


HEAVY = {"torch", "transformers", "numpy", "scipy", "nltk", "numba", "pandas", "matplotlib", "datasets", "accelerate"}


def test_import_is_light():
    """It loads nothing: the names of the package load when they are first used."""
    assert not loaded_by("import stack_lm") & (HEAVY | {"rich", "yaml"})


def test_a_configuration_is_light():
    """Of transformers not the modelling code, which takes over a second."""
    loaded = loaded_by("from stack_lm import StackRNNConfig")
    assert "transformers" in loaded
    assert not loaded & (HEAVY - {"torch", "transformers", "numpy"} | {"transformers.modeling_utils"})


def run_main(*arguments):
    return (
        "from stack_lm.cli.main import main\ntry:\n"
        f"    assert main({list(arguments)!r}) == 0\nexcept SystemExit as end:\n    assert not end.code"
    )


def test_help_loads_nothing():
    assert not loaded_by(run_main("--help")) & HEAVY
    assert not loaded_by(run_main("--version")) & HEAVY


def test_a_parse_loads_what_it_needs(tmp_path):
    from conftest import tiny_config

    from stack_lm import StackRNNForCausalLM
    from stack_lm.text.tokenization import train_word_tokenizer

    tokenizer = train_word_tokenizer([Sentence(["the", "cat", "purrs"])], 10)
    StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer))).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = loaded_by(run_main("parse", str(tmp_path), "the cat purrs"))
    assert "stack_lm.scoring.sentences" in loaded
    # SciPy and Accelerate are loaded by transformers' modelling code.
    needless = HEAVY - {"torch", "transformers", "numpy", "numba", "scipy", "accelerate"}
    assert not loaded & (needless | {"scipy.stats", "stack_lm.eval", "stack_lm.training", "stack_lm.cli.commands.demo"})


def test_the_list_of_tasks_is_light():
    assert not loaded_by(run_main("tasks")) & HEAVY
    assert not loaded_by("import stack_lm.tasks.kinds") & HEAVY


def test_public_names():
    import stack_lm

    assert {"Parser", "surprisal", "ModelScorer", "__version__"} <= set(dir(stack_lm))
    for name in stack_lm.__all__:
        assert getattr(stack_lm, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        _ = stack_lm.nonesuch


def test_nothing_is_unpickled_unsafely():
    for folder in (*FOLDERS.values(), ROOT / "recipes", ROOT / "benchmarks"):
        for path in folder.rglob("*.py"):
            text = path.read_text()
            assert not re.search(r"\bpickle\.(load|loads)\b|trust_remote_code=True", text), path
            for call in re.findall(r"torch\.load\([^)]*\)", text):
                assert "weights_only=True" in call, path
            for line in text.splitlines():
                assert "np.load(" not in line or "allow_pickle=False" in line, path


# What transformers does not document, and why it is used: CONTRIBUTING.md, "Dependencies".
UNDOCUMENTED = {
    "transformers.dynamic_module_utils.get_relative_import_files",
    "transformers.loss.loss_utils.ForCausalLMLoss",
    "transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "transformers.trainer_pt_utils.get_length_grouped_indices",
    "transformers.utils.generic.merge_with_config_defaults",
}
_PUBLIC_MODULES = ("activations", "initialization", "masking_utils", "modeling_outputs", "modeling_utils", "utils")


def test_undocumented_names_of_transformers_are_listed():
    """Any of them may change in any release."""
    used = set()
    for path in (ROOT / "stack_lm").rglob("*.py"):
        for module, names in re.findall(r"^\s*from (transformers\.\S+) import (.+)$", path.read_text(), re.MULTILINE):
            if module.partition(".")[2] not in _PUBLIC_MODULES:
                used |= {f"{module}.{name.strip()}" for name in names.split(",")}
    assert used == UNDOCUMENTED
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in used if f"`{name.rpartition('.')[2]}`" not in page] == []
