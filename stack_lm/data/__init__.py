"""Text from everywhere as one thing: an iterable of sentences. `open_corpus` is the entry point."""

from .corpora import Corpus, Request, Sentence, hold_out, register_source
from .generated import GeneratedSentence, generate_corpus, generate_sentence
from .sources import open_corpus

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
