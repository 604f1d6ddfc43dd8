"""Where Numba keeps compiled code between processes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numba import config


@contextmanager
def compiled_code() -> Iterator[None]:
    """Functions that are compiled inside keep their code beside these sources, where those can be written to.

    Numba looks for changes in the file of a function alone, but the scan contains the code of all files here and the
    order of the fields in `layout`. So the folder is named after what is in them. A user's own choice (NUMBA_CACHE_DIR)
    is left as it is.
    """
    here = Path(__file__).parent
    sources = [here.parent / "layout.py", *sorted(here.glob("*.py"))]
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    before = vars(config)["CACHE_DIR"]  # made at run time, from the environment
    base = Path(before) if before else here / "__pycache__"
    if before or os.access(base if base.exists() else base.parent, os.W_OK):
        vars(config)["CACHE_DIR"] = str(base / digest)
    try:
        yield
    finally:
        vars(config)["CACHE_DIR"] = before
