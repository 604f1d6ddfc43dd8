"""Configuration files: strict YAML, presets, and overrides of single keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from .checks import check_of, shown
from .errors import InputError
from .messages import did_you_mean, similar_path

CONFIG_FILE = "training_config.yaml"
"""The file to which a run writes its configuration."""
METRICS_FILE = "metrics.jsonl"
"""The file to which a run writes its metrics, a record a line."""
_LONGEST = 1_000_000  # characters of a file
_TEXT = "; a text to train on is named by data.source=FILE (of train lm) or data.train=FILE (of train classifier)"


@dataclass(frozen=True)
class PresetNote:
    """The key `preset` of a configuration, which names its paper and tasks.

    Attributes:
        paper: authors and year.
        table: the tables and figures with the model's results.
        task: its tasks in those tables.
        sizes: fields of the model's configuration that come from the data, as assumed in its parameter count.
    """

    paper: str
    table: str
    task: str
    sizes: dict[str, Any]


def preset_names() -> list[str]:
    """The names of the presets, such as "merrill2019/brown_u1"."""
    return [name for name, is_table in _listed().items() if not is_table]


def table_names() -> list[str]:
    """The names of the tables of presets, such as "hao2018/table1"."""
    return [name for name, is_table in _listed().items() if is_table]


def preset_path(name: str, *, tables: bool = False) -> Path:
    """The file of a preset.

    Args:
        name: the name of the preset.
        tables: whether it may also be a table.

    Raises:
        InputError: if there is no preset of that name; the message suggests similar names.
    """
    names = preset_names() + (table_names() if tables else [])
    if name in names:
        return _presets() / f"{name}.yaml"
    containing = [known for known in names if len(name) > 2 and name in known]
    hint = f"; did you mean {' or '.join(map(repr, containing[:3]))}?" if containing else did_you_mean(name, names)
    raise InputError(f"no preset {name!r}{hint or ';'} `stack-lm presets` lists all")


@cache
def _listed() -> dict[str, bool]:
    """The names of presets and tables, and whether each is a table: only tables have rows or networks."""
    texts = {
        f"{path.parent.name}/{path.stem}": path.read_text(encoding="utf-8") for path in _presets().glob("*/*.yaml")
    }
    return {
        name: re.search("^(rows|networks):", text, re.MULTILINE) is not None for name, text in sorted(texts.items())
    }


def _presets() -> Path:
    return Path(str(files("stack_lm.configs")))


def read_config(source: str | Path) -> dict[str, Any]:
    """Read a training configuration, without its `preset` key.

    Args:
        source: a YAML file, or the name of a preset if there is no such file.

    Raises:
        InputError: if there is neither, or for a file that `read_yaml` rejects.
    """
    path = Path(source)
    if not path.exists():
        try:
            path = preset_path(str(source))
        except InputError as error:
            raise InputError(f"no such configuration file: {source}, and {error}") from error
    values = read_yaml(path)
    note = values.pop("preset", None)
    if note is not None:
        check_of(PresetNote)("preset", note)
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file, and before it the files under its key `extends`.

    These are paths relative to the file, or presets: one, or a list. Later files and the file itself override single
    keys of earlier ones. The key `plugins`, which runs of earlier versions have, is left out.

    Raises:
        InputError: if a file is missing, is not YAML, or is not a mapping.
    """
    merged: dict[str, Any] = {}
    for _, content in read_layers(path):
        merge(merged, content)
    merged.pop("plugins", None)
    return merged


def read_run_config(directory: Path) -> dict[str, Any]:
    """Read the configuration that a run has written to its directory; empty if there is none.

    Raises:
        InputError: as `read_yaml`.
    """
    path = directory / CONFIG_FILE
    return read_yaml(path) if path.is_file() else {}


def read_layers(path: Path, extended_by: tuple[Path, ...] = ()) -> list[tuple[Path, dict[str, Any]]]:
    """The files that make up a configuration, in the order in which `read_yaml` merges them, each with its own keys.

    Args:
        path: the path of the file.
        extended_by: the files that extend it, directly or not, which it must not extend.

    Raises:
        InputError: see `read_yaml`.
    """
    if not path.is_file():
        raise InputError(f"no such configuration file: {path}{similar_path(path)}")
    if any(path.samefile(child) for child in extended_by):
        raise InputError(f"a configuration cannot extend itself: {' -> '.join(map(str, (*extended_by, path)))}")
    hint = "" if path.suffix in (".yaml", ".yml") else _TEXT
    try:
        content = load_yaml(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}{hint}") from error
    if content is None:
        raise InputError(f"{path} is empty")
    if not isinstance(content, dict):
        raise InputError(f"{path} must be a mapping of keys to values; it is a {type(content).__name__}{hint}")
    parents = content.pop("extends", [])
    if isinstance(parents, str):
        parents = [parents]
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise InputError(f"{path}: extends must be a path, a preset's name, or a list of these; got {shown(parents)}")
    chain = (*extended_by, path)
    layers = []
    for parent in parents:
        file = path.parent / parent
        layers += read_layers(preset_path(parent) if not file.exists() and parent in preset_names() else file, chain)
    return [*layers, (path, content)]


class _StrictLoader(yaml.SafeLoader):
    """YAML without repeated keys and aliases: a few nested aliases can expand to billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"aliases are not allowed: *{self.peek_event().anchor}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = next((key for i, key in enumerate(keys) if key in keys[:i]), keys)
            raise yaml.YAMLError(f"the key {shown(twice)} occurs twice")
        return mapping


class _Dumper(yaml.SafeDumper):
    """YAML in which text that looks like a number to `_StrictLoader` is in quotation marks."""


for _kind in (_StrictLoader, _Dumper):  # YAML 1.1 takes an exponent without a point, as in 1e-2, for text
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def dump_yaml(value: Any, **options: Any) -> str:
    """A value as YAML that `load_yaml` reads, in the order of its keys; see `yaml.dump` for the options."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, **options)
    return text


def load_yaml(text: str) -> Any:
    """The value of a YAML text without aliases and repeated keys.

    Raises:
        ValueError: in one line, for text that is not YAML, too long, too deep or too large.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST:,} characters")
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except (LookupError, AttributeError) as error:  # from PyYAML, for a tag such as !!bool before another value
        raise ValueError("a value does not match its tag") from error


def merge(base: dict[str, Any], over: dict[str, Any]) -> None:
    """Put `over` into `base`, key by key, in nested mappings too; a mapping changes entries of a list, by number.

    The number after that of the last entry adds one.

    Raises:
        InputError: for any other number that a list lacks.
    """
    for key, value in over.items():
        current = base.get(key)
        if isinstance(value, dict) and isinstance(current, dict):
            merge(current, value)
        elif isinstance(value, dict) and isinstance(current, list):
            base[key] = _merge_entries(key, current, value)
        else:
            base[key] = value


def _merge_entries(name: str, current: Sequence[Any], over: dict[Any, Any]) -> list[Any]:
    entries: dict[str, Any] = {str(number): entry for number, entry in enumerate(current)}
    for number, value in over.items():
        if str(number) not in (*entries, str(len(entries))):
            raise InputError(
                f"{name}.{number} is not an entry of the list {name}, which has {len(current)}, numbered from 0; "
                f"{name}.{len(current)} would add one"
            )
        merge(entries, {str(number): value})
    return list(entries.values())


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Overrides such as `training.epochs=2` or `--training.epochs=2` as nested mappings; values are YAML.

    Of several values of a key, the last one counts, so that scripts can override their own settings.

    Raises:
        InputError: for an argument that is not a key and a value.
    """
    overrides: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.removeprefix("--").partition("=")
        if not equals or not all(key.split(".")):
            raise InputError(f"an override is written key.key=value; got {argument!r}")
        try:
            value = load_yaml(text)
        except ValueError as error:
            hint = f"; if it is a pattern of files, write ./{text}" if text.startswith("*") else ""
            raise InputError(f"the value of {key!r} cannot be read: {error}{hint}") from error
        for part in reversed(key.split(".")):
            value = {part: value}
        merge(overrides, value)
    return overrides
