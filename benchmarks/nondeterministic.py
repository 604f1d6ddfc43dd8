"""The cost of nondeterministic stacks: forward and backward of a cell, compiled, step by step in torch, and both parts.

Each size and backend in turn in every round, on one thread; the numbers are minima of the process's own time. The
reference is left out from the third round on, as it takes long and does not differ by as much.

Example:
    python benchmarks/nondeterministic.py --rounds 20
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import torch

from stack_lm import StackRNNCell, StackRNNConfig
from stack_lm.console import positive_int, print_json, print_table, progress, run_command, script_parser

BATCH, HIDDEN, SYMBOLS = 10, 20, 5  # of the papers' strings
REFERENCE_ROUNDS = 3
PARTS = ("forward", "backward", "both")
SIZES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("RNS 2-3", 40, {"memory_states": 2, "memory_symbols": 3}),
    ("RNS 2-3", 80, {"memory_states": 2, "memory_symbols": 3}),
    ("RNS 3-3", 40, {"memory_states": 3, "memory_symbols": 3}),
    ("VRNS 2-3-5", 40, {"memory_states": 2, "memory_symbols": 3, "memory_size": 5}),
    ("RNS 2-3, window 20", 80, {"memory_states": 2, "memory_symbols": 3, "memory_window": 20}),
    ("RNS 2-3, window 20", 320, {"memory_states": 2, "memory_symbols": 3, "memory_window": 20}),
)


def measure(rounds: int, with_reference: bool) -> list[dict[str, Any]]:
    """Least milliseconds of forward, of backward and of both, for each size and backend."""
    cases = []
    for name, length, fields in SIZES:
        torch.manual_seed(0)
        config = StackRNNConfig(embedding_size=SYMBOLS, hidden_size=HIDDEN, memory="nondeterministic", **fields)
        inputs = torch.randn(BATCH, length, SYMBOLS, requires_grad=True)
        for backend in ("numba", "reference") if with_reference else ("numba",):
            cases.append(((name, length, backend), StackRNNCell(config), inputs))
    least = {case: [math.inf] * 3 for case, _, _ in cases}
    with progress("rounds", rounds) as advance:
        for i in range(rounds):
            for case, cell, inputs in cases:
                if case[2] == "reference" and i >= REFERENCE_ROUNDS:
                    continue
                cell.scan_backend = case[2]
                start = time.process_time()
                outputs = cell.scan(inputs).outputs
                between = time.process_time()
                outputs.sum().backward()
                end = time.process_time()
                found = (between - start, end - between, end - start)
                least[case] = [min(pair) for pair in zip(least[case], found, strict=True)]
            advance(1)
    return [
        {"stack": name, "length": length, "backend": backend}
        | {part: 1e3 * seconds for part, seconds in zip(PARTS, found, strict=True)}
        for (name, length, backend), found in least.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("--rounds", type=positive_int, default=20, help="how often each is timed (20)")
    parser.add_argument("--no-reference", action="store_true", help="leave the reference out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        torch.set_num_threads(1)
        records = measure(options.rounds, not options.no_reference)
        if options.json:
            print_json({"torch": torch.__version__, "rounds": options.rounds, "batch": BATCH, "results": records})
            return
        columns = ("stack", "length", "backend", "forward (ms)", "backward (ms)", "both (ms)")
        rows = [
            (record["stack"], str(record["length"]), record["backend"], *(f"{record[part]:.1f}" for part in PARTS))
            for record in records
        ]
        print_table(f"forward and backward, batch {BATCH}", columns, rows)

    return run_command("nondeterministic", run)


if __name__ == "__main__":
    sys.exit(main())
