"""`stack-lm train lm`: train a language model, from a YAML configuration and overrides.

Any key can be overridden: `training.epochs=2 model.hidden_size=200` (or `--training.epochs=2`). Without a
configuration the model of Merrill et al. (2019), u = 1, is trained on the built-in generated English. On several
GPUs, start it through `accelerate launch -m`.
"""

from __future__ import annotations

import argparse
from typing import Any

from ...training.config import RunConfig
from ..recipe import add_options, run_recipe
from ..report import Report

SUMMARY = "train a language model, from a YAML configuration and overrides"
EXAMPLE = (
    "stack-lm train lm merrill2019/brown_u1 training.epochs=2\n"
    "  accelerate launch -m stack_lm train lm merrill2019/wikipedia_u1 output_dir=runs/wikipedia-u1"
)
__all__ = ["EXAMPLE", "SUMMARY", "add_options", "run"]


def run(options: argparse.Namespace) -> int | Report:
    """Train."""
    return run_recipe(options, RunConfig, "language_model.Trainer", _show)


def _show(output_dir: str, result: dict[str, Any]) -> list[str]:
    return [f"{output_dir}: validation perplexity {result['eval_perplexity']:.2f} after {result['step']} steps"]
