"""What a mistyped name or path may have meant."""

import pytest

from stack_lm.core.messages import did_you_mean, shortened, similar_path, unknown_key, unknown_name


@pytest.mark.parametrize(
    ("name", "hint"),
    [("stak", "; did you mean 'stack'?"), ("STACK", "; did you mean 'stack'?"), ("heap", ""), ("", ""), (7, "")],
)
def test_names(name, hint):
    assert did_you_mean(name, ["stack", "queue"]) == hint


def test_errors():
    assert str(unknown_name("memory", "stak", ["stack", "queue"])) == (
        "memory must be one of stack, queue; got 'stak'; did you mean 'stack'?"
    )
    assert str(unknown_key("training.", "epoch", ["epochs"])) == (
        "unknown key 'training.epoch'; the keys here are epochs; did you mean 'epochs'?"
    )


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "wikipedia-u1").mkdir(parents=True)
    (tmp_path / "text.txt").touch()
    for path, hint in (
        ("models/wikipedia-u2", "models/wikipedia-u1"),
        ("model/wikipedia-u1", "models/wikipedia-u1"),
        ("model/nothing", "models"),
        ("txt.txt", "text.txt"),
        (tmp_path / "tex.txt", str(tmp_path / "text.txt")),
    ):
        assert similar_path(path) == f"; did you mean {hint}?"
    for path in ("models", "zzz", "", "a\0b", "x" * 5000, "~nobody-of-that-name/x", ".txt"):
        assert similar_path(path) == ""


def test_long_texts_end_with_a_word():
    assert shortened("short  one", 20) == "short one"
    assert shortened("one two three four five", 20) == "one two three ..."
    assert shortened("x" * 50, 20) == "x" * 16 + " ..."
