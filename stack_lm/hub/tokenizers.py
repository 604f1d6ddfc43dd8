"""Open tokenizers for training, from a directory, a tokenizer.json or the hub; paths are never looked up on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InputError
from ..core.messages import explaining
from ..text.plain import json_object
from ..text.tokenization import reopen_tokenizer
from .locating import TOKENIZERS, ask_hub, looks_like_a_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
# Names of the special tokens in a tokenizer.json without a configuration.
_NAMES = {
    "bos_token": ("<s>", "<bos>", "[BOS]", "<|endoftext|>"),
    "eos_token": ("</s>", "<eos>", "[EOS]", "<|endoftext|>"),
    "unk_token": ("<unk>", "[UNK]"),
    "pad_token": ("<pad>", "[PAD]"),
}


def open_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """A tokenizer to train a model with and to save with it.

    It pads on the left, as generation requires, using the end token if it has no padding token.

    Args:
        source: a directory, a tokenizer.json, or a name on the hub.

    Raises:
        InputError: if it cannot be opened, or is not a fast tokenizer.
    """
    # Of many kinds: of the hub, of files, of formats.
    with explaining(f"cannot load a tokenizer from {source or repr(source)}", Exception):
        path = find_tokenizer(source)
        if path is not None and path.is_file():
            tokenizer = _open_file(path)
        else:
            tokenizer = reopen_tokenizer(path or source, **({} if path else ask_hub(str(source), _FILE)))
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer: it cannot align tokens to words")
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = "left"  # the latter is what gets saved
        try_tokenizer(tokenizer)
    return tokenizer


def try_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Run a tokenizer once: settings of the wrong type, or a missing unknown token, fail only then.

    Raises:
        Exception: of the libraries below, of any kind.
    """
    try:
        tokenizer("a \ue000")  # a letter, and a character that no text has
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of a library in Rust; no `Exception`
            raise ValueError(f"its settings contradict each other ({error})") from None
        raise


def find_tokenizer(source: str | Path) -> Path | None:
    """Find a tokenizer on disk, without loading it; None for a name on the hub.

    Raises:
        InputError: if it looks like a path and does not exist, or if a directory has no tokenizer.
    """
    name = str(source)
    if not name:
        raise InputError("its name is empty")
    path = Path(name).expanduser()
    if path.is_dir():
        if not any(any(path.glob(pattern)) for pattern in TOKENIZERS):
            raise InputError(f"the directory has no tokenizer ({_FILE})")
        bare = (path / _FILE).is_file() and not any((path / name).is_file() for name in (_CONFIG, "config.json"))
        return path / _FILE if bare else path
    if path.is_file():
        whole = path.name == _FILE and (path.parent / _CONFIG).is_file()  # which knows the special tokens
        return path.parent if whole else path
    if path.suffix == ".json" or looks_like_a_path(name):
        raise InputError("there is no such file or directory")
    return None


def _open_file(path: Path) -> PreTrainedTokenizerBase:
    from transformers import PreTrainedTokenizerFast

    if json_object(path.read_text(encoding="utf-8")) is None:
        raise InputError(f"it is not a {_FILE}: it is not a JSON object")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path), clean_up_tokenization_spaces=False)
    vocabulary: Any = tokenizer.get_vocab()
    for role, names in _NAMES.items():
        token = next((name for name in names if name in vocabulary), None)
        if token is not None:
            setattr(tokenizer, role, token)
    return tokenizer
