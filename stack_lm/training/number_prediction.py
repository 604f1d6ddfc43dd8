"""Training number prediction classifiers (Merrill et al. 2019, table 2)."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers import Trainer as TransformersTrainer
from transformers.trainer_callback import PrinterCallback

from ..atomic import atomic_directory, atomic_file
from ..configuration_stack_rnn import StackRNNConfig
from ..console import print_note, progress
from ..data import hold_out
from ..errors import InputError
from ..eval import AgreementItem, evaluate_agreement, read_agreement
from ..modeling_heads import StackRNNForSequenceClassification
from ..scoring.number_classifier import LABELS, ClassifierScorer
from ..tokenization import Lowercase, WordPreparation, train_word_tokenizer

CONFIG_FILE, METRICS_FILE = "training_config.yaml", "metrics.jsonl"


@dataclass(frozen=True)
class VocabularyConfig:
    """The word-level vocabulary, from the training sentences.

    Attributes:
        vocab_size: most frequent words to keep.
        lowercase: "none", "first_word" of each sentence, or "all".
    """

    vocab_size: int = 10_000
    lowercase: Lowercase = "none"


@dataclass(frozen=True)
class NumberDataConfig:
    """What to train, stop and test on: files of the number prediction task (Linzen et al. 2016).

    Attributes:
        train: the file to train on.
        validation: the file that decides when to stop; null holds some of the training file out.
        held_out: how many sentences to hold out (1 or more), or which share (below 1).
        test: files to report accuracies on, which have no part in training.
        limit: train on at most so many sentences, the first; null for all.
        max_length: longest sentence, in words; of longer ones the beginning is cut off, as the verb is at the end.
    """

    train: str = "numpred.train"
    validation: str | None = None
    held_out: float = 0.1
    test: list[str] = field(default_factory=list)
    limit: int | None = None
    max_length: int = 200


@dataclass(frozen=True)
class ClassifierLoopConfig:
    """How to train.

    Attributes:
        epochs: at most so many passes over the training sentences.
        patience: stop after so many epochs without a lower validation loss; the best epoch's model is kept.
        batch_size: sentences in a batch, on each process.
        learning_rate: of Adam.
        weight_decay: of AdamW, decoupled from the gradient.
        max_grad_norm: clip gradients to this norm; null does not.
        mixed_precision: "no", "bf16" or "fp16".
    """

    epochs: int = 50
    patience: int = 5
    batch_size: int = 16
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    max_grad_norm: float | None = None
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"


@dataclass(frozen=True)
class ClassifierConfig:
    """A classifier's training run: everything that decides its outcome.

    Attributes:
        output_dir: where the model, its tokenizer, metrics and checkpoints go.
        seed: of initial weights, dropout, the order of batches and the choice of held-out sentences.
        model: fields of `StackRNNConfig`; the vocabulary size comes from the tokenizer.
    """

    output_dir: str = "runs/number"
    seed: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    tokenizer: VocabularyConfig = field(default_factory=VocabularyConfig)
    data: NumberDataConfig = field(default_factory=NumberDataConfig)
    training: ClassifierLoopConfig = field(default_factory=ClassifierLoopConfig)

    def check(self) -> None:
        """Find values that cannot work.

        Raises:
            InputError: that names the key.
        """
        positive = {
            "tokenizer.vocab_size": self.tokenizer.vocab_size,
            "data.held_out": self.data.held_out,
            "data.limit": self.data.limit,
            "data.max_length": self.data.max_length,
            "training.epochs": self.training.epochs,
            "training.patience": self.training.patience,
            "training.batch_size": self.training.batch_size,
            "training.learning_rate": self.training.learning_rate,
            "training.max_grad_norm": self.training.max_grad_norm,
        }
        for key, value in positive.items():
            if value is not None and not value > 0:
                raise InputError(f"{key} must be more than 0; got {value}")
        if self.training.weight_decay < 0:
            raise InputError(f"training.weight_decay must be at least 0; got {self.training.weight_decay}")
        if not all(isinstance(path, str) for path in self.data.test):
            raise InputError(f"data.test must be a list of paths; got {self.data.test!r}")
        if not self.output_dir:
            raise InputError("output_dir must name a directory; it is empty")
        for key in ("vocab_size", "num_labels", "id2label", "label2id"):
            if key in self.model:
                raise InputError(f"model.{key} cannot be set: it comes from the data")


class ClassifierTrainer:
    """One training run with transformers' `Trainer`; `train` runs it.

    Args:
        config: the run.
        resume: continue from the last checkpoint in `output_dir`, if there is one.
        overwrite: remove an earlier run in `output_dir`.
        quiet: no progress bar and no notes.

    Raises:
        InputError: if the configuration or the data cannot work, or `output_dir` has a run already.
    """

    def __init__(
        self, config: ClassifierConfig, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
    ) -> None:
        config.check()
        self.config, self.quiet, self.resume = config, quiet, resume
        self.directory = Path(config.output_dir)
        data = config.data
        train: Sequence[AgreementItem] = read_agreement(data.train, "linzen-numpred")[: data.limit]
        if data.validation is None:
            train, validation = hold_out(train, data.held_out, config.seed)
        else:
            validation = read_agreement(data.validation, "linzen-numpred")
        self.tests = {path: read_agreement(path, "linzen-numpred") for path in data.test}
        if not train or not validation:
            raise InputError(f"{data.train}: nothing is left to {'validate' if train else 'train'} on")
        self.tokenizer = train_word_tokenizer(
            ((item.prefix, None) for item in train), config.tokenizer.vocab_size, lowercase=config.tokenizer.lowercase
        )
        set_seed(config.seed)
        self.model = make_classifier(config, self.tokenizer)
        self._open_directory(overwrite)
        self._n_train = len(train)
        self._record = _Record(self.directory / METRICS_FILE, quiet)
        self._trainer = self._make_trainer(self._encode(train), self._encode(validation))

    def _open_directory(self, overwrite: bool) -> None:
        started = (self.directory / CONFIG_FILE).is_file()
        if self.resume and started:
            earlier = yaml.safe_load((self.directory / CONFIG_FILE).read_text(encoding="utf-8"))
            now = dataclasses.asdict(self.config)
            for section, values in now.items():
                if section != "output_dir" and values != earlier.get(section):
                    raise InputError(
                        f"cannot resume {self.directory}: its {section} was {earlier.get(section)}, and is {values} now"
                    )
            return
        if self.directory.is_dir() and any(self.directory.iterdir()):
            if not overwrite:
                raise InputError(
                    f"{self.directory} is not empty; resume its run with --resume, replace it with --overwrite, or "
                    "name another output_dir"
                )
            if not started:
                raise InputError(f"{self.directory} is not a run (it has no {CONFIG_FILE}), so it is not overwritten")
            shutil.rmtree(self.directory)
        with atomic_file(self.directory / CONFIG_FILE) as path:
            path.write_text(yaml.safe_dump(dataclasses.asdict(self.config), sort_keys=False), encoding="utf-8")

    def _encode(self, items: Sequence[AgreementItem]) -> list[dict[str, Any]]:
        prepare = WordPreparation(self.tokenizer)
        texts = [" ".join(prepare(item.prefix)[-self.config.data.max_length :]) for item in items]
        encoded = self.tokenizer(texts, return_attention_mask=False).input_ids
        return [
            {"input_ids": ids, "labels": LABELS.index(item.correct)} for ids, item in zip(encoded, items, strict=True)
        ]

    def _make_trainer(self, train: Any, validation: Any) -> TransformersTrainer:
        loop = self.config.training
        arguments = TrainingArguments(
            output_dir=str(self.directory / "checkpoints"),
            num_train_epochs=loop.epochs,
            per_device_train_batch_size=loop.batch_size,
            per_device_eval_batch_size=256,
            learning_rate=loop.learning_rate,
            weight_decay=loop.weight_decay,
            lr_scheduler_type="constant",
            max_grad_norm=loop.max_grad_norm or 0.0,
            bf16=loop.mixed_precision == "bf16",
            fp16=loop.mixed_precision == "fp16",
            train_sampling_strategy="group_by_length",
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            greater_is_better=False,
            seed=self.config.seed,
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
        )
        trainer = TransformersTrainer(
            self.model,
            arguments,
            data_collator=DataCollatorWithPadding(self.tokenizer),
            train_dataset=train,
            eval_dataset=validation,
            compute_metrics=_accuracy,
            callbacks=[EarlyStoppingCallback(loop.patience), self._record],
        )
        trainer.remove_callback(PrinterCallback)  # what is logged goes to a file instead
        return trainer

    def train(self) -> dict[str, Any]:
        """Train until validation stops improving, keep the best epoch's model, and test it.

        Returns:
            The best epoch and its eval_loss (nats per sentence) and eval_accuracy (percent); under "test" a
            `AgreementResult` for each test file.

        Raises:
            InputError: when the loss is not finite any more. No model is written then.
        """
        checkpoints = self.directory / "checkpoints"
        resume = self.resume and any(checkpoints.glob("checkpoint-*"))
        steps = self.config.training.epochs * math.ceil(self._n_train / self.config.training.batch_size)
        with nullcontext(_silent) if self.quiet else progress("training, at most", steps) as self._record.advance:
            self._trainer.train(resume_from_checkpoint=resume or None)
        losses = [(r["eval_loss"], r) for r in self._trainer.state.log_history if "eval_loss" in r]
        if not all(math.isfinite(loss) for loss, _ in losses):
            raise InputError(
                f"the validation loss is not finite, so no model is written to {self.directory}; a lower "
                "training.learning_rate or a training.max_grad_norm may help"
            )
        best = min(losses, key=lambda pair: pair[0])[1]
        result = {
            "best_epoch": round(best["epoch"]),
            "epochs": round(losses[-1][1]["epoch"]),
            "eval_loss": best["eval_loss"],
            "eval_accuracy": best["eval_accuracy"],
        }
        if self._trainer.is_world_process_zero():
            with atomic_directory(self.directory / ".new", overwrite=True) as directory:
                self.model.save_pretrained(directory)
                self.tokenizer.save_pretrained(directory)
                for file in sorted(directory.iterdir()):
                    os.replace(file, self.directory / file.name)
            shutil.rmtree(self.directory / ".new")
            shutil.rmtree(checkpoints)
        scorer = ClassifierScorer(self.model, self.tokenizer)
        return result | {"test": {path: evaluate_agreement(scorer, items) for path, items in self.tests.items()}}


def make_classifier(config: ClassifierConfig, tokenizer: PreTrainedTokenizerBase) -> StackRNNForSequenceClassification:
    """A new classifier of the configured shape, for the tokenizer's vocabulary.

    Raises:
        InputError: for a key or value that `StackRNNConfig` refuses.
    """
    try:
        model_config = StackRNNConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            id2label=dict(enumerate(LABELS)),
            label2id={label: i for i, label in enumerate(LABELS)},
            **config.model,
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"model: {error}") from error
    return StackRNNForSequenceClassification(model_config)


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    logits, labels = np.asarray(prediction.predictions), np.asarray(prediction.label_ids)
    return {"accuracy": 100 * float((logits.argmax(-1) == labels).mean())}


class _Record(TrainerCallback):
    """Appends what is logged to a file of JSON lines, tells each validation, and moves a progress bar."""

    def __init__(self, path: Path, quiet: bool) -> None:
        self._path, self._quiet = path, quiet
        self.advance: Callable[[int], None] = _silent

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        if "eval_loss" in logs and not self._quiet:
            print_note(
                f"epoch {state.epoch:.0f}: validation loss {logs['eval_loss']:.4f}, "
                f"accuracy {logs['eval_accuracy']:.2f}"
            )


def _silent(n: int) -> None:
    """A progress bar that shows nothing."""
