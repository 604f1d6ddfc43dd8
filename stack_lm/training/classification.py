"""Training of text classifiers: with any labels, and for number prediction (Merrill et al. 2019, table 2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.trainer_pt_utils import get_length_grouped_indices

from ..core.errors import InputError
from ..core.labels import IGNORED
from ..eval import evaluate_agreement, read_agreement
from ..eval.classification import ClassificationResult, score_labels
from ..models.kinds import choose_class
from ..scoring.batches import length_batches
from ..scoring.number_classifier import LABELS, NumberClassifier, encode_for_classifier
from ..text import hold_out
from ..text.formats import is_table
from ..text.labelled import LabelledText, read_labelled
from .batches import Batches, Collated, SentenceBatches, WholePools, collate
from .compact import TokenArray
from .config import ClassificationConfig
from .data import digest_files
from .loop import TrainingLoop
from .new_model import InitialModel
from .tokenizer import tokenizer_for
from .validation import evaluating, sum_processes

FORMAT = "linzen-numpred"
# Tokens in a batch of validation sentences, padding included.
VALIDATION_TOKENS = 2048


class ClassificationTrainer(TrainingLoop):
    """A classifier's training run; `train` runs it.

    Args, Raises: as `TrainingLoop`; the configuration is a `ClassificationConfig`.

    Attributes:
        tokenizer: the tokenizer of the training file's words, or the given one.
        labels: the labels of the training file; the position of a label is its id.
        tests: the texts of each test file that is a table.
        items: the items of each test file of number prediction.
    """

    LOSS, TARGETS = "loss", "sentences"

    config: ClassificationConfig

    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """See `TrainingLoop.prepare`."""
        config, data = self.config, self.config.data
        initial = InitialModel(config.training.initial_model)
        own = initial.fields(config.model)
        kind = choose_class(own, "classification")
        train = self._read(data.train)[: data.limit]
        self.labels = self._find_labels(train)
        if data.validation is None:
            train, validation = hold_out(train, data.held_out, data.split_seed(config.seed))
        else:
            validation = self._read(data.validation)
        tests = [data.test] if isinstance(data.test, str) else data.test
        self.tests = {path: self._read(path) for path in tests if is_table(path)}
        self.items = {path: read_agreement(path, FORMAT) for path in tests if not is_table(path)}
        if not train or not validation:
            raise InputError(f"{data.train}: nothing is left to {'validate' if train else 'train'} on")
        known = set(self.labels)
        for text in (*validation, *(text for texts in self.tests.values() for text in texts)):
            if text.label not in known:
                raise InputError(f"{text.where}: no training text has the label {text.label!r:.60}")
        if self.items and self.labels != LABELS:
            raise InputError(f"{next(iter(self.items))} is a file of number prediction; {data.train} has other labels")
        files = {"data.train": [data.train], "data.validation": [data.validation] if data.validation else []}
        self.texts = digest_files(config, checkpoint, files)
        self.tokenizer = tokenizer_for([text.words for text in train], config, checkpoint)
        self.validation = self._encode(validation)
        id2label = dict(enumerate(self.labels))
        label2id = {label: i for i, label in id2label.items()}
        model, notes = initial.make(kind, own, self.tokenizer, id2label=id2label, label2id=label2id)
        self.notes += notes
        return model, LengthGroupedBatches(WholePools(self._encode(train)), config.training.batch_size, config.seed)

    def _read(self, path: str) -> list[LabelledText]:
        if is_table(path):
            return read_labelled(path, self.config.data.column, self.config.data.label_column)
        return [LabelledText(item.prefix, item.correct, path) for item in read_agreement(path, FORMAT)]

    def _find_labels(self, train: Sequence[LabelledText]) -> tuple[str, ...]:
        """The labels of the training file, sorted, integers by their value; for number prediction both, in order."""
        path = self.config.data.train
        if not is_table(path):
            return LABELS
        labels = sorted({text.label for text in train})
        if len(labels) < 2:
            raise InputError(f"{path}: a classifier needs two labels or more; all texts have {', '.join(labels)!r:.60}")
        if all(re.fullmatch(r"[+-]?[0-9]+", label) for label in labels):
            labels.sort(key=int)
        return tuple(labels)

    def _encode(self, texts: Sequence[LabelledText]) -> TokenArray:
        """Texts as token ids, each followed by the id of its label."""
        ids = {label: i for i, label in enumerate(self.labels)}
        encoded = encode_for_classifier(self.tokenizer, [text.words for text in texts], self.config.data.max_length)
        rows = [[*tokens, ids[text.label]] for tokens, text in zip(encoded, texts, strict=True)]
        return TokenArray.pack([rows], max(len(self.tokenizer), len(self.labels)))

    def collate(self, batch: Sequence[Sequence[int]]) -> Collated:
        """See `TrainingLoop.collate`; a sentence's label is its target."""
        rows = batch or [[0, 0, IGNORED]]  # tokens, without which there is no label; see `batches.collate`
        ids, inside = collate([row[:-1] for row in rows], self.accelerator.device)
        inputs = {
            "input_ids": ids,
            "attention_mask": (inside != IGNORED).long(),
            "labels": torch.tensor([row[-1] for row in rows], device=self.accelerator.device),
        }
        return Collated(inputs, len(batch), sum(map(len, batch)) - len(batch), ids.numel() if batch else 0)

    def evaluate(self) -> tuple[dict[str, Any], str]:
        """See `TrainingLoop.evaluate`: eval_loss, the mean over sentences in nats, and eval_accuracy, in percent."""
        accelerator = self.accelerator
        own = self.validation[accelerator.process_index :: accelerator.num_processes]
        sums = torch.zeros(2, dtype=torch.float64)
        with torch.no_grad(), evaluating(self.model, accelerator) as model, accelerator.autocast():
            for _, outputs, labels in self._run(model, own):
                right = (outputs.logits.argmax(-1) == labels).sum()
                sums += torch.tensor([float(outputs.loss), float(right)])
        loss, share = (total / len(self.validation) for total in sum_processes(sums, accelerator))
        record = {"eval_loss": loss, "eval_accuracy": 100 * share}
        return record, f"validation loss {loss:.4f}, accuracy {100 * share:.2f}"

    def _run(self, model: Any, rows: Sequence[Sequence[int]]) -> Iterator[tuple[Sequence[int], Any, Tensor]]:
        """The numbers of the rows of each batch, the outputs of the model, and the labels."""
        for batch in length_batches([len(row) for row in rows], VALIDATION_TOKENS):
            inputs = self.collate([rows[i] for i in batch]).inputs
            yield batch, model(**inputs, use_cache=False, num_items_in_batch=1), inputs["labels"]

    def train(self) -> dict[str, Any]:
        """Train until validation stops improving, keep the best epoch's model, and test it.

        Returns:
            The best epoch and its eval_loss (nats per sentence) and eval_accuracy (percent); the number of epochs;
            under "test" for each test file a `ClassificationResult`, or for number prediction a `ChoiceResult`.

        Raises:
            InputError, Stopped: as `TrainingLoop.train`.
        """
        result = super().train()
        model = self.accelerator.unwrap_model(self.model)
        tests: dict[str, Any] = {path: self._test(model, texts) for path, texts in self.tests.items()}
        if self.items:
            scorer = NumberClassifier(model, self.tokenizer, max_length=self.config.data.max_length)
            tests |= {path: evaluate_agreement(scorer, items) for path, items in self.items.items()}
        scores = {name: result[name] for name in ("eval_loss", "eval_accuracy")}
        return {"best_epoch": result["epoch"], "epochs": self.epoch, **scores, "test": tests}

    @torch.no_grad()
    def _test(self, model: Any, texts: Sequence[LabelledText]) -> ClassificationResult:
        model.eval()
        rows, predicted = self._encode(texts), [""] * len(texts)
        for batch, outputs, _ in self._run(model, rows):
            for i, answer in zip(batch, outputs.logits.argmax(-1).tolist(), strict=True):
                predicted[i] = self.labels[answer]
        return score_labels([text.label for text in texts], predicted)


class LengthGroupedBatches(SentenceBatches):
    """Batches in the order of transformers' `LengthGroupedSampler`, which puts the longest sentence first."""

    def _bucket(self, lengths: np.ndarray, pool: int) -> Sequence[np.ndarray]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + pool)
        order = np.array(get_length_grouped_indices(lengths.tolist(), self.batch_size, generator=generator))
        return [order[part] for part in self._cut(lengths[order])]
