"""The wheel: its contents, and, with `make test-wheel`, its commands in a fresh environment outside the checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from stack_lm.core.config_files import preset_names

ROOT = Path(__file__).parents[2]
# Package, and the folder of the checkout that becomes it.
FOLDERS = {
    "stack_lm": "stack_lm",
    "stack_lm/parsing": "parsing",
    "stack_lm/eval": "eval",
    "stack_lm/configs": "recipes/configs",
}
WITH_THE_SOURCES = ("CHANGELOG.md", "CITATION.cff", "constraints.txt")
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info", "numba-*", "*.nbi", "*.nbc")


def execute(*command, cwd, timeout=600, **variables):
    """Standard output of a command that must succeed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | variables
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: setuptools would take up what an earlier build left beside the sources."""
    copy, output = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=GENERATED)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in", *WITH_THE_SOURCES):
        shutil.copy(ROOT / file, copy)
    (copy / "tests").mkdir()
    (copy / "tests" / "test_a.py").touch()
    (copy / "models" / "a").mkdir(parents=True)
    (copy / "models" / "a" / "model.safetensors").touch()
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    execute(*pip, "--wheel-dir", output, copy, cwd=output)
    (path,) = output.glob("*.whl")
    sdist = "import sys, setuptools.build_meta as build; build.build_sdist(sys.argv[1])"
    execute(sys.executable, "-c", sdist, output, cwd=copy)
    return path


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not {"__pycache__"} & set(path.parts) and path.suffix not in (".nbi", ".nbc")
    }
    packaged = {name for name in names if ".dist-info/" not in name}
    assert packaged == expected
    assert {
        "stack_lm/py.typed",
        "stack_lm/cli/main.py",
        "stack_lm/parsing/page.css",
    } <= packaged
    assert {f"stack_lm/configs/{name}.yaml" for name in preset_names()} <= packaged
    (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


def test_the_sources_have_the_files_around_the_package_but_no_models_and_tests(wheel):
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"setup.py", "stack_lm/cli/main.py", *WITH_THE_SOURCES} <= set(names)
    assert not [name for name in names if name.startswith(("models", "tests"))]


def test_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = archive.read(name).decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    required = re.findall(r"Requires-Dist: (.*)", metadata)
    ordinary = {re.split(r"[<>=\s;]", line)[0] for line in required if "extra" not in line}
    assert {"torch", "transformers", "datasets", "evaluate"} <= ordinary


# --- in a fresh environment, which takes minutes to install


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The folder of the programs of an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    execute(sys.executable, "-m", "venv", folder, cwd=folder)
    # Most of what is installed is never imported here, so compiling it would take longer than all tests.
    pip = (folder / "bin" / "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt")
    execute(*pip, wheel, cwd=folder)
    yield folder / "bin"
    shutil.rmtree(folder)  # more than a gigabyte, which pytest would keep


@pytest.mark.network
class TestInstalled:
    """Commands run in an empty folder outside the checkout."""

    def test_it_is_imported_from_the_environment(self, installed, tmp_path):
        code = "import stack_lm; print(stack_lm.__file__, stack_lm.StackRNNForCausalLM.__name__)"
        place, name = execute(installed / "python", "-c", code, cwd=tmp_path).split()
        assert Path(place).is_relative_to(installed.parent)
        assert name == "StackRNNForCausalLM"
        execute(installed / "pip", "check", cwd=tmp_path)

    def test_presets(self, installed, tmp_path):
        presets = json.loads(execute(installed / "stack-lm", "presets", "--json", cwd=tmp_path))["presets"]
        assert [preset["name"] for preset in presets] == preset_names()

    def test_demo(self, installed, tmp_path):
        demo = ("demo", "--limit", "2001", "--epochs", "1", "--json")
        # Compiling takes long on a busy machine.
        result = json.loads(execute(installed / "stack-lm", *demo, cwd=tmp_path, timeout=1800))
        assert 1 < result["perplexity"]["runs"][0]["perplexity"] < 1000
        assert 0 < result["parsing"]["f1"] < 100
        assert not (tmp_path / "runs/demo/strengths.png").exists()  # matplotlib is an extra
        parses = execute(installed / "stack-lm", "parse", "runs/demo/stack", "the dog sleeps .", "--json", cwd=tmp_path)
        assert json.loads(parses)["parses"][0]["words"] == ["the", "dog", "sleeps", "."]

    def test_parse_f1(self, installed, tmp_path):
        (tmp_path / "gold.mrg").write_text("(S (NP (D the) (N dog)) (VP (V saw) (NP (D a) (N cat))))\n")
        (tmp_path / "other.mrg").write_text("(S (NP (D the) (N dog)) (X (Y (V saw) (D a)) (N cat)))\n")
        files = ("gold.mrg", "other.mrg", "--data", "gold.mrg")
        command = ("parse-f1", *files, "--convention", "prpn", "--json")
        same, other = json.loads(execute(installed / "stack-lm", *command, cwd=tmp_path))["systems"]
        assert same["f1"] == pytest.approx(100)
        assert other["f1"] == pytest.approx(200 / 3)  # NP and VP of NP, VP and NP

    def test_metrics_for_evaluate(self, installed, tmp_path):
        code = (
            "import evaluate; from stack_lm.eval import metric_path; m = evaluate.load(metric_path('minimal_pairs'));"
            "print(m.compute(predictions=[[-20.1, -22.4], [-31.0, -30.2]], references=['a', 'a'])['accuracy'])"
        )
        printed = execute(installed / "python", "-c", code, cwd=tmp_path, HF_HOME=str(tmp_path))
        assert float(printed) == 50
