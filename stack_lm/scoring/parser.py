"""A parser object: from text or words to trees, by a language model's strengths or by scores of spans."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..core.messages import check_name
from ..core.trace import Trace
from ..hub.loading import load_pretrained
from ..models.configuration_span_parser import SpanParserConfig
from ..models.modeling_span_parser import SpanParserModel
from ..parsing.distances import DECODERS, SHIFTS, default_decoder, distances_from_trace, tree_from_distances
from ..parsing.drawing import draw_trees
from ..parsing.ensemble import combine_runs, vote_by_words
from ..parsing.export import tree_record
from ..parsing.trees import ConstituencyTree
from ..text.plain import check_encodable
from .dropout import embedding_dropout
from .encoding import Sentences, WordStrength
from .reading import Progress
from .sentences import ModelScorer
from .spans import SpanScorer

if TYPE_CHECKING:  # slow to load
    from nltk.tree import Tree

DROPOUT = 0.2
"""The default share of dropped units for `dropout_samples`."""


@dataclass(frozen=True, eq=False)
class Parse:
    """A sentence's parse. A notebook shows its tree.

    Attributes:
        tree: over the sentence's words.
        distances: the distances that gave the tree [n]; None for a vote, or a tree from scored spans.
        trace: the trace of the model over the sentence, without dropout; None for a vote of several models, or a tree
            from scored spans.
        runs: the tree of each model, if several voted.
        unknown: whether each word is unknown to the model [n], bool; None if several voted.
    """

    tree: ConstituencyTree
    distances: np.ndarray | None = None
    trace: Trace | None = None
    runs: tuple[ConstituencyTree, ...] = ()
    unknown: np.ndarray | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The sentence's words, n of them."""
        return self.tree.words

    @property
    def strengths(self) -> dict[str, np.ndarray]:
        """Push, pop, read and total strength at each word, or the depth of the run, by name, each [n], in elements.

        A vote of several models has none.
        """
        return {} if self.trace is None else self.trace.signals

    def to_nltk(self) -> Tree:
        """The tree as an `nltk.Tree`."""
        return self.tree.nltk_tree()

    def record(self) -> dict[str, Any]:
        """The parse as a record for JSON."""
        record = {**tree_record(self.tree, self.distances), "tree": str(self.tree)}
        if self.unknown is not None:
            record["unknown"] = [w for w, new in zip(self.words, self.unknown, strict=True) if new]
        if self.trace is not None:
            record |= {name: values.tolist() for name, values in self.strengths.items()}
        if self.runs:
            record["runs"] = [str(tree) for tree in self.runs]
        return record

    def __str__(self) -> str:
        """The tree on one line: `((the cat) sat)`."""
        return str(self.tree)

    def __repr__(self) -> str:
        return f"Parse({str(self.tree)!r})"

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x: auto">{draw_trees([self.tree])}</div>'


class Parser:
    """A parser that uses a language model's push or pop strengths (Merrill et al. 2019), or a span parser.

    Call it on a sentence for a `Parse`, or on several for a list of them. It has the methods of NLTK's `ParserI`, which
    give an `nltk.Tree`.

    Args:
        model: a language model with a memory that has push and pop strengths, or a `SpanParserModel`, to which the
            options below do not apply.
        tokenizer: its fast tokenizer.
        signal: the source of distances, such as "pop_strength"; None takes the push strength, or the pop strength if
            the push is fixed; for a nondeterministic stack "run_depth", the depth of its most probable run.
        decoder: "algorithm1" or "gap"; see `stack_lm.parsing.tree_from_distances`. None takes "algorithm1", or "gap"
            for "run_depth".
        layer: the memory layer for parsing, from 0, if the model has several.
        word_strength: for a word with several tokens: that of its "first" or "last" token, their "sum" or "max".
        batch_tokens: tokens in a batch, padding included.
        dropout_samples: read each sentence this many more times, with dropout in the embeddings; the trees of these
            readings vote. 0 takes the tree of the reading without dropout.
        dropout: the share of dropped units.
        ensemble: more parsers; all vote for the spans of each tree (`stack_lm.parsing.combine_runs`).

    Raises:
        InputError: for a model without strengths to parse with, or a value that is not allowed.

    Attributes:
        scorer: the object that runs the model over sentences.
        signal, decoder: see the arguments; None for a span parser.
        readings, dropout: how often this model reads each sentence, and the share of dropped units if more than once.
    """

    scorer: Any
    signal: str | None
    decoder: str | None

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        signal: str | None = None,
        decoder: str | None = None,
        layer: int | None = None,
        word_strength: WordStrength = "last",
        batch_tokens: int = 2048,
        dropout_samples: int = 0,
        dropout: float = DROPOUT,
        ensemble: Sequence[Parser] = (),
    ) -> None:
        if decoder is not None:
            check_name("decoder", decoder, DECODERS)
        if signal is not None:
            check_name("signal", signal, SHIFTS)
        if dropout_samples < 0:
            raise InputError(f"dropout_samples must be at least 0; got {dropout_samples}")
        if not 0 < dropout < 1:
            raise InputError(f"dropout must be above 0 and below 1; got {dropout}")
        self.ensemble = tuple(ensemble)
        self.readings = 1 + dropout_samples
        self.dropout = dropout
        if isinstance(model, SpanParserModel):
            given = {"signal": signal, "decoder": decoder, "layer": layer, "dropout_samples": dropout_samples or None}
            given["word_strength"] = None if word_strength == "last" else word_strength
            for name, value in given.items():
                if value is not None:
                    option = name.replace("_", "-")
                    raise InputError(f"a span parser has no memory, so it takes no {name} (--{option})")
            self.scorer = SpanScorer(model, tokenizer, batch_tokens=batch_tokens)
            self.signal = self.decoder = None
            return
        self.scorer = ModelScorer(model, tokenizer, batch_tokens=batch_tokens, layer=layer, word_strength=word_strength)
        self.signal = self.scorer.choose_signal(signal)
        self.decoder = decoder or default_decoder(self.signal)

    @classmethod
    def from_pretrained(
        cls, path: str, *, device: str | None = None, ensemble: Sequence[str] = (), **settings: Any
    ) -> Parser:
        """Load a model and its tokenizer from a directory or the hub.

        Args:
            path: as for `from_pretrained` of transformers' Auto classes.
            device: such as "cpu" or "cuda:1"; None takes a GPU if there is one.
            ensemble: paths of more models, which are loaded in the same way.
            settings: the other arguments of the class, such as `signal` and `decoder`.

        Raises:
            InputError: if one cannot be loaded, and as the class.
        """
        if isinstance(ensemble, str):
            raise InputError(f"ensemble must be a list of models; got {ensemble!r}")
        others = [cls.from_pretrained(other, device=device, **settings) for other in ensemble]
        parsers = {SpanParserConfig.model_type: AutoModel}
        model, tokenizer = load_pretrained(AutoModelForCausalLM, path, device, classes=parsers)
        return cls(model, tokenizer, ensemble=others, **settings)

    def __call__(self, sentences: Any, *, is_split_into_words: bool | None = None) -> Parse | list[Parse | None]:
        """Parse one sentence or several.

        Args:
            sentences: a text; or several: a list of texts, or a list of lists of words. Texts are split as by the
                model's tokenizer.
            is_split_into_words: True takes a list of strings for the words of one sentence, not for several texts, as
                in transformers' tokenizers. None is False, with a warning if each of the texts is a single word.

        Returns:
            The parse of one sentence; for several a list, with None for each without words, or without words that the
            model knows.

        Raises:
            InputError: if a single sentence has no word that the model knows; for texts mixed with lists of words; for
                other types.
        """
        if isinstance(sentences, str):
            if is_split_into_words:
                raise InputError(f"a sentence that is split into words is a list of them; got {sentences!r}")
            return self._parse_one(sentences)
        items = _items(sentences)
        texts = [item for item in items if isinstance(item, str)]
        if texts and len(texts) < len(items):
            raise InputError(f"sentences are all texts, or all lists of words; {len(texts)} of {len(items)} are texts")
        if texts and is_split_into_words:
            return self._parse_one(items)
        if is_split_into_words is None and len(texts) > 1 and all(len(text.split()) == 1 for text in texts):
            warnings.warn(
                f"{len(texts)} sentences of one word each; pass is_split_into_words=True if they are the words of one "
                "sentence, False if not",
                stacklevel=2,
            )
        return self.parse_batch(items)

    def parse_batch(
        self, sentences: Iterable[str | Sequence[str]], *, logprobs: bool = False, progress: Progress | None = None
    ) -> list[Parse | None]:
        """Parse several sentences: each a text, which the tokenizer splits, or its words.

        Args:
            sentences: N of them.
            logprobs: also compute the words' log-probabilities, for `Parse.trace`.
            progress: called with the number of sentences done, batch by batch, reading by reading and model by model.

        Returns:
            N parses; None for a sentence without words, or without words that the model, or one of several, knows.

        Raises:
            InputError: for anything that is not a sentence, or a word without tokens.
        """
        given = list(sentences)
        parses = self._parse_alone(given, logprobs, progress)
        if not self.ensemble:
            return parses
        runs = [parses, *(other._parse_alone(given, False, progress) for other in self.ensemble)]
        whole = [i for i in range(len(given)) if all(run[i] is not None for run in runs)]
        trees = [[parse.tree for i in whole if (parse := run[i]) is not None] for run in runs]
        voted: list[Parse | None] = [None] * len(given)
        if whole:
            # All vote: a few sentences cannot show that a run has failed.
            names = [str(parser.scorer.model.name_or_path) for parser in (self, *self.ensemble)]
            chosen = combine_runs(trees, names=names, outlier_share=0, pool_punctuation=True).trees
            for i, tree, *votes in zip(whole, chosen, *trees, strict=True):
                voted[i] = Parse(tree, runs=tuple(votes))
        return voted

    def _parse_alone(
        self, sentences: Sequence[str | Sequence[str]], logprobs: bool, progress: Progress | None
    ) -> list[Parse | None]:
        """The parses of this model, ignoring the others."""
        words = [self.split(s) if isinstance(s, str) else _check_words(s, i + 1) for i, s in enumerate(sentences)]
        nonempty = [i for i, sentence in enumerate(words) if sentence]
        parses: list[Parse | None] = [None] * len(words)
        parsed = self.parse_words([words[i] for i in nonempty], logprobs=logprobs, progress=progress)
        for i, parse in zip(nonempty, parsed, strict=True):
            if parse.unknown is not None and not parse.unknown.all():
                parses[i] = parse
        return parses

    def parse_words(
        self,
        sentences: Sentences,
        tags: Sentences | None = None,
        *,
        logprobs: bool = False,
        progress: Progress | None = None,
    ) -> list[Parse]:
        """Parse sentences with this model alone, even those without any word that it knows.

        Args:
            sentences: each a sequence of words, at least one.
            tags: their part-of-speech tags, for tokenizers that replace rare words by tags.
            logprobs: see `parse_batch`.
            progress: called with the number of sentences done, batch by batch and reading by reading.

        Raises:
            InputError: for a word without tokens.
        """
        if self.signal is None or self.decoder is None:
            return [Parse(tree, unknown=new) for tree, new in self.scorer.parse(sentences, progress=progress)]
        traces = self.scorer.trace(sentences, tags, logprobs=logprobs, progress=progress)
        if self.readings == 1:
            return [_decode(trace, self.signal, self.decoder) for trace in traces]
        samples = []
        for seed in range(self.readings - 1):
            with embedding_dropout(self.scorer.model, self.dropout, seed):
                sampled = self.scorer.trace(sentences, tags, logprobs=False, progress=progress)
            samples.append([_decode(trace, self.signal, self.decoder).tree for trace in sampled])
        return [
            Parse(vote_by_words(trees), trace=trace, unknown=trace.unknown)
            for trace, *trees in zip(traces, *samples, strict=True)
        ]

    def split(self, text: str) -> list[str]:
        """The words of a text, as the model's tokenizer splits it, with punctuation separate if its words have none.

        Raises:
            InputError: for a text that UTF-8 cannot encode.
        """
        check_encodable(text, "a sentence")
        return self.scorer.split(" ".join(text.split()))

    def _parse_one(self, sentence: str | Sequence[str]) -> Parse:
        (parse,) = self.parse_batch([sentence])
        if parse is None:
            words = self.split(sentence) if isinstance(sentence, str) else sentence
            if not words:
                raise InputError("the sentence has no words")
            who = "every one of the models knows" if self.ensemble else "the model knows"
            raise InputError(f"the sentence has no word that {who}: {' '.join(words)!r}")
        return parse


def _decode(trace: Trace, signal: str, decoder: str) -> Parse:
    distances = distances_from_trace(trace, signal)
    return Parse(tree_from_distances(trace.words, distances, decoder), distances, trace, unknown=trace.unknown)


def _items(sentences: Any) -> list[Any]:
    if isinstance(sentences, (bytes, Mapping)) or not isinstance(sentences, Iterable):
        raise InputError(f"a sentence is a text or a list of words; got {sentences!r:.80}")
    return list(sentences)


def _check_words(sentence: Any, number: int) -> list[str]:
    words = _items(sentence)
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"sentence {number}: words must be texts; got {word!r:.80}")
    return words
