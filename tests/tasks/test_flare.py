"""The languages of FLaRe: membership, next symbols and probabilities against all strings up to a length."""

import random
import re
from collections import Counter
from itertools import pairwise, product
from math import exp, inf, isqrt, log

import pytest

from stack_lm.core.errors import InputError
from stack_lm.tasks import make_task, task_names

NAMES = [name.split("/")[1] for name in task_names() if name.startswith("flare/")]
TASKS = {name: make_task(f"flare/{name}") for name in NAMES}
# Up to these lengths all strings are looked at; sets need members that are longer by one completion.
LONGEST = {2: 10, 3: 7, 4: 6, 5: 6, 6: 5, 8: 5, 9: 5}


def cycle(s):
    found = re.fullmatch(r"([<>=]*)([0-4])", "".join(s))
    return bool(found) and (found[1].count(">") - found[1].count("<")) % 5 == int(found[2])


def simple(s):
    if not re.fullmatch(r"[0-4]([-+*][0-4])*=[0-4]", "".join(s)):
        return False
    value = int(s[0])
    for sign, digit in zip(s[1:-2:2], s[2:-2:2], strict=True):
        value = eval(f"({value}){sign}{digit}")
    return value % 5 == int(s[-1])


def dyck(s):
    text = "".join(s)
    if any(sum(1 if b[0] == "(" else -1 for b in s[:end]) > 3 for end in range(len(s))):
        return False
    while (shorter := re.sub(r"\(0\)0|\(1\)1", "", text)) != text:
        text = shorter
    return not text


def stack(s):
    found = re.fullmatch(r"([01]*)((?:o|u0|u1)*)#([01]*)", "".join(s).replace("PUSH", "u").replace("POP", "o"))
    if not found:
        return False
    held = found[1]
    for operation in re.findall(r"o|u.", found[2]):
        if operation == "o" and not held:
            return False
        held = held[:-1] if operation == "o" else held + operation[1]
    return held[::-1] == found[3]


def marked(image):
    def accepts(s):
        word, mark, rest = "".join(s).partition("#")
        return bool(mark) and rest == image(word)

    return accepts


def equation(separator, compute):
    def accepts(s):
        pattern = f"([01]+){separator}([01]+)=([01]+)" if separator else "([01]+)=([01]+)"
        found = re.fullmatch(pattern, "".join(s))
        if not found:
            return False
        *operands, result = (sum(int(bit) * 2**place for place, bit in enumerate(bits)) for bits in found.groups())
        return compute(*operands) == result

    return accepts


def hidden(s):
    text = "".join(s).replace("_", "1")
    return s.count("_") == 1 and len(s) % 2 == 0 and text[: len(s) // 2] * 2 == text


MEMBERS = {
    "even_pairs": lambda s: sum(a != b for a, b in pairwise(s)) % 2 == 0,
    "repeat_01": lambda s: "".join(s) == "01" * (len(s) // 2),
    "parity": lambda s: s.count("1") % 2 == 1,
    "cycle_navigation": cycle,
    "modular_arithmetic_simple": simple,
    "dyck_2_3": dyck,
    "first": lambda s: s[:1] == ("1",),
    "majority": lambda s: 2 * s.count("1") > len(s),
    "stack_manipulation": stack,
    "marked_reversal": marked(lambda w: w[::-1]),
    "unmarked_reversal": lambda s: len(s) % 2 == 0 and s == s[::-1],
    "marked_copy": marked(lambda w: w),
    "missing_duplicate_string": hidden,
    "odds_first": marked(lambda w: w[::2] + w[1::2]),
    "binary_addition": equation(r"\+", lambda x, y: x + y),
    "binary_multiplication": equation("×", lambda x, y: x * y),
    "compute_sqrt": equation("", isqrt),
    "bucket_sort": marked(lambda w: "".join(sorted(w))),
}


def strings(task):
    """All strings up to the length that is looked at."""
    longest = LONGEST[len(task.symbols)]
    return (s for n in range(longest + 1) for s in product(task.symbols, repeat=n))


def test_there_are_eighteen_languages():
    assert sorted(NAMES) == sorted(MEMBERS)
    assert len(NAMES) == 18


@pytest.mark.parametrize("name", NAMES)
def test_members_and_next_symbols_of_all_short_strings(name):
    """A set is that of the symbols after which some member goes on, where short members show it."""
    task = TASKS[name]
    members = [s for s in strings(task) if MEMBERS[name](s)]
    assert members == [s for s in strings(task) if task.accepts(s)]
    followed = {}
    for member in members:
        for place, symbol in enumerate((*member, "</s>")):
            followed.setdefault(member[:place], set()).add(symbol)
    for prefix, symbols in followed.items():
        said = task.next_symbols(prefix)[-1]
        assert symbols <= said
        # Of longer prefixes the members are too long to look for.
        for symbol in said - symbols - {"</s>"} if len(prefix) < 5 else ():
            assert completed(task, (*prefix, symbol))


def completed(task, prefix):
    """Whether following the sets leads to a member, without ever being stuck."""
    agenda = {prefix}
    for _ in range(8):
        if any(MEMBERS[task.name.split("/")[1]](s) for s in agenda):
            return True
        agenda = {(*s, symbol) for s in sorted(agenda)[:200] for symbol in task.next_symbols(s)[-1] - {"</s>"}}
    return False


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(TASKS[name], "log_probability")])
def test_probabilities_are_those_of_the_draws(name):
    task = TASKS[name]
    longest = LONGEST[len(task.symbols)] - (len(task.symbols) > 4)
    logs = {s: task.log_probability(s, longest) for s in strings(task)}
    assert sum(map(exp, logs.values())) == pytest.approx(1, abs=1e-12)
    assert {s for s, of in logs.items() if of > -inf} == {s for s in logs if MEMBERS[name](s) and len(s) <= longest}
    rng = random.Random(0)
    drawn = Counter(task.positive(rng, longest) for _ in range(2000))
    for string, number in drawn.items():
        share = exp(logs[string])
        assert number / 2000 == pytest.approx(share, abs=5 * (share / 2000) ** 0.5 + 1e-3)


def test_probabilities_of_long_strings():
    task = TASKS["repeat_01"]
    assert task.log_probability(("0", "1") * 17, 40) == pytest.approx(-log(21))
    assert task.log_probability(("0", "1") * 1000, 2000) == pytest.approx(-log(1001))
    task = TASKS["parity"]  # not uniform: 1/2 at each step from an even number of ones, 1/3 from an odd one
    difference = task.log_probability(("1", "0", "0"), 40) - task.log_probability(("0", "0", "1"), 40)
    assert difference == pytest.approx(2 * log(2 / 3))


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_their_labels_and_lengths(name):
    task = TASKS[name]
    rng = random.Random(0)
    for longest in (8, 60):
        labels = Counter()
        for _ in range(60):
            example = task.sample(rng, longest)
            string = tuple(task.write(example.source).split())[1:]
            assert example.source[0] == len(task.symbols)
            assert len(string) <= longest
            assert example.target == (int(MEMBERS[name](string)),)
            labels[example.target] += 1
        assert min(labels.values()) > 10
    member = task.positive(rng, 500)
    assert len(member) <= 500
    assert MEMBERS[name](member)


def test_held_out_strings_are_new():
    task = make_task("flare/parity", splits={n: {"number": 300, "longest": 12} for n in ("train", "validation")})
    task.change({"test_short_held_out": {"number": 100, "longest": 12}})
    parts = {name: {example.source for example in task.split(name, 0)} for name in ("train", "validation")}
    held_out = task.split("test_short_held_out", 0)
    assert len(held_out) == 100
    assert not (parts["train"] | parts["validation"]) & {e.source for e in held_out}
    assert "test_short_held_out" not in TASKS["repeat_01"].plan


def test_lengths_that_cannot_be():
    with pytest.raises(InputError, match="all lengths from 0 on; got a shortest length of 3"):
        make_task("flare/first", splits={"train": {"shortest": 3}}).split("train", 0)
    with pytest.raises(InputError, match="has no string of a length from 0 to 2"):
        make_task("flare/compute_sqrt", splits={"train": {"longest": 2}}).split("train", 0)
    with pytest.raises(InputError, match="<s> must not occur"):
        TASKS["first"].example((0, 2))


def levenshtein(first, second):
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(TASKS[name], "edit_distance")])
def test_edit_distances_are_those_to_the_nearest_member(name):
    """A member near a string of n symbols has no more than 2 n, or the shortest members' three."""
    task = TASKS[name]
    longest = 3 if len(task.symbols) < 5 else 2
    around = (s for n in range(max(2 * longest, 3) + 1) for s in product(task.symbols, repeat=n))
    members = [s for s in around if MEMBERS[name](s)]
    for n in range(longest + 1):
        for string in product(task.symbols, repeat=n):
            assert task.edit_distance(string) == min(levenshtein(string, member) for member in members)


@pytest.mark.parametrize("name", ["dyck_2_3", "repeat_01"])
def test_the_strings_with_a_distance(name):
    task = make_task(f"flare/{name}")
    examples = task.split("test_edit_distance", 0)
    assert len(examples) == 50
    for example in examples:
        string = tuple(task.write(example.source[1:]).split())
        assert example.target == (0,)
        assert example.edits == task.edit_distance(string) > 0
    assert [name for name in NAMES if "test_edit_distance" in TASKS[name].plan] == ["repeat_01", "dyck_2_3"]


def test_edits_that_made_a_string_are_known():
    """Of members and of any strings there are none; half of those that are edited have one edit, if all count."""
    task, rng = TASKS["dyck_2_3"], random.Random(0)
    examples = [task.sample(rng, 40) for _ in range(1500)]
    assert all(example.edits is None for example in examples if example.target == (1,))
    edits = Counter(example.edits for example in examples if example.target == (0,))
    edited = sum(number for known, number in edits.items() if known is not None)
    assert 0.4 < edited / edits.total() < 0.6
    assert 0.4 < edits[1] / edited < 0.6
    assert 0.15 < edits[2] / edited < 0.35
    for example in examples[:300]:
        if example.edits is not None:
            assert task.edit_distance(tuple(task.write(example.source[1:]).split())) <= example.edits
