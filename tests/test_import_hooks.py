"""Actions that follow an import, and transformers' Auto classes, which know our models whatever was loaded first."""

import subprocess
import sys

import pytest
from conftest import tiny_config

from stack_lm import StackRNNForCausalLM
from stack_lm.import_hooks import after_import


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


def test_an_action_follows_the_import_once(module):
    seen, finders = [], list(sys.meta_path)
    after_import(module, lambda: seen.append(sys.modules[module].value))
    after_import(module, lambda: seen.append("second"))
    import json.tool  # noqa: F401 - another import is not what it waits for

    assert seen == []
    __import__(module)
    assert sorted(map(str, seen)) == ["42", "second"]
    assert sys.meta_path == finders
    __import__(module)
    assert len(seen) == 2


def test_of_a_loaded_module_it_happens_now(module):
    __import__(module)
    seen = []
    after_import(module, lambda: seen.append(1))
    assert seen == [1]


def test_it_waits_on_when_an_import_fails(module, tmp_path):
    seen = []
    after_import(module, lambda: seen.append(1))
    (tmp_path / "broken").touch()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            __import__(module)
        sys.modules.pop(module, None)
    (tmp_path / "broken").unlink()
    assert seen == []
    __import__(module)
    assert seen == [1]


def test_it_waits_on_where_there_is_no_such_module():
    seen, finders = [], list(sys.meta_path)
    after_import("no_such_module_anywhere", lambda: seen.append(1))
    try:
        with pytest.raises(ModuleNotFoundError):
            __import__("no_such_module_anywhere")
        assert len(sys.meta_path) == len(finders) + 1
    finally:
        sys.meta_path[:] = finders
    assert seen == []


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
            "import stack_lm; import transformers.modeling_utils; from transformers import AutoModelForCausalLM",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "from stack_lm import StackRNNForCausalLM; from transformers import AutoModelForCausalLM",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import stack_lm.configuration_stack_rnn; from transformers import AutoModelForCausalLM",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_models_open_whichever_came_first(saved, imports):
    code = f"{imports}; print(type(AutoModelForCausalLM.from_pretrained({str(saved)!r})).__name__)"
    assert python(code) == "StackRNNForCausalLM"


@pytest.mark.slow
def test_configurations_of_both_kinds_are_known():
    code = (
        "import stack_lm; from transformers import AutoConfig; "
        "print(*(type(AutoConfig.for_model(name)).__name__ for name in ('stack_rnn', 'buffered_stack_rnn')))"
    )
    assert python(code) == "StackRNNConfig BufferedStackRNNConfig"


@pytest.mark.slow
def test_a_configuration_brings_the_models():
    code = (
        "from stack_lm.configuration_stack_rnn import StackRNNConfig; config = StackRNNConfig(vocab_size=9); "
        "from transformers import AutoModelForTokenClassification as A; print(type(A.from_config(config)).__name__)"
    )
    assert python(code) == "StackRNNForTokenClassification"
