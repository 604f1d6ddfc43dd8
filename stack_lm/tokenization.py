"""Word-level tokenizers, whose case rule and word splitting are part of tokenizer.json.

The result is a plain `PreTrainedTokenizerFast`: any program that loads it computes the same token ids. Only the
replacement of rare words by their part-of-speech tags needs tags, and so this package (`RareWordTags`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Lowercase = Literal["none", "first_word", "all"]

UNKNOWN, PADDING, BEGIN, END = "<unk>", "<pad>", "<s>", "</s>"
# The name under which the tokenizer's configuration file keeps that rare words are replaced by tags.
_TAG_KEY = "tag_rare_words"

# What is a token of its own where it touches a word. In text of the Penn Treebank's form nothing touches a word, so
# such text stays as it is. Each alternative begins with one character and a test that refuses most others: the matcher
# tries all of them at each character that may begin one.
_CLOSED = r"(?=[\"'”\u2019)\],;:.?!]*(?:\s|\z))"
_AFTER_WORD = "|".join(
    (
        r"(?<=[\"”»)\]}])",
        # One token of several marks ("?!"), before white space, the end, or what closes a quotation.
        rf"(?<=[,;:?!])(?<![?!]{{2}})[?!]*{_CLOSED}",
        # The text's last period, but not that of an initial or an acronym (Plan B., the U.S.).
        r"(?<=\.)(?<=[\p{L}\p{N}%\"'”\u2019)\]].)(?=[\"'”\u2019)\]]*\s*\z)(?<![^\p{L}]\p{L}.)(?<!\A\p{L}.)",
        r"(?<=\.)\.\.(?!\.)(?<!\....)",
        r"(?<=['\u2019])(?<=[\p{L}\p{N}].)(?:[smdSMD]|[rR][eE]|[vV][eE]|[lL][lL])(?![\p{L}\p{N}])",
        r"(?<=')'(?!')(?<=[^\s'`]..)",
        rf"(?<=%)(?<=\d.){_CLOSED}",
    )
)
_BEFORE_WORD = "|".join(
    (r"(?<=[\"“„«(\[{$£€])", r"(?<=`)`(?=\S)", r"(?<=\.)\.\.(?=[\p{L}\p{N}])(?<!\....)", r"(?<=-)-++(?=\S|(?<=\S--))")
)
_WORD_PARTS = "|".join(
    (
        rf"[\"'\u2019”»)\]}},;:?!.%](?<=\S.)(?:{_AFTER_WORD})",
        rf"[\"“„«(\[{{$£€`.\-](?=\S)(?:{_BEFORE_WORD})",
        r"[nN]['\u2019][tT](?<=\p{L}...)(?!\p{L})",
        r"[cC]an(?=not(?!\p{L}))(?<!\p{L}...)",
    )
)
# For a corpus that has the Penn Treebank's quotation marks: text has others.
_TREEBANK_QUOTES = (normalizers.Replace(Regex(r'(?<![^\s(\[{])"(?=\S)'), "``"), normalizers.Replace('"', "''"))


class Frame(NamedTuple):
    """The ids of the special tokens before and after a sentence."""

    begin: list[int]
    end: list[int]


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

    The tokenizer splits punctuation and contractions off as the Penn Treebank does (`word_tokenizer`), and puts the
    beginning token before each text. It does not add the end token: a text that is to be continued has no end.
    Training and perplexity add it.

    Args:
        sentences: pairs of a sentence's words and their part-of-speech tags, or None.
        vocab_size: the most frequent words to keep; special tokens and tags are added to them. Ties are broken
            alphabetically.
        lowercase: "none", "first_word" (of each text, see `case_rule`) or "all".
        tag_rare_words: also add the tags to the vocabulary, so that `RareWordTags` can replace an unknown word by
            its tag (Linzen et al. 2016: the `NNP`, `VBG` ... in their data).
        add_bos: have a token `<s>` that begins sentences.
        add_eos: have a token `</s>` that ends sentences.

    Raises:
        InputError: if there are no words, no tags although `tag_rare_words` asks for them, or tags that `lowercase`
            would change.
    """
    from transformers import PreTrainedTokenizerFast

    if lowercase not in get_args(Lowercase):
        raise InputError(f"lowercase must be one of {', '.join(get_args(Lowercase))}; got {lowercase!r}")
    capitals = set(ascii_uppercase)
    tags: set[str] = set()

    def texts() -> Iterator[str]:
        for words, sentence_tags in sentences:
            if tag_rare_words:
                if sentence_tags is None:
                    raise InputError("tag_rare_words needs part-of-speech tags, but the corpus has none")
                tags.update(sentence_tags)
            text = " ".join(words)
            if lowercase == "first_word" and text[:1].isupper():
                capitals.add(text[0])
                text = case_rule(text[0]).normalize_str(text)
            yield text

    frequent = _most_frequent_words(texts(), vocab_size, lowercase)
    if not frequent:
        raise InputError("the corpus has no words to make a vocabulary from")
    special = [PADDING, UNKNOWN] + [BEGIN] * add_bos + [END] * add_eos
    known = {*frequent, *special}
    tokens = special + frequent + sorted(tags - known)
    rules: list[normalizers.Normalizer] = []
    if {"``", "''"} <= known and '"' not in known:
        rules += _TREEBANK_QUOTES
    if lowercase == "all":
        rules.append(normalizers.Lowercase())
    elif lowercase == "first_word":
        # Where no word of the vocabulary begins with the small letter, the rule could only make words unknown.
        initials = {word[0] for word in frequent}
        rules.append(normalizers.Strip(right=False))  # other programs put a space before a continuation
        rules += [case_rule(capital) for capital in sorted(capitals) if capital.lower()[0] in initials]
    normalizer = normalizers.Sequence(rules) if rules else None
    for tag in sorted(tags):
        if normalizer is not None and normalizer.normalize_str(tag) != tag:
            raise InputError(f"tag_rare_words needs tags that lowercase={lowercase!r} leaves alone; it changes {tag!r}")
    extra: dict[str, Any] = {"bos_token": BEGIN} if add_bos else {}
    if add_eos:
        extra["eos_token"] = END
    vocabulary = {token: i for i, token in enumerate(tokens)}
    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(
            vocabulary, UNKNOWN, normalizer=normalizer, begin=BEGIN if add_bos else None, split_words=True
        ),
        unk_token=UNKNOWN,
        pad_token=PADDING,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{_TAG_KEY: tag_rare_words},
        **extra,
    )


def _most_frequent_words(texts: Iterator[str], vocab_size: int, lowercase: Lowercase) -> list[str]:
    """The words that a tokenizer finds in texts, the most frequent first."""
    counter = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    counter.pre_tokenizer = word_splitter()
    if lowercase == "all":
        counter.normalizer = normalizers.Lowercase()
    # Special tokens in the text are not words of their own.
    special = (PADDING, UNKNOWN, BEGIN, END)
    size = vocab_size + len(special)
    trainer = trainers.WordLevelTrainer(vocab_size=size, show_progress=False, special_tokens=[])
    counter.train_from_iterator(texts, trainer)
    vocabulary = counter.get_vocab()
    return [word for word in sorted(vocabulary, key=vocabulary.__getitem__) if word not in special][:vocab_size]


@cache
def case_rule(capital: str) -> normalizers.Normalizer:
    """Lower-case one capital letter where it begins a text's first word.

    The word must go on with small letters alone ("The", not "NASA", "McDonald" or "U.S."), or be "A". "I" stays.
    Only the first letter of the text counts, so that nothing changes after a quotation mark.

    NOTE: Merrill et al. (2019) lower-case all of the first word, whatever it is.
    """
    word = r"\p{Ll}[^\s\p{Lu}]*(?:\s|\z)"
    alone = r"|\s+[\p{L}\p{N}]" if capital == "A" else ""
    return normalizers.Replace(Regex(rf"\A{capital}(?={word}{alone})"), capital.lower())


def word_splitter() -> pre_tokenizers.PreTokenizer:
    """Split text into words as the Penn Treebank does; text in its form stays as it is, word for word."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORD_PARTS), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )


def word_tokenizer(
    vocabulary: dict[str, int],
    unknown: str,
    *,
    normalizer: normalizers.Normalizer | None = None,
    begin: str | None = None,
    split_words: bool = False,
) -> Tokenizer:
    """A `tokenizers` tokenizer that splits at white space and looks words up.

    Args:
        vocabulary: ids of words.
        unknown: the word for all others.
        normalizer: changes the text first.
        begin: a token to put before each text.
        split_words: also split as the Penn Treebank does: punctuation at the end of a word, quotation marks, brackets,
            contractions ("do n't", "dog 's", "can not"), signs of money and percent are words of their own;
            abbreviations, numbers and hyphenated words are not split. A period is split off at the end of a text only.
    """
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = word_splitter() if split_words else pre_tokenizers.WhitespaceSplit()
    # Each word is decoded with a space before it, as in byte-level tokenizers: clients decode a continuation alone and
    # append it to its prompt.
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("^"), " "), decoders.Fuse()])
    if begin is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A $B:1", special_tokens=[(begin, vocabulary[begin])]
        )
    return tokenizer


def symbol_tokenizer(symbols: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer for the symbols of a formal task, separated by spaces; the place of a symbol is its id.

    There is no unknown symbol: another one is an error, as it has no input of its own.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer({symbol: i for i, symbol in enumerate(symbols)}, UNKNOWN),
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def reopen_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """A tokenizer that will be saved again with a model, without what transformers notes down of opening it.

    Args:
        source: what `AutoTokenizer.from_pretrained` takes, whose errors are raised.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
    for of_opening in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(of_opening, None)
    return tokenizer


def added_tokens(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """The special tokens that a tokenizer itself adds to each text."""
    bare = tokenizer("a", add_special_tokens=False).input_ids
    full = tokenizer("a").input_ids
    place = next((k for k in range(len(full)) if full[k : k + len(bare)] == bare), 0)
    return Frame(full[:place], full[place + len(bare) :])


def sentence_frame(tokenizer: PreTrainedTokenizerBase, *, begin: bool, end: bool) -> Frame:
    """The special tokens around a whole sentence: those that the tokenizer adds, or else its `<s>` and `</s>`.

    Args:
        tokenizer: any tokenizer.
        begin: whether sentences begin with its beginning token, if it has one.
        end: whether they end with its end token, if it has one.
    """
    own = added_tokens(tokenizer)
    first = [tokenizer.bos_token_id] if begin and tokenizer.bos_token_id is not None else []
    last = [tokenizer.eos_token_id] if end and tokenizer.eos_token_id is not None else []
    return Frame(own.begin or first, own.end or last)


class RareWordTags:
    """Replaces a sentence's rare words by their part-of-speech tags, if the tokenizer was trained so.

    Args:
        tokenizer: any tokenizer; one that does not come from `train_word_tokenizer` leaves words unchanged.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.active: bool = tokenizer.init_kwargs.get(_TAG_KEY, False)
        self._vocabulary = frozenset(tokenizer.get_vocab()) if self.active else frozenset()
        self._normalizer = tokenizer.backend_tokenizer.normalizer if self.active else None

    def __call__(self, words: Sequence[str], tags: Sequence[str] | None = None) -> Sequence[str]:
        """The sentence, with the tags of words outside the vocabulary in their place.

        Args:
            words: the sentence.
            tags: part-of-speech tags.

        Raises:
            InputError: if the numbers of words and tags differ.
        """
        if tags is None or not self.active or not words:
            return words
        if len(tags) != len(words):
            raise InputError(f"a sentence has {len(words)} words but {len(tags)} tags: {' '.join(words)!r}")
        known = self._vocabulary
        found = words
        if self._normalizer is not None:
            normalized = self._normalizer.normalize_str(" ".join(words)).split(" ")
            found = normalized if len(normalized) == len(words) else words
        return [
            word if looked_up in known or tag not in known else tag
            for word, looked_up, tag in zip(words, found, tags, strict=True)
        ]
