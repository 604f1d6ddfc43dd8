"""Training of a parser that scores spans, on trees or on the votes of several parsers' trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, PreTrainedModel

from ..core.errors import InputError
from ..models.kinds import TREES, choose_class
from ..models.modeling_span_parser import spans_that_count
from ..parsing.ensemble import mutual_f1
from ..parsing.trees import ConstituencyTree
from ..scoring.batches import length_batches
from ..scoring.spans import Fenced, SpanScorer, collate_spans, tree_of_spans
from ..text import hold_out
from ..text.records import find_files, is_pattern
from .batches import Batches, Collated, SentenceBatches, WholePools
from .compact import TokenArray
from .config import SpanParserTrainingConfig, listed
from .data import digest_files
from .loop import TrainingLoop
from .new_model import InitialModel
from .tokenizer import tokenizer_for
from .validation import evaluating, sum_processes
from .votes import VotedSentence, read_votes


def _listed(sources: list[str] | str) -> list[str]:
    """The files of a source or several, of which some may be patterns of names."""
    each = (find_files(source) if is_pattern(source) else [source] for source in listed(sources))
    return [str(file) for files in each for file in files]


class SpanParserTrainer(TrainingLoop):
    """A span parser's training run; `train` runs it.

    Args, Raises: as `TrainingLoop`; the configuration is a `SpanParserTrainingConfig`.

    Attributes:
        tokenizer: the tokenizer of the training sentences.
        sentences: the training sentences, with their votes.
        validation: held-out ones.
    """

    LOSS, TARGETS = "loss", "spans"

    config: SpanParserTrainingConfig

    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """See `TrainingLoop.prepare`."""
        config, data = self.config, self.config.data
        initial = InitialModel(config.training.initial_model, AutoModel, "parser")
        own = initial.fields(config.model)
        kind = choose_class({"model_type": "span_parser"} | own, TREES)
        files = {"data.trees": _listed(data.trees), "data.validation": _listed(data.validation or [])}
        self.texts = digest_files(config, checkpoint, files)
        voted, self.notes = read_votes(files["data.trees"], data.prior, data.outlier_share, data.prior_votes)
        if data.validation is None:
            self.sentences, self.validation = hold_out(voted, data.held_out, data.split_seed(config.seed))
        else:
            self.sentences = voted
            # Without the prior: these may be gold trees, and validation chooses the best weights.
            self.validation, notes = read_votes(files["data.validation"], None, data.outlier_share)
            self.notes += notes
        self.sentences = self.sentences[: data.limit]
        if not self.sentences or not self.validation:
            key = "data.validation" if self.sentences else "data.trees"
            raise InputError(f"{', '.join(files[key])}: no sentence has three words or more")
        self.tokenizer = tokenizer_for([one.words for one in self.sentences], config, checkpoint)
        special = {name: getattr(self.tokenizer, name) for name in ("bos_token_id", "eos_token_id")}
        model, notes = initial.make(kind, own, self.tokenizer, **special)
        self.notes += notes
        self._scorer = SpanScorer(model, self.tokenizer)
        self._encoded = list(self._scorer.encode([one.words for one in self.sentences]))
        # Each row ends with the sentence's number, for the look-up of its fences and votes.
        rows = [[*ids, i] for i, (ids, _) in enumerate(self._encoded)]
        tokens = TokenArray.pack([rows], max(len(self.tokenizer), len(rows)))
        return model, SentenceBatches(WholePools(tokens), config.training.batch_size, config.seed)

    def collate(self, batch: Sequence[Sequence[int]]) -> Collated:
        """See `TrainingLoop.collate`; the targets are the spans in which trees can differ."""
        if not batch:  # one word, which has no such span
            inputs: dict[str, Any] = collate_spans([([0, 0, 0], [0, 1])], self.accelerator.device)
            return Collated(inputs | {"votes": torch.zeros(1, 2, 2, device=self.accelerator.device)}, 0, 0, 0)
        numbers = [row[-1] for row in batch]
        inputs = self._with_votes([self.sentences[i] for i in numbers], [self._encoded[i] for i in numbers])
        targets = int(spans_that_count(inputs["fences"] >= 0).sum())
        return Collated(inputs, targets, sum(map(len, batch)) - len(batch), inputs["input_ids"].numel())

    def _with_votes(self, sentences: Sequence[VotedSentence], encoded: Sequence[Fenced]) -> dict[str, Any]:
        inputs = collate_spans(encoded, self.accelerator.device)
        size = inputs["fences"].shape[1]
        votes = torch.from_numpy(np.stack([one.matrix(size) for one in sentences]))
        return inputs | {"votes": votes.to(self.accelerator.device)}

    @cached_property
    def _own_validation(self) -> list[tuple[VotedSentence, Fenced, ConstituencyTree]]:
        """This process's held-out sentences, each with its tokens and the tree elected by its votes."""
        own = self.validation[self.accelerator.process_index :: self.accelerator.num_processes]
        encoded = self._scorer.encode([one.words for one in own])
        return [(one, tokens, one.tree()) for one, tokens in zip(own, encoded, strict=True)]

    def evaluate(self) -> tuple[dict[str, Any], str]:
        """See `TrainingLoop.evaluate`: eval_loss, the mean over spans in nats, and eval_f1, in percent, of the trees
        against those elected by the votes (see `mutual_f1`)."""
        accelerator = self.accelerator
        own = self._own_validation
        sums, pairs = torch.zeros(4, dtype=torch.float64), []
        with torch.no_grad(), evaluating(self.model, accelerator) as model, accelerator.autocast():
            for batch in length_batches([len(ids) for _, (ids, _), _ in own], self._scorer.batch_tokens):
                sentences, encoded, trees = zip(*(own[i] for i in batch), strict=True)
                inputs = self._with_votes(sentences, encoded)
                outputs = model(**inputs, num_items_in_batch=1)
                counted = float(spans_that_count(inputs["fences"] >= 0).sum())
                sums += torch.tensor([float(outputs.loss), counted, 0, 0])
                values = torch.sigmoid(outputs.logits.float()).cpu().numpy()
                found = [tree_of_spans(one.words, value) for one, value in zip(sentences, values, strict=True)]
                pairs += list(zip(found, trees, strict=True))
        if pairs:
            f1 = float(mutual_f1(list(zip(*pairs, strict=True)))[0, 1])
            sums[2:] = torch.tensor([f1 * len(pairs), len(pairs)])
        loss, spans, f1, sentences = sum_processes(sums, accelerator)
        record = {"eval_loss": loss / spans, "eval_f1": f1 / sentences}
        return record, f"validation loss {loss / spans:.4f}, F1 against the trees of the votes {f1 / sentences:.2f}"
