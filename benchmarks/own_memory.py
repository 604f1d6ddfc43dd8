"""The gain of torch.compile for a memory of your own, which runs step by step, in passes of an LSTM with it.

Runs alternate in one process on one thread. The clock is the process's own, and times are medians.

Example:
    python benchmarks/own_memory.py --import examples/registers.py --memory registers
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import alternate

from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.core.console import positive_int, print_json, print_table, run_command, script_parser

VOCABULARY = 6
MODEL, LOOP, UPDATE = "the model", "the model, scan_backend reference", "update"


def run_of(memory: str, what: str | None, batch: int, length: int) -> Callable[[], None]:
    """A forward and a backward pass of a model, of which a part is compiled or nothing."""
    torch.manual_seed(0)
    config = StackRNNConfig(vocab_size=VOCABULARY, memory=memory, embedding_size=8, hidden_size=12, memory_size=5)
    model = StackRNNForCausalLM(config)
    if what == LOOP:
        model.set_scan_backend("reference")
    if what == UPDATE:
        own: Any = model.memories()[0].memory
        own.update = torch.compile(own.update)
    call = torch.compile(model) if what in (MODEL, LOOP) else model
    ids = torch.randint(0, VOCABULARY, (batch, length))

    def run() -> None:
        call(ids, labels=ids, use_cache=False).loss.backward()

    return run


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("--memory", default="registers", help="the memory's name (registers)")
    parser.add_argument("--batch", type=positive_int, nargs="+", default=[1, 32], help="strings (1 and 32)")
    parser.add_argument("--length", type=positive_int, default=10, help="symbols of each string (10)")
    parser.add_argument("--seconds", type=positive_int, default=10, help="time of each batch size (10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        torch.set_num_threads(1)
        records: list[dict[str, Any]] = []
        for batch in options.batch:
            torch._dynamo.reset()
            runs = {what: run_of(options.memory, what, batch, options.length) for what in (None, MODEL, LOOP, UPDATE)}
            waited = {}
            for what, once in runs.items():
                start = time.perf_counter()
                once()
                waited[what] = time.perf_counter() - start
            times = alternate(runs, seconds=options.seconds, device=torch.device("cpu"), min_rounds=10)
            records += [
                {
                    "compiled": what or "nothing",
                    "batch": batch,
                    "milliseconds": 1e3 * timing.median,
                    "times_as_fast": times[None].median / timing.median,
                    "first_call_seconds": waited[what],
                }
                for what, timing in times.items()
            ]
        if options.json:
            print_json({"torch": torch.__version__, "length": options.length, "results": records})
            return
        columns = ("compiled", "batch", "ms", "times as fast", "first call, s")
        print_table("forward and backward passes", columns, [[*each.values()] for each in records])

    return run_command("own_memory", run)


if __name__ == "__main__":
    sys.exit(main())
