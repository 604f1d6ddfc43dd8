"""Convert a state_dict released with Suzgun et al. (2019) into a model directory of stack-lm.

It may be a Stack-RNN, a Stack-LSTM, a Baby-NTM, or a plain RNN or LSTM. The file does not say how operations were
chosen: give --operation-control, and --temperature for the models that have one. With --check the converted
model is scored on fresh strings of its Dyck language, of lengths 52 to 100, as in the paper's test sets: a string is
right when every set of next symbols is.

Example:
    python recipes/convert_suzgun2019.py stack_rnn_model_weights.pth models/dyck2 --check 1000
"""

from __future__ import annotations

import random
import sys
from itertools import compress, count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from stack_lm import StackRNNConfig, StackRNNForKHotPrediction
from stack_lm.cli.options import option
from stack_lm.core.atomic import atomic_directory
from stack_lm.core.console import print_written, progress, run_command, script_parser
from stack_lm.core.errors import InputError
from stack_lm.hub.state_dicts import fill, load_state_dict, take
from stack_lm.memory.superposition import CHOICE_CONTROLS
from stack_lm.tasks.suzgun2019.dyck import PAIRS, Dyck
from stack_lm.text.tokenization import symbol_tokenizer

TEST_LENGTHS = (52, 100)


def convert_config(
    state: dict[str, Tensor], path: Path, operation_control: str, temperature: float, cells: int
) -> StackRNNConfig:
    """The configuration that matches the checkpoint's shapes."""
    controller: Literal["lstm", "rnn"] = "lstm" if "lstm.weight_ih_l0" in state else "rnn"
    weight = take(state, path, f"{controller}.weight_ih_l0")
    memory = "superposition" if "W_sh.weight" in state else "baby_ntm" if "W_m.weight" in state else "none"
    layers = sum(name.startswith(f"{controller}.weight_ih_l") for name in state)
    if memory != "none" and layers > 1:
        raise InputError(
            f"{path} has {layers} layers, and the released code adds the reading to the state of each; here it enters "
            "the first alone"
        )
    fields: dict[str, Any] = {"num_labels": take(state, path, "W_y.weight").shape[0]}
    if memory != "none":
        fields |= {
            "memory_size": take(state, path, "W_n.weight").shape[0],
            "operation_control": operation_control,
            "evaluation_noise": operation_control == "gumbel_softmax",  # on at test time too, as released
        }
        if operation_control != "softmax":
            fields["temperature"] = temperature
        if memory == "baby_ntm":
            fields["memory_depth"] = cells
    return StackRNNConfig(
        vocab_size=weight.shape[1],
        input_encoding="one_hot",
        controller=controller,
        hidden_size=take(state, path, f"{controller}.weight_hh_l0").shape[1],
        num_layers=layers,
        reading_entry="hidden_state",
        memory=memory,
        **fields,
    )


def convert_weights(state: dict[str, Tensor], path: Path, config: StackRNNConfig) -> dict[str, Tensor]:
    """The weights under our names."""
    prefix = f"{config.controller}."
    weights = {
        f"model.cell.controller.{name.removeprefix(prefix)}": value
        for name, value in state.items()
        if name.startswith(prefix)
    }
    reading = {"superposition": "W_sh", "baby_ntm": "W_m"}.get(config.memory)
    for kind in ("weight", "bias"):
        weights[f"score.{kind}"] = take(state, path, f"W_y.{kind}")
        if reading is not None:
            weights[f"model.cell.controller.{kind}_reading"] = take(state, path, f"{reading}.{kind}")
            rows = [take(state, path, f"{name}.{kind}") for name in ("W_n", "W_a")]
            weights[f"model.cell.controls.projection.{kind}"] = torch.cat(rows)
    return weights


def convert(
    path: Path, operation_control: str = "softmax", temperature: float = 0.5, cells: int = 104
) -> StackRNNForKHotPrediction:
    """Convert the model in a released file.

    Args:
        path: of the state_dict.
        operation_control, temperature: the model's choice of operations.
        cells: number of cells of a Baby-NTM's tape.

    Raises:
        InputError: if the file is not such a state_dict.
    """
    state = load_state_dict(path)
    config = convert_config(state, path, operation_control, temperature, cells)
    model = StackRNNForKHotPrediction(config)
    weights = convert_weights(state, path, config)
    weights |= {name: value for name, value in model.state_dict().items() if name.endswith(".temperature")}
    fill(model, weights, path)
    return model.eval()


@torch.no_grad()
def check(model: StackRNNForKHotPrediction, n_strings: int, seed: int) -> int:
    """The number of fresh distinct strings, with the paper's test lengths, that the model gets entirely right."""
    task = Dyck(model.config.vocab_size // 2)
    examples = task.draw(random.Random(seed), n_strings, *TEST_LENGTHS, distinct=True)
    right = 0
    with progress("strings", n_strings) as advance:
        for start in range(0, n_strings, 50):
            batch = examples[start : start + 50]
            ids = pad_sequence([torch.tensor(example.source) for example in batch], batch_first=True)
            for example, predicted in zip(batch, model.predict(model(ids).logits).tolist(), strict=True):
                sets = [frozenset(compress(count(), row)) for row in predicted[: len(example.source)]]
                right += sets == list(example.target)
            advance(len(batch))
    return right


def save(model: StackRNNForKHotPrediction, symbols: str, output: Path) -> None:
    """Write the model directory, with a tokenizer for symbols separated by spaces."""
    if len(set(symbols)) != len(symbols) or len(symbols) != model.config.vocab_size:
        raise InputError(
            f"--symbols must name the {model.config.vocab_size} symbols that the model reads, each once; "
            f"got {symbols!r}"
        )
    if model.config.num_labels == len(symbols):
        model.config.id2label = dict(enumerate(symbols))
        model.config.label2id = {symbol: i for i, symbol in enumerate(symbols)}
    with atomic_directory(output) as directory:
        model.save_pretrained(directory)
        symbol_tokenizer(symbols).save_pretrained(directory)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    option(parser, "CHECKPOINT", "the released .pth file", type=Path)
    option(parser, "OUT_DIR", "the model directory to write; must be new", type=Path, dest="output")
    option(parser, "--operation-control", "how operations are chosen", choices=CHOICE_CONTROLS, default="softmax")
    option(parser, "--temperature X", "temperature at the end of training, if any; the schedule's last", default=0.5)
    option(parser, "--cells N", "cells of a Baby-NTM's tape", default=104)
    alphabet = "the alphabet, in the order of the model's inputs (that of the Dyck languages: ()[]{}...)"
    option(parser, "--symbols TEXT", alphabet)
    option(parser, "--check N", "score the model on N fresh Dyck strings of lengths 52 to 100")
    option(parser, "--seed SEED", "seed of the fresh strings", default=0)
    options = parser.parse_args(arguments)

    def run() -> None:
        try:
            model = convert(options.checkpoint, options.operation_control, options.temperature, options.cells)
        except ValueError as error:  # of the configuration
            raise InputError(str(error)) from error
        config = model.config
        dyck = "".join(PAIRS)[: config.vocab_size]
        symbols = options.symbols or dyck
        if options.check and (symbols != dyck or len(dyck) != config.vocab_size or config.vocab_size % 2):
            raise InputError(f"--check is for Dyck languages, whose symbols are {''.join(PAIRS)!r}; got {symbols!r}")
        save(model, symbols, options.output)
        print_written(str(options.output))
        if options.check:
            right = check(model, options.check, options.seed)
            print(f"{right:,} of {options.check:,} fresh Dyck strings are right in every step")

    return run_command("convert_suzgun2019", run)


if __name__ == "__main__":
    sys.exit(main())
