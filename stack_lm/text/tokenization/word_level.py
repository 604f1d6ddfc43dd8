"""Word-level tokenizers: a vocabulary of the most frequent words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from ...core.errors import InputError
from .rare_words import TAG_KEY
from .special import BEGIN, END, PADDING, UNKNOWN, begin_with, finish
from .words import CaseRules, Lowercase, mark_rules, tagged_sentences, word_splitter

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def train_word_tokenizer(
    sentences: Iterable[tuple[Sequence[str], Sequence[str] | None]],
    vocab_size: int = 10_000,
    *,
    lowercase: Lowercase = "none",
    tag_rare_words: bool = False,
    add_bos: bool = True,
    add_eos: bool = True,
) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose vocabulary is the most frequent words of a corpus.

    The tokenizer splits off punctuation and contractions as in the Penn Treebank (`word_tokenizer`), and puts the
    beginning token before each text. It does not add the end token, because a text to be continued has no end. Training
    and perplexity add it.

    Args:
        sentences: pairs of a sentence's words and their part-of-speech tags, or None.
        vocab_size: number of the most frequent words to keep; special tokens and tags are added to them. Ties are
            broken alphabetically.
        lowercase: "none", "first_word" (of each text, see `case_rule`) or "all".
        tag_rare_words: also add the tags to the vocabulary, so that `RareWordTags` can replace an unknown word by
            its tag (Linzen et al. 2016: the `NNP`, `VBG` ... in their data).
        add_bos: have a token `<s>` that begins sentences.
        add_eos: have a token `</s>` that ends sentences.

    Raises:
        InputError: for sentences that are no pairs, if there are no words, no tags although `tag_rare_words` asks for
            them, or tags that `lowercase` would change.
    """
    case = CaseRules(lowercase)
    tags: set[str] = set()

    def texts() -> Iterator[str]:
        for words, sentence_tags in tagged_sentences(sentences):
            if tag_rare_words:
                if sentence_tags is None:
                    raise InputError("tag_rare_words needs part-of-speech tags, but the corpus has none")
                tags.update(sentence_tags)
            yield case.first_word(" ".join(words))

    frequent = _most_frequent_words(texts(), vocab_size, case)
    if not frequent:
        raise InputError("the corpus has no words to make a vocabulary from")
    special = [PADDING, UNKNOWN] + [BEGIN] * add_bos + [END] * add_eos
    known = {*frequent, *special}
    tokens = special + frequent + sorted(tags - known)
    rules = [*mark_rules(frequent), *case.normalizers({word[0] for word in frequent})]
    normalizer = normalizers.Sequence(rules) if rules else None
    for tag in sorted(tags):
        if normalizer is not None and normalizer.normalize_str(tag) != tag:
            raise InputError(f"tag_rare_words needs tags that lowercase={lowercase!r} leaves alone; it changes {tag!r}")
    tokenizer = word_tokenizer(tokens, split_words=True)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if add_bos:
        tokenizer.post_processor = begin_with(BEGIN, tokens.index(BEGIN))
    return finish(tokenizer, unk_token=UNKNOWN, add_bos=add_bos, add_eos=add_eos, **{TAG_KEY: tag_rare_words})


def _most_frequent_words(texts: Iterator[str], vocab_size: int, case: CaseRules) -> list[str]:
    """The words that a tokenizer finds in texts, most frequent first."""
    counter = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    counter.pre_tokenizer = word_splitter()
    if case.training_normalizer is not None:
        counter.normalizer = case.training_normalizer
    # Special tokens in the text are not words.
    special = (PADDING, UNKNOWN, BEGIN, END)
    size = vocab_size + len(special)
    trainer = trainers.WordLevelTrainer(vocab_size=size, show_progress=False, special_tokens=[])
    counter.train_from_iterator(texts, trainer)
    vocabulary = counter.get_vocab()
    return [word for word in sorted(vocabulary, key=vocabulary.__getitem__) if word not in special][:vocab_size]


def word_tokenizer(words: Sequence[str], unknown: str = UNKNOWN, *, split_words: bool = False) -> Tokenizer:
    """A `tokenizers` tokenizer that splits at white space and looks words up.

    Args:
        words: its vocabulary, by id.
        unknown: the word for all others.
        split_words: also split as in the Penn Treebank: punctuation at the end of a word, quotation marks, brackets,
            contractions ("do n't", "dog 's", "can not"), currency and percent signs are separate words; abbreviations,
            numbers and hyphenated words are not split. A period is split off only at the end of a text.
    """
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=unknown))
    tokenizer.pre_tokenizer = word_splitter() if split_words else pre_tokenizers.WhitespaceSplit()
    # Each word is decoded with a space before it, as in byte-level tokenizers: clients decode only a continuation and
    # append it to its prompt.
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("^"), " "), decoders.Fuse()])
    return tokenizer


def symbol_tokenizer(symbols: Sequence[str], padding: str | None = None) -> PreTrainedTokenizerFast:
    """A tokenizer for the symbols of a formal task, separated by spaces; the position of a symbol is its id.

    There is no unknown symbol: any other symbol is an error, because it has no input of its own.

    Args:
        symbols: all of them.
        padding: the one that pads batches, if any.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(symbols),
        pad_token=padding,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
