"""YAML configurations, overrides, and the strictness of both."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from stack_lm.core.checks import build
from stack_lm.core.config_files import (
    dump_yaml,
    load_yaml,
    merge,
    parse_overrides,
    preset_names,
    preset_path,
    read_config,
    read_yaml,
    table_names,
)
from stack_lm.core.errors import InputError
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.run import load_table

RECIPES = Path(__file__).parents[2] / "recipes" / "configs"


@dataclass
class Inner:
    rate: float = 0.1
    steps: int | None = None
    kind: Literal["a", "b"] = "a"


@dataclass
class Outer:
    name: str = "x"
    flag: bool = False
    free: dict[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


def test_build():
    values = {"flag": True, "free": {"any": [1]}, "inner": {"rate": 2, "steps": 3, "kind": "b"}}
    outer = build(Outer, values)
    assert outer == Outer(flag=True, free={"any": [1]}, inner=Inner(2.0, 3, "b"))
    assert isinstance(outer.inner.rate, float)
    assert build(Outer, {"inner": {"steps": None}}).inner.steps is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nam": 1}, "unknown key 'nam'; the keys here are name, flag, free, inner"),
        ({"inner": {"rat": 1}}, "unknown key 'inner.rat'; the keys here are rate, steps, kind"),
        ({"inner": 3}, "inner must be a mapping of keys to values; got 3"),
        ({"inner": {"rate": "0.01"}}, "inner.rate must be a finite number; got '0.01'"),
    ],
)
def test_unknown_keys_and_wrong_types(values, message):
    with pytest.raises(InputError, match=message):
        build(Outer, values)


def test_overrides():
    overrides = parse_overrides(["name=y", "--inner.steps=5", "inner.rate=1.0e-3", "free.a.b=[1, 2]", "flag=true"])
    assert overrides == {"name": "y", "inner": {"steps": 5, "rate": 1e-3}, "free": {"a": {"b": [1, 2]}}, "flag": True}
    with pytest.raises(InputError, match="an override is written key.key=value; got 'steps'"):
        parse_overrides(["steps"])
    with pytest.raises(InputError, match="the value of 'a' cannot be read: not YAML"):
        parse_overrides(["a={"])


@pytest.mark.parametrize("text", ["1e-2", "1E5", "-3e+2", ".5e3", "1.5e3", "2.e-1", "+1e0"])
def test_an_exponent_makes_a_number(text):
    assert parse_overrides([f"rate={text}"]) == {"rate": float(text)}
    assert load_yaml(dump_yaml({"name": text})) == {"name": text}  # text that looks like one stays text
    assert load_yaml(f"[{text}x, x{text}, 1e, e5]") == [f"{text}x", f"x{text}", "1e", "e5"]


def test_a_pattern_that_yaml_takes_for_an_alias():
    with pytest.raises(InputError, match=r"; if it is a pattern of files, write \./\*\.mrg$"):
        parse_overrides(["data.trees=*.mrg"])
    assert parse_overrides(["data.trees=./*.mrg"]) == {"data": {"trees": "./*.mrg"}}


def test_extends(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text("name: base\ninner: {rate: 1.0, steps: 1}\n")
    (tmp_path / "more.yaml").write_text("inner: {steps: 2}\n")
    (tmp_path / "top.yaml").write_text("extends: [sub/base.yaml, more.yaml]\nflag: true\n")
    expected = {"name": "base", "inner": {"rate": 1.0, "steps": 2}, "flag": True}
    assert read_yaml(tmp_path / "top.yaml") == expected
    merge(expected, {"inner": {"rate": 3.0}})
    assert expected["inner"] == {"rate": 3.0, "steps": 2}


def test_a_preset_can_be_extended(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: merrill2019/brown_u1\nmodel: {hidden_size: 7}\n")
    expected = read_config("merrill2019/brown_u1")
    expected["model"]["hidden_size"] = 7
    assert read_config(str(tmp_path / "mine.yaml")) == expected


def test_a_mapping_changes_entries_of_a_list_and_adds_the_next():
    config = {"model": {"layers": [{"memory": "stack", "size": 4}, "attention"]}}
    merge(config, {"model": {"layers": {0: {"size": 8}, 2: "attention", "3": {"memory": "queue"}}}})
    assert config["model"]["layers"] == [{"memory": "stack", "size": 8}, "attention", "attention", {"memory": "queue"}]
    with pytest.raises(InputError, match=r"^layers\.5 is not an entry of .* has 4, .*; layers\.4 would add one$"):
        merge(config, {"model": {"layers": {5: "attention"}}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such configuration file"),
        ("- a\n", "must be a mapping of keys to values; it is a list"),
        ("a: [", "cannot be read: not YAML"),
        ("extends: missing.yaml\n", "no such configuration file: .*missing.yaml"),
        ("extends: {a: 1}\n", "extends must be a path, a preset's name, or a list of these; got {'a': 1}"),
        ("a: 1\nb: {c: 1, c: 2}\n", "not YAML: the key 'c' occurs twice"),
        ("a: &x [1]\nb: [*x, *x]\n", "not YAML: aliases are not allowed: \\*x"),
        ("a: " + "[" * 50_000, "it is nested too deep"),
        ("a: !!bool x", "cannot be read: a value does not match its tag"),
        ("a: !!python/object/apply:os.system [x]", "cannot be read: not YAML: could not determine a constructor"),
        ("a: '" + "x" * 2_000_000 + "'", "it has more than 1,000,000 characters"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_yaml(path)


@pytest.mark.parametrize("content", ["The dog barks .\n", "It said: the dog: barks .\n", "id,text\n"])
def test_a_text_in_the_place_of_a_configuration(tmp_path, content):
    path = tmp_path / "mine.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=r"; a text to train on is named by data.source=FILE \(of train lm\)"):
        read_yaml(path)


def test_a_file_comes_before_a_preset(tmp_path, monkeypatch):
    assert read_config("merrill2019/brown_u1") == read_config(RECIPES / "merrill2019" / "brown_u1.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merrill2019").mkdir()
    (tmp_path / "merrill2019" / "brown_u1").write_text("seed: 7\n")
    assert read_config("merrill2019/brown_u1") == {"seed": 7}


def test_preset_names():
    assert {f"{path.parent.name}/{path.stem}" for path in all_recipes()} == {*preset_names(), *table_names()}
    for name, similar in (
        ("brown_u1", "did you mean 'merrill2019/brown_u1'\\?"),
        ("merril2019/brown_u1", "did you mean 'merrill2019/brown_u1'\\?"),
        ("merrill2019/brown_u1.yaml", "did you mean 'merrill2019/brown_u1'\\?"),
        ("?", "no preset '\\?'; `stack-lm presets` lists all"),
        ("", "no preset ''; `stack-lm presets`"),
    ):
        with pytest.raises(InputError, match=similar):
            preset_path(name)
    with pytest.raises(InputError, match="no such configuration file: brown_u1, and no preset 'brown_u1'; did"):
        read_config("brown_u1")


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ("{papr: x}", "unknown key 'preset.papr'; the keys here are paper, table, task, sizes"),
    ],
)
def test_the_description_of_a_preset_is_checked(tmp_path, note, message):
    (tmp_path / "c.yaml").write_text(f"preset: {note}\nseed: 1\n")
    with pytest.raises(InputError, match=message):
        read_config(tmp_path / "c.yaml")


def all_recipes():
    return sorted(RECIPES.glob("*/*.yaml"))


@pytest.mark.parametrize("name", table_names())
def test_every_table_is_valid(name):
    assert load_table(name).rows


@pytest.mark.parametrize("name", preset_names())
def test_every_recipe_is_valid(name):
    import stack_lm
    from stack_lm.models.kinds import class_named
    from stack_lm.training.config import ClassificationConfig, RunConfig

    path = preset_path(name)
    fields = read_config(path)
    kind = RunConfig if "tokenizer" in fields else TaskConfig
    config = build(ClassificationConfig if path.stem.startswith("numpred") else kind, fields)
    config.check()
    (architecture,) = config.model.get("architectures", ["StackRNNForCausalLM"])
    model_class = class_named(architecture) or getattr(stack_lm, architecture)
    model_class.config_class(vocab_size=10_000, **config.model)
    # Each its own; the first paper's are without its name.
    name = path.stem.replace("_", "-")
    assert config.output_dir == ("runs/" if path.parent.name == "merrill2019" else f"runs/{path.parent.name}-") + name


def test_the_variants_of_the_paper_share_everything_else():
    from stack_lm.training.config import RunConfig

    for data in ("wikipedia", "brown", "linzen"):
        configs = [build(RunConfig, read_config(f"merrill2019/{data}_{v}")) for v in VARIANTS]
        for config, expected in zip(configs, VARIANTS.values(), strict=True):
            assert (config.data, config.tokenizer, config.training) == (
                configs[0].data, configs[0].tokenizer, configs[0].training,
            )  # fmt: skip
            varying = {key: config.model.pop(key, None) for key in ("memory", "push_control", "pop_control")}
            assert tuple(varying.values()) == expected
            for strength in ("push", "pop"):  # where strengths start is each one's own
                config.model.pop(f"{strength}_strength_init", None)
            assert config.model == configs[0].model


VARIANTS = {
    "u1": ("stack", "expected_value", 1.0),
    "d1": ("stack", 1.0, "expected_value"),
    "free": ("stack", "sigmoid", "expected_value"),
    "lstm": ("none", None, None),
}
