"""Files and directories that appear complete or not at all."""

import pytest

from stack_lm.core.atomic import atomic_directory, atomic_file, find_target, write_text
from stack_lm.core.errors import InputError


@pytest.mark.parametrize("make", [atomic_file, atomic_directory])
@pytest.mark.parametrize("there", ["a", "a/b", "a/b/c"])
def test_an_error_leaves_no_new_directory(tmp_path, make, there):
    (tmp_path / there).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyError), make(tmp_path / "a" / "b" / "c" / "new"):
        raise KeyError
    assert sorted(tmp_path.rglob("*")) == before
    write_text(tmp_path / "a" / "b" / "c" / "new", "text")
    assert (tmp_path / "a" / "b" / "c" / "new").read_text() == "text"


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(InputError, match="new is a directory; a file name is needed"):
        find_target(f"{tmp_path}/new/")
