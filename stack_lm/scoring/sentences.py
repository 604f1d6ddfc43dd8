"""A model and its tokenizer as a `SentenceModel`: it batches sentences and computes shared prefixes once.

Any `AutoModelForCausalLM` with a fast tokenizer works; one with memory layers also gives the actions on its memories.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, get_args

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..core.messages import check_name
from ..core.trace import StackRun, Trace
from ..hub.loading import load_pretrained
from ..kernels.runs import tables_for
from ..memory.viterbi import Tables, best_runs
from ..models.cache import CACHE_NAME, MemoryCache
from ..models.kinds import body_and_head, kind_of
from ..nn import actions_by_layer
from ..nn.interventions import Intervention, intervene
from .batches import Scored, Tail, common_prefix, finite, first_logprobs, length_batches, token_logprobs
from .encoding import LONGEST, Encoding, SentenceEncoder, WordStrength, run_of_words, strengths_of_words
from .memory_layers import MemoryLayers, has_runs
from .punctuation import Punctuation

Progress = Callable[[int], None]
# Logits that a separate head computes at a time, on a CPU and on a GPU; and the most that another model may make for a
# sentence (4 GB). On a CPU, 8 MB stay in the cache, and score a third faster than 128 MB.
_LOGITS, _LOGITS_ON_GPU, _MOST_LOGITS = 2**21, 2**25, 2**30


class ModelScorer(MemoryLayers):
    """A scorer of sentences with a language model (a `SentenceModel`).

    A word's log-probability is the sum over its tokens; `word_strength` derives its strengths from theirs. Sentences
    are padded on the right and need no mask, because a causal model does not look ahead.

    A sentence begins with the tokenizer's beginning token if tokenizer and model have one, whether or not the tokenizer
    adds it by itself; nothing is reported for it. The end token is scored if the tokenizer adds it. It is also scored
    in traces of a model of a registered kind that has one (`eos_token_id`), because its training sentences ended with
    it.

    Args:
        model: any causal language model.
        tokenizer: its fast tokenizer.
        batch_tokens: tokens in a batch, padding included; bounds the memory for the logits.
        layer: the memory layer that is used for parsing and shown, from 0, if the model has several; None takes the
            only one, or the only one with strengths for parsing.
        word_strength: the rule from the strengths of a word's tokens to the word's; see `strengths_of_words`.

    Raises:
        InputError: if there is no such layer, or for an unknown `word_strength`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_tokens: int = 2048,
        layer: int | None = None,
        word_strength: WordStrength = "last",
    ) -> None:
        super().__init__(model.eval(), layer)
        check_name("word_strength", word_strength, get_args(WordStrength))
        self.word_strength = word_strength
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self._body, self._head = body_and_head(model)
        config, kind = model.config, kind_of(model.config)
        self._stops_early = kind is not None and kind.actions_only
        self._encoder = SentenceEncoder(
            tokenizer,
            begin=getattr(config, "bos_token_id", None) is not None,
            end=kind is not None and config.eos_token_id is not None,
        )

    @classmethod
    def from_pretrained(cls, path: str, *, device: str | None = None, **settings: Any) -> Self:
        """Load a model and its tokenizer from a directory or the hub.

        Args:
            path: as for `AutoModelForCausalLM.from_pretrained`.
            device: such as "cpu" or "cuda:1"; None takes a GPU if there is one.
            settings: the other arguments of the class, such as `layer`.

        Raises:
            InputError: if it cannot be loaded, or has no such layer.
        """
        model, tokenizer = load_pretrained(AutoModelForCausalLM, path, device)
        return cls(model, tokenizer, **settings)

    @property
    def predicts_first_word(self) -> bool:
        """True if sentences begin with a special token."""
        return bool(self._encoder.begin)

    @property
    def end_tokens(self) -> list[str]:
        """The scored tokens after a whole sentence in traces; none for a model that does not end sentences."""
        return list(self.tokenizer.convert_ids_to_tokens(self._encoder.end))

    @property
    def is_word_level(self) -> bool:
        """True if words are separated by white space, so that text must come with its punctuation split off."""
        return self._encoder.is_word_level

    def split(self, text: str) -> list[str]:
        """The words of a text, as split by a tokenizer made here, or else at white space."""
        return self._encoder.split(text)

    def knows(self, text: str, *, begins: bool = False) -> bool:
        """True if no token of a text, inside a sentence or at its beginning, is the unknown token."""
        return self._encoder.knows(text, begins=begins)

    @torch.inference_mode()
    def trace(
        self,
        sentences: Sequence[Sequence[str]],
        tags: Sequence[Sequence[str]] | None = None,
        *,
        logprobs: bool = True,
        progress: Progress | None = None,
        punctuation: Punctuation = "attach",
        numbers: Sequence[int] | None = None,
    ) -> list[Trace]:
        """Trace sentences.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags, for tokenizers that replace rare words by tags.
            logprobs: compute the log-probabilities; False skips a separate head, and they are NaN.
            progress: called with the number of sentences done, batch by batch.
            punctuation: "split" turns the punctuation at the ends of a word into separate words, unless a token has
                both.
            numbers: the numbers of the sentences, for messages; None counts from 1.

        Raises:
            InputError: for a sentence without words or with more tokens than the model has positions for, or a word
                without tokens.
        """
        numbers = range(1, len(sentences) + 1) if numbers is None else numbers
        encodings = list(self._encoder.encode(sentences, tags, punctuation=punctuation, numbers=numbers))
        if encodings:
            longest = max(range(len(encodings)), key=lambda i: len(encodings[i].ids))
            self._check_length(len(encodings[longest].ids), f"sentence {numbers[longest]}")
        fill = tables_for(len(encoding.ids) for encoding in encodings)
        traces: list[Trace | None] = [None] * len(sentences)
        for batch, ids in self._batches([encoding.ids for encoding in encodings]):
            outputs = self._run(ids, logits=logprobs)
            actions = [
                {name: finite(values, name) for name, values in layer_actions.items()}
                for layer_actions in self._actions(outputs)
            ]
            scores = self._next_token_logprobs(outputs, ids) if logprobs else None
            for row, i in enumerate(batch):
                score = None if scores is None else scores[row]
                row_actions = [
                    {name: values[row] for name, values in layer_actions.items()} for layer_actions in actions
                ]
                find_run = self._run_finder(row_actions, encodings[i], numbers[i], fill)
                traces[i] = self._align(encodings[i], score, row_actions, find_run)
            if progress is not None:
                progress(len(batch))
        return [trace for trace in traces if trace is not None]

    def _run_finder(
        self, actions: Sequence[Mapping[str, np.ndarray]], encoding: Encoding, number: int, fill: Tables
    ) -> Callable[[], StackRun] | None:
        """Find a sentence's most probable run up to its last word: later actions predict nothing."""
        if self._layer is None or not has_runs(self.memories[self._layer]):
            return None
        memory: Any = self.memories[self._layer].memory
        end = int(np.flatnonzero(encoding.word_of >= 0)[-1]) + 1
        # A copy, so that the rest of the batch is not kept.
        sentence_actions = {name: values[None, :end].copy() for name, values in actions[self._layer].items()}

        def find() -> StackRun:
            (run,) = best_runs(memory, sentence_actions, names=[f"sentence {number}"], fill=fill)
            return run_of_words(run, encoding.word_of)

        return find

    @torch.inference_mode()
    def memory_contents(self, words: Sequence[str], tags: Sequence[str] | None = None) -> np.ndarray:
        """The remaining strength of each element of the memory after each word of a sentence.

        Args:
            words: the words of one sentence, n of them.
            tags: their part-of-speech tags; see `trace`.

        Returns:
            [n, n + 1], in elements. Row t is after word t (after its last token). Column i + 1 is the remaining
            strength of the elements that word i pushed, over all its tokens; column 0 is that of tokens outside all
            words, such as a beginning token. A row sums to the total strength.

        Raises:
            InputError: for a memory that does not keep one strength for each step, and as `trace` and `layer`.
        """
        (encoding,) = self._encoder.encode([words], None if tags is None else [tags])
        contents = np.zeros((len(words), len(words) + 1))
        states = self._replay(encoding.ids) if self.memories else iter([None] * len(encoding.ids))
        for step, (state, word) in enumerate(zip(states, encoding.word_of, strict=True), start=1):
            strengths = getattr(state, "strengths", None)
            if strengths is None or strengths.shape != (1, step):
                name = self.memories[self.layer].memory.name if self.memories else "none"
                raise InputError(
                    f"the contents of memory={name!r} cannot be shown: it does not keep one strength for each step"
                )
            if word >= 0:
                by_word = np.bincount(
                    encoding.word_of[:step] + 1, weights=strengths[0].double().cpu(), minlength=len(words) + 1
                )
                contents[word] = by_word  # of several tokens, the last is kept
        return contents

    def _replay(self, ids: Sequence[int]) -> Iterator[Any]:
        """The states of a memory after each token, from the actions that the model took.

        A scan drops dead elements now and then; here each keeps its position.
        """
        actions = self._record(torch.tensor([ids], device=self.model.device))
        layer = self.memories[self.layer]
        memory, state = layer.memory, layer.empty(1).memory
        for step in range(len(ids)):
            step_actions = {field.name: actions[field.name][:, step] for field in memory.actions}
            state, _ = memory.update(state, memory.action_type(**step_actions))
            yield state

    def _record(self, ids: Tensor) -> dict[str, Tensor]:
        """The memory over sequences [B, T]: all actions on it, its reading, and its exit if it has one, [B, T, ...]."""
        layer = self.memories[self.layer]
        with intervene(layer, Intervention()):
            actions = self._actions(self._run(ids, logits=False))[self.layer]
        names = [field.name for field in layer.memory.actions]
        return {name: actions[name] for name in [*names, "reading", "exit"] if name in actions}

    @torch.inference_mode()
    def continuation_logprobs(
        self, prefixes: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score candidate continuations; see `SentenceModel.continuation_logprobs`.

        Shared prefixes run through the model once.
        """
        full = [[*prefix, candidate] for prefix, some in zip(prefixes, candidates, strict=True) for candidate in some]
        encoded = iter(self._encoder.encode_texts(full))
        groups = []
        for head, some in zip(self._encoder.encode_texts(prefixes), candidates, strict=True):
            group = []
            for _ in some:
                ids = next(encoded)
                # Subwords may be split differently before another word, so the common tokens count as the prefix.
                group.append(Scored(self._encoder.begin + ids, len(self._encoder.begin) + common_prefix([head, ids])))
            groups.append(group)
        return self._sums(groups)

    def sentence_logprobs(self, groups: Sequence[Sequence[Sequence[str]]]) -> list[np.ndarray]:
        """Score whole sentences; see `SentenceModel.sentence_logprobs`.

        Without a token that begins sentences, the first token is given and not predicted. An end token counts only if
        the tokenizer adds it to every text, as in other programs.
        """
        begin, end = self._encoder.begin, self._encoder.own_end
        encoded = iter(self._encoder.encode_texts([words for group in groups for words in group]))
        start = len(begin) or 1
        return self._sums([[Scored(begin + next(encoded) + end, start) for _ in group] for group in groups])

    @torch.inference_mode()
    def _sums(self, groups: Sequence[Sequence[Scored]]) -> list[np.ndarray]:
        """For each group of sequences the sums of log-probabilities, in nats; NaN where nothing comes before.

        Each distinct common prefix of a group runs through the model once, for all groups that have it; the rest of
        each sequence continues from its state.
        """
        self._check_length(max((len(scored.ids) - 1 for group in groups for scored in group), default=0), "a sentence")
        results = [np.full(len(group), np.nan) for group in groups]
        tails: dict[tuple[int, ...], list[Tail]] = {}
        for g, group in enumerate(groups):
            scorable = [(place, scored) for place, scored in enumerate(group) if 0 < scored.start < len(scored.ids)]
            # The last token is predicted but never read.
            shared = common_prefix([scored.ids[:-1] for _, scored in scorable]) if self._continues else 0
            for place, (tokens, start) in scorable:
                n = shared or len(tokens) - 1
                tails.setdefault(tuple(tokens[:n]), []).append(Tail(g, place, tokens[n:], start))
        last_only: list[tuple[int, ...]] = []
        by_length: dict[int, list[tuple[int, ...]]] = {}
        for prefix, some in tails.items():
            if all(len(tail.ids) == 1 and tail.start == len(prefix) for tail in some):
                last_only.append(prefix)
            else:
                by_length.setdefault(len(prefix), []).append(prefix)
        for batch, ids in self._batches(last_only):
            lengths = torch.tensor([len(last_only[i]) for i in batch], device=ids.device)
            logits = self._run(ids, last=lengths).float()
            tail_rows = [(row, tail) for row, i in enumerate(batch) for tail in tails[last_only[i]]]
            for (_, tail), score in zip(tail_rows, first_logprobs(logits, tail_rows), strict=True):
                results[tail.group][tail.place] = score
        # A state is that after the last token, padding included, so only prefixes of one length share a batch.
        for prefixes in by_length.values():
            for batch, ids in self._batches(prefixes):
                tail_rows = [(row, tail) for row, i in enumerate(batch) for tail in tails[prefixes[i]]]
                for (_, tail), score in zip(tail_rows, self._continue(ids, tail_rows), strict=True):
                    results[tail.group][tail.place] = score
        return results

    def _continue(self, prefixes: Tensor, tails: Sequence[tuple[int, Tail]]) -> np.ndarray:
        """Sums of log-probabilities of prefixes [B, T] and their tails, each with its row in the prefixes."""
        outputs = self._body(prefixes, use_cache=self._continues)
        inside = self._next_token_logprobs(outputs, prefixes)
        sums = first_logprobs(self._logits(outputs, slice(-1, None))[:, 0].float(), tails)
        n = prefixes.shape[1]
        for i, (row, tail) in enumerate(tails):
            # If a group's sequences diverge before `start`, the first tokens of a tail are given.
            sums[i] = (sums[i] if tail.start <= n else 0.0) + inside[row, tail.start :].sum()
        longer = [i for i, (_, tail) in enumerate(tails) if len(tail.ids) > 1]
        for batch, ids in self._batches([tails[i][1].ids for i in longer]):
            state = getattr(outputs, CACHE_NAME)
            state = state.clone() if isinstance(state, MemoryCache) else copy.deepcopy(state)
            state.reorder_cache(torch.tensor([tails[longer[i]][0] for i in batch], device=ids.device))
            logits = self.model(ids[:, :-1], use_cache=True, **{CACHE_NAME: state}).logits
            scores = token_logprobs(logits, ids[:, 1:])
            for row, i in enumerate(batch):
                tail = tails[longer[i]][1]
                skip = max(0, tail.start - n - 1)
                sums[longer[i]] += scores[row, skip : len(tail.ids) - 1].sum()
        return sums

    @cached_property
    def _continues(self) -> bool:
        """True if the model can continue from a state with several tokens at once, for several sequences."""
        probe = torch.zeros(1, 1, dtype=torch.int64, device=self.model.device)
        cache = getattr(self._body(probe, use_cache=True), CACHE_NAME, None)
        # Others with a state, such as Mamba, take a token at a time after the first call.
        return isinstance(cache, MemoryCache) or (not self.model._is_stateful and hasattr(cache, "reorder_cache"))

    def _check_length(self, length: int, name: str) -> None:
        """Reject a sequence with more tokens than the model has positions or would fit in memory."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is not None and length > most:
            raise InputError(f"{name} has {length} tokens to read, but the model has positions for {most} only")
        if length > LONGEST:
            raise InputError(f"{name} has {length:,} tokens to read; {LONGEST:,} can be read at most")
        size = getattr(self.model.config.get_text_config(), "vocab_size", 1)
        if length * size > _MOST_LOGITS and self._head is None:
            raise InputError(
                f"{name} has {length:,} tokens to read; a {type(self.model.config).__name__} with {size:,} tokens "
                f"can be scored on {_MOST_LOGITS // size:,} at most"
            )

    def _logits(self, outputs: Any, steps: slice) -> Tensor:
        """Logits of some steps [B, T', V]: those from the model's output, or computed now by a separate head."""
        if self._head is None:
            return outputs.logits[:, steps]
        logits: Tensor = self._head(outputs.last_hidden_state[:, steps])
        return logits

    def _next_token_logprobs(self, outputs: Any, ids: Tensor) -> np.ndarray:
        """Log-probability of each token given those before it [B, T], in nats; NaN for the first.

        The logits of a long sentence need not fit into memory all at once.
        """
        n_rows, n = ids.shape
        scores = np.full((n_rows, n), np.nan)
        at_once = _LOGITS if ids.device.type == "cpu" else _LOGITS_ON_GPU
        size = max(1, at_once // (n_rows * self.model.config.get_text_config().vocab_size))
        for start in range(0, n - 1, size):
            stop = min(start + size, n - 1)
            scores[:, start + 1 : stop + 1] = token_logprobs(
                self._logits(outputs, slice(start, stop)), ids[:, start + 1 : stop + 1]
            )
        return scores

    def _batches(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor]]:
        """Batches of sequences of similar length: their indices, and their ids padded on the right [B, T]."""
        for batch in length_batches([len(ids) for ids in sequences], self.batch_tokens):
            ids = np.zeros((len(batch), len(sequences[batch[-1]])), dtype=np.int64)
            for row, i in enumerate(batch):
                ids[row, : len(sequences[i])] = sequences[i]
            yield batch, torch.from_numpy(ids).to(self.model.device)

    def _run(self, ids: Tensor, *, logits: bool = True, last: Tensor | None = None) -> Any:
        """The model's outputs, without logits where its head is apart (see `_logits`); with `last` (lengths [B]) only
        the logits [B, V] at each sequence's last token; without `logits` perhaps only the actions."""
        arguments: dict[str, Any] = {"use_cache": False}
        if last is None and self.memories:
            arguments["output_actions" if logits or not self._stops_early else "actions_only"] = True
        outputs = self._body(ids, **arguments)
        if last is None:
            return outputs
        at = torch.arange(len(ids), device=ids.device), last - 1
        return outputs.logits[at] if self._head is None else self._head(outputs.last_hidden_state[at])

    def _actions(self, outputs: Any) -> Sequence[Mapping[str, Tensor]]:
        """The actions on each memory layer [B, T, ...]."""
        return actions_by_layer(outputs.actions) if self.memories else ()

    def _align(
        self,
        encoding: Encoding,
        scores: np.ndarray | None,
        actions: Sequence[Mapping[str, np.ndarray]],
        find_run: Callable[[], StackRun] | None,
    ) -> Trace:
        """Sum scores over each word's tokens, and find the word's actions."""
        n, ids, word_of = len(encoding.words), np.array(encoding.ids), encoding.word_of
        inside = word_of >= 0
        logprobs, n_tokens, end = np.full(n, np.nan), np.zeros(n, dtype=np.int64), float("nan")
        if scores is not None:
            scores = scores[: len(ids)]
            # Nothing predicts the first token; if it belongs to a word, that word has no score.
            scored = inside & (word_of != word_of[0])
            n_tokens = np.bincount(word_of[scored], minlength=n)
            sums = np.bincount(word_of[scored], weights=scores[scored], minlength=n)
            logprobs = np.where(n_tokens > 0, sums, np.nan)
            if encoding.n_end:
                end = float(scores[len(ids) - encoding.n_end :].sum())
        unknown = np.zeros(n, dtype=bool)
        if self.tokenizer.unk_token_id is not None:
            unknown[word_of[inside & (ids == self.tokenizer.unk_token_id)]] = True
        word_actions = tuple(
            strengths_of_words(layer_actions, word_of, self.word_strength) for layer_actions in actions
        )
        return Trace(tuple(encoding.words), logprobs, n_tokens, unknown, end, word_actions, self._layer, find_run)
