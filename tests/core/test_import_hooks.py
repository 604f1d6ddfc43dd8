"""Actions that follow an import, and transformers' Auto classes, which know our models whatever was loaded first."""

import subprocess
import sys

import pytest
from conftest import tiny_config

from stack_lm import StackRNNForCausalLM
from stack_lm.core.import_hooks import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that counts how often it is run, and fails while there is a file `broken`."""
    name = "imported_for_a_test"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\n"
        "value = 42\n"
        "if Path(__file__).with_name('broken').exists():\n"
        "    raise RuntimeError('broken')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield name
    sys.modules.pop(name, None)


def test_actions_follow_the_import_once(module):
    seen = []
    after_import(module, lambda: seen.append(sys.modules[module].value))
    after_import(module, lambda: seen.append("second"))
    import json.tool  # noqa: F401 - another import is not what it waits for

    assert seen == []
    __import__(module)
    assert seen == [42, "second"]
    __import__(module)
    after_import(module, lambda: seen.append("loaded"))
    assert seen == [42, "second", "loaded"]


def test_it_waits_on_when_an_import_fails(module, tmp_path):
    seen = []
    after_import(module, lambda: seen.append(1))
    after_import("no_such_module_anywhere", lambda: seen.append(2))
    (tmp_path / "broken").touch()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            __import__(module)
        with pytest.raises(ModuleNotFoundError):
            __import__("no_such_module_anywhere")
        sys.modules.pop(module, None)
    (tmp_path / "broken").unlink()
    assert seen == []
    __import__(module)
    assert seen == [1]


# transformers


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    StackRNNForCausalLM(tiny_config()).save_pretrained(directory)
    return directory


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "imports",
    [
        "import stack_lm; from transformers import AutoModelForCausalLM",
        pytest.param("from transformers import AutoModelForCausalLM; import stack_lm", marks=pytest.mark.slow),
        pytest.param(
            "import transformers, stack_lm; from transformers import AutoModelForCausalLM", marks=pytest.mark.slow
        ),
        pytest.param(
            "import stack_lm.models.configuration_stack_rnn; from transformers import AutoModelForCausalLM",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_models_open_whichever_came_first(saved, imports):
    code = f"{imports}; print(type(AutoModelForCausalLM.from_pretrained({str(saved)!r})).__name__)"
    assert python(code) == "StackRNNForCausalLM"


@pytest.mark.slow
def test_a_configuration_brings_the_models():
    code = (
        "from stack_lm.models.configuration_stack_rnn import StackRNNConfig; config = StackRNNConfig(vocab_size=9); "
        "from transformers import AutoModelForTokenClassification as A; print(type(A.from_config(config)).__name__)"
    )
    assert python(code) == "StackRNNForTokenClassification"
