"""Train a language model, from a YAML configuration and overrides.

Any key can be overridden: `training.epochs=2 model.hidden_size=200` (or `--training.epochs=2`). Without a
configuration the model of Merrill et al. (2019), u = 1, is trained on the built-in generated English. On several
GPUs, start it through `accelerate launch`.

Example:
    accelerate launch recipes/train_lm.py merrill2019/wikipedia_u1 output_dir=runs/wikipedia-u1
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    from stack_lm.commands.recipe import run_recipe

    return run_recipe("train_lm", str(__doc__), arguments, _load, _show)


def _load() -> tuple[type[Any], Callable[..., Any]]:
    from stack_lm.training.config import RunConfig
    from stack_lm.training.language_model import Trainer

    return RunConfig, Trainer


def _show(output_dir: str, result: dict[str, Any]) -> None:
    print(f"{output_dir}: validation perplexity {result['eval_perplexity']:.2f} after {result['step']} steps")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while modules load; all else is a matter of `run_recipe`
        print("train_lm: interrupted", file=sys.stderr)
        sys.exit(130)
