"""Training number prediction classifiers (Merrill et al. 2019, table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.trainer_pt_utils import get_length_grouped_indices

from ..data import hold_out
from ..errors import InputError
from ..eval import AgreementItem, evaluate_agreement, read_agreement
from ..labels import IGNORED
from ..modeling_heads import StackRNNForSequenceClassification
from ..scoring.number_classifier import LABELS, NumberClassifier
from ..scoring.sentences import length_batches
from ..tokenization import added_tokens, train_word_tokenizer
from .batches import Batches, Collated, SentenceBatches
from .compact import TokenArray
from .config import ClassificationConfig
from .data import check_same_texts, collate
from .loop import TrainingLoop
from .new_model import new_model
from .pools import WholePools
from .token_cache import text_digest
from .validation import evaluating, sum_processes

FORMAT = "linzen-numpred"
# In a batch of validation sentences, padding included.
VALIDATION_TOKENS = 2048


class ClassificationTrainer(TrainingLoop):
    """A number prediction classifier's training run; `train` runs it.

    Args, Raises: as `TrainingLoop`; the configuration is a `ClassificationConfig`.

    Attributes:
        tokenizer: of the words of the training file.
        tests: the items of each test file.
    """

    LOSS, TARGETS = "loss", "sentences"

    config: ClassificationConfig

    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """See `TrainingLoop.prepare`."""
        config, data = self.config, self.config.data
        train: Sequence[AgreementItem] = read_agreement(data.train, FORMAT)[: data.limit]
        if data.validation is None:
            train, validation = hold_out(train, data.held_out, data.split_seed(config.seed))
        else:
            validation = read_agreement(data.validation, FORMAT)
        self.tests = {path: read_agreement(path, FORMAT) for path in data.test}
        if not train or not validation:
            raise InputError(f"{data.train}: nothing is left to {'validate' if train else 'train'} on")
        files = {"data.train": data.train, "data.validation": data.validation}
        self.texts = {key: text_digest([Path(file)]) for key, file in files.items() if file is not None}
        check_same_texts(config, checkpoint, self.texts)
        self.tokenizer = train_word_tokenizer(
            ((item.prefix, None) for item in train), config.tokenizer.vocab_size, lowercase=config.tokenizer.lowercase
        )
        self.validation = self._encode(validation)
        batches = LengthGroupedBatches(
            WholePools(self._encode(train)),
            config.training.batch_size,
            config.seed,
            self.accelerator.process_index,
            self.accelerator.num_processes,
        )
        fields = {
            "vocab_size": len(self.tokenizer),
            "pad_token_id": self.tokenizer.pad_token_id,
            "id2label": dict(enumerate(LABELS)),
            "label2id": {label: i for i, label in enumerate(LABELS)},
        }
        return new_model(StackRNNForSequenceClassification, config.model | fields), batches

    def _encode(self, items: Sequence[AgreementItem]) -> TokenArray:
        """Sentences as token ids, each with the id of its label behind them."""
        begin = added_tokens(self.tokenizer).begin
        texts = [" ".join(item.prefix) for item in items]
        encoded = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False).input_ids
        rows = [
            [*begin, *ids[-self.config.data.max_length :], LABELS.index(item.correct)]
            for ids, item in zip(encoded, items, strict=True)
        ]
        return TokenArray.pack([rows], len(self.tokenizer))

    def collate(self, batch: Sequence[Sequence[int]]) -> Collated:
        """See `TrainingLoop.collate`; a sentence's label is its target."""
        rows = batch or [[0, 0, IGNORED]]  # tokens, without which there is no label; see `data.collate`
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
            for batch in length_batches([len(row) for row in own], VALIDATION_TOKENS):
                inputs = self.collate([own[i] for i in batch]).inputs
                outputs = model(**inputs, use_cache=False, num_items_in_batch=1)
                right = (outputs.logits.argmax(-1) == inputs["labels"]).sum()
                sums += torch.tensor([float(outputs.loss), float(right)])
        loss, share = (total / len(self.validation) for total in sum_processes(sums, accelerator))
        record = {"eval_loss": loss, "eval_accuracy": 100 * share}
        return record, f"validation loss {loss:.4f}, accuracy {100 * share:.2f}"

    def write_tokenizer(self, directory: Path) -> None:
        """See `TrainingLoop.write_tokenizer`."""
        self.tokenizer.save_pretrained(directory)

    def train(self) -> dict[str, Any]:
        """Train until validation stops improving, keep the best epoch's model, and test it.

        Returns:
            The best epoch and its eval_loss (nats per sentence) and eval_accuracy (percent); the number of epochs;
            under "test" a `AgreementResult` for each test file.

        Raises:
            InputError, Stopped: as `TrainingLoop.train`.
        """
        result = super().train()
        scorer = NumberClassifier(self.accelerator.unwrap_model(self.model), self.tokenizer)
        return {
            "best_epoch": result["epoch"],
            "epochs": self.epoch,
            "eval_loss": result["eval_loss"],
            "eval_accuracy": result["eval_accuracy"],
            "test": {path: evaluate_agreement(scorer, items) for path, items in self.tests.items()},
        }


class LengthGroupedBatches(SentenceBatches):
    """Batches in the order of transformers' `LengthGroupedSampler`, which has the longest sentence first."""

    def _bucket(self, lengths: np.ndarray, pool: int) -> Sequence[np.ndarray]:
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + pool)
        order = np.array(get_length_grouped_indices(lengths.tolist(), self.batch_size, generator=generator))
        return [order[part] for part in self._cut(lengths[order])]
