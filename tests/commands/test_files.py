"""The names of files in what commands print."""

import pytest

from stack_lm.commands.files import short_names


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/u1", "runs/lstm"], ["u1", "lstm"]),
        (["runs/u1/items.tsv", "runs/lstm/items.tsv"], ["u1/items.tsv", "lstm/items.tsv"]),
        (["a/u1", "u1"], ["a/u1", "u1"]),
        (["/runs/u1/", "lstm"], ["u1", "lstm"]),
        (["runs/u1", "runs/u1"], ["runs/u1", "runs/u1"]),
        (["u1"], ["u1"]),
        ([], []),
    ],
)
def test_short_names(paths, names):
    assert short_names(paths) == names
