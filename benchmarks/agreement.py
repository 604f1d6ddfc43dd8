"""Agreement items per second: in batches, and one at a time by the definition.

The model has the paper's sizes (embedding 50, LSTM 100, stack 16, 10,000 words) and random weights. The times are of
one run on one machine; what carries over is their ratio. CPU seconds count all threads.

Example:
    python benchmarks/agreement.py --data linzen_sentences/ --format linzen-gulordava
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import torch

from stack_lm import ModelScorer, StackRNNConfig, StackRNNForCausalLM, train_word_tokenizer
from stack_lm.core.console import print_json, print_table, run_command, script_parser
from stack_lm.eval import AGREEMENT_FORMATS, evaluate_agreement, read_agreement


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument(
        "--data", metavar="PATH", default="1", help="a path; for the format generated a seed (default: 1)"
    )
    parser.add_argument("--format", metavar="NAME", default="generated", help=f"one of {', '.join(AGREEMENT_FORMATS)}")
    parser.add_argument("--memory", default="stack", help="stack (default), or none for the LSTM")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens in a batch (default: 2048)")
    parser.add_argument(
        "--alone", type=int, default=200, metavar="N", help="items to score one at a time (default: 200)"
    )
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object on standard output")
    options = parser.parse_args(arguments)

    def run() -> None:
        items = read_agreement(options.data, options.format)
        # Every form is in the vocabulary, so that every item is scored.
        forms = [item.correct for item in items] + [item.wrong for item in items]
        tokenizer = train_word_tokenizer([(item.prefix, None) for item in items] + [(forms * 50, None)], 10_000)
        config = StackRNNConfig(vocab_size=max(10_000, len(tokenizer)), memory=options.memory)
        torch.manual_seed(0)
        scorer = ModelScorer(StackRNNForCausalLM(config), tokenizer, batch_tokens=options.batch_tokens)
        evaluate_agreement(scorer, items[:100])  # pays the costs of a first call

        def one_at_a_time() -> None:
            for item in items[: options.alone]:
                scorer.continuation_logprobs([item.prefix], [(item.correct, item.wrong)])

        rows = [
            ("in batches", len(items), *_seconds(lambda: evaluate_agreement(scorer, items))),
            ("one at a time", min(options.alone, len(items)), *_seconds(one_at_a_time)),
        ]
        rates = [(name, n / wall, n / cpu) for name, n, wall, cpu in rows]
        if options.json:
            names = ("items_per_second", "items_per_cpu_second")
            results = {name: dict(zip(names, values, strict=True)) for name, *values in rates}
            print_json({"data": options.data, "memory": options.memory, "threads": torch.get_num_threads()} | results)
            return
        print_table(
            f"agreement items, {options.data}, memory {options.memory}, {torch.get_num_threads()} threads",
            ["how", "items a second", "a CPU second"],
            rates,
            caption=f"{rates[0][1] / rates[1][1]:.1f} times as many a second in batches",
        )

    return run_command("agreement", run)


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Measure the wall-clock and CPU seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    sys.exit(main())
