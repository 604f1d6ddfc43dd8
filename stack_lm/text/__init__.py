"""Text from any source as an iterable of sentences. `open_corpus` is the entry point."""

from typing import TYPE_CHECKING, Any

from .corpora import Corpus, Request, Sentence, hold_out, register_source
from .sources import open_corpus

if TYPE_CHECKING:
    from .generated import GeneratedSentence, generate_corpus, generate_sentence

__all__ = [
    "Corpus",
    "GeneratedSentence",
    "Request",
    "Sentence",
    "generate_corpus",
    "generate_sentence",
    "hold_out",
    "open_corpus",
    "register_source",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # the generated English, whose trees need NLTK, which is slow to load
        from . import generated

        return getattr(generated, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
