"""Perplexity and agreement of any language model, through `stack_lm.trace.SentenceModel`."""

from .agreement import AGREEMENT_FORMATS, AgreementItem, AgreementResult, evaluate_agreement, read_agreement
from .perplexity import Perplexity, evaluate_perplexity

__all__ = [
    "AGREEMENT_FORMATS",
    "AgreementItem",
    "AgreementResult",
    "Perplexity",
    "evaluate_agreement",
    "evaluate_perplexity",
    "read_agreement",
]
