"""Word-level tokenizers, which can replace rare words by part-of-speech tags.

The result is a plain `PreTrainedTokenizerFast`. The preparation of its text (letter case, tags for rare words) is
saved in its configuration; `WordPreparation` applies it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from .errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Lowercase = Literal["none", "first_word", "all"]

UNKNOWN, PADDING, BEGIN, END = "<unk>", "<pad>", "<s>", "</s>"
# The names under which the tokenizer's configuration file keeps how words are prepared.
_CASE_KEY, _TAG_KEY = "lowercase", "tag_rare_words"


def lowercase_words(words: Sequence[str], lowercase: Lowercase) -> list[str]:
    """Lower-case no words, the first word or all words of a sentence."""
    if lowercase == "all":
        return [word.lower() for word in words]
    if lowercase == "first_word" and words:
        return [words[0].lower(), *words[1:]]
    return list(words)


def train_word_tokenizer(
    sentences: Iterable[tuple[Sequence[str], Sequence[str] | None]],
    vocab_size: int = 10_000,
    *,
    lowercase: Lowercase = "none",
    tag_rare_words: bool = False,
    add_bos: bool = False,
    add_eos: bool = False,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose vocabulary is the most frequent words of a corpus.

    Args:
        sentences: pairs of a sentence's words and their part-of-speech tags, or None.
        vocab_size: the most frequent words to keep; special tokens and tags are added to them. Ties are broken
            alphabetically.
        lowercase: "none", "first_word" (of each sentence, as Merrill et al. 2019 do) or "all".
        tag_rare_words: also add the tags to the vocabulary, so that `WordPreparation` can replace an unknown word by
            its tag (Linzen et al. 2016: the `NNP`, `VBG` ... in their data).
        add_bos: begin each sentence with a special token.
        add_eos: end each sentence with a special token.

    Raises:
        InputError: if there are no words, or no tags although `tag_rare_words` asks for them.
    """
    from transformers import PreTrainedTokenizerFast

    if lowercase not in get_args(Lowercase):
        raise InputError(f"lowercase must be one of {', '.join(get_args(Lowercase))}; got {lowercase!r}")
    counts: Counter[str] = Counter()
    tags: set[str] = set()
    for words, sentence_tags in sentences:
        counts.update(lowercase_words(words, lowercase))
        if tag_rare_words:
            if sentence_tags is None:
                raise InputError("tag_rare_words needs part-of-speech tags, but the corpus has none")
            tags.update(sentence_tags)
    if not counts:
        raise InputError("the corpus has no words to make a vocabulary from")
    special = [PADDING, UNKNOWN] + [BEGIN] * add_bos + [END] * add_eos
    for token in special:
        counts.pop(token, None)
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:vocab_size]
    known = set(frequent)
    tokens = special + frequent + sorted(tag for tag in tags if tag not in known and tag not in special)
    extra: dict[str, Any] = {"bos_token": BEGIN} if add_bos else {}
    if add_eos:
        extra["eos_token"] = END
    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer({token: i for i, token in enumerate(tokens)}, UNKNOWN, add_bos, add_eos),
        unk_token=UNKNOWN,
        pad_token=PADDING,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{_CASE_KEY: lowercase, _TAG_KEY: tag_rare_words},
        **extra,
    )


def word_tokenizer(vocabulary: dict[str, int], unknown: str, add_bos: bool = False, add_eos: bool = False) -> Tokenizer:
    """A `tokenizers` tokenizer that splits at white space and looks words up."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Each word is decoded with a space before it, as in byte-level tokenizers: clients decode a continuation alone and
    # append it to its prompt.
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("^"), " "), decoders.Fuse()])
    if add_bos or add_eos:
        template = [BEGIN] * add_bos + ["$A"] + [END] * add_eos
        tokenizer.post_processor = processors.TemplateProcessing(
            single=" ".join(template),
            special_tokens=[(token, vocabulary[token]) for token in (BEGIN, END) if token in template],
        )
    return tokenizer


class WordPreparation:
    """Prepares sentences as a tokenizer's training text was prepared; each call prepares one.

    Args:
        tokenizer: any tokenizer. One from `train_word_tokenizer` carries its preparation; others leave words unchanged.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.lowercase: Lowercase = tokenizer.init_kwargs.get(_CASE_KEY, "none")
        self.tag_rare_words: bool = tokenizer.init_kwargs.get(_TAG_KEY, False)
        self._vocabulary = frozenset(tokenizer.get_vocab()) if self.tag_rare_words else frozenset()

    def __call__(self, words: Sequence[str], tags: Sequence[str] | None = None) -> list[str]:
        """Prepare a sentence.

        Args:
            words: the sentence.
            tags: part-of-speech tags, which replace words outside the vocabulary if the tokenizer was trained so.

        Raises:
            InputError: if the numbers of words and tags differ.
        """
        prepared = lowercase_words(words, self.lowercase)
        if tags is None or not self.tag_rare_words:
            return prepared
        if len(tags) != len(words):
            raise InputError(f"a sentence has {len(words)} words but {len(tags)} tags: {' '.join(words)!r}")
        known = self._vocabulary
        return [word if word in known or tag not in known else tag for word, tag in zip(prepared, tags, strict=True)]
