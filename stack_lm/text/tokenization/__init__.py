"""Tokenizers, of words or of subwords, whose case rule and word splitting are part of tokenizer.json.

The result is a plain `PreTrainedTokenizerFast`: any program that loads it computes the same token ids. Only the
replacement of rare words by their part-of-speech tags needs tags, and therefore this package (`RareWordTags`).
"""

from .rare_words import RareWordTags
from .special import Frame, added_tokens, reopen_tokenizer, sentence_frame
from .subwords import SubwordKind, check_subwords, train_subword_tokenizer
from .treebank import TreebankForms
from .word_level import symbol_tokenizer, train_word_tokenizer, word_tokenizer
from .words import Lowercase, case_rule, splits_words, word_splitter, word_splitter_of

__all__ = [
    "Frame",
    "Lowercase",
    "RareWordTags",
    "SubwordKind",
    "TreebankForms",
    "added_tokens",
    "case_rule",
    "check_subwords",
    "reopen_tokenizer",
    "sentence_frame",
    "splits_words",
    "symbol_tokenizer",
    "train_subword_tokenizer",
    "train_word_tokenizer",
    "word_splitter",
    "word_splitter_of",
    "word_tokenizer",
]
