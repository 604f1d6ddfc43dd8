"""A model's scores on examples of a task, over all of them and by length."""

from __future__ import annotations

from itertools import compress
from typing import Any

import torch
from torch import Tensor

from ...core.errors import InputError
from ...nn import memories
from ...nn.dead_zone import DeadZone, dead_zone
from ...tasks.scores import Answers, evaluation_mode, summarize
from .encoding import Encoded, Encoding, loss_weights, weighted_loss

# Steps times strings scored at a time.
_BATCH = 50_000


@torch.no_grad()
def score(model: Any, encoding: Encoding, examples: Encoded, seed: int = 0) -> dict[str, Any]:
    """Score a model without changing the random state of training.

    Each string is run once, with its targets as inputs if the model reads its own outputs. Up to the first error the
    greedy output equals the target, so `coarse` and `fine` are unaffected.

    Args:
        model: a model in any mode; it runs in evaluation mode.
        encoding: the encoding of the task for it.
        examples: as it encodes them.
        seed: the seed of the noise of choices.

    Returns:
        The scores of the task's kind, by name, each over all examples; under "by_length", by source length; under
        "by_edits", if known, by the number of edits of non-members; and under "by_position", for a task with an answer
        at every step, the accuracy of the answers after each number of symbols: [share, number of answers].
    """
    answers: list[Answers] = []
    sizes: list[int] = []
    edits: list[int | None] = []
    at_steps = torch.zeros(2, examples.inputs.shape[1], dtype=torch.long)  # right answers, and answers
    devices = [] if model.device.type == "cpu" else [model.device]
    with evaluation_mode(model), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        # From short to long; in an input buffer padding counts, elsewhere it changes nothing.
        for part in examples.steps.argsort(stable=True).split(max(1, _BATCH // int(examples.steps.max()))):
            rows = examples.rows(part, trim=not encoding.buffered)
            logits = run(model, rows.inputs.to(model.device), rows.labels.shape[1], encoding).cpu()
            right = _right(decide(model, logits, encoding), logits, rows, encoding.task.any_continuation)
            answers += _answers(logits, rows, right, surprisals="nats" in encoding.kind.scores)
            if encoding.task.kind == "per_step":
                at_steps[:, : right.shape[1]] += torch.stack((right & rows.scored, rows.scored)).sum(1)
            sizes += rows.sizes.tolist()
            edits += [None if number < 0 else number for number in rows.edits.tolist()]
    summary = summarize(encoding.kind.scores, answers, sizes, edits)
    answers_all = (examples.scored[:, 1:].sum(1) == examples.steps - 1).all()  # but perhaps for the first symbol
    if encoding.task.kind == "per_step" and not encoding.buffered and answers_all:
        shares = {str(step): [right / of, of] for step, (right, of) in enumerate(at_steps.T.tolist(), 1) if of}
        summary["by_position"] = {"accuracy": shares}
    return summary


@torch.no_grad()
def predictions(model: Any, encoding: Encoding, examples: Encoded) -> list[tuple[str, str]]:
    """The scored targets of each example, and the model's answers to them; a set of symbols is written `a/b`.

    Args:
        model, encoding, examples: as of `score`; the model is in evaluation mode.
    """

    def spelled(labels: Tensor, scored: Tensor) -> str:
        chosen = labels[scored].tolist()
        sets = ([k for k, on in enumerate(row) if on] if isinstance(row, list) else [row] for row in chosen)
        return " ".join("/".join(encoding.answers[k] for k in row) for row in sets)

    found = []
    for part in torch.arange(len(examples.steps)).split(max(1, _BATCH // int(examples.steps.max()))):
        rows = examples.rows(part, trim=not encoding.buffered)
        logits = run(model, rows.inputs.to(model.device), rows.labels.shape[1], encoding).cpu()
        pairs = zip(rows.labels, decide(model, logits, encoding), rows.scored, strict=True)
        found += [(spelled(labels, scored), spelled(answers, scored)) for labels, answers, scored in pairs]
    return found


def run(model: Any, inputs: Tensor, outputs: int, encoding: Encoding) -> Tensor:
    """A model's logits for encoded inputs [B, T, K].

    Args:
        model: any.
        inputs: token ids [B, N].
        outputs: their number, T: that of the inputs without an output buffer; 1 for classification.
        encoding: the encoding of the task for the model.
    """
    if encoding.buffered:
        return model(inputs, target_length=outputs).logits
    if encoding.library:
        try:
            logits = model(inputs, use_cache=False).logits[..., : len(encoding.answers)]
        except IndexError as error:  # of learned positions
            most = getattr(model.config, "max_position_embeddings", "fewer")
            raise InputError(f"the model reads {most} symbols at most; a string has {inputs.shape[1]}") from error
        if encoding.task.kind != "classification":
            return logits
        last = (inputs != encoding.padding).sum(1) - 1
        return logits[torch.arange(len(last), device=last.device), last].unsqueeze(1)
    if encoding.task.kind == "classification":
        label: Tensor = model(inputs, use_cache=False).logits
        return label.unsqueeze(1)
    return model(inputs, use_cache=False).logits


def measure_dead_zone(model: Any, encoding: Encoding, examples: Encoded) -> DeadZone | None:
    """Measure how far the readings of a model's first memory reach; see `stack_lm.nn.dead_zone`.

    Args:
        model: any, in evaluation mode.
        encoding: the encoding of the task for it.
        examples: as it encodes them. The loss is the mean over their outputs.
    """
    if not (layers := memories(model)):
        return None
    examples = Encoded(*(part.to(model.device) for part in examples))
    labels = examples.labels.to(model.dtype) if examples.labels.dim() == 3 else examples.labels
    weights = loss_weights(examples.trained, "mean", dtype=model.dtype)

    def loss() -> Tensor:
        return weighted_loss(run(model, examples.inputs, labels.shape[1], encoding), labels, weights)

    inside = torch.arange(examples.inputs.shape[1], device=model.device) < examples.steps.unsqueeze(1)
    return dead_zone(layers[0], loss, None if encoding.buffered else inside)


def decide(model: Any, logits: Tensor, encoding: Encoding) -> Tensor:
    """The answers of a model.

    Args:
        model: any.
        logits: [..., K], as from `run`.
        encoding: the encoding of the task for the model.

    Returns:
        The most probable symbols [...]; or, if the answers are sets of symbols, whether each is in the set [..., K].
    """
    if encoding.task.kind != "next_symbols":
        return logits.argmax(-1)
    return torch.sigmoid(logits) >= 0.5 if encoding.library else model.predict(logits)


def _right(outputs: Tensor, logits: Tensor, rows: Encoded, any_continuation: bool) -> Tensor:
    """The mask of right outputs, [B, T]."""
    if any_continuation:
        right = rows.continuations.gather(-1, outputs.unsqueeze(-1)).squeeze(-1)
    else:
        same = outputs == rows.labels
        right = same.all(-1) if same.dim() == 3 else same
    # A network whose weights have become NaN gets nothing right.
    return right & logits.isfinite().all(-1)


def _answers(logits: Tensor, rows: Encoded, right: Tensor, surprisals: bool) -> list[Answers]:
    values = [_chosen(right, rows.scored)]
    if surprisals:
        losses = torch.log_softmax(logits.double(), -1).gather(-1, rows.labels.unsqueeze(-1)).squeeze(-1).neg()
        values.append(_chosen(losses, rows.trained))
    return [Answers(*string) for string in zip(*values, strict=True)]


def _chosen(values: Tensor, mask: Tensor) -> list[list[Any]]:
    """The values of each row selected by a mask."""
    return [list(compress(row, chosen)) for row, chosen in zip(values.tolist(), mask.tolist(), strict=True)]
