"""The allowed values of configurations: one vocabulary for dataclasses, models, memories and YAML files.

A field's type defines its allowed values: `int`, `str | None`, `Literal["a", "b"]`, another dataclass, or a type with a
check, such as `Annotated[int, Integer(1, 100)]`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import reprlib
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from .errors import InputError
from .messages import did_you_mean, unknown_key

Config = TypeVar("Config")


class Check:
    """A check, called with a key and a value. It returns the value, converted if no information is lost."""

    def accepts(self, value: Any) -> bool:
        """True if a value is of this kind; the call checks the entries of a list or a dataclass."""
        raise NotImplementedError

    def allowed(self, value: Any) -> str:
        """Describe the allowed values, to follow "must be"; the received value may add detail."""
        raise NotImplementedError

    def hint(self, value: Any) -> str:
        """Suggest the intended value, at the end of a message."""
        return ""

    def __call__(self, key: str, value: Any) -> Any:
        """Check a value.

        Raises:
            InputError: in one line, with the key, the allowed values and the value.
        """
        if not self.accepts(value):
            raise InputError(f"{key} must be {self.allowed(value)}; got {shown(value)}{self.hint(value)}")
        return value


@dataclass(frozen=True)
class Instance(Check):
    """Values of a class, which messages call by `name`."""

    kind: type
    name: str

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.kind)

    def allowed(self, value: Any) -> str:
        return "None (in YAML null)" if self.kind is types.NoneType and value == "None" else self.name


@dataclass(frozen=True)
class Integer(Check):
    """Integers in a range; the largest that JSON and arrays hold is 2^53."""

    minimum: int | None = None
    maximum: int = 2**53

    def accepts(self, value: Any) -> bool:
        return _is_integer(value) and (self.minimum is None or value >= self.minimum) and value <= self.maximum

    def allowed(self, value: Any) -> str:
        if _is_integer(value) and value > self.maximum:
            return f"an integer of at most {self.maximum:,}"
        return "an integer" if self.minimum is None else f"an integer of at least {self.minimum}"


@dataclass(frozen=True)
class Number(Check):
    """Finite numbers in a range; integers become floats."""

    minimum: float | None = None
    above: float | None = None
    below: float | None = None
    maximum: float | None = None

    def accepts(self, value: Any) -> bool:
        return (
            _is_finite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.maximum is None or value <= self.maximum)
        )

    def allowed(self, value: Any) -> str:
        limits = {"of at least": self.minimum, "above": self.above, "below": self.below, "at most": self.maximum}
        words = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if limit is not None)
        return f"a finite number {words}".rstrip()

    def __call__(self, key: str, value: Any) -> float:
        return float(super().__call__(key, value))


@dataclass(frozen=True)
class OneOf(Check):
    """One of some values, or of those that a function returns when called."""

    options: Collection[Any] | Callable[[], Collection[Any]]

    def accepts(self, value: Any) -> bool:
        return value in self._now()

    def allowed(self, value: Any) -> str:
        return "one of " + ", ".join(map(repr, self._now()))

    def hint(self, value: Any) -> str:
        return did_you_mean(value, (name for name in self._now() if isinstance(name, str)))

    def _now(self) -> Collection[Any]:
        return self.options() if callable(self.options) else self.options


@dataclass(frozen=True)
class ListOf(Check):
    """Lists whose entries all have the same check."""

    entry: Check

    def accepts(self, value: Any) -> bool:
        return isinstance(value, list)

    def allowed(self, value: Any) -> str:
        return "a list"

    def __call__(self, key: str, value: Any) -> list[Any]:
        entries = enumerate(super().__call__(key, value))
        return [self.entry(f"{key}[{i}]", entry) for i, entry in entries]


@dataclass(frozen=True)
class AnyOf(Check):
    """Values that one of several checks accepts; messages leave out those whose `allowed` is empty."""

    options: tuple[Check, ...]

    def accepts(self, value: Any) -> bool:
        return any(option.accepts(value) for option in self.options)

    def allowed(self, value: Any) -> str:
        return " or ".join(filter(None, (option.allowed(value) for option in self.options)))

    def hint(self, value: Any) -> str:
        return next(filter(None, (option.hint(value) for option in self.options)), "")

    def __call__(self, key: str, value: Any) -> Any:
        super().__call__(key, value)
        return next(option for option in self.options if option.accepts(value))(key, value)


@dataclass(frozen=True)
class Nested(Check):
    """A dataclass, or a mapping of keys to values from which one is built."""

    kind: type

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (dict, self.kind))

    def allowed(self, value: Any) -> str:
        return "a mapping of keys to values"

    def __call__(self, key: str, value: Any) -> Any:
        if isinstance(super().__call__(key, value), dict):
            return build(self.kind, value, f"{key}.")
        check_fields(value, f"{key}.")
        return value


Count = Annotated[int, Integer(1)]
CountOrZero = Annotated[int, Integer(0)]
Positive = Annotated[float, Number(above=0)]
NotNegative = Annotated[float, Number(minimum=0)]
Probability = Annotated[float, Number(minimum=0, below=1)]

_BY_TYPE: dict[Any, Check] = {
    int: Integer(),
    float: Number(),
    bool: Instance(bool, "True or False"),
    str: Instance(str, "a string"),
    list: Instance(list, "a list"),
    dict: Instance(dict, "a mapping"),
    types.NoneType: Instance(types.NoneType, "None"),
    Any: Instance(object, "anything"),
}
_of_classes: dict[type, dict[str, Check]] = {}


@cache
def check_of(kind: Any) -> Check:
    """The check of a type, or of a check that replaces it."""
    if isinstance(kind, Check):
        return kind
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        checks = [extra for extra in kind.__metadata__ if isinstance(extra, Check)]
        return checks[0] if checks else check_of(arguments[0])
    if origin in (Union, types.UnionType):
        return AnyOf(tuple(map(check_of, arguments)))
    if origin is Literal:
        return OneOf(arguments)
    if origin is list:
        return ListOf(check_of(arguments[0]))
    if dataclasses.is_dataclass(kind):
        return Nested(kind)  # type: ignore[arg-type]  # a class, not an instance of it
    plain = origin or kind
    return _BY_TYPE.get(plain if isinstance(plain, type) else Any) or Instance(plain, f"of type {plain.__name__}")


def undecided(check: Check) -> Check:
    """A check that also accepts None, without mentioning it: another part of the configuration then decides."""
    return check if check.accepts(None) else AnyOf((check, Instance(types.NoneType, "")))


def checks_of(cls: type) -> dict[str, Check]:
    """The checks of a dataclass's fields; a field whose default is None may stay None, whatever its type.

    Fields inherited from transformers are not included: transformers checks those.
    """
    if cls not in _of_classes:
        kinds: dict[str, Any] = {}
        for base in reversed(list(_own_classes(cls))):
            kinds |= inspect.get_annotations(base, eval_str=True)
        own = [(field, check_of(kinds[field.name])) for field in dataclasses.fields(cls) if field.name in kinds]
        _of_classes[cls] = {f.name: undecided(check) if f.default is None else check for f, check in own}
    return _of_classes[cls]


def check_fields(config: Any, where: str = "") -> None:
    """Check the fields of a dataclass that was built in Python, and those of dataclasses inside it.

    Args:
        config: the dataclass.
        where: the key above its fields, for messages.

    Raises:
        InputError: see `Check`.
    """
    for name, check in checks_of(type(config)).items():
        check(where + name, getattr(config, name))


def build(cls: type[Config], values: dict[str, Any], where: str = "") -> Config:
    """Build a dataclass, or a configuration of transformers, from nested mappings.

    Args:
        cls: the class. If its `__post_init__` takes further keyword arguments, it must reject unknown ones itself.
        values: the values by field name; fields with defaults may be left out.
        where: the key above `values`, for messages.

    Raises:
        InputError: for an unknown or missing key, or a value that its field does not allow.
    """
    checks, fields = checks_of(cls), dataclasses.fields(cls)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    aliases, more = getattr(cls, "attribute_map", {}), _takes_more(cls)
    made: dict[str, Any] = {}
    for key, value in values.items():
        name = aliases.get(key, key)
        if not (name in names or (more and isinstance(name, str))):
            raise unknown_key(where, key, names, _below(checks, key, where))
        made[name] = checks[name](where + key, value) if name in checks else value
    for field in fields:
        if field.name not in made and field.default is field.default_factory is dataclasses.MISSING:
            raise InputError(f"the key {where + field.name!r} is missing")
    try:
        return cls(**made)
    except Exception as error:
        from huggingface_hub.errors import StrictDataclassError  # raised by checks of transformers' configurations

        if not isinstance(error, (ValueError, StrictDataclassError)):
            raise
        message = " ".join(str(error).split())
        raise InputError(f"{where.rstrip('.')}: {message}" if where else message) from error


def _below(checks: dict[str, Check], key: Any, where: str) -> list[str]:
    """The keys of that name in the mappings among a mapping's values."""
    return [
        f"{where}{name}.{key}"
        for name, check in checks.items()
        if isinstance(check, Nested) and key in checks_of(check.kind)
    ]


def shown(value: Any) -> str:
    """A value in a message, whatever its size."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, 80, 80
    return short.repr(value)


def _own_classes(cls: type) -> Iterator[type]:
    """A class and its bases, without those of transformers, which imports its types only for type checkers."""
    return (base for base in cls.__mro__ if base.__module__.partition(".")[0] != "transformers")


def _takes_more(cls: type) -> bool:
    made = next((vars(base)["__post_init__"] for base in _own_classes(cls) if "__post_init__" in vars(base)), None)
    parameters = inspect.signature(made).parameters.values() if made else ()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def compile_pattern(pattern: str, option: str = "--rows") -> re.Pattern[str]:
    """Compile the regular expression of a command-line option.

    Raises:
        InputError: if it is invalid.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(f"{option} must be a regular expression; got {pattern!r} ({error})") from error


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return Integer().accepts(value) or (isinstance(value, float) and math.isfinite(value))


def is_number(text: str) -> bool:
    """True if a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
