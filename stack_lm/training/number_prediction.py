"""Training number prediction classifiers (Merrill et al. 2019, table 2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import reduce
from transformers import (
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers import Trainer as TransformersTrainer
from transformers.trainer_callback import ExportableState, PrinterCallback
from transformers.trainer_pt_utils import LengthGroupedSampler

from ..configuration_stack_rnn import StackRNNConfig
from ..console import print_note, progress
from ..data import hold_out
from ..errors import InputError
from ..eval import AgreementItem, evaluate_agreement, read_agreement
from ..hub.card import write_card
from ..hub.code import save_model
from ..modeling_heads import StackRNNForSequenceClassification
from ..scoring.number_classifier import LABELS, NumberClassifier
from ..tokenization import added_tokens, train_word_tokenizer
from .checkpoints import read_state, write_manifest
from .config import NumberPredictionConfig, NumberPredictionLoopConfig
from .new_model import new_model
from .preemption import Stopped, StopSignals
from .processes import check_number, connect_processes
from .run_directory import CHECKPOINTS, RunDirectory, writing
from .threads import ThreadChooser

FORMAT = "linzen-numpred"


class NumberPredictionTrainer:
    """One training run with transformers' `Trainer`; `train` runs it.

    Args:
        config: the run.
        resume: continue from the last checkpoint in `output_dir`, or start where there is none.
        overwrite: remove what an earlier run wrote in `output_dir`.
        quiet: no progress bar and no notes.

    Raises:
        InputError: if the configuration or the data cannot work, or `output_dir` has a run already. Nothing is written
            or removed then.
    """

    def __init__(
        self, config: NumberPredictionConfig, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
    ) -> None:
        config.check()
        self.config = config
        connect_processes()
        arguments = self._make_arguments()
        check_number(arguments.world_size)  # asking for it connects the processes
        self.quiet = quiet or arguments.process_index > 0
        self.run = RunDirectory(config, resume=resume, overwrite=overwrite, quiet=quiet)
        try:
            self._set_up(arguments)
        except BaseException:
            self.run.close()
            raise

    def _set_up(self, arguments: TrainingArguments) -> None:
        config, data = self.config, self.config.data
        train: Sequence[AgreementItem] = read_agreement(data.train, FORMAT)[: data.limit]
        if data.validation is None:
            train, validation = hold_out(train, data.held_out, data.split_seed(config.seed))
        else:
            validation = read_agreement(data.validation, FORMAT)
        self.tests = {path: read_agreement(path, FORMAT) for path in data.test}
        if not train or not validation:
            raise InputError(f"{data.train}: nothing is left to {'validate' if train else 'train'} on")
        self.tokenizer = train_word_tokenizer(
            ((item.prefix, None) for item in train), config.tokenizer.vocab_size, lowercase=config.tokenizer.lowercase
        )
        set_seed(config.seed)
        self.model = make_number_classifier(config, self.tokenizer)
        self.run.begin()
        self._most_steps = config.training.epochs * math.ceil(len(train) / config.training.batch_size)
        self._state = (read_state(self.run.checkpoint) or {}) if self.run.checkpoint else {}
        self._trainer = self._make_trainer(arguments, self._encode(train), self._encode(validation))

    def _encode(self, items: Sequence[AgreementItem]) -> list[dict[str, Any]]:
        begin = added_tokens(self.tokenizer).begin
        texts = [" ".join(item.prefix) for item in items]
        encoded = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False).input_ids
        return [
            {"input_ids": begin + ids[-self.config.data.max_length :], "labels": LABELS.index(item.correct)}
            for ids, item in zip(encoded, items, strict=True)
        ]

    def _make_arguments(self) -> TrainingArguments:
        loop = self.config.training
        return TrainingArguments(
            output_dir=str(Path(self.config.output_dir) / CHECKPOINTS),
            num_train_epochs=loop.epochs,
            per_device_train_batch_size=loop.batch_size,
            per_device_eval_batch_size=256,
            learning_rate=loop.learning_rate,
            weight_decay=loop.weight_decay,
            lr_scheduler_type="constant",
            max_grad_norm=loop.max_grad_norm or 0.0,
            bf16=loop.mixed_precision == "bf16",
            fp16=loop.mixed_precision == "fp16",
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            # The last one and the best.
            save_total_limit=2,
            metric_for_best_model="eval_loss",
            greater_is_better=False,
            seed=self.config.seed,
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
            report_to="none",
            include_num_input_tokens_seen="all",  # for `ThreadChooser`
        )

    def _make_trainer(self, arguments: TrainingArguments, train: Any, validation: Any) -> TransformersTrainer:
        loop = self.config.training
        tell = (lambda text: None) if self.quiet else print_note
        kept = self._state.get("stateful_callbacks", {}).get(_Record.__name__, {}).get("attributes")
        threads = ThreadChooser(loop.threads, arguments.device, tell, kept)
        order = _Order(arguments.train_batch_size, [len(item["input_ids"]) for item in train], self.config.seed)
        self._record = _Record(self.run, loop, threads, order, tell)
        trainer = _Trainer(
            order,
            self.model,
            arguments,
            data_collator=DataCollatorWithPadding(self.tokenizer),
            train_dataset=train,
            eval_dataset=validation,
            compute_metrics=_accuracy,
            callbacks=[self._record],
        )
        trainer.remove_callback(PrinterCallback)  # what is logged goes to a file instead
        return trainer

    def train(self) -> dict[str, Any]:
        """Train until validation stops improving, keep the best epoch's model, and test it.

        SIGTERM and SIGUSR1 end it behind the next update, with a checkpoint.

        Returns:
            The best epoch and its eval_loss (nats per sentence) and eval_accuracy (percent); under "test" a
            `AgreementResult` for each test file.

        Raises:
            InputError: when the loss is not finite any more; no model is written then. When something cannot be
                written.
            Stopped: after a signal.
        """
        try:
            return self._train()
        finally:
            self.run.close()

    def _train(self) -> dict[str, Any]:
        checkpoint = self.run.checkpoint
        history = self._state.get("log_history", [])
        if not _is_over(history, self.config.training):
            with (
                progress("training, at most", self._most_steps, quiet=self.quiet) as self._record.advance,
                self._record.threads.running(),
                StopSignals() as self._record.signals,
                writing(f"a checkpoint in {self.run.checkpoints}"),
            ):
                self._record.advance(self.run.step)
                self._trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            history = self._trainer.state.log_history
        validations = _validations(history)
        if not all(math.isfinite(record["eval_loss"]) for record in validations):
            raise InputError(
                f"the validation loss is not finite, so no model is written to {self.run.path}; a lower "
                "training.learning_rate or a training.max_grad_norm may help"
            )
        best = min(validations, key=lambda record: record["eval_loss"])
        self.model = StackRNNForSequenceClassification.from_pretrained(
            self.run.checkpoints / f"checkpoint-{best['step']}"
        ).to(self._trainer.args.device)
        if self._trainer.is_world_process_zero():
            self.run.save_model(self._write)
        scorer = NumberClassifier(self.model, self.tokenizer)
        return {
            "best_epoch": round(best["epoch"]),
            "epochs": len(validations),
            "eval_loss": best["eval_loss"],
            "eval_accuracy": best["eval_accuracy"],
            "test": {path: evaluate_agreement(scorer, items) for path, items in self.tests.items()},
        }

    def _write(self, directory: Path) -> None:
        save_model(self.model, directory)
        self.tokenizer.save_pretrained(directory)
        write_card(directory, run=self.run.path)


def make_number_classifier(
    config: NumberPredictionConfig, tokenizer: PreTrainedTokenizerBase
) -> StackRNNForSequenceClassification:
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
    return new_model(StackRNNForSequenceClassification, model_config)


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    logits, labels = np.asarray(prediction.predictions), np.asarray(prediction.label_ids)
    return {"accuracy": 100 * float((logits.argmax(-1) == labels).mean())}


def _validations(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record for each epoch."""
    return [record for record in history if "eval_loss" in record]


def _is_over(history: Sequence[dict[str, Any]], loop: NumberPredictionLoopConfig) -> bool:
    """All epochs are done, the loss has not fallen for `patience` epochs, or it is not finite any more.

    transformers' `EarlyStoppingCallback` counts anew in a resumed run; this goes by all of its epochs.
    """
    losses = [record["eval_loss"] for record in _validations(history)]
    if not losses:
        return False
    waited = len(losses) - 1 - losses.index(min(losses))
    return len(losses) >= loop.epochs or waited >= loop.patience or not math.isfinite(losses[-1])


class _Order(LengthGroupedSampler):
    """The order of sentences: that of transformers, drawn for each epoch from the seed alone.

    From torch's random numbers, as transformers draws it, several processes would each draw an order and lose
    sentences, and a run that is resumed within an epoch would draw another.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int) -> None:
        super().__init__(batch_size, lengths=lengths, generator=torch.Generator())
        self._seed, self.epoch = seed, 0

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(1_000_003 * self._seed + self.epoch)
        return super().__iter__()


class _Trainer(TransformersTrainer):
    """transformers' Trainer with an order of one's own."""

    def __init__(self, order: _Order, *arguments: Any, **options: Any) -> None:
        self._order = order
        super().__init__(*arguments, **options)

    def _get_train_sampler(self, train_dataset: Any = None) -> _Order:
        return self._order


class _Record(TrainerCallback, ExportableState):
    """Logs, prints each validation, stops early or at a signal, finishes checkpoints, chooses threads."""

    def __init__(
        self,
        run: RunDirectory,
        loop: NumberPredictionLoopConfig,
        threads: ThreadChooser,
        order: _Order,
        tell: Callable[[str], None],
    ) -> None:
        self._run, self._loop, self.threads, self._order, self._tell = run, loop, threads, order, tell
        self.advance: Callable[[int], None]
        self.signals: StopSignals
        self._stopping = False
        self._start, self._tokens = 0.0, 0

    def state(self) -> dict[str, Any]:
        """What transformers' Trainer keeps in its checkpoints."""
        return {"args": {}, "attributes": self.threads.state()}

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._order.epoch = int(state.epoch + 1e-6)  # a float, in the middle of an epoch where a run is resumed

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._start, self._tokens = time.perf_counter(), state.num_input_tokens_seen

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.threads.observe(state.num_input_tokens_seen - self._tokens, time.perf_counter() - self._start)
        self.advance(1)
        stop = self.signals.received is not None
        if args.world_size > 1:  # all processes stop behind the same update
            stop = bool(reduce(torch.tensor(int(stop), device=args.device), reduction="sum").item())
        if stop and state.global_step < state.max_steps:
            self._stopping = True
            # At the end of an epoch the Trainer validates before it saves.
            control.should_save = state.epoch - round(state.epoch) != 0

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        PartialState().wait_for_everyone()  # each has written its random state
        checkpoint = self._run.checkpoints / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero:
            write_manifest(checkpoint)
        if self._stopping:
            # From here, because the Trainer would validate and save once more, as at the end of an epoch.
            raise Stopped(self.signals.describe(state.global_step))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "loss" not in logs and "eval_loss" not in logs:
            return  # a summary of this process's part of the run
        self._run.log({"step": state.global_step, **logs})
        if "eval_loss" in logs and state.is_world_process_zero:
            self._tell(
                f"epoch {state.epoch:.0f}: validation loss {logs['eval_loss']:.4f}, "
                f"accuracy {logs['eval_accuracy']:.2f}"
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if _is_over(state.log_history, self._loop):
            control.should_training_stop = True
