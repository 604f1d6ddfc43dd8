"""Text from everywhere as one thing: an iterable of sentences. `open_corpus` is the entry point."""

from .corpora import Corpus, Sentence, hold_out, open_corpus
from .generated import GeneratedSentence, generate_corpus, generate_sentence

__all__ = [
    "Corpus",
    "GeneratedSentence",
    "Sentence",
    "generate_corpus",
    "generate_sentence",
    "hold_out",
    "open_corpus",
]
