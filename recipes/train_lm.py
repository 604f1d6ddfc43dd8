"""Train a language model, from a YAML configuration and overrides.

Any key can be overridden: `training.epochs=2 model.hidden_size=200` (or `--training.epochs=2`). Without a
configuration the model of Merrill et al. (2019), u = 1, is trained on the built-in generated English. On several
GPUs, start it through `accelerate launch`.

Example:
    accelerate launch recipes/train_lm.py merrill2019/wikipedia_u1 output_dir=runs/wikipedia-u1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stack_lm.config_files import build, merge, parse_overrides, read_config
from stack_lm.console import print_json, quiet_libraries, run_command
from stack_lm.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\nExample:")[0],
        epilog=__doc__[__doc__.index("Example:") :],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a YAML file, or a preset; `stack-lm presets` lists them"
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="keys to override")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in output_dir")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in output_dir")
    parser.add_argument("--json", action="store_true", help="print the last validation as one JSON object")
    options, others = parser.parse_known_args(arguments)
    overrides = [*options.overrides, *others]
    if options.config is not None and "=" in options.config:
        overrides.insert(0, options.config)
        options.config = None

    def run() -> None:
        unknown = [argument for argument in others if "=" not in argument]
        if unknown:
            raise InputError(f"unknown option {unknown[0]!r}; an override is written key.key=value")
        quiet_libraries()
        from stack_lm.training.language_model import RunConfig, Trainer

        values = read_config(options.config) if options.config else {}
        merge(values, parse_overrides(overrides))
        trainer = Trainer(build(RunConfig, values), resume=options.resume, overwrite=options.overwrite)
        result = trainer.train()
        if trainer.accelerator.is_main_process:
            if options.json:
                print_json({"output_dir": trainer.config.output_dir} | result)
            else:
                perplexity = result["eval_perplexity"]
                print(
                    f"{trainer.config.output_dir}: validation perplexity {perplexity:.2f} after {result['step']} steps"
                )
        trainer.accelerator.end_training()

    return run_command("train_lm", run)


if __name__ == "__main__":
    sys.exit(main())
