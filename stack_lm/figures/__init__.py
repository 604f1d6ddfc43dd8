"""Measures and figures of a model's use of its stack (Merrill et al. 2019, section 4)."""

from .computation import Computation, computation_of_trace, plot_computation
from .curves import plot_learning_curves, read_metrics
from .figures import plot_distributions, plot_groups, plot_strengths, save_figure
from .page import render_page
from .strengths import Contrast, contrast, word_class
from .surprisal import SurprisalCurve, plot_surprisal
from .verbs import VERB_FRAMES, verb_frames

__all__ = [
    "VERB_FRAMES",
    "Computation",
    "Contrast",
    "SurprisalCurve",
    "computation_of_trace",
    "contrast",
    "plot_computation",
    "plot_distributions",
    "plot_groups",
    "plot_learning_curves",
    "plot_strengths",
    "plot_surprisal",
    "read_metrics",
    "render_page",
    "save_figure",
    "verb_frames",
    "word_class",
]
