"""Checks of a memory or a language model of your own: the rules that the rest of the package relies on."""

from .memories import MEMORY_CHECKS, check_memory
from .models import MODEL_CHECKS, check_model

__all__ = ["MEMORY_CHECKS", "MODEL_CHECKS", "check_memory", "check_model"]
