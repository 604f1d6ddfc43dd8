"""The examples of the documents run as they stand, and the site shows every public name."""

import csv
import dataclasses
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import stack_lm
from stack_lm import StackRNNConfig
from stack_lm.cli.main import COMMANDS
from stack_lm.core.checks import checks_of
from stack_lm.core.config_files import preset_names, table_names
from stack_lm.memory import stack_weights
from stack_lm.tasks import task_names
from stack_lm.training.config import ClassificationConfig, RunConfig

DOCS = Path(__file__).parents[2] / "docs"


def examples(name):
    return re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.DOTALL | re.MULTILINE)


def run(*codes):
    """What the examples print, each in a namespace of its own and in one process, which loads torch once."""
    program = "\n".join(f"exec(compile({code!r}, 'example', 'exec'), {{'__name__': 'example'}})" for code in codes)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=DOCS.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_examples_run():
    alone, behind, best_run = examples("memories.md")
    best_run += "print('a run of', len(run.moves), 'moves')\n"
    (together,) = examples("experiments.md")
    (library,) = examples("library_models.md")
    printed = run(alone, behind, best_run, together, library)
    assert "[[1.0000, 0.0000, 0.0000],\n        [0.0000, 0.5000, 0.0000]]" in printed
    assert "[[0.5000, 0.0000, 0.0000],\n        [0.0000, 0.0000, 0.0000]]" in printed
    assert "{'total_strength': tensor([0.0000, 0.5000, 0.5000])}" in printed
    assert "a run of 4 moves" in printed
    for size in ("[2, 5, 16]", "[2, 5]"):
        assert f"torch.Size({size})" in printed


@pytest.mark.slow
def test_the_stack_layer_learns_reversal(tmp_path):
    program = (DOCS.parent / "examples" / "reversal.py").read_text()
    program = program.replace("reversal.png", str(tmp_path / "reversal.png"))
    accuracies = [float(line.split()[1]) for line in run(program).splitlines()]
    assert len(accuracies) == 4
    assert min(accuracies[:2]) > 99
    assert (tmp_path / "reversal.png").stat().st_size > 1_000


def test_the_page_of_the_design_shows_the_stack_as_attention():
    (shown,) = (code for code in examples("architecture.md") if "cummin" in code)
    source = "".join(line.strip() for line in inspect.getsource(stack_weights).split('"""')[2].splitlines())
    assert "".join(line.strip() for line in shown.splitlines()) == source


@pytest.mark.slow
def test_the_examples_of_tasks_print_what_the_page_says():
    printed = run(*examples("tasks.md"))
    (expected,) = re.findall(r"^```text\n(.*?)^```", (DOCS / "tasks.md").read_text(), re.DOTALL | re.MULTILINE)
    assert f"\n1000\n{expected}" in printed
    for size in ("[3, 9, 12]", "[3, 11]"):
        assert f"torch.Size({size})" in printed


@pytest.mark.slow
def test_the_examples_of_transformers_print_what_the_page_says():
    expected = re.findall(r"^```text\n(.*?)^```", (DOCS / "transformers.md").read_text(), re.DOTALL | re.MULTILINE)
    assert run(*examples("transformers.md")) == "".join(expected)


@pytest.mark.slow
def test_the_examples_of_networks_print_what_the_page_says():
    expected = re.findall(r"^```text\n(.*?)^```", (DOCS / "networks.md").read_text(), re.DOTALL | re.MULTILINE)
    assert run(*examples("networks.md")) == "".join(expected)
    tagger = (DOCS.parent / "examples" / "tagger.py").read_text()
    printed = dict(line.split() for line in run(tagger).splitlines())
    assert list(printed) == ["LSTM", "StackRNN"]
    assert all(float(accuracy) > 0.95 for accuracy in printed.values())


@pytest.mark.slow
def test_the_page_of_surprisal_is_reproduced(tmp_path):
    page = (DOCS / "surprisal.md").read_text()
    commands, *_ = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (expected,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "models").symlink_to(DOCS.parent / "models")
    commands = commands.replace("stack-lm ", f"{sys.executable} -m stack_lm.cli.main ")
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=500)
    lines = (tmp_path / "words.csv").read_text().splitlines()
    assert len(lines) == 2 * 42 + 1
    assert lines[0].startswith(
        "model,item,condition,from,to,sentence,position,word,n_tokens,unknown,surprisal,push_strength,"
    )
    assert (tmp_path / "sentence.png").stat().st_size > 10_000
    assert run(*examples("surprisal.md")) == expected


@pytest.mark.slow
def test_the_transduction_example_learns():
    first, longer = run((DOCS.parent / "examples" / "transduction.py").read_text()).splitlines()
    for line, least in ((first, 0.95), (longer, 0.5)):
        assert float(re.search(r"exact_match=([\d.]+)", line)[1]) >= least


def shell(page, folder):
    """Run the commands of a page in a folder that has the models of the clone."""
    (folder / "models").symlink_to(DOCS.parent / "models")
    names = folder / "bin"
    names.mkdir()
    for name, module in (("stack-lm", "-m stack_lm.cli.main"), ("python", "")):
        (names / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (names / name).chmod(0o755)
    commands = [code for code in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "venv" not in code]
    environment = os.environ | {"PATH": f"{names}{os.pathsep}{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(
            ["sh", "-ec", command], cwd=folder, capture_output=True, text=True, timeout=2000, env=environment
        )
        assert done.returncode == 0, done.stderr
        yield done.stdout


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    page = (DOCS.parent / "README.md").read_text()
    commands = re.findall(r"^\|[^|]*\| `(stack-lm .*)` \|$", page, re.MULTILINE)
    here = [command for command in commands if "nltk:" not in command and "train task" not in command]
    assert len(here) == len(commands) - 2 == 4
    (tmp_path / "my_text.txt").write_text("The dog saw the cat. It ran away from him, and he slept.\n" * 200)
    (draw,) = re.findall(r"^(stack-lm parse .* --output tree.svg)$", (DOCS / "index.md").read_text(), re.MULTILINE)
    blocks = "".join(f"```sh\n{command}\n```\n" for command in [*here, draw])
    parsed, _, surprisal, *_ = shell(blocks, tmp_path)
    assert parsed.startswith("(((the dog) (that ((the cats) fear)))")
    assert (tmp_path / "dog.html").stat().st_size > 10_000
    assert "sleeps" in surprisal
    assert (tmp_path / "runs" / "my_text" / "config.json").exists()
    assert (tmp_path / "tree.svg").read_text() == (DOCS / "figures" / "tree.svg").read_text()


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
    page = (DOCS / "tutorial.md").read_text()
    (program,) = examples("tutorial.md")
    (tmp_path / "make_text.py").write_text(program)
    parsed, _, _, scores, _ = shell(page, tmp_path)
    assert parsed.startswith("((")
    said = dict(re.findall(r"^\| (.+?)(?: \(.*\))? \| ([\d.]+) \|$", page, re.MULTILINE))
    found = dict(re.findall(r"│ (.+?) +│ +([\d.]+) │", scores))
    for name, ours in (
        ("right branching", "right"),
        ("balanced", "balanced"),
        ("random distances", "random distances"),
    ):
        assert said[name] == found[ours]
    assert float(found["runs/tutorial"]) > float(found["right"])
    assert (tmp_path / "sentence.html").exists()
    assert (tmp_path / "strengths.png").exists()


def test_the_site_fetches_nothing():
    settings = (DOCS.parent / "mkdocs.yml").read_text()
    assert "font: false" in settings
    for path in (DOCS / "assets").iterdir():
        assert "://" not in path.read_text(), path.name


def hook(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_picture_is_a_figure_with_a_caption_and_a_readable_width():
    look = hook("look")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="results/trees.md"))
    alone = '<p><img alt="Two trees" src="../figures/parses.svg" /></p>'
    width, legible = look.widths(DOCS / "figures" / "parses.svg")
    assert 0 < legible < width
    shown = look.on_page_content(alone, page)
    assert "<figcaption>Two trees</figcaption>" in shown
    assert f"--width: {width}px; --legible: {legible}px" in shown
    assert look.on_page_content(alone.replace("</p>", " beside</p>"), page).startswith("<p>")
    for path in (DOCS / "figures").glob("*.png"):
        assert 100 < look.widths(path)[1] < 1000, path.name


def test_the_page_that_cites_lists_the_papers(pages):
    listed = pages.papers()
    assert listed.count("\n- ") == (DOCS.parent / "CITATION.cff").read_text().count("  - type:") > 10
    assert "- William Merrill, " in listed


@pytest.fixture(scope="module")
def pages():
    """The module that makes the pages of the site."""
    return hook("pages")


def described_keys(page, title):
    """The keys in a section of a page and the cells beside them."""
    section = re.split(rf"^## {title}$", page, flags=re.MULTILINE)[1].split("\n## ")[0]
    return {row[0]: row[1:] for row in re.findall(r"^\| `(.+?)` \| (.*?) \| (.*?) \| (.*?) \|$", section, re.MULTILINE)}


def test_the_pages_of_settings_have_every_key_with_its_meaning():
    made = hook("settings").made_pages()
    for title, cls in (("stack-lm train lm", RunConfig), ("stack-lm train classifier", ClassificationConfig)):
        config = cls()
        keys = described_keys(made["configuration.md"], title)
        for part in ("tokenizer", "data", "training"):
            names = {f"{part}.{field.name}" for field in dataclasses.fields(getattr(config, part))}
            assert names == {key for key in keys if key.startswith(f"{part}.")}
        assert all(meaning for _, _, meaning in keys.values()), keys
    lm = described_keys(made["configuration.md"], "stack-lm train lm")
    assert lm["training.batch_size"] == (
        "integer ≥ 1",
        "`16`",
        "sentences in a batch, per process; of continuous text, documents side by side",
    )
    models = described_keys(made["model-configuration.md"], "stack_rnn")
    assert {field.name for field in dataclasses.fields(StackRNNConfig)} & set(models) == set(checks_of(StackRNNConfig))
    assert all(meaning for _, _, meaning in models.values()), models
    assert models["pop_control"][:2] == ("`sigmoid`, `expected_value` or number ≥ 0", "`1.0`")
    for command in COMMANDS:
        assert f"\n## stack-lm {command}\n" in made["commands.md"]
    assert "\n### stack-lm train task\n" in made["commands.md"]


def test_the_lists_have_every_task_and_every_preset():
    made = hook("lists").on_page_markdown("<!-- stack-lm tasks -->\n<!-- stack-lm presets -->\n")
    listed = re.findall(r"`([\w/]+/\w+)`", made)
    assert sorted(listed) == sorted([*task_names(), *preset_names(), *table_names()])
    sizes = "train 800 of 12; validation 100 of 12; test 1,000 of 24"
    assert f"| `hao2018/xor`, `hao2018/delayed_xor` | per_step | {sizes} |" in made
    assert "| `dusell2024/transformer_stack` | formal languages | 2 × attention, stack, 2 × attention | 41" in made


def test_the_reference_has_every_public_name(pages):
    """Of each package what it exports; the build fails on a name that is not there."""
    described = dict(pages.packages())
    found = {"stack_lm"} | {m.name for m in pkgutil.iter_modules(stack_lm.__path__, "stack_lm.") if m.ispkg}
    assert set(described) == (found | {"stack_lm.eval", "stack_lm.parsing"}) - {
        "stack_lm.cli.commands",
        "stack_lm.kernels",
    }
    for name, folder in described.items():
        listed = pages.public_names(name, folder)
        package = importlib.import_module(name)
        assert listed
        if hasattr(package, "__all__"):
            assert listed == [f"{name}.{public}" for public in package.__all__]


def test_links_lead_from_page_to_page_and_from_file_to_file(pages):
    """The same link is right in the repository, and turned into one that is right on the site."""
    root = DOCS.parent
    files = [*root.glob("*.md"), *DOCS.rglob("*.md"), *root.glob("examples/*.ipynb")]
    assert len(files) > 12
    for path in files:
        text = path.read_text() if path.suffix == ".md" else pages.notebook(path)
        for target in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
            assert (path.parent / target).exists(), f"{path.name} links to {target}, which is not there"

    def link(text, uri):
        return pages.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=uri)))

    assert link("[a](docs/training.md#the-loss)", "changelog.md") == "[a](training.md#the-loss)"
    assert link("[a](../CHANGELOG.md)", "index.md") == "[a](changelog.md)"
    assert link("[a](../README.md)", "training.md") == "[a](index.md)"
    assert link("[a](../docs/training.md)", "examples/one.md") == "[a](../training.md)"
    assert link("[a](../stack_lm/training/config.py)", "training.md") == "[a](configuration.md)"
    assert link("[a](../pyproject.toml)", "training.md") == "a"
    assert link("[a](https://example.org)", "index.md") == "[a](https://example.org)"
    assert link("[a](nowhere.md)", "training.md") == "[a](nowhere.md)"


@pytest.fixture(scope="module")
def tables():
    """The module that makes tables of kept data."""
    return hook("tables")


@pytest.fixture(scope="module")
def appendix(tables):
    """The pages of the appendix with their tables, by name."""
    return {page.name: tables.with_tables(page.read_text(), page.parent) for page in (DOCS / "appendix").glob("*.md")}


def test_kept_data_are_in_tables_and_commands_are_scripts(appendix, tables):
    folder = DOCS / "appendix"
    found = [(page, link) for page in DOCS.rglob("*.md") for link in tables.LINK.findall(page.read_text())]
    links = {((page.parent / name).resolve().relative_to(folder).as_posix(), part) for page, (_, name, part) in found}
    entries = yaml.safe_load((folder / "tables.yaml").read_text())
    assert {part for name, part in links if name == "tables.yaml"} == set(entries)
    shown = {folder / name for name, _ in links} | {
        DOCS.parent / file for entry in entries.values() for file in entry["files"]
    }
    kept = {
        *folder.glob("*/*.csv"),
        *folder.glob("*.csv"),
        *(folder / "reports").iterdir(),
        *(folder / "trials").iterdir(),
    }
    assert kept - shown == {folder / "scores" / "cards-intervals.csv"}
    with (folder / "scores" / "variants.csv").open() as file:
        assert {row["of"] for row in csv.DictReader(file)} == {part for name, part in links if "variants" in name}
    scripts = sorted((folder / "commands").iterdir())
    assert len(scripts) > 5
    assert [path.name for path in scripts if subprocess.run(["bash", "-n", path], check=False).returncode] == []
    assert sum(line.startswith("| ") for page in appendix.values() for line in page.splitlines()) > 900


def test_tables_of_files(tables, tmp_path):
    (tmp_path / "a.csv").write_text("of,what,n,command\nDyck (2),a|b,1.5,run it\nDyck (2),c,,run it\nother,d,2,\n")
    shown = tables.with_tables("Before.\n\n[Two rows](a.csv#dyck-2)\n\nA [link](a.csv).\n", tmp_path)
    table = "| what | n |\n| --- | --: |\n| a\\|b | 1.5 |\n| c |  |\n"
    assert shown == f"Before.\n\n**[Two rows](a.csv)**\n\n{table}\nCommand: `run it`\n\n\nA [link](a.csv).\n"
    for link, message in (
        ("a.csv#none", "no rows of 'none'"),
        ("../docs/appendix/tables.yaml#none", "no entry 'none'"),
    ):
        with pytest.raises(ValueError, match=message):
            tables.with_tables(f"[x]({link})", tmp_path if link.startswith("a") else DOCS)
    (tmp_path / "bad.yaml").write_text("x: {files: [nowhere]}")
    with pytest.raises(ValueError, match="bad.yaml, x: .*nowhere"):
        tables.with_tables("[x](bad.yaml#x)", tmp_path)


def measured(text):
    """The numbers of a page that have a decimal point, and are in no code and no link."""
    for pattern in (r"```.*?```", r"`[^`]*`", r"\]\([^)]*\)", r"\b(?:torch|CUDA|Triton) [\d.]+"):
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return {Decimal(number) for number in re.findall(r"(?<![\w.,])\d+\.\d+(?![\w.]*\w)", text)}


def sections(page):
    """The text of each section of a page, with its subsections, by the anchor of its heading."""
    text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    heads = list(re.finditer(r"^(#+) (.*)$", text, re.MULTILINE))
    found = {}
    for i, head in enumerate(heads):
        end = next((later.start() for later in heads[i + 1 :] if len(later[1]) <= len(head[1])), len(text))
        anchor = re.sub(r"[^\w -]", "", head[2].lower()).replace(" ", "-")
        found[anchor] = text[head.start() : end]
    return found


def rounded(numbers):
    """Numbers, and the same to a decimal less."""
    return numbers | {n.quantize(Decimal(1).scaleb(n.as_tuple().exponent + 1), ROUND_HALF_UP) for n in numbers}


def in_tables(text):
    return measured("".join(line + "\n" for line in text.splitlines() if line.startswith("|")))


def test_the_numbers_of_the_results_are_those_of_tables(appendix):
    """Of the tables in those sections of the appendix that a page links to, as there or rounded to a decimal less.

    The cards of models count, too, and differences between parts of speech in the reports. The appendix's own sentences
    have numbers of its tables.
    """
    parts = {name: sections(page) for name, page in appendix.items()}
    reports = "".join(path.read_text() for path in (DOCS / "appendix" / "reports").iterdir())
    parts_of_speech = re.findall(r'"(?:difference|low|high|superiority)": -?([0-9.]+)', reports)
    common = {Decimal(number).quantize(Decimal("0.001"), ROUND_HALF_UP) for number in parts_of_speech}
    common |= {100 * number for number in common}  # in %
    for card in DOCS.parent.glob("models/*/README.md"):
        common |= measured(card.read_text())
    common |= measured((DOCS / "appendix" / "scores" / "cards-intervals.csv").read_text().replace(",", " "))
    results = sorted((DOCS / "results").glob("*.md"))
    unknown, count = {}, 0
    for page in [*results, DOCS / "index.md", DOCS.parent / "README.md", DOCS.parent / "models" / "README.md"]:
        linked = page.read_text() if page in results else "".join(result.read_text() for result in results)
        known = set(common)
        for name, anchor in re.findall(r"appendix/(\w+\.md)(?:#([\w-]+))?", linked):
            known |= in_tables(parts[name][anchor] if anchor else appendix[name])
        found = measured(page.read_text())
        count += len(found)
        unknown[str(page)] = found - rounded(known)
    for name, page in appendix.items():
        found = measured("".join(line + "\n" for line in page.splitlines() if not line.startswith(("|", "**"))))
        count += len(found)
        unknown[name] = found - rounded(common | in_tables(page))
    assert count > 200
    assert {name: sorted(map(str, numbers)) for name, numbers in unknown.items() if numbers} == {}
