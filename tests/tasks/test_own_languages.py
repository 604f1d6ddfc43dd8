"""Languages of one's own, each form against all strings up to a length."""

import random
import re
from collections import Counter
from itertools import pairwise, product
from math import exp, fsum

import pytest
import regex

from stack_lm.core.errors import InputError
from stack_lm.tasks import expressions, make_task
from stack_lm.tasks.automata import Automaton
from stack_lm.tasks.checks import check_examples
from stack_lm.tasks.recognition import END

LONGEST = 10
CFG = "S -> 'a' S 'b' [0.4] | T [0.6]\nT -> 'b' [0.5] | 'b' T [0.25] | [0.25]\n"
TABLE = "state,a,b\n->*even,odd,even\nodd,even,\n"
MARKED = "q;a;b\n->q0;q1;q0\nq1;q1;q2\n * q2;q2;q2\n".replace(";", "\t")
FORMS = {
    "regex:(ab)*": "(ab)*",
    "regex:a|b(a{2,3}|[^b]*b)+": "a|b(a{2,3}|a*b)+",
    "regex:(a|b.){2,}a?": "(a|b.){2,}a?",
    "grammar": None,
    "ambiguous": "a+",
    "automaton.csv": "(b|aa)*",
    "automaton.tsv": "b*a+b.*",
}


def files(folder, name):
    """The task's name, after its file is written."""
    texts = {
        "grammar": ("g.cfg", CFG),
        "ambiguous": ("h.cfg", "S -> S S | 'a' | S U\nU -> U\n"),
        "automaton.csv": ("a.csv", TABLE),
        "automaton.tsv": ("a.tsv", MARKED),
    }
    if name not in texts:
        return name
    file, text = texts[name]
    (folder / file).write_text(text)
    return f"{'grammar' if file.endswith('cfg') else 'automaton'}:{folder / file}"


def is_member(form, string):
    if form == "grammar":
        found = re.fullmatch("(a*)(b*)", string)
        return bool(found) and len(found[2]) >= len(found[1])
    return bool(re.fullmatch(FORMS[form], string))


def is_prefix(form, string):
    """Whether a member begins with the string."""
    if form == "grammar":
        return bool(re.fullmatch("a*b*", string))
    return bool(regex.fullmatch(FORMS[form], string, partial=True))


def others(symbols, members):
    """Some strings that are not members."""
    rng = random.Random(0)
    drawn = ["".join(rng.choices(symbols, k=rng.randint(0, LONGEST))) for _ in range(200)]
    return [string for string in drawn if string not in members]


@pytest.mark.parametrize("form", FORMS)
def test_a_language_against_all_strings(tmp_path, form):
    name = files(tmp_path, form)
    task = make_task(name)
    symbols = "".join(task.symbols)
    assert symbols in ("ab", "a")
    members = {s for n in range(LONGEST + 1) for s in map("".join, product("ab", repeat=n)) if is_member(form, s)}
    found, prefixes = set(), [""]
    for prefix in prefixes:  # it grows by all symbols that may follow
        after = task.next_symbols(prefix)[-1]
        assert after - {END} == {symbol for symbol in symbols if is_prefix(form, prefix + symbol)}, prefix
        found |= {prefix} if END in after else set()
        prefixes += [prefix + symbol for symbol in after - {END} if len(prefix) < LONGEST]
    assert found == members
    assert not any(map(task.accepts, others(symbols, members)))
    lengths = sorted({len(member) for member in members})
    assert task.lengths(LONGEST) == lengths
    total = fsum(exp(task.log_probability(member, LONGEST)) for member in members)
    assert total == pytest.approx(1)
    drawn = Counter("".join(task.positive(random.Random(i), 6)) for i in range(600))
    for member in (member for member in members if len(member) <= 6):
        share = exp(task.log_probability(member, 6))
        assert drawn[member] / 600 == pytest.approx(share, abs=5 * (share / 600) ** 0.5 + 1e-9)
    assert drawn.keys() <= members
    example = task.example(task.read(" ".join(max(members, key=len))))
    assert len(task.continuations(example)) == len(example.source)


@pytest.mark.parametrize("form", ["regex:(ab)*b?", "grammar"])
def test_kinds_of_tasks(tmp_path, form):
    name = files(tmp_path, form)
    plan = {"train": {"number": 20, "longest": 9}, "validation": {"number": 5}, "test": {"number": 3, "longest": 43}}
    for kind in ("classification", "language", "next_symbols"):
        task = make_task(name, kind=kind, splits=plan if kind != "classification" else None)
        assert (task.kind, task.name) == (kind, name)
        check_examples(task)
    model = make_task(name, kind="language", splits=plan)
    example = model.example(model.read("a b b"))
    recogniser = make_task(name)
    # A length is uniform in both, but in another window.
    given = model.log_given_length([["a", "b", "b"]])[0]
    assert recogniser.log_probability(["a", "b", "b"], 9) == pytest.approx(given - 2.302585, abs=1e-5)
    assert model.lower_bound([example], "train") > 0
    assert model.log_given_length([["b", "a", "b"]]) == [float("-inf")]
    sets = make_task(name, kind="next_symbols").example([0, 1, 1])
    assert sets.target[-1] >= {2}
    with pytest.raises(InputError, match=r"not a string of .*, of one symbol or more: b a"):
        make_task(name, kind="next_symbols").example([1, 0])


def test_symbols_of_expressions():
    words = make_task("regex:PUSH ( x | y ) POP*", symbols="words", alphabet="z")
    assert words.symbols == ("POP", "PUSH", "x", "y", "z")
    assert words.accepts("PUSH x POP POP".split())
    assert make_task(r"regex:\(\)|[0-3]\*").symbols == ("(", ")", "*", "0", "1", "2", "3")


def test_distances_are_those_to_the_nearest_member():
    automaton = Automaton(0, {0: {"a": 1}, 1: {"b": 0, "c": 2}, 2: {"c": 2}}, [0])
    assert automaton.symbols == ("a", "b", "c")
    assert automaton.arcs == {0: {"a": 1}, 1: {"b": 0}}
    assert [automaton.edit_distance(string) for string in ("abab", "aba", "ccc", "ba")] == [0, 1, 3, 2]


def test_weights_of_arcs():
    weights = {0: {"a": 0.75, END: 0.25}, 1: {"a": 0.5, "b": 0.5}}
    automaton = Automaton(0, {0: {"a": 1}, 1: {"a": 0, "b": 0}}, [0], weights=weights)
    assert exp(automaton.log_of_member("aaab")) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("regex:", "", "the regular expression '' matches only the empty string"),
        ("regex:a{0}|()*", "", "matches only the empty string"),
        ("regex:[^a]a", "", "matches no string"),
        ("regex:(a", "", r"'\(a': a \( has no \)"),
        ("regex:a)", "", r"'\)' closes nothing"),
        ("regex:|*", "", r"'\*' repeats nothing"),
        ("regex:a{3,2}", "", r"\{3,2\} is not a number of repetitions"),
        ("regex:(a|b)*a(a|b){7}", "", "needs more than 100 states"),
        ("grammar:F", "", "is empty|not a grammar"),
        ("grammar:F", "S -> 'a' S", "the grammar derives no string"),
        ("grammar:F", "S -> 'a' T", "T has no rules; terminals are in quotation marks"),
        ("grammar:F", "S -> 'a' [0.5] | 'b' [0.2]", "is not a grammar: "),
        ("grammar:F", "S => a", "is not a grammar: "),
        ("grammar:F", "S -> S | 'a'", "<S> derives itself by rules that add no symbol"),
        ("grammar:F", "S -> ", "the language has only the empty string"),
        ("grammar:F", "S -> '</s>'", "</s> must not be a symbol of a language"),
        ("automaton:F", "q,a\nq0,q0\n", "one state is marked as the start, as `->q0`; got none"),
        ("automaton:F", "q,a\n->q0,q1\n", "the move of 'q0' for 'a' leads to 'q1', no state with a row"),
        ("automaton:F", "q,a,b\n->q0,q0\n", "state 'q0' has 1 moves for 2 symbols"),
        ("automaton:F", "q,a\n->q0,q0\n", "the language is empty: no string leads from the start"),
        ("automaton:F", "q,a\n->q0,q0\nq0,q0\n", "state 'q0' has two rows"),
        ("automaton:G", "", "G does not exist|no such file"),
    ],
)  # fmt: skip
def test_bad_input(tmp_path, monkeypatch, name, text, message):
    monkeypatch.setattr(expressions, "_MOST_STATES", 100)
    prefix, _, file = name.partition(":")
    if prefix != "regex":
        (tmp_path / "F").write_text(text) if file == "F" else (tmp_path / file).write_text(text) if text else None
        name = f"{prefix}:{tmp_path / file}"
    with pytest.raises(InputError, match=message) as caught:
        check_examples(make_task(name))
    assert "\n" not in str(caught.value)


def test_a_language_without_long_or_short_strings():
    finite = make_task("regex:a{1,3}")
    check_examples(finite)
    with pytest.raises(InputError, match=r"regex:a\{1,3\} has no string of a length from 41 to 80"):
        check_examples(make_task("regex:a{1,3}", kind="language"))
    long = make_task("regex:a{12,}b")
    assert long.lengths(12) == []
    assert long.sample(random.Random(0), 40).target in ((0,), (1,))
    with pytest.raises(InputError, match="100 strings of .* were all members"):
        make_task("regex:a*").split("train", 0)


def test_lengths_grow_by_one():
    sizes = make_task("regex:a(bb)*", kind="language").sizes(1, 9)[0]
    assert {after - before for before, after in pairwise(sizes)} == {2}
