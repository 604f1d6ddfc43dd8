"""What the project promises of itself: light imports, one direction, no unsafe loading."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"stack_lm": ROOT / "stack_lm", "stack_lm.parsing": ROOT / "parsing", "stack_lm.eval": ROOT / "eval"}

# Who may import whom, from the outside in: a module may import those of its own row and of the rows below.
LAYERS = [
    ["cli"],
    ["commands"],
    ["training"],
    ["scoring"],
    ["hub"],
    ["modeling_heads", "modeling_buffered"],
    ["modeling_stack_rnn"],
    ["configuration_buffered"],
    ["configuration_stack_rnn"],
    ["cell", "loss"],
    ["kernels"],
    ["memory.module"],
    ["controllers", "controls"],
    ["memory"],
    ["field_checks"],
    ["parsing", "eval", "interpretation", "tokenization", "data", "tasks", "config_files", "console"],
    ["atomic", "trace"],
    ["errors", "derivatives"],
]


def modules():
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [*package.split("."), *path.relative_to(folder).with_suffix("").parts]
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(name, path):
    """The package's own modules that a module imports, wherever in it; not those for type checkers only."""
    tree = ast.parse(path.read_text())
    typing_only = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ([module] if node.module else [f"{module}.{alias.name}" for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer(name):
    """The row of a module, by its longest name in the table."""
    local = name.removeprefix("stack_lm").lstrip(".")
    while local:
        for row, names in enumerate(LAYERS):
            if local in names:
                return row
        local = local.rpartition(".")[0]
    return None


def test_imports_run_one_way():
    for name, path in modules():
        if name == "stack_lm":
            continue
        own = layer(name)
        assert own is not None, f"{name} has no place in LAYERS"
        for imported in imports(name, path):
            if imported.startswith("stack_lm.") and layer(imported) is not None:
                assert layer(imported) >= own, f"{name} must not import {imported}"


def test_parsing_and_eval_know_a_model_by_its_trace_alone():
    allowed = {"stack_lm.trace", "stack_lm.errors", "stack_lm.atomic", "stack_lm.data.text", "stack_lm.data.generated"}
    for name, path in modules():
        side = name.split(".")[1] if name.startswith(("stack_lm.parsing", "stack_lm.eval")) else None
        if side is None or ".metrics" in name:
            continue
        own = {i for i in imports(name, path) if i.startswith("stack_lm") and not i.startswith(f"stack_lm.{side}")}
        assert own <= allowed, (name, own - allowed)


def test_interpretation_knows_a_model_by_its_trace_and_parses_alone():
    allowed = {"trace", "errors", "atomic", "interpretation", "parsing"}
    for name, path in modules():
        if name.startswith("stack_lm.interpretation"):
            own = {i for i in imports(name, path) if i.startswith("stack_lm.")}
            assert {i.split(".")[1] for i in own} <= allowed, name


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout


def test_import_is_light():
    """torch and transformers only; and of transformers not the modelling code, which takes over a second."""
    code = "import sys, stack_lm; print(' '.join(m for m in sys.modules))"
    loaded = set(python(code).split())
    heavy = {
        "accelerate",
        "datasets",
        "nltk",
        "matplotlib",
        "rich",
        "evaluate",
        "scipy",
        "pandas",
        "transformers.modeling_utils",
    }
    assert "transformers" in loaded
    assert not loaded & heavy


def test_public_names():
    import stack_lm

    for name in stack_lm.__all__:
        assert getattr(stack_lm, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        _ = stack_lm.nonesuch


def test_models_open_after_a_plain_import(tmp_path):
    from conftest import tiny_config

    from stack_lm import StackRNNForCausalLM

    StackRNNForCausalLM(tiny_config()).save_pretrained(tmp_path)
    code = (
        "import stack_lm; from transformers import AutoModelForCausalLM as A; "
        f"print(type(A.from_pretrained({str(tmp_path)!r})).__name__)"
    )
    assert python(code).strip() == "StackRNNForCausalLM"


def test_nothing_is_unpickled_unsafely():
    for folder in (*FOLDERS.values(), ROOT / "recipes", ROOT / "benchmarks"):
        for path in folder.rglob("*.py"):
            text = path.read_text()
            assert not re.search(r"\bpickle\.(load|loads)\b|\bnp\.load\(|trust_remote_code=True", text), path
            for call in re.findall(r"torch\.load\([^)]*\)", text):
                assert "weights_only=True" in call, path
