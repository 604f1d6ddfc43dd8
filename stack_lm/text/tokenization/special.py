"""Special tokens, and their frame around a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import Tokenizer, processors

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

UNKNOWN, PADDING, BEGIN, END = "<unk>", "<pad>", "<s>", "</s>"


class Frame(NamedTuple):
    """The ids of the special tokens before and after a sentence."""

    begin: list[int]
    end: list[int]


def begin_with(token: str, number: int) -> processors.PostProcessor:
    """Put a token with this id before each text."""
    return processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A $B:1", special_tokens=[(token, number)]
    )


def finish(
    tokenizer: Tokenizer, *, unk_token: str | None, add_bos: bool, add_eos: bool, **kept: Any
) -> PreTrainedTokenizerFast:
    """Convert a tokenizer made here to one of transformers.

    It pads on the left, because `generate` continues from the last position of each row. Training and scoring do their
    own padding.

    Args:
        tokenizer: a tokenizer with the special tokens in its vocabulary.
        unk_token: the token of unknown words, if there are any.
        add_bos, add_eos: whether there are a beginning and an end token.
        kept: further entries of its configuration file.
    """
    from transformers import PreTrainedTokenizerFast

    special = {"unk_token": unk_token, "bos_token": BEGIN if add_bos else None, "eos_token": END if add_eos else None}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PADDING,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{name: token for name, token in special.items() if token is not None},
        **kept,
    )


def reopen_tokenizer(source: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer to be saved again with a model, without transformers' records of loading it.

    Args:
        source: what `AutoTokenizer.from_pretrained` takes, whose errors are raised.
        options: its options.
    """
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    for option in ("is_local", "local_files_only", "trust_remote_code"):
        tokenizer.init_kwargs.pop(option, None)
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
    added = added_tokens(tokenizer)
    first = [tokenizer.bos_token_id] if begin and tokenizer.bos_token_id is not None else []
    last = [tokenizer.eos_token_id] if end and tokenizer.eos_token_id is not None else []
    return Frame(added.begin or first, added.end or last)
