"""Training of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..core.labels import IGNORED
from ..models.cache import CACHE_NAME
from ..models.kinds import TEXT, choose_class, kind_of
from ..models.loss import multiplies_bfloat16
from ..nn import memories
from ..nn.dead_zone import dead_zone
from .batches import Batches, Collated, collate, collate_packed
from .carried import CarriedState
from .config import RunConfig
from .continuous import Segments, collate_segments
from .data import Data, prepare_data
from .loop import TrainingLoop
from .new_model import InitialModel, check_packing
from .strength_statistics import StrengthStatistics
from .tokenizer import frame_of
from .validation import evaluate_continuous, evaluate_loss


class Trainer(TrainingLoop):
    """A language model's training run; `train` runs it.

    Args, Raises: as `TrainingLoop`; the configuration is a `RunConfig`.

    Attributes:
        data: batches, validation sentences and tokenizer.
        loss_dtype: the type of the loss's matrix products; None leaves it to mixed precision.
    """

    LOSS, TARGETS = "nats_per_token", "tokens"

    config: RunConfig

    def prepare(self, checkpoint: Path | None) -> tuple[PreTrainedModel, Batches]:
        """See `TrainingLoop.prepare`."""
        self._signs: set[str] = set()  # of a collapse, in the last validation
        self._warned: set[str] = set()
        self.data = prepare_data(self.config, checkpoint, quiet=self.quiet)
        self.tokenizer, self.texts = self.data.tokenizer, self.data.texts
        initial = InitialModel(self.config.training.initial_model)
        model, notes = make_model(self.config, self.data.tokenizer, initial)
        self.notes += [*notes, *self.data.notes]
        if self.config.training.packing:
            check_packing(model)
        if checkpoint is None:
            self.notes += dead_zone_notes(model, [ids[:40] for ids in islice(self.data.validation, 8)])
        if self.config.data.mode == "continuous":
            kind = kind_of(model.config)
            if kind is None or not kind.continuous:
                name = model.config.model_type
                raise InputError(f"data.mode must be 'sentences' with model_type={name!r}; got 'continuous'")
            if self.accelerator.distributed_type == DistributedType.FSDP:
                raise InputError("data.mode=continuous needs the whole model on each process; FSDP shards it")
            self.carried = CarriedState(model, self.config.training.batch_size)
        takes, wanted = signature(model.forward).parameters, self.config.training.loss_dtype
        self.loss_dtype: str | None = None
        if "loss_dtype" in takes:
            self.loss_dtype, note = choose_loss_dtype(wanted, self.accelerator)
            self.notes.append(note)
        elif wanted == "bfloat16":
            raise InputError(f"training.loss_dtype is not for {type(model).__name__}, which computes the loss itself")
        if self.config.training.softmax_samples and "softmax_samples" not in takes:
            raise InputError(f"training.softmax_samples is not for {type(model).__name__}, which has no such argument")
        return model, self.data.batches

    def collate(self, batch: Segments | Sequence[Sequence[int]]) -> Collated:
        """See `TrainingLoop.collate`; each token but the first of a sentence, or document, is a target."""
        if isinstance(batch, Segments):
            inputs = collate_segments(batch, self.accelerator.device)
            sequences: Sequence[Sequence[int]] = [tokens for tokens in batch.tokens if tokens]
        elif self.config.training.packing:
            inputs, sequences = collate_packed(batch, self.accelerator.device), batch
        else:
            ids, labels = collate(batch, self.accelerator.device)
            inputs, sequences = {"input_ids": ids, "labels": labels}, batch
        tokens = sum(map(len, sequences))
        targets = tokens - len(sequences)
        read = targets if isinstance(batch, Segments) else tokens
        padded = inputs["input_ids"].numel() if tokens else 0
        if self.loss_dtype is not None:
            inputs["loss_dtype"] = self.loss_dtype
        if self.config.training.softmax_samples:
            inputs["softmax_samples"] = self.config.training.softmax_samples
        return Collated(inputs, targets, read, padded)

    def loss(self, inputs: dict[str, Any], targets: float) -> Tensor:
        """See `TrainingLoop.loss`."""
        if self.carried is None:
            return super().loss(inputs, targets)
        inputs = dict(inputs)
        return super().loss(inputs | {CACHE_NAME: self.carried.next(inputs.pop("reset_mask"))}, targets)

    def evaluate(self) -> tuple[dict[str, Any], str]:
        """See `TrainingLoop.evaluate`.

        Over all predicted tokens it has eval_nats_per_token, eval_perplexity and eval_tokens. For their text
        (`TextSize`) it has eval_word_perplexity and eval_bits_per_byte, None if nothing is predicted or first words are
        predicted in part; eval_words, eval_bytes; and eval_unknown, the share of unknown words (of tokens, if words
        have several). For inner tokens (see `Losses`) it has eval_inner_perplexity, None if there are none, and
        eval_inner_tokens. The statistics of strengths follow.
        """
        strengths = StrengthStatistics(self.accelerator.unwrap_model(self.model))
        arguments = self.model, self.data.validation, self.accelerator, self.data.frame, strengths.add
        if self.config.data.mode == "continuous":
            losses = evaluate_continuous(*arguments, sequence_length=self.config.data.sequence_length)
        else:
            losses = evaluate_loss(*arguments)
        strengths.reduce(self.accelerator)
        perplexity = _exp(losses.nats / losses.tokens)
        inner = _exp(losses.inner_nats / losses.inner_tokens) if losses.inner_tokens else None
        size, bits = self.data.size, losses.nats / math.log(2)
        known = not size.in_part  # otherwise the losses are not those of the counted words and bytes
        record = {
            "eval_nats_per_token": losses.nats / losses.tokens,
            "eval_perplexity": perplexity,
            "eval_tokens": losses.tokens,
            "eval_word_perplexity": _exp(losses.nats / size.words) if size.words and known else None,
            "eval_words": size.words,
            "eval_bits_per_byte": bits / size.bytes if size.bytes and known else None,
            "eval_bytes": size.bytes,
            "eval_unknown": _share_unknown(self.data),
            "eval_inner_perplexity": inner,
            "eval_inner_tokens": losses.inner_tokens,
        }
        summary = f"validation perplexity {perplexity:.2f}"
        if inner is not None:
            summary += f" ({inner:.2f} without first words and ends)"
        if record["eval_bits_per_byte"] is not None:
            summary += f", {record['eval_bits_per_byte']:.3f} bits per byte"
            if record["eval_unknown"]:
                summary += f" with {record['eval_unknown']:.1%} of words unknown"
        lines = [summary, strengths.summary(), *self._warnings(strengths)]
        return record | strengths.record(), "\n".join(line for line in lines if line)

    def _warnings(self, strengths: StrengthStatistics) -> list[str]:
        """Warnings of signs that the validation before had too, or that the last one has; each once."""
        signs = strengths.warnings()
        lasting = {*signs} if self.step >= self.total else {*signs} & self._signs
        new, self._signs = lasting - self._warned, {*signs}
        self._warned |= new
        return [f"warning: {sign}: {about}" for sign, about in signs.items() if sign in new]


def dead_zone_notes(model: PreTrainedModel, sentences: Sequence[Sequence[int]]) -> list[str]:
    """A line if a memory of a new model is in the dead zone, in some sentences; see `stack_lm.nn.dead_zone`."""
    ids, labels = collate(sentences, model.device)
    inputs = {"input_ids": ids, "labels": labels, "use_cache": False}
    zones = [dead_zone(layer, lambda: model(**inputs).loss, labels != IGNORED) for layer in memories(model)]
    return [*dict.fromkeys(zone.warning for zone in zones if zone and zone.warning)]


def choose_loss_dtype(wanted: str, accelerator: Accelerator) -> tuple[str | None, str]:
    """The type of the loss's matrix products, None for that of mixed precision, and a line that describes it.

    Args:
        wanted: `LoopConfig.loss_dtype`.
        accelerator: the accelerator, which has the device and the mixed precision.
    """
    mixed = accelerator.mixed_precision != "no"
    if wanted == "auto" and (mixed or accelerator.device.type != "cpu"):
        return None, f"the loss's matrix products are in {accelerator.mixed_precision if mixed else 'float32'}"
    if wanted == "float32" or accelerator.device.type != "cpu":
        return wanted, f"the loss's matrix products are in {wanted}"
    if multiplies_bfloat16():
        return "bfloat16", "the loss's matrix products are in bfloat16 (training.loss_dtype)"
    return "float32", "the loss is computed in float32, because this processor does not multiply bfloat16"


def make_model(
    config: RunConfig, tokenizer: PreTrainedTokenizerBase, initial: InitialModel
) -> tuple[PreTrainedModel, list[str]]:
    """A new model for the tokenizer's vocabulary, and notes about its initial weights; see `InitialModel.make`.

    Args:
        config: the configuration of the run.
        tokenizer: the tokenizer of the run.
        initial: the initial model, for the weights, and for the fields that the configuration leaves open.

    Raises:
        InputError: as `choose_class` and `InitialModel.make`.
    """
    # A model that names a beginning or end token has seen it: also [CLS] and [SEP], if they surround a sentence.
    begin, end = frame_of(config.tokenizer, tokenizer)
    special = {"bos_token_id": begin[0] if begin else None, "eos_token_id": end[-1] if end else None}
    own = initial.fields(config.model)
    model, notes = initial.make(choose_class(own, TEXT), own, tokenizer, **special | config.model)
    if kind_of(model.config) is None:  # otherwise an end token says it: GPT-2's never ended a sentence
        model.config.ends_sentences = bool(end)
    generation = getattr(model, "generation_config", None)
    if generation is not None:
        # They are unwanted in a text. An end token that is also the padding, such as GPT-2's, must be generated.
        unwanted = {tokenizer.unk_token_id, tokenizer.pad_token_id}
        wanted = {None, tokenizer.bos_token_id, tokenizer.eos_token_id, special["eos_token_id"]}
        generation.suppress_tokens = sorted(unwanted - wanted) or None
        generation._from_model_config = False  # otherwise transformers may make it again
    return model, notes


def _share_unknown(data: Data) -> float:
    special = [*data.frame.begin, *data.frame.end]
    unknown, ids = data.tokenizer.unk_token_id, data.validation.ids
    if unknown is None or unknown in special:  # GPT-2 has one token for everything
        return 0.0
    return float((ids == unknown).sum() / max(1, len(ids) - np.isin(ids, special).sum()))


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700))
