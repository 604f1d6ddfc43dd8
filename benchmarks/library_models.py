"""Causal language models of transformers on a CPU: which of them train and generate, and how fast beside an LSTM.

Models have two layers of 128 and a vocabulary of 1,000. One thread, forward and backward passes, each model in turn in
every round; the numbers are minima. With `--types` other types of transformers are tried, at the sizes that the
configurations of these types share.

Example:
    python benchmarks/library_models.py --seconds 60
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from timing import alternate
from transformers import CONFIG_MAPPING

from stack_lm import StackRNNConfig, StackRNNForCausalLM, StackTransformerConfig, StackTransformerForCausalLM
from stack_lm.core.console import positive_int, print_json, print_table, run_command, script_parser
from stack_lm.core.messages import first_line, shortened
from stack_lm.models.kinds import library_class

VOCABULARY, SIZE, LAYERS, HEADS = 1_000, 128, 2, 4
MOST = 5_000_000  # parameters
LSTM = "LSTM"
# Names of sizes, of which a type takes those that it has.
SIZES = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "attention_hidden_size", "lru_width"), SIZE),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_blocks"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads"), HEADS),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), HEADS),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "head_dim"), SIZE // HEADS),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 2 * SIZE // HEADS),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), HEADS),
    "intermediate_size": 4 * SIZE,
    "state_size": 16,
    "pad_token_id": 0,
}
# What else a type needs, or has under a name with another meaning.
OWN: dict[str, dict[str, Any]] = {
    "mamba": {"intermediate_size": 2 * SIZE},
    "mamba2": {"head_dim": 2 * SIZE // HEADS, "num_heads": HEADS, "n_groups": 1},
    "xlstm": {"num_heads": HEADS, "autocast_kernel_dtype": "float32"},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_next": {"layer_types": ["linear_attention"] * LAYERS, "mlp_only_layers": [0, 1]},
    "qwen3_5_text": {"layer_types": ["linear_attention"] * LAYERS},
    "bamba": {"attn_layer_indices": [1]},
    "falcon_h1": {"mamba_d_ssm": 2 * SIZE},
    "lfm2": {"layer_types": ["conv", "conv"]},
    "jamba": {"num_experts": 1, "use_mamba_kernels": False},
}
TYPES = (
    *("gpt2", "llama", "qwen3", "mamba", "mamba2", "xlstm", "rwkv", "qwen3_next", "qwen3_5_text", "olmo_hybrid"),
    *("recurrent_gemma", "falcon_h1", "bamba", "jamba", "lfm2"),
)


def own_models() -> dict[str, Any]:
    """The LSTM and networks of this package."""
    blocks: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": SIZE,
        "num_attention_heads": HEADS,
        "dropout": 0.0,
    }
    heads = {"num_heads": HEADS}
    layers: dict[str, list[Any]] = {
        "transformer": ["attention"] * LAYERS,
        "transformer + stack": ["attention", {"memory": "stack", **heads}],
        "DeltaNet": [{"memory": "deltanet", **heads}] * LAYERS,
        "DeltaStack": [{"memory": "deltastack", **heads}] * LAYERS,
    }
    recurrent: dict[str, Any] = {"vocab_size": VOCABULARY, "embedding_size": SIZE, "hidden_size": 2 * SIZE}
    made: dict[str, Any] = {
        LSTM: StackRNNForCausalLM(StackRNNConfig(memory="none", **recurrent)),
        "LSTM + stack": StackRNNForCausalLM(StackRNNConfig(memory="stack", **recurrent)),
    }
    return made | {
        name: StackTransformerForCausalLM(StackTransformerConfig(**blocks, attention_dropout=0.0, layers=of))
        for name, of in layers.items()
    }


def library_model(name: str) -> Any:
    """A small model of a type of transformers.

    Raises:
        ValueError: for a type that has no causal language model, or that these sizes leave large.
        Exception: what its classes raise.
    """
    kind: Any = library_class(name)
    if kind is None:
        raise ValueError("no causal language model")
    known = {field.name for field in dataclasses.fields(CONFIG_MAPPING[name])}
    fields = {key: value for key, value in SIZES.items() if key in known} | OWN.get(name, {})
    with torch.device("meta"):
        number = kind(kind.config_class(**fields)).num_parameters()
    if number > MOST:
        raise ValueError(f"{number:,} parameters at these sizes")
    return kind(kind.config_class(**fields))


def training_pass(model: Any, ids: torch.Tensor) -> Callable[[], None]:
    """A forward and a backward pass."""

    def run() -> None:
        logits = model(ids, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()

    return run


def trial(action: Callable[[], Any]) -> str:
    """ "yes", or why it failed."""
    try:
        action()
    except Exception as error:  # anything of another package
        return f"{type(error).__name__}: {shortened(first_line(error), 80)}"
    return "yes"


def _add(models: dict[str, Any], name: str) -> None:
    models[name] = library_model(name)


def measure(types: list[str], batch: int, length: int, seconds: int) -> list[dict[str, Any]]:
    """A record for each model: whether it trains and generates, its parameters and its time."""
    ids = torch.randint(1, VOCABULARY, (batch, length))
    models: dict[str, Any] = own_models()
    records = []
    for name in [*models, *types]:
        record: dict[str, Any] = {"model": name}
        if name not in models:
            record["trains"] = trial(partial(_add, models, name))
        if name in models:
            model = models[name]
            record["parameters"] = model.num_parameters()
            record["trains"] = trial(training_pass(model.train(), ids))
            record["generates"] = trial(partial(model.eval().generate, ids[:1, :5], max_new_tokens=3, do_sample=False))
        records.append(record)
    runs = {
        record["model"]: training_pass(models[record["model"]].train(), ids)
        for record in records
        if record["trains"] == "yes"
    }
    times = alternate(runs, seconds=seconds, device=torch.device("cpu"))
    for record in records:
        if record["model"] in times:
            least = times[record["model"]].minimum
            record |= {"microseconds": 1e6 * least / ids.numel(), "ratio": least / times[LSTM].minimum}
    return records


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("--types", nargs="*", default=[*TYPES], help=f"types of transformers ({' '.join(TYPES)})")
    parser.add_argument("--batch", type=positive_int, default=8, help="sequences (8)")
    parser.add_argument("--length", type=positive_int, default=128, help="tokens of each (128)")
    parser.add_argument("--seconds", type=positive_int, default=60, help="time limit after three rounds (60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    def run() -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity_error()
        records = measure(options.types, options.batch, options.length, options.seconds)
        if options.json:
            print_json({"torch": torch.__version__, "transformers": transformers.__version__, "results": records})
            return
        rows = [
            (
                record["model"],
                f"{record['parameters']:,}" if "parameters" in record else "",
                record["trains"],
                record.get("generates", ""),
                *(f"{record[key]:.2f}" if key in record else "" for key in ("microseconds", "ratio")),
            )
            for record in records
        ]
        columns = ("model", "parameters", "trains", "generates", "us a token", f"to {LSTM}")
        caption = f"batch {options.batch}, {options.length} tokens, one thread"
        print_table("forward and backward on a CPU", columns, rows, caption)

    return run_command("library_models", run)


if __name__ == "__main__":
    sys.exit(main())
