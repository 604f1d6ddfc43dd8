"""Checks for your own memory or language model: the rules on which the rest of the package relies."""

from .memories import MEMORY_CHECKS, check_memory
from .models import MODEL_CHECKS, check_model

__all__ = ["MEMORY_CHECKS", "MODEL_CHECKS", "check_memory", "check_model"]
