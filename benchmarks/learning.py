"""Reversal and Dyck-3 in a transformer whose second layer is a stack: the seeds that learn, and up to what length.

One layer of self-attention without positions, then a stack of four heads, 95,752 parameters. Reversal: 3 to 30 letters
of 6 kinds, a mark and blanks. Dyck-3: strings of 4 to 60 brackets; answers are the closing brackets that may be next.

Example:
    python benchmarks/learning.py --task reversal --seeds 10
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from stack_lm import StackTransformerConfig, StackTransformerForCausalLM
from stack_lm.core.console import positive_int, print_json, print_note, print_table, run_command, script_parser

LETTERS, BRACKETS, BATCH, UNSCORED = 6, 3, 64, -100
LEARNED = 0.999
EXPECTED = "expected_value"
ONE_ELEMENT = {"push_control": EXPECTED, "max_push": 1, "pop_control": EXPECTED, "max_pop": 1, "read_control": 1.0}


def reversal(length: int) -> tuple[Tensor, Tensor]:
    """Strings `letters mark blanks`, and the letters backwards from the mark on."""
    letters = torch.randint(LETTERS, (BATCH, length))
    mark, blanks = torch.full((BATCH, 1), LETTERS), torch.full((BATCH, length - 1), LETTERS + 1)
    ids = torch.cat((letters, mark, blanks), dim=1)
    return ids, F.pad(letters.flip(1), (length, 0), value=UNSCORED)


def dyck(length: int) -> tuple[Tensor, Tensor]:
    """Balanced strings, and the kind of the innermost open bracket after each prefix that has one."""
    half = length // 2
    ids, labels = torch.zeros(BATCH, 2 * half, dtype=torch.long), torch.full((BATCH, 2 * half), UNSCORED)
    for row in range(BATCH):
        opened: list[int] = []
        number = 0
        for step in range(2 * half):
            if number < half and (not opened or torch.rand(()) < 0.5):
                opened.append(int(torch.randint(BRACKETS, ())))
                ids[row, step] = opened[-1]
                number += 1
            else:
                ids[row, step] = BRACKETS + opened.pop()
            if opened:
                labels[row, step] = opened[-1]
    return ids, labels


# The strings, and the shortest and the longest in training.
TASKS: dict[str, tuple[Callable[[int], tuple[Tensor, Tensor]], int, int]] = {
    "reversal": (reversal, 3, 30),
    "dyck": (dyck, 4, 60),
}


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of right answers."""
    scored = labels != UNSCORED
    return (logits.argmax(-1) == labels)[scored].float().mean().item()


def run_seed(task: str, seed: int, updates: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train a network; returns the update after which a batch was right, and accuracies by length in percent."""
    torch.manual_seed(seed)
    make, shortest, longest = TASKS[task]
    stack = {"memory": "stack", "num_heads": 4, **settings}
    network = StackTransformerForCausalLM(
        StackTransformerConfig(
            vocab_size=8,
            hidden_size=64,
            num_attention_heads=4,
            layers=["attention", stack],
            position_encoding="none",
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=updates)
    start, learned = time.perf_counter(), None
    for update in range(1, updates + 1):
        ids, labels = make(int(torch.randint(shortest, longest + 1, ())))
        logits = network(ids).logits
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=UNSCORED).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if learned is None and update % 50 == 0 and accuracy(logits, labels) > LEARNED:
            learned = update
    result: dict[str, Any] = {"task": task, "seed": seed, "learned_after": learned}
    with torch.no_grad():
        for times in (1, 2, 4, 8):
            ids, labels = make(times * longest)
            result[f"accuracy_{times * longest}"] = 100 * accuracy(network(ids).logits, labels)
    return result | {"seconds": time.perf_counter() - start}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__, "benchmarks/learning.py")
    parser.add_argument("--task", choices=sorted(TASKS), default="reversal", help="reversal (the default) or dyck")
    parser.add_argument("--seeds", type=positive_int, default=10, metavar="N", help="seeds from 0 (10)")
    parser.add_argument("--updates", type=positive_int, default=500, metavar="N", help="of each seed (500)")
    orders = ("before_push", "after_push")
    parser.add_argument("--read-order", choices=orders, default=orders[0], help="of the stack (before_push)")
    parser.add_argument("--one-element", action="store_true", help="push and pop at most one element, and read one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        torch.set_num_threads(1)
        settings = {"read_order": options.read_order} | (ONE_ELEMENT if options.one_element else {})
        results = []
        for seed in range(options.seeds):
            results.append(run_seed(options.task, seed, options.updates, settings))
            print_note(f"seed {seed}: {results[-1]['seconds']:.0f} s")
        if options.json:
            print_json({"torch": torch.__version__, "settings": settings, "results": results})
            return
        lengths = [name for name in results[0] if name.startswith("accuracy_")]
        headers = ["seed", "learned after", *(f"accuracy at {name.removeprefix('accuracy_')}, %" for name in lengths)]
        print_table(
            f"{options.task}, {options.read_order}",
            headers,
            [[r["seed"], r["learned_after"], *(f"{r[name]:.1f}" for name in lengths)] for r in results],
        )

    return run_command("benchmarks/learning.py", run)


if __name__ == "__main__":
    sys.exit(main())
