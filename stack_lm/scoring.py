"""A model and its tokenizer as a `SentenceModel`: batching, and the alignment of tokens to words.

Any `AutoModelForCausalLM` with a fast tokenizer works; a stack RNN also gives the strengths of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .configuration_stack_rnn import StackRNNConfig
from .errors import InputError
from .tokenization import WordPreparation
from .trace import Trace

Progress = Callable[[int], None]


class _Encoding(NamedTuple):
    """A text's token ids; which word each belongs to (-1: none); and whether it is a special token at the end."""

    ids: list[int]
    word_of: np.ndarray
    n_end: int


class ModelScorer:
    """Scores sentences with a language model (a `SentenceModel`).

    A word's log-probability is the sum over its tokens; a strength is that after the word's last token. Sentences are
    padded on the right and no mask is needed, since a causal model does not look ahead.

    Args:
        model: any causal language model.
        tokenizer: its fast tokenizer.
        batch_tokens: tokens in a batch, padding included; bounds the memory for the logits.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, batch_tokens: int = 2048) -> None:
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer: it cannot align tokens to words")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self.has_memory = isinstance(model.config, StackRNNConfig) and model.config.memory != "none"
        self._prepare = WordPreparation(tokenizer)

    @classmethod
    def from_pretrained(cls, path: str, *, device: str | None = None, batch_tokens: int = 2048) -> ModelScorer:
        """Load a model and its tokenizer from a directory or the hub.

        Args:
            path: what `AutoModelForCausalLM.from_pretrained` takes.
            device: such as "cpu" or "cuda:1"; None takes a GPU if there is one.
            batch_tokens: see the class.

        Raises:
            InputError: if it cannot be loaded.
        """
        if Path(path).is_dir() and not (Path(path) / "config.json").is_file():
            raise InputError(f"{path} is not a model directory: it has no config.json")
        if Path(path).is_file():
            raise InputError(f"{path} is a file; a model is a directory with config.json and model.safetensors")
        try:
            tokenizer = AutoTokenizer.from_pretrained(path)
            loaded: Any = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
        except Exception as error:  # many kinds: of the hub, of safetensors, of json, ValueErrors of configurations
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"cannot load a language model from {path}: {reason[:300]}") from error
        model, report = loaded
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise InputError(f"{path} is no complete language model: its weights lack {', '.join(missing[:3])}")
        try:
            model = model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"cannot use the device {device!r}: {str(error).splitlines()[0]}") from error
        return cls(model, tokenizer, batch_tokens=batch_tokens)

    @property
    def parsing_signal(self) -> str:
        """The signal that syntactic distances come from: the push strength, or the pop strength if the push is fixed
        (Merrill et al. 2019, section 5).

        Raises:
            InputError: if the model has no memory, or fixes both strengths.
        """
        config = self.model.config
        if not self.has_memory:
            memory = getattr(config, "memory", None)
            what = f"a {type(config).__name__}" if memory is None else f"memory={memory!r}"
            raise InputError(f"the model has no memory ({what}), so it has no push or pop strengths to parse with")
        free = [name for name in ("push", "pop") if isinstance(getattr(config, f"{name}_control"), str)]
        if not free:
            raise InputError("the model's push and pop strengths are both fixed: they say nothing about structure")
        return f"{free[0]}_strength"

    def knows(self, text: str) -> bool:
        """Whether no token of a text is the unknown token."""
        return self.tokenizer.unk_token_id not in self.tokenizer(text, add_special_tokens=False).input_ids

    @torch.inference_mode()
    def trace(
        self,
        sentences: Sequence[Sequence[str]],
        tags: Sequence[Sequence[str]] | None = None,
        *,
        logprobs: bool = True,
        progress: Progress | None = None,
    ) -> list[Trace]:
        """Trace sentences.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags, for tokenizers that put tags in the place of rare words.
            logprobs: compute the log-probabilities; without, the output layer is left out and they are NaN.
            progress: called with the number of sentences done, batch by batch.

        Raises:
            InputError: for a sentence without words, or a word that the tokenizer makes no token of.
        """
        encodings = self._encode(sentences, tags)
        traces: list[Trace | None] = [None] * len(sentences)
        for batch, ids in self._batches([encoding.ids for encoding in encodings]):
            outputs = self._run(ids, head=logprobs)
            signals, distributions = {}, {}
            if self.has_memory:
                for name, values in outputs.actions.items():
                    if values.dim() == 2:
                        signals[name] = values.double().cpu().numpy()
                    elif values.dim() == 3:
                        distributions[name] = values.double().cpu().numpy()
            scores = _next_token_logprobs(outputs.logits, ids) if logprobs else None
            for row, i in enumerate(batch):
                score = None if scores is None else scores[row]
                traces[i] = self._align(
                    sentences[i],
                    encodings[i],
                    score,
                    {name: values[row] for name, values in signals.items()},
                    {name: values[row] for name, values in distributions.items()},
                )
            if progress is not None:
                progress(len(batch))
        return [trace for trace in traces if trace is not None]

    @torch.inference_mode()
    def memory_contents(self, words: Sequence[str], tags: Sequence[str] | None = None) -> np.ndarray:
        """What is left of each element of the memory after each word of a sentence.

        Args:
            words: of one sentence, n of them.
            tags: their part-of-speech tags; see `trace`.

        Returns:
            [n, n + 1], in elements. Row t is after word t (after its last token): column i + 1 is what is left of what
            word i pushed, over all its tokens, and column 0 of what tokens of no word pushed, such as one that begins
            sentences. A row sums to the total strength.

        Raises:
            InputError: for a memory that does not keep one strength for each step, and as `trace`.
        """
        memory = getattr(self.model.config, "memory", "none")
        (encoding,) = self._encode([words], None if tags is None else [tags])
        contents = np.zeros((len(words), len(words) + 1))
        state = None
        for step, (token, word) in enumerate(zip(encoding.ids, encoding.word_of, strict=True), start=1):
            ids = torch.tensor([[token]], device=self.model.device)
            state = self.model.base_model(ids, past_key_values=state, use_cache=True).past_key_values
            strengths = getattr(state.state.memory, "strengths", None) if self.has_memory else None
            if strengths is None or strengths.shape != (1, step):
                raise InputError(
                    f"what is on the memory cannot be told for memory={memory!r}: it does not keep one strength for "
                    "each step"
                )
            if word >= 0:
                of_words = np.bincount(
                    encoding.word_of[:step] + 1, weights=strengths[0].double().cpu(), minlength=len(words) + 1
                )
                contents[word] = of_words  # of several tokens, the last stays
        return contents

    @torch.inference_mode()
    def continuation_logprobs(
        self, prefixes: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Compare what may come next; see `SentenceModel.continuation_logprobs`.

        Where all candidates are single tokens, the prefix runs through the model once for all of them.
        """
        results = [np.full(len(words), np.nan) for words in candidates]
        once: list[tuple[int, list[int], list[int]]] = []  # item, prefix, a token for each candidate
        apart: list[tuple[int, int, list[int], int]] = []  # item, candidate, prefix and candidate, length of prefix
        heads = [self._encode_prefix(prefix) for prefix in prefixes]
        for item, (prefix, head) in enumerate(zip(prefixes, heads, strict=True)):
            full = [self._encode_prefix([*prefix, candidate]) for candidate in candidates[item]]
            if head and all(ids[:-1] == head for ids in full):
                once.append((item, head, [ids[-1] for ids in full]))
                continue
            for number, ids in enumerate(full):
                shared = next((k for k, (a, b) in enumerate(zip(head, ids, strict=False)) if a != b), len(head))
                if shared:
                    apart.append((item, number, ids, shared))
        for batch, padded in self._batches([prefix for _, prefix, _ in once]):
            lengths = torch.tensor([len(once[i][1]) for i in batch], device=self.model.device)
            logits = self._run(padded, last=lengths).float()
            scores = (logits - logits.logsumexp(-1, keepdim=True)).double().cpu().numpy()
            for row, i in enumerate(batch):
                item, _, tokens = once[i]
                results[item][:] = scores[row, tokens]
        for batch, padded in self._batches([full for _, _, full, _ in apart]):
            token_scores = _next_token_logprobs(self._run(padded).logits, padded)
            for row, i in enumerate(batch):
                item, number, tokens, shared = apart[i]
                results[item][number] = token_scores[row, shared : len(tokens)].sum()
        return results

    def _batches(self, sequences: Sequence[list[int]]) -> Iterator[tuple[list[int], Tensor]]:
        """Batches of sequences of like length: their indices, and their ids padded on the right [B, T]."""
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and len(sequences[order[stop]]) * (stop + 1 - start) <= self.batch_tokens:
                stop += 1
            batch = order[start:stop]
            ids = np.zeros((len(batch), len(sequences[batch[-1]])), dtype=np.int64)
            for row, i in enumerate(batch):
                ids[row, : len(sequences[i])] = sequences[i]
            yield batch, torch.from_numpy(ids).to(self.model.device)
            start = stop

    def _run(self, ids: Tensor, *, head: bool = True, last: Tensor | None = None) -> Any:
        """The model's outputs; with `last` (lengths [B]) only the logits [B, V] at each sequence's last token."""
        arguments: dict[str, Any] = {"use_cache": False}
        if last is None and self.has_memory:
            arguments["output_actions"] = True
        if last is not None and isinstance(self.model.config, StackRNNConfig):
            rows = torch.arange(len(ids), device=ids.device)
            hidden = self.model.base_model(ids, **arguments).last_hidden_state[rows, last - 1]
            return self.model.get_output_embeddings()(hidden)
        if not head and isinstance(self.model.config, StackRNNConfig):
            return self.model.base_model(ids, **arguments)
        outputs = self.model(ids, **arguments)
        if last is None:
            return outputs
        return outputs.logits[torch.arange(len(ids), device=ids.device), last - 1]

    def _encode(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None) -> list[_Encoding]:
        for i, words in enumerate(sentences, start=1):
            if not words:
                raise InputError(f"sentence {i} has no words")
        every_tags = tags if tags is not None else [None] * len(sentences)
        prepared = [self._prepare(*pair) for pair in zip(sentences, every_tags, strict=True)]
        encodings: list[_Encoding] = []
        for start in range(0, len(prepared), 1000):
            block = prepared[start : start + 1000]
            encoded = self.tokenizer(
                [" ".join(words) for words in block],
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            for words, ids, offsets, special in zip(
                block, encoded.input_ids, encoded.offset_mapping, encoded.special_tokens_mask, strict=True
            ):
                word_of = _words_of_tokens(words, offsets)
                outside = np.array([a == b for a, b in offsets], dtype=bool) & np.array(special, dtype=bool)
                word_of[outside] = -1
                inside = np.flatnonzero(~outside)
                n_end = len(ids) - 1 - int(inside[-1]) if len(inside) else 0
                missing = sorted(set(range(len(words))) - set(word_of.tolist()))
                if missing:
                    raise InputError(
                        f"the tokenizer makes no token of the word {words[missing[0]]!r} in {' '.join(words)!r}"
                    )
                encodings.append(_Encoding(ids, word_of, n_end))
        return encodings

    def _encode_prefix(self, words: Sequence[str]) -> list[int]:
        """Token ids of the beginning of a sentence: with the tokens that begin one, without those that end it."""
        text = " ".join(self._prepare(words))
        encoded = self.tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=True)
        ids = list(encoded.input_ids)
        pairs = list(zip(encoded.special_tokens_mask, encoded.offset_mapping, strict=True))
        while ids and pairs[-1][0] and pairs[-1][1][0] == pairs[-1][1][1] and ids[-1] != self.tokenizer.bos_token_id:
            ids.pop()
            pairs.pop()
        return ids

    def _align(
        self,
        words: Sequence[str],
        encoding: _Encoding,
        scores: np.ndarray | None,
        signals: dict[str, np.ndarray],
        distributions: dict[str, np.ndarray],
    ) -> Trace:
        """Sum scores over each word's tokens, and take signals at its last."""
        n, ids, word_of = len(words), np.array(encoding.ids), encoding.word_of
        inside = word_of >= 0
        logprobs, n_tokens, end = np.full(n, np.nan), np.zeros(n, dtype=np.int64), float("nan")
        if scores is not None:
            scores = scores[: len(ids)]
            # Nothing predicts the first token; if it is a word's, that word has no score.
            scored = inside & (word_of != word_of[0])
            n_tokens = np.bincount(word_of[scored], minlength=n)
            sums = np.bincount(word_of[scored], weights=scores[scored], minlength=n)
            logprobs = np.where(n_tokens > 0, sums, np.nan)
            if encoding.n_end:
                end = float(scores[len(ids) - encoding.n_end :].sum())
        unknown = np.zeros(n, dtype=bool)
        if self.tokenizer.unk_token_id is not None:
            unknown[word_of[inside & (ids == self.tokenizer.unk_token_id)]] = True
        last = np.zeros(n, dtype=np.int64)
        last[word_of[inside]] = np.flatnonzero(inside)  # of several tokens, the last stays
        of_words = [{name: values[last] for name, values in group.items()} for group in (signals, distributions)]
        return Trace(tuple(words), logprobs, n_tokens, unknown, end, *of_words)


def _next_token_logprobs(logits: Tensor, ids: Tensor) -> np.ndarray:
    """Log-probability of each token given those before it [B, T], in nats; NaN for the first."""
    logits = logits[:, :-1].float()
    chosen = logits.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    scores = (chosen - logits.logsumexp(-1)).double().cpu().numpy()
    return np.concatenate((np.full((len(scores), 1), np.nan), scores), axis=1)


def _words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """The word that each token comes from, by its place in the words joined by spaces."""
    lengths = np.array([len(word) + 1 for word in words])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    spaces = set((starts[1:] - 1).tolist())
    # By its last character: in some tokenizers the space before a word is part of its first token. A token that is a
    # space alone belongs to the word behind it.
    places = [max(stop - 1, start) for start, stop in offsets]
    places = [place + 1 if place in spaces else place for place in places]
    return np.searchsorted(starts, places, side="right") - 1
