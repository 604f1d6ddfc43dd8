"""How a model uses its stack: over one sentence, and by word class (Merrill et al. 2019, section 4)."""

from .figures import plot_distributions, plot_groups, plot_strengths, save_figure
from .page import render_page
from .strengths import Contrast, Occurrences, Summary, contrast, word_class
from .verbs import VERB_FRAMES, verb_frames

__all__ = [
    "VERB_FRAMES",
    "Contrast",
    "Occurrences",
    "Summary",
    "contrast",
    "plot_distributions",
    "plot_groups",
    "plot_strengths",
    "render_page",
    "save_figure",
    "verb_frames",
    "word_class",
]
