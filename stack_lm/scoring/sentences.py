"""A model and its tokenizer as a `SentenceModel`: it scores and traces sentences in batches.

Any `AutoModelForCausalLM` with a fast tokenizer works; one with memory layers also gives the actions on its memories.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
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
from ..models.kinds import kind_of
from ..nn import memory_states
from ..nn.dead_zone import DeadZone, dead_zone
from ..nn.interventions import Intervention, intervene
from .batches import End, finite
from .encoding import Encoding, SentenceEncoder, Sentences, WordStrength, run_of_words, strengths_of_words
from .memory_layers import by_head, has_runs
from .punctuation import Punctuation
from .reading import Progress, Reading, SequenceReader
from .windows import place


class ModelScorer(SequenceReader):
    """A scorer of sentences with a language model (a `SentenceModel`).

    A word's log-probability is the sum over its tokens; `word_strength` derives its strengths from theirs. Sentences
    are padded on the right and need no mask, because a causal model does not look ahead.

    A sentence begins with the tokenizer's beginning token if tokenizer and model have one, whether or not the tokenizer
    adds it by itself; nothing is reported for it. The end token is scored if the tokenizer adds it. It is also scored
    in traces of a model of a registered kind that has one (`eos_token_id`), or of any that was trained here on
    sentences with one (`ends_sentences`), because its training sentences ended with it.

    Args:
        model: any causal language model.
        tokenizer: its fast tokenizer.
        batch_tokens: tokens in a batch, padding included; bounds the memory for the logits.
        layer: the memory layer that is used for parsing and shown, from 0, if the model has several; None takes the
            only one, or the only one with strengths for parsing.
        word_strength: the rule from the strengths of a word's tokens to the word's; see `strengths_of_words`.
        window: maximum number of tokens that a trace reads at once, of a model with attention; None takes its
            positions.

    Raises:
        InputError: if there is no such layer, for an unknown `word_strength`, or a window below 2 or above the
            model's positions.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_tokens: int = 2048,
        layer: int | None = None,
        word_strength: WordStrength = "last",
        window: int | None = None,
    ) -> None:
        super().__init__(model, tokenizer, batch_tokens=batch_tokens, layer=layer, window=window)
        check_name("word_strength", word_strength, get_args(WordStrength))
        self.word_strength = word_strength
        config = model.config
        ends = kind_of(config) is not None or getattr(config, "ends_sentences", False)
        self._encoder = SentenceEncoder(
            tokenizer,
            begin=getattr(config, "bos_token_id", None) is not None,
            end=ends and config.eos_token_id is not None,
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
        sentences: Sentences,
        tags: Sentences | None = None,
        *,
        logprobs: bool = True,
        progress: Progress | None = None,
        punctuation: Punctuation = "attach",
        numbers: Sequence[int] | None = None,
        contexts: Sequence[Hashable] | None = None,
        uncertainty: bool = False,
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
            contexts: the context of each sentence, such as a story: the model then reads it after the sentences of the
                same context that come before. Such traces have no run.
            uncertainty: also give the entropies, and the probabilities that words end.

        Raises:
            InputError: for a sentence without words or with too many tokens, or a word without tokens.
        """
        numbers = range(1, len(sentences) + 1) if numbers is None else numbers
        sequences, placed = place(self._encoder, sentences, tags, contexts, punctuation=punctuation, numbers=numbers)
        if sequences:
            number = max(range(len(placed)), key=lambda i: len(sequences[placed[i].sequence]))
            self._check_room(len(sequences[placed[number].sequence]), f"sentence {numbers[number]}")
        readings = self.read(
            sequences,
            logprobs=logprobs,
            uncertainty=uncertainty,
            members=[each.sequence for each in placed],
            progress=progress,
        )
        fill = tables_for(len(each.encoding.ids) for each in placed)
        traces = []
        for number, (encoding, sequence, start) in zip(numbers, placed, strict=True):
            reading = readings[sequence].part(start, start + len(encoding.ids))
            find_run = None if contexts is not None else self._run_finder(reading.actions, encoding, number, fill)
            traces.append(self._align(encoding, reading, find_run))
        return traces

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
        ids = torch.tensor([encoding.ids], device=self.model.device)
        no_states = iter([None] * len(encoding.ids))
        states = memory_states(self.memories[self.layer], self._record(ids)) if self.memories else no_states
        for step, (state, word) in enumerate(zip(states, encoding.word_of, strict=True), start=1):
            strengths = getattr(state, "strengths", None)
            if strengths is None or strengths.shape != (1, step):
                name = self.memories[self.layer].memory.name if self.memories else "none"
                raise InputError(f"the contents of memory={name!r} have no strength for each step, so none are shown")
            if word >= 0:
                by_word = np.bincount(
                    encoding.word_of[:step] + 1, weights=strengths[0].double().cpu(), minlength=len(words) + 1
                )
                contents[word] = by_word  # of several tokens, the last is kept
        return contents

    def dead_zone(self, words: Sequence[str], tags: Sequence[str] | None = None) -> DeadZone | None:
        """Measure how far the memory's readings reach in one sentence; see `stack_lm.nn.dead_zone`.

        None without a memory whose elements have strengths, for less than two tokens, and for attention over windows.
        """
        (encoding,) = self._encoder.encode([words], None if tags is None else [tags])
        ids = torch.tensor([encoding.ids], device=self.model.device)
        if not self.memories or not 2 <= ids.shape[1] <= (self.window or ids.shape[1]):
            return None
        return dead_zone(self.memories[self.layer], lambda: self.model(ids, labels=ids, use_cache=False).loss)

    def _record(self, ids: Tensor) -> dict[str, Tensor]:
        """The memory over sequences [B, T]: all actions on it, its reading, and its exit if it has one, [B, T, ...]."""
        layer = self.memories[self.layer]
        with intervene(layer, Intervention()):
            actions = self._actions(self._run(ids, logits=False))[self.layer]
        names = [field.name for field in layer.memory.actions]
        return {name: actions[name] for name in [*names, "reading", "exit"] if name in actions}

    @torch.inference_mode()
    def continuation_logprobs(self, prefixes: Sentences, candidates: Sentences) -> list[np.ndarray]:
        """Score candidate continuations; see `SentenceModel.continuation_logprobs`."""
        full = [[*prefix, candidate] for prefix, some in zip(prefixes, candidates, strict=True) for candidate in some]
        encoded = iter(self._encoder.encode_texts(full))
        groups = []
        for head, some in zip(self._encoder.encode_texts(prefixes), candidates, strict=True):
            group = []
            for _ in some:
                ids = next(encoded)
                # Subwords may be split differently before another word, so the common tokens count as the prefix.
                pairs = enumerate(zip(head, ids, strict=False))
                shared = next((k for k, (a, b) in pairs if a != b), min(len(head), len(ids)))
                group.append((self._encoder.begin + ids, len(self._encoder.begin) + shared))
            groups.append(group)
        return self._sums(groups)

    def sentence_logprobs(self, groups: Sequence[Sentences]) -> list[np.ndarray]:
        """Score whole sentences; see `SentenceModel.sentence_logprobs`.

        Without a token that begins sentences, the first token is given and not predicted. An end token counts only if
        the tokenizer adds it to every text, as in other programs.
        """
        begin, end = self._encoder.begin, self._encoder.own_end
        encoded = iter(self._encoder.encode_texts([words for group in groups for words in group]))
        start = len(begin) or 1
        return self._sums([[(begin + next(encoded) + end, start) for _ in group] for group in groups])

    @torch.inference_mode()
    def _sums(self, groups: Sequence[Sequence[tuple[list[int], int]]]) -> list[np.ndarray]:
        """For each group of sequences the sums of log-probabilities, in nats; NaN where nothing comes before.

        The last token is predicted but never read, so sequences that differ in it alone run through the model once.
        """
        longest = max((len(ids) - 1 for group in groups for ids, _ in group), default=0)
        if self._positions is not None and longest > self._positions:
            raise InputError(f"a sentence has {longest} tokens to read; the model has {self._positions} positions")
        self._check_room(longest, "a sentence")
        results = [np.full(len(group), np.nan) for group in groups]
        ends: dict[tuple[int, ...], list[End]] = {}
        for g, group in enumerate(groups):
            for at, (ids, start) in enumerate(group):
                if 0 < start < len(ids):
                    ends.setdefault(tuple(ids[:-1]), []).append(End(g, at, ids[-1], start))
        # Only the last logits are needed where nothing before them counts.
        by_need: dict[bool, list[tuple[int, ...]]] = {}
        for read, some in ends.items():
            by_need.setdefault(any(end.start < len(read) for end in some), []).append(read)
        for inside_counts, sequences in by_need.items():
            for batch, batch_ids in self._batches(sequences):
                outputs = self._body(batch_ids, use_cache=False)
                inside = self._scores(outputs, batch_ids, False)["logprob"] if inside_counts else None
                logits = self._last_logits(outputs, [len(sequences[i]) for i in batch]).float()
                found = [(row, len(sequences[i]), end) for row, i in enumerate(batch) for end in ends[sequences[i]]]
                rows, tokens = [row for row, _, _ in found], [end.token for _, _, end in found]
                last = finite(logits[rows, tokens] - logits.logsumexp(-1)[rows], "log-probability")
                for (row, length, end), score in zip(found, last, strict=True):
                    before = 0.0 if inside is None else inside[row, end.start : length].sum()
                    results[end.group][end.place] = before + score
        return results

    def _align(self, encoding: Encoding, reading: Reading, find_run: Callable[[], StackRun] | None) -> Trace:
        """Sum scores over each word's tokens, and find the word's actions."""
        n, ids, word_of = len(encoding.words), np.array(encoding.ids), encoding.word_of
        inside = word_of >= 0
        logprobs, n_tokens, end = np.full(n, np.nan), np.zeros(n, dtype=np.int64), float("nan")
        if reading.scores:
            scores = reading.scores["logprob"]
            # Nothing predicts a sequence's first token; if it belongs to a word, that word has no score.
            scored = inside & ~np.isin(word_of, word_of[np.isnan(scores)])
            n_tokens = np.bincount(word_of[scored], minlength=n)
            sums = np.bincount(word_of[scored], weights=scores[scored], minlength=n)
            logprobs = np.where(n_tokens > 0, sums, np.nan)
            if encoding.n_end:
                end = float(scores[len(ids) - encoding.n_end :].sum())
        unknown = np.zeros(n, dtype=bool)
        if self.tokenizer.unk_token_id is not None:
            unknown[word_of[inside & (ids == self.tokenizer.unk_token_id)]] = True
        word_actions = tuple(
            strengths_of_words(by_head(layer, layer_actions), encoding.core_of, self.word_strength)
            for layer, layer_actions in zip(self.memories, reading.actions, strict=True)
        )
        entropies = word_ends = None
        if "entropy" in reading.scores:
            _, firsts = np.unique(word_of[inside], return_index=True)
            places = np.append(np.flatnonzero(inside)[firsts], np.flatnonzero(inside)[-1] + 1)
            entropies = reading.scores["entropy"][places]
            if self.begins_word is not None:
                # Without a space, as before punctuation, no word ends.
                at_space = np.append(self.begins_word[ids[places[:-1]]], True)
                word_ends = np.where(at_space, reading.scores["word_end"][places], 0.0)
        parts = (tuple(encoding.words), logprobs, n_tokens, unknown, end, word_actions, self._layer, find_run)
        return Trace(*parts, entropies=entropies, word_ends=word_ends)
