"""What a model does with its stack: over one sentence, and by kinds of words (Merrill et al. 2019, section 4)."""

from .strengths import Contrast, Occurrences, Summary, contrast, word_class
from .verbs import VERB_FRAMES, verb_frames

__all__ = ["VERB_FRAMES", "Contrast", "Occurrences", "Summary", "contrast", "verb_frames", "word_class"]
