"""Convert a checkpoint released with Merrill et al. (2019) into a model directory of stack-lm.

The checkpoints are AllenNLP state_dicts: language models or number-prediction classifiers, with an LSTM or GRU
controller, or plain recurrent baselines without a stack.

Example:
    python recipes/convert_merrill2019.py stack-brown.th vocabulary-brown/ brown-d1/ --fixed push
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from stack_lm import StackRNNConfig, StackRNNForCausalLM, StackRNNForSequenceClassification
from stack_lm.cli.options import option
from stack_lm.core.atomic import atomic_directory
from stack_lm.core.console import print_written, run_command, script_parser
from stack_lm.core.errors import InputError
from stack_lm.hub.state_dicts import fill, load_state_dict, take
from stack_lm.text.plain import read_text
from stack_lm.text.tokenization import word_tokenizer

UNKNOWN, PADDING = "@@UNKNOWN@@", "@@PADDING@@"
# The released model has no output for words that were never labels. A finite logit keeps losses finite.
NO_LOGIT = -1e4
EMBEDDING = "_embedder.token_embedder_tokens.weight"
CONTROLLERS: dict[int, Literal["lstm", "gru", "rnn"]] = {4: "lstm", 3: "gru", 1: "rnn"}


def read_vocabulary(directory: Path, name: str) -> list[str]:
    """Read one of AllenNLP's vocabulary files, with one entry per line."""
    entries = read_text(directory / name).split("\n")
    if entries[-1] == "":
        entries.pop()
    return entries


def convert_config(state: dict[str, Tensor], path: Path, fixed: str | None) -> StackRNNConfig:
    """The configuration that matches the checkpoint's shapes."""
    embedding = take(state, path, EMBEDDING)
    recurrent = take(state, path, "_rnn_cell.weight_hh", "_rnn.weight_hh_l0")
    hidden = recurrent.shape[1]
    controller = CONTROLLERS.get(recurrent.shape[0] // hidden)
    if controller is None:
        raise InputError(f"{path} has a recurrent layer of {recurrent.shape[0]} rows for {hidden} hidden units")
    stack = "_control_layer._vector_map.weight" in state
    if stack and fixed is None:
        raise InputError(
            f"{path} has a stack, and no file says which of its strengths was fixed: give --fixed push, pop or none"
        )
    pops = state["_control_layer._pop_map.weight"].shape[0] - 1 if stack else 3
    reads = state["_control_layer._read_map.weight"].shape[0] - 1 if stack else 3
    push: str | float = {"push": 1.0, "pop": "expected_value"}.get(fixed or "none", "sigmoid")  # type: ignore[assignment]
    return StackRNNConfig(
        vocab_size=embedding.shape[0],
        embedding_size=embedding.shape[1],
        hidden_size=hidden,
        controller=controller,
        memory="stack" if stack else "none",
        memory_size=state["_control_layer._vector_map.weight"].shape[0] if stack else 16,
        # The released code has one expected-value map, named after the pop; with the pop fixed it drives the push.
        push_control=push,
        pop_control=1.0 if fixed == "pop" else "expected_value",
        read_control="expected_value",
        max_push=pops,
        max_pop=pops,
        max_read=reads,
        pad_token_id=0,
    )


def convert_body(state: dict[str, Tensor], path: Path, config: StackRNNConfig, fixed: str | None) -> dict[str, Tensor]:
    """The weights of the recurrent cell, under our names."""
    size = config.embedding_size
    weight_ih = take(state, path, "_rnn_cell.weight_ih", "_rnn.weight_ih_l0")
    body = {
        "controller.weight_ih_l0": weight_ih[:, :size],
        "controller.weight_hh_l0": take(state, path, "_rnn_cell.weight_hh", "_rnn.weight_hh_l0"),
        "controller.bias_ih_l0": take(state, path, "_rnn_cell.bias_ih", "_rnn.bias_ih_l0"),
        "controller.bias_hh_l0": take(state, path, "_rnn_cell.bias_hh", "_rnn.bias_hh_l0"),
    }
    if config.memory == "none":
        return body
    body["controller.weight_reading"] = weight_ih[:, size:]
    maps = {"push": ["pop"], "pop": ["pop"], "none": ["push", "pop"]}[fixed or "none"]
    for kind in ("weight", "bias"):
        rows = [take(state, path, f"_control_layer._{name}_map.{kind}") for name in ("vector", *maps, "read")]
        body[f"controls.projection.{kind}"] = torch.cat(rows)
    return body


def make_classifier(
    config: StackRNNConfig, vocabulary: Path, weight: Tensor, bias: Tensor
) -> tuple[StackRNNForSequenceClassification, dict[str, Tensor]]:
    """A classifier, and the weights of its head."""
    # The released classifier is one logit z with the probability sigmoid(z) of label 1; softmax((0, z)) is that.
    names = read_vocabulary(vocabulary, "labels.txt") if (vocabulary / "labels.txt").is_file() else ["0", "1"]
    config.id2label = {i: {"0": "VBZ", "1": "VBP"}.get(name, name) for i, name in enumerate(names[:2])}
    config.label2id = {name: i for i, name in config.id2label.items()}
    head = {
        "score.weight": torch.cat((torch.zeros_like(weight), weight)),
        "score.bias": torch.cat((torch.zeros_like(bias), bias)),
    }
    return StackRNNForSequenceClassification(config), head


def convert(checkpoint: Path, vocabulary: Path, output: Path, fixed: str | None) -> None:
    """Write the model directory atomically."""
    state = load_state_dict(checkpoint)
    config = convert_config(state, checkpoint, fixed)
    tokens = [PADDING, *read_vocabulary(vocabulary, "tokens.txt")]
    embedding = state[EMBEDDING]
    if len(tokens) > embedding.shape[0]:
        raise InputError(
            f"{vocabulary / 'tokens.txt'} has {len(tokens) - 1} tokens, but {checkpoint} has embeddings for "
            f"{embedding.shape[0] - 1} and padding: they are not of one model"
        )
    tokens += [f"[unused{i}]" for i in range(len(tokens), embedding.shape[0])]
    if UNKNOWN not in tokens:
        raise InputError(f"{vocabulary / 'tokens.txt'} has no {UNKNOWN}")
    weight = take(state, checkpoint, "_classifier.weight", "_linear.weight")
    bias = take(state, checkpoint, "_classifier.bias", "_linear.bias")
    model: StackRNNForCausalLM | StackRNNForSequenceClassification
    if weight.shape[0] == 1:
        model, head = make_classifier(config, vocabulary, weight, bias)
    else:
        labels = read_vocabulary(vocabulary, "labels.txt")
        if len(labels) > weight.shape[0]:
            raise InputError(
                f"{vocabulary / 'labels.txt'} has {len(labels)} labels, but {checkpoint} has {weight.shape[0]} outputs"
            )
        # Labels that are no input tokens get ids of their own; as inputs they were unknown words.
        known = set(tokens)
        extra = [label for label in labels if label not in known]
        tokens += extra
        embedding = torch.cat((embedding, embedding[tokens.index(UNKNOWN)].expand(len(extra), -1)))
        config.vocab_size = len(tokens)
        ids = [tokens.index(label) for label in labels]
        head = {
            "lm_head.weight": weight.new_zeros(len(tokens), weight.shape[1]),
            "lm_head.bias": bias.new_full((len(tokens),), NO_LOGIT),
        }
        head["lm_head.weight"][ids] = weight[: len(labels)]
        head["lm_head.bias"][ids] = bias[: len(labels)]
        model = StackRNNForCausalLM(config)
    body = convert_body(state, checkpoint, config, fixed)
    weights = {f"model.cell.{name}": value for name, value in body.items()}
    fill(model, weights | head | {"model.embed_tokens.weight": embedding}, checkpoint)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(tokens, UNKNOWN),
        unk_token=UNKNOWN,
        pad_token=PADDING,
        model_input_names=["input_ids", "attention_mask"],
    )
    with atomic_directory(output) as directory:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__)
    option(parser, "CHECKPOINT", "the released .th file", type=Path)
    option(parser, "VOCABULARY_DIR", "the directory with its tokens.txt and labels.txt", type=Path, dest="vocabulary")
    option(parser, "OUT_DIR", "the model directory to write; must be new", type=Path, dest="output")
    fixed = "the strength that was fixed to 1 in training (d = 1: push, u = 1: pop); none for the classifier with a "
    fixed += "sigmoid push; not needed for a model without a stack"
    option(parser, "--fixed", fixed, choices=("push", "pop", "none"))
    options = parser.parse_args(arguments)

    def run() -> None:
        convert(options.checkpoint, options.vocabulary, options.output, options.fixed)
        print_written(str(options.output))

    return run_command("convert_merrill2019", run)


if __name__ == "__main__":
    sys.exit(main())
