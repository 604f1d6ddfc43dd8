"""The folder of the cache of tokenised text."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "STACK_LM_CACHE"


def token_cache() -> Path:
    """The folder of tokenised text: in STACK_LM_CACHE, or else in stack-lm in the user's cache folder."""
    base = os.environ.get(VARIABLE)
    if base:
        return Path(base) / "tokens"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stack-lm" / "tokens"
