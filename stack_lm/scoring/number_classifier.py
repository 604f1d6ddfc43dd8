"""Number classifiers for agreement scores, with their labels as the possible continuations."""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..hub.loading import load_pretrained
from ..text.tokenization import TreebankForms, added_tokens
from .batches import length_batches
from .encoding import Sentences

LABELS = ("VBP", "VBZ")


def encode_for_classifier(
    tokenizer: PreTrainedTokenizerBase, texts: Sentences, max_length: int | None = None
) -> list[list[int]]:
    """The token ids that a classifier reads: those of each text, between the tokens that the tokenizer itself adds.

    Args:
        tokenizer: the classifier's.
        texts: each a sequence of words.
        max_length: keep only that many tokens at the end of a text.
    """
    if not texts:
        return []
    begin, end = added_tokens(tokenizer)
    adapt = TreebankForms(tokenizer)
    joined = [" ".join(adapt(words)) for words in texts]
    encoded = tokenizer(joined, add_special_tokens=False, return_attention_mask=False).input_ids
    return [[*begin, *(tokens if max_length is None else tokens[-max_length:]), *end] for tokens in encoded]


class NumberClassifier:
    """A number classifier with the interface of evaluation: its labels are the possible continuations.

    Args:
        model: any sequence classifier whose labels are VBP and VBZ.
        tokenizer: its tokenizer.
        batch_tokens: tokens in a batch, padding included.
        max_length: maximum number of a text's tokens, without special ones; the beginning is cut off.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_tokens: int = 8192,
        max_length: int | None = None,
    ) -> None:
        self.label_ids = {str(label): i for label, i in (model.config.label2id or {}).items()}
        if not set(LABELS) <= self.label_ids.keys():
            raise InputError(f"a number classifier has the labels VBP and VBZ; this has {', '.join(self.label_ids)}")
        if tokenizer.pad_token is None:
            raise InputError("a number classifier's tokenizer has a padding token, as batches need it; this has none")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self.max_length = max_length

    @classmethod
    def from_pretrained(cls, path: str, *, device: str | None = None, batch_tokens: int = 8192) -> NumberClassifier:
        """Load a number classifier and its tokenizer from a directory or the hub.

        Raises:
            InputError: if it cannot be loaded, or is not a number classifier.
        """
        model, tokenizer = load_pretrained(AutoModelForSequenceClassification, path, device, what="number classifier")
        return cls(model, tokenizer, batch_tokens=batch_tokens)

    def knows(self, text: str, *, begins: bool = False) -> bool:
        """True if a text is one of the labels."""
        return text in self.label_ids

    @torch.inference_mode()
    def continuation_logprobs(self, prefixes: Sentences, candidates: Sentences) -> list[np.ndarray]:
        """Log-probabilities of labels after each prefix, in nats; see `SentenceModel.continuation_logprobs`."""
        results = [np.full(len(labels), np.nan) for labels in candidates]
        encoded = encode_for_classifier(self.tokenizer, prefixes, self.max_length)
        for batch in length_batches([len(ids) for ids in encoded], self.batch_tokens):
            batch = [i for i in batch if encoded[i]]
            if not batch:
                continue
            inputs = self.tokenizer.pad({"input_ids": [encoded[i] for i in batch]}, return_tensors="pt")
            logits = self.model(**inputs.to(self.model.device)).logits
            scores = logits.double().log_softmax(-1).cpu().numpy()
            for row, i in enumerate(batch):
                results[i][:] = scores[row, [self.label_ids[label] for label in candidates[i]]]
        return results
