"""Train a number prediction classifier, from a YAML configuration and overrides, and test it by attractors.

The data are the files of the number prediction task of Linzen et al. (2016): a verb's tag (VBZ or VBP), a tab, and the
words before the verb. Any key can be overridden: `training.patience=3 model.hidden_size=200`. Without data.validation
(null), a share of the training file is held out to decide when to stop.

Example:
    python recipes/train_classifier.py merrill2019/numpred_u1 data.train=numpred.val \
        data.validation=null 'data.test=[numpred.test.1, numpred.test.2]'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stack_lm.config_files import build, merge, parse_overrides, read_config
from stack_lm.console import print_json, print_table, quiet_libraries, run_command
from stack_lm.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\nExample:")[0],
        epilog=__doc__[__doc__.index("Example:") :],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="CONFIG", help="a YAML file or a preset (see `stack-lm presets`)")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="keys to override")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint in output_dir")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in output_dir")
    parser.add_argument("--json", action="store_true", help="print the accuracies as one JSON object")
    options, others = parser.parse_known_args(arguments)

    def run() -> None:
        unknown = [argument for argument in others if "=" not in argument]
        if unknown:
            raise InputError(f"unknown option {unknown[0]!r}; an override is written key.key=value")
        quiet_libraries()
        from stack_lm.training.number_prediction import ClassifierConfig, ClassifierTrainer

        values = read_config(options.config)
        merge(values, parse_overrides([*options.overrides, *others]))
        trainer = ClassifierTrainer(build(ClassifierConfig, values), resume=options.resume, overwrite=options.overwrite)
        result = trainer.train()
        tests = result.pop("test")
        if options.json:
            accuracies = {path: test.record() for path, test in tests.items()}
            print_json({"output_dir": trainer.config.output_dir} | result | {"test": accuracies})
            return
        rows = [(Path(path).name, test.accuracy, test.overall.majority, test.n) for path, test in tests.items()]
        caption = f"best validation: accuracy {result['eval_accuracy']:.2f} after epoch {result['best_epoch']}"
        print_table(
            f"number prediction accuracy in %, {trainer.config.output_dir}",
            ["test file", "accuracy", "always the more frequent number", "n"],
            rows,
            caption=f"{caption} of {result['epochs']}",
        )

    return run_command("train_classifier", run)


if __name__ == "__main__":
    sys.exit(main())
