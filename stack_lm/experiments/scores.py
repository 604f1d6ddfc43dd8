"""A model's scores on examples of a task, over all of them and by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..tasks import Example, Task
from ..tasks.dusell2020.bounded import BoundedLanguage
from .encoding import Encoded, Encoding

# Numbers of steps times strings that are scored at a time.
_BATCH = 50_000
# The scores of each kind of task, first the one that it is known by. With a lower bound there is `difference` too.
_SCORES = {
    "per_step": ("accuracy",),
    "next_symbols": ("accuracy",),
    "transduction": ("coarse", "fine"),
    "language": ("nats", "accuracy"),
}
# The first, which decides when training stops, and whether more of it is better.
MAIN_SCORE = {kind: (names[0], names[0] != "nats") for kind, names in _SCORES.items()}


def score_names(task: Task) -> tuple[str, ...]:
    """What `score` and `above_the_bound` give for a task, by name."""
    return _SCORES[task.kind] + ("difference",) * isinstance(task, BoundedLanguage)


@torch.no_grad()
def score(model: Any, encoding: Encoding, examples: Encoded, seed: int = 0) -> dict[str, Any]:
    """Score a model. The random numbers of training stay as they are.

    A string is given to the model once, with its targets where the model reads its own outputs. Up to its first error a
    greedy output and the target are the same, so neither `coarse` nor `fine` could differ.

    Args:
        model: in any mode; it runs in evaluation mode.
        encoding: of the task for it.
        examples: as it encodes them.
        seed: of the noise of choices.

    Returns:
        Scores by name, each over all examples and, under "by_length", by the length of sources: {length: [score,
        number of strings]}. Of "per_step" tasks `accuracy`, the share of scored outputs that are right. Of
        "next_symbols" tasks `accuracy`, the share of strings of which every set of symbols is right (Suzgun et al.
        2019, section 4.1). Of transductions `coarse`, the share of right outputs, and `fine`, the share of a target
        with its end that comes before the first error, a mean (Grefenstette et al. 2015, section 4.3). Of languages
        `nats`, the cross-entropy of a symbol, the end counted, and `accuracy`, the share of strings of which all
        symbols that are determined are the most probable ones (Joulin and Mikolov 2015, section 5.1).
    """
    training = model.training
    model.eval()
    kind, totals = encoding.task.kind, []
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for rows in _batches(examples, whole=encoding.buffered):
                logits = run(model, rows.inputs, rows.labels.shape[1], encoding)
                totals.append(_of_strings(kind, model, logits, rows))
    finally:
        model.train(training)
    order = _by_steps(examples)
    of_strings = {name: torch.cat([part[name] for part in totals]).double() for name in totals[0]}
    return _summed(of_strings, examples.sizes[order])


def above_the_bound(scores: dict[str, Any], task: Task, examples: Sequence[Example], split: str) -> dict[str, Any]:
    """Scores with `difference`: how far `nats` is above the lower bound, of languages that have one.

    Args:
        scores: of a language task on the examples.
        task: any; without a bound nothing is added.
        examples: of one of its splits.
        split: its name.
    """
    if not isinstance(task, BoundedLanguage):
        return scores
    lengths = [len(example.target) for example in examples]
    surprisals = [-value for value in task.log_probabilities(examples, split)]
    differences = {"difference": scores["nats"] - sum(surprisals) / sum(lengths)}
    by_length = {}
    for length, (nats, number) in scores["by_length"]["nats"].items():
        own = [surprisal for surprisal, of in zip(surprisals, lengths, strict=True) if of == int(length)]
        by_length[length] = [nats - sum(own) / (len(own) * int(length)), number]
    return {**scores, **differences, "by_length": {**scores["by_length"], "difference": by_length}}


def run(model: Any, inputs: Tensor, outputs: int, encoding: Encoding) -> Tensor:
    """A model's logits for encoded inputs [B, T, K].

    Args:
        model: any.
        inputs: token ids [B, N].
        outputs: their number, T: that of the inputs, where there is no output buffer.
        encoding: of the task for the model.
    """
    if encoding.buffered:
        logits: Tensor = model(inputs, target_length=outputs).logits
        return logits
    return model(inputs, use_cache=False).logits


def _by_steps(examples: Encoded) -> Tensor:
    return examples.steps.argsort(stable=True)


def _batches(examples: Encoded, whole: bool) -> Iterator[Encoded]:
    """Examples from short to long; `whole` keeps what is padded, which elsewhere changes nothing."""
    order = _by_steps(examples)
    longest = int(examples.steps.max())
    for part in order.split(max(1, _BATCH // longest)):
        yield examples.rows(part, trim=not whole)


def _of_strings(kind: str, model: Any, logits: Tensor, rows: Encoded) -> dict[str, Tensor]:
    """What each string adds to the scores, [B]: a number, and the number of units that it is out of."""
    owed = rows.scored.sum(-1)
    if kind == "next_symbols":
        right = (model.predict(logits) == rows.labels).all(-1)
    else:
        right = logits.argmax(-1) == rows.labels
    # A network whose weights are no numbers any more answers nothing right.
    right &= logits.isfinite().all(-1)
    if kind == "per_step":
        return {"accuracy": (right & rows.scored).sum(-1), "accuracy/of": owed}
    whole = (right | ~rows.scored).all(-1)
    one = torch.ones_like(owed)
    if kind == "next_symbols":
        return {"accuracy": whole, "accuracy/of": one}
    if kind == "language":
        losses = torch.log_softmax(logits.double(), -1).gather(-1, rows.labels.unsqueeze(-1)).squeeze(-1).neg()
        # What is no number is no order either: the worst there is, so that a table's statistics have one.
        nats = torch.where(rows.trained, losses, 0).sum(-1).nan_to_num(nan=torch.inf, posinf=torch.inf)
        return {"nats": nats, "nats/of": rows.trained.sum(-1), "accuracy": whole, "accuracy/of": one}
    before = ((~right & rows.scored).cumsum(-1) == 0) & rows.scored
    return {"coarse": whole, "coarse/of": one, "fine": before.sum(-1) / owed, "fine/of": one}


def _summed(of_strings: dict[str, Tensor], sizes: Tensor) -> dict[str, Any]:
    lengths, places = sizes.unique(return_inverse=True)
    numbers = torch.zeros(len(lengths)).index_add_(0, places, torch.ones(len(places)))
    scores: dict[str, Any] = {}
    by_length: dict[str, dict[str, list[float]]] = {}
    for name in [name for name in of_strings if not name.endswith("/of")]:
        got, owed = of_strings[name], of_strings[f"{name}/of"]
        scores[name] = float(got.sum() / owed.sum())
        zeros = torch.zeros(len(lengths), dtype=torch.double)
        shares = zeros.index_add(0, places, got) / zeros.index_add(0, places, owed)
        rows = zip(lengths.tolist(), shares.tolist(), numbers.tolist(), strict=True)
        by_length[name] = {str(length): [share, int(number)] for length, share, number in rows}
    return scores | {"by_length": by_length}
