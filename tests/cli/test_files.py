"""The names of files in what commands print."""

from argparse import Namespace

import pytest

from stack_lm.cli.files import check_files, short_names
from stack_lm.core.errors import InputError


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


def test_a_dash_is_no_file():
    with pytest.raises(InputError, match="--output must name a file; got '-'"):
        check_files(Namespace(output="-", endings={"output": (".txt", "")}))
