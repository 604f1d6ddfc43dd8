"""Text from everywhere as one thing: an iterable of sentences. `open_corpus` is the entry point."""

from .corpora import Corpus, Sentence, hold_out, open_corpus

__all__ = ["Corpus", "Sentence", "hold_out", "open_corpus"]
