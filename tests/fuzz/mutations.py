"""Damage to files: to their bytes, to their lines, and to the structure that their format has."""

from __future__ import annotations

import json
import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[random.Random, bytes], bytes]

NUMBERS = (
    0, 1, -1, 2, 3, 10**6, 10**9, 10**12, 2**31, 2**63, -(2**63), 10**18, 10**30, 10**400,
    0.5, -0.5, 1e-300, 1e300, 1.7e308, float("inf"), float("-inf"), float("nan"), -0.0,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "\n", "\t", "None", "nan", "-1", "1e999", "0", "true", "[bold]", "[/]", ":smile:", "$x_{$", "%s",
    "{}", "nope/nope", "./nope", "~", "-", "<unk>", "<pad>", "\u202e", "\u00a0", "\ufeff", "\U0001f600", "e\u0301",
    "\u0000", "\ud800", "x" * 5_000, "x " * 5_000, "(" * 2_000, "\x1b[31m", "stack_rnn", "stack", "gpt2", "/dev/null",
    "cuda", "__class__",
)  # fmt: skip


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """A value of any type, of any size."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {rng.choice(TEXTS): any_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return _nested(rng)


def _nested(rng: random.Random) -> Any:
    value: Any = rng.choice(TEXTS[:4])
    for _ in range(rng.choice((3, 50, 500))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


# --- values


def damage_value(rng: random.Random, value: Any) -> Any:
    """Damage a value of JSON or YAML in one place."""
    places = list(_places(value))
    if not places:
        return any_value(rng)
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = holder.pop(key)
    elif kind == 2 and isinstance(holder, dict):
        holder[rng.choice([*TEXTS, *holder])] = any_value(rng)
    elif kind == 3:
        other, place = rng.choice(places)
        holder[key], other[place] = other[place], holder[key]
    elif kind == 4:
        holder[key] = [holder[key]]
    elif kind == 5 and isinstance(holder[key], (int, float)):
        holder[key] = rng.choice(NUMBERS)
    elif kind == 6 and isinstance(holder[key], list) and holder[key]:
        holder[key] = holder[key] * rng.choice((2, 1000))
    else:
        holder[key] = any_value(rng)
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    """The places in a value that hold another, the outer ones first: a list or dictionary, and an index or key."""
    found: list[tuple[Any, Any]] = []
    pending = [value]
    while pending and len(found) < 2000:
        holder = pending.pop(0)
        keys = (
            list(holder) if isinstance(holder, dict) else list(range(len(holder))) if isinstance(holder, list) else []
        )
        found += [(holder, key) for key in keys]
        pending += [holder[key] for key in keys]
    return found


def _json(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=len(repr(value)) % 2 == 0)
    except (RecursionError, ValueError):  # a value may hold itself by now
        text = "[" * 100_000
    return text.encode("utf-8", "surrogatepass")


def damage_json(rng: random.Random, raw: bytes) -> bytes:
    """Damage a JSON file."""
    kind = rng.randrange(11)
    if kind == 0:
        return b"[" * rng.choice((10, 1000, 100_000)) + b"]" * rng.choice((0, 10))
    if kind == 2:
        numbers = list(re.finditer(rb"\d+", raw))
        if numbers:
            found = rng.choice(numbers)
            return raw[: found.start()] + b"9" * rng.choice((20, 500, 5000)) + raw[found.end() :]
    value = json.loads(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = damage_value(rng, value)
    return _json(value)


def damage_json_lines(rng: random.Random, raw: bytes) -> bytes:
    """Damage one record of JSON lines, or the lines."""
    lines = raw.split(b"\n")
    place = rng.randrange(max(1, len(lines) - 1))
    if rng.random() < 0.7:
        lines[place] = damage_json(rng, lines[place])
        return b"\n".join(lines)
    return damage_lines(rng, raw)


def damage_yaml(rng: random.Random, raw: bytes) -> bytes:
    """Damage a YAML file."""
    kind = rng.randrange(8)
    if kind == 0:
        bomb = b"a: &a [x, x, x, x, x, x, x, x, x]\n"
        for name, before in zip(b"bcdefghi", b"abcdefgh", strict=True):
            bomb += b"%c: &%c [" % (name, name) + b", ".join([b"*%c" % before] * 9) + b"]\n"
        return bomb + raw
    if kind == 1:
        tags = (b"!!python/object/apply:os.system [ls]", b"!!binary xx", b"&a [*a]", b"2020-13-45", b"*none", b"? x")
        return re.sub(rb": [^\n]+", lambda match: b": " + rng.choice(tags), raw, count=rng.choice((1, 2)))
    if kind == 2:
        return raw + b"extends: " + rng.choice((b"train.yaml", b"[5]", b"/", b"''")) + b"\n"
    value = yaml.safe_load(raw)
    for _ in range(rng.choice((1, 1, 2))):
        value = damage_value(rng, value)
    try:
        return yaml.safe_dump(value, sort_keys=False).encode("utf-8", "surrogatepass")
    except (RecursionError, yaml.YAMLError):
        return b"a: " + b"[" * 10_000


# --- weights


def damage_safetensors(rng: random.Random, raw: bytes) -> bytes:
    """Damage the header of safetensors, its length, or the numbers."""
    (size,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    kind = rng.randrange(6)
    if kind == 0:
        return struct.pack("<Q", rng.choice((0, 1, size - 1, size + 1, 2**31, 2**62, 2**64 - 1))) + raw[8:]
    if kind == 1:
        numbers = (float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-45)
        place = 4 * rng.randrange(len(data) // 4)
        n = rng.choice((1, 1, len(data) // 4 - place // 4))
        data = data[:place] + struct.pack("<f", rng.choice(numbers)) * n + data[place + 4 * n :]
    elif kind == 2:
        name = rng.choice([name for name in header if name != "__metadata__"])
        key, values = rng.choice(
            (
                ("dtype", ("F64", "F16", "I64", "BOOL", "F8_E4M3", "X", 3)),
                ("shape", ([], [0], [2**40, 2**40], [-1], "x")),
                ("data_offsets", ([0, 0], [0, 2**63], [8, 4], [0], "x")),
            )
        )
        header[name][key] = rng.choice(values)
    elif kind == 3:
        del header[rng.choice(list(header))]
    else:
        header = damage_value(rng, header)
    text = _json(header)
    return struct.pack("<Q", len(text)) + text + data


# --- lines


def damage_lines(rng: random.Random, raw: bytes) -> bytes:
    """Damage the lines of a text, or the words or cells of a line."""
    lines = raw.split(b"\n")
    place = rng.randrange(len(lines))
    kind = rng.randrange(10)
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, rng.choice(lines))
    elif kind == 2:
        lines.insert(place, rng.choice((b"", b" ", b"\t", b"\x0c", b"\x85", "\u2028".encode(), b"#", b'"', b"<eos>")))
    elif kind == 3:
        rng.shuffle(lines)
    elif kind == 4:
        lines[place] = lines[place] * rng.choice((2, 20_000))
    elif kind == 5:
        return b"\n".join(lines) * rng.choice((2, 100))
    elif kind == 6:
        return b"\r\n".join(lines) if rng.random() < 0.5 else b"\r".join(lines)
    elif kind == 7:
        lines[place] = lines[place][: rng.randrange(len(lines[place]) + 1)]
    else:
        cells = re.split(rb"([ \t()]+)", lines[place])
        marks = (b"\t", b"(", b")", b'"', b"( )", b"(-NONE- *)", str(rng.choice(NUMBERS)).encode())
        cells[rng.randrange(len(cells))] = rng.choice((*marks, rng.choice(TEXTS).encode("utf-8", "surrogatepass")))
        lines[place] = b"".join(cells)
    return b"\n".join(lines)


def damage_brackets(rng: random.Random, raw: bytes) -> bytes:
    """Damage a treebank."""
    kind = rng.randrange(6)
    if kind == 0:
        n = rng.choice((100, 5_000, 50_000))
        return raw + b"(X " * n + b"(X a)" + b")" * rng.choice((n, n - 1, n + 1)) + b"\n"
    if kind == 1:
        return raw + b"(S " + b"(X a) " * rng.choice((500, 5_000)) + b")\n"
    if kind == 2:
        return raw.replace(b"(", rng.choice((b"", b"[", b"((", b"( ")), rng.choice((1, -1)))
    if kind == 3:
        return re.sub(rb"\((\S+) (\S+)\)", rng.choice((rb"(-NONE- *)", rb"\2", rb"(\1\2)", rb"(\2 \1)", rb"()")), raw)
    return damage_lines(rng, raw)


MARK = "\ufeff".encode()
SPACES = [space.encode() for space in ("\u00a0", "\u2009", "\u202f", "\u3000", "\u0085", "\u2028")]
WORDLESS = (
    b"(())",
    b"( (S (-NONE- *)) )",
    b"(S (X a)",
    b"(S (X a)))",
    b"",
    b"(X (X -LRB-) (X a\\/b))",
    b"-LRB- a -RRB-",
)


def damage_by_hand(rng: random.Random, raw: bytes) -> bytes:
    """What people and programs do to texts and trees: marks where files were joined, no empty lines, other spaces."""
    lines = raw.split(b"\n")
    kind = rng.randrange(4)
    if kind == 0 and b"" in lines[:-1]:
        return b"\n".join(filter(None, lines)) + b"\n"
    for place in rng.sample(range(len(lines)), min(len(lines), rng.choice((1, 2, 5)))):
        line = lines[place]
        at = rng.choice((0, 0, rng.randrange(len(line) + 1)))
        if kind < 2:
            lines[place] = line[:at] + MARK + line[at:]
        elif kind == 2:
            spaces = [match.start() for match in re.finditer(b" ", line)]
            at = rng.choice((at, *spaces))
            lines[place] = line[:at] + rng.choice(SPACES) + line[at + rng.randrange(2) :]
        else:
            lines[place] = rng.choice(WORDLESS)
    return b"\n".join(lines)


# --- bytes


def damage_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Damage the bytes of a file, whatever they mean."""
    if not raw:
        return b"\0"
    start = rng.randrange(len(raw))
    stop = min(len(raw), start + rng.choice((1, 2, 8, 64)))
    kind = rng.randrange(11)
    if kind == 0:
        return raw[:start]
    if kind == 1:
        return raw[:start] + rng.randbytes(stop - start) + raw[stop:]
    if kind == 2:
        return raw[:start] + b"\0" * rng.choice((1, 100)) + raw[start:]
    if kind == 3:
        return raw[:start] + raw[stop:]
    if kind == 4:
        return raw[:start] + raw[start:stop] * rng.choice((2, 1000)) + raw[stop:]
    if kind == 5:
        return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"PK\x03\x04", b"\x80\x02")) + raw
    if kind == 6:
        return raw.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-7")))
    if kind == 7:
        return rng.choice((b"", b"\n", b" \n", b"\0", b"\xff" * 100, b"\0" * 100_000, rng.randbytes(500)))
    if kind == 8:
        return bytearray(raw[:start]) + bytes([raw[start] ^ 1 << rng.randrange(8)]) + raw[start + 1 :]
    if kind == 9:
        return raw[:start] + b"x" * rng.choice((1000, 20_000_000)) + raw[start:]
    return raw[:start] + rng.choice((b"\xc3(", b"\xed\xa0\x80", b"\xf8", b"\xc2\x85", b"\r", b"\x0b")) + raw[start:]


def damage_table(rng: random.Random, raw: bytes) -> bytes:
    """Damage the cells of a table of text: its marks, its header, the number of columns."""
    lines = raw.split(b"\n")
    place = 0 if rng.random() < 0.3 else rng.randrange(len(lines))
    at = rng.randrange(len(lines[place]) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        lines[place] = lines[place][:at] + rng.choice((b'"', b",", b"\t", b'""', b"\r", b"\0")) + lines[place][at:]
    elif kind == 1:
        lines[place] = rng.choice((b",", b"\t")).join([lines[place]] * rng.choice((2, 1000)))
    elif kind == 2:
        lines[0] = rng.choice((b"", b"sentence", b"sentence,sentence", b"id;sentence", b'{"sentence": 1}', lines[-2]))
    elif kind == 3:
        lines[place] = b'"' + b"a\n" * rng.choice((3, 100_000))
    else:  # a column twice, or of one name with another
        mark = b"\t" if b"\t" in lines[0] else b","
        name = rng.choice(lines[0].split(mark))
        lines = [line + mark + (name if i == 0 else b"1") for i, line in enumerate(lines) if line]
    return b"\n".join(lines)


STRUCTURED: dict[str, tuple[Damage, ...]] = {
    ".json": (damage_json,),
    ".jsonl": (damage_json_lines,),
    ".yaml": (damage_yaml, damage_yaml, damage_lines),
    ".safetensors": (damage_safetensors,),
    ".mrg": (damage_brackets, damage_lines, damage_by_hand),
    **dict.fromkeys((".txt", ".conllu"), (damage_lines, damage_by_hand)),
    **dict.fromkeys((".parquet", ".gz", ".xz", ".pickle"), (damage_bytes,)),
    **dict.fromkeys((".csv", ".tsv"), (damage_table, damage_lines, damage_by_hand)),
}


def damage_file(rng: random.Random, path: Path) -> str:
    """Damage a file; returns in a word how."""
    if rng.random() < 0.06:
        return _replace(rng, path)
    usual = STRUCTURED.get(path.suffix, (damage_lines,))
    damage = rng.choice(usual) if rng.random() < 0.75 else damage_bytes
    path.write_bytes(damage(rng, path.read_bytes()))
    return damage.__name__


def _replace(rng: random.Random, path: Path) -> str:
    """Something else in the place of a file."""
    content = path.read_bytes()
    path.unlink()
    kind = rng.choice(("missing", "directory", "link to itself", "link to nothing", "link", "device", "pipe"))
    links = {
        "link to itself": path,
        "link to nothing": path.with_name("nothing"),
        "link": path.with_name("elsewhere"),
        "device": rng.choice(("/dev/zero", "/dev/null", "/dev/full")),
    }
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in links:
        path.with_name("elsewhere").write_bytes(content)
        path.symlink_to(links[kind])
    return kind


def damage_arguments(rng: random.Random, arguments: list[str]) -> list[str]:
    """Damage one argument of a command line, but for the name of the command."""
    place = rng.randrange(1, len(arguments)) if len(arguments) > 1 else 0
    kind = rng.randrange(6)
    texts = [text for text in TEXTS if "\0" not in text]
    if kind == 0:
        return arguments[:place] + arguments[place + 1 :]
    if kind == 1:
        return [*arguments[:place], rng.choice(texts), *arguments[place + 1 :]]
    if kind == 2:
        return [*arguments[:place], str(rng.choice(NUMBERS)), *arguments[place + 1 :]]
    if kind == 3:
        options = "--device --batch-tokens --limit --held-out --by --max-words --base --column "
        options += "--word-strength --layer --seeds --rule --against --ensemble"
        values = [*texts, *map(str, NUMBERS), "cpu", "meta", "generated:1000000000000"]
        return [*arguments, rng.choice(options.split()), rng.choice(values)]
    if kind == 4:
        return _other_output(rng, arguments)
    return [*arguments[:place], rng.choice(arguments), *arguments[place:]]


def _other_output(rng: random.Random, arguments: list[str]) -> list[str]:
    """A result in a place where none can be, or that another command line would mean."""
    places = [i for i, argument in enumerate(arguments) if "/out/" in argument]
    if not places:
        return [*arguments, "--output", rng.choice(arguments)]
    place = rng.choice(places)
    folder, _, name = arguments[place].partition("/out/")
    below = ("absent/", "x" * 300, "", "\u202e\U0001f600 '")
    others = [*(f"{folder}/out/{part}{name}" for part in below), f"{folder}/text.txt/{name}", "/dev/full", ""]
    others += [argument for argument in arguments if "/" in argument]
    return [*arguments[:place], rng.choice(others), *arguments[place + 1 :]]
