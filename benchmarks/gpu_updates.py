"""Many updates of a small stack RNN on a GPU, to see that its kernels end.

Example:
    python benchmarks/gpu_updates.py --updates 20000 --batch-size 1024
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import torch

from stack_lm import StackRNNConfig
from stack_lm.core.console import positive_int, print_note, run_command, script_parser
from stack_lm.kernels.protocol import CUDA_GRAPHS as GRAPHS
from stack_lm.nn.cell import StackRNNCell


def update(device: torch.device, updates: int, batch_size: int, length: int) -> None:
    """Run the updates, and print how many there were a second. All strengths are expected values."""
    os.environ[GRAPHS] = "1"
    torch.manual_seed(0)
    config = StackRNNConfig(
        vocab_size=5, embedding_size=16, hidden_size=32, memory_size=8, pop_control="expected_value"
    )
    cell = StackRNNCell(config).to(device)
    cell.scan_backend = "triton"
    optimizer = torch.optim.Adam(cell.parameters(), lr=1e-2)
    start = time.perf_counter()
    for number in range(1, updates + 1):
        inputs = torch.randn(batch_size, length, 16, device=device)
        loss = (cell.scan(inputs).outputs[:, 1:] - inputs[:, :-1].repeat(1, 1, 2)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 5_000 == 0 or number == updates:
            seconds = time.perf_counter() - start
            print(f"{number:,} updates, loss {loss.item():.4f}, {number / seconds:,.0f} updates a second", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__, "benchmarks/gpu_updates.py")
    parser.add_argument("--updates", type=positive_int, default=20_000)
    parser.add_argument("--batch-size", type=positive_int, default=16)
    parser.add_argument("--length", type=positive_int, default=8)
    parser.add_argument("--device", default="cuda", help="cpu needs TRITON_INTERPRET=1")
    args = parser.parse_args(argv)

    def run() -> None:
        print_note(f"batches of {args.batch_size}, {args.length} steps")
        update(torch.device(args.device), args.updates, args.batch_size, args.length)

    return run_command("benchmarks/gpu_updates.py", run)


if __name__ == "__main__":
    sys.exit(main())
