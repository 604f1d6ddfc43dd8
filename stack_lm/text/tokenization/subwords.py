"""Subword tokenizers: byte-pair encoding (BPE) and the unigram language model, on bytes, so that nothing is unknown.

Text is split into words as by a word-level tokenizer, and each word separately into tokens, so no token spans two
words. A word's first token has the space before it ("\u0120dog"), even at the beginning of a text. If treebanks are
read as ordinary text, what touches the word before has none ("n't", ".").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ...core.errors import InputError
from ...core.messages import check_name
from .detokenization import attached_words, detokenizer
from .special import BEGIN, END, PADDING, begin_with, finish
from .words import CaseRules, Lowercase, mark_rules, tagged_sentences, word_splitter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SubwordKind = Literal["bpe", "unigram"]
# Each byte has a token, so every text has tokens.
_BYTES = pre_tokenizers.ByteLevel.alphabet()


def train_subword_tokenizer(
    sentences: Iterable[tuple[Sequence[str], Sequence[str] | None]],
    vocab_size: int = 10_000,
    *,
    kind: SubwordKind = "bpe",
    lowercase: Lowercase = "none",
    split_digits: bool = False,
    detokenize: bool = False,
    add_bos: bool = True,
    add_eos: bool = True,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose vocabulary is parts of a corpus's words.

    Args:
        sentences: pairs of a sentence's words and their part-of-speech tags, which are not used.
        vocab_size: maximum number of tokens to make, including the 256 bytes; special tokens are added to them. A small
            corpus gives fewer.
        kind: "bpe" or "unigram".
        lowercase: as in `train_word_tokenizer`.
        split_digits: have a token for each of the digits 0-9 in a number, "1995" being four.
        detokenize: read a treebank's tokens as ordinary text, so that "do n't ." and "don't." have the same tokens, and
            generated text is ordinary text.
        add_bos: have a token `<s>` that begins sentences; texts begin with it.
        add_eos: have a token `</s>` that ends sentences.

    Raises:
        InputError: for sentences that are no pairs, if there are no words, or as `check_subwords`.
    """
    check_subwords(kind, vocab_size)
    case = CaseRules(lowercase)
    n_texts = 0

    def texts() -> Iterator[str]:
        nonlocal n_texts
        for words, _ in tagged_sentences(sentences):
            if words:
                n_texts += 1
                yield case.first_word(" ".join(words))

    special = [PADDING] + [BEGIN] * add_bos + [END] * add_eos
    tokenizer = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer = _word_parts(split_digits, attached=detokenize)
    tokenizer.decoder = decoders.ByteLevel()
    spaces = detokenizer() if detokenize else []
    lower = [] if case.training_normalizer is None else [case.training_normalizer]
    if lower or spaces:
        tokenizer.normalizer = normalizers.Sequence([*lower, *spaces])
    common: dict[str, Any] = {
        "vocab_size": vocab_size + len(special),
        "special_tokens": special,
        "initial_alphabet": _BYTES,
        "show_progress": False,
    }
    # More passes than by default before tokens are dropped: else "\u0120" and "." are never one.
    trainer = trainers.BpeTrainer(**common) if kind == "bpe" else trainers.UnigramTrainer(**common, n_sub_iterations=6)
    tokenizer.train_from_iterator(texts(), trainer)
    if not n_texts:
        raise InputError("the corpus has no words to make a vocabulary from")
    marks = [] if detokenize else mark_rules(tokenizer.get_vocab(), bytewise=True)
    rules = [*marks, *case.normalizers(), *spaces]
    if rules:
        tokenizer.normalizer = normalizers.Sequence(rules)
    if add_bos:
        tokenizer.post_processor = begin_with(BEGIN, special.index(BEGIN))
    return finish(tokenizer, unk_token=None, add_bos=add_bos, add_eos=add_eos)


def check_subwords(kind: str, vocab_size: int) -> None:
    """Check settings that can be checked before a corpus is read.

    Raises:
        InputError: for an unknown kind, or a vocabulary that is too small.
    """
    check_name("kind", kind, get_args(SubwordKind))
    if vocab_size <= len(_BYTES):
        raise InputError(f"vocab_size must be more than the {len(_BYTES)} bytes with kind {kind}; got {vocab_size}")


def _word_parts(split_digits: bool, *, attached: bool) -> pre_tokenizers.PreTokenizer:
    """Split text into words, write each as its bytes with a space before it, and separate digits.

    Args:
        split_digits: as in `train_subword_tokenizer`.
        attached: only words that have a space before them get one.
    """
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=not attached, use_regex=False)
    parts = [attached_words() if attached else word_splitter(), bytewise]
    if split_digits:
        parts.append(pre_tokenizers.Split(Regex("\u0120?[0-9]"), "isolated"))
    return pre_tokenizers.Sequence(parts)
