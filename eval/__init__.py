"""Perplexity, agreement and minimal pairs of any language model, through `stack_lm.core.trace.SentenceModel`."""

from pathlib import Path

from stack_lm.core.messages import check_name

from .agreement import AgreementItem, evaluate_agreement
from .agreement_formats import AGREEMENT_FORMATS, read_agreement
from .choices import Accuracy, ChoiceResult, score_choices, score_pairs
from .contrasts import RegionContrasts, contrast_region, region_by_columns, region_by_pattern
from .minimal_pairs import MinimalPair, evaluate_minimal_pairs
from .pair_formats import PAIR_FORMATS, pair_files, read_minimal_pairs, split_words
from .perplexity import (
    Perplexity,
    PerplexityComparison,
    SentenceLosses,
    compare_perplexity,
    evaluate_perplexity,
    sentence_losses,
)
from .seeds import SeedComparison, Spread, compare_runs, compare_seeds, spreads
from .significance import McNemar, binomial_interval, mcnemar, stratified_interval
from .suites import Suite, SuiteResult, evaluate_suite, mean_accuracy, read_suite

__all__ = [
    "AGREEMENT_FORMATS",
    "PAIR_FORMATS",
    "Accuracy",
    "AgreementItem",
    "ChoiceResult",
    "McNemar",
    "MinimalPair",
    "Perplexity",
    "PerplexityComparison",
    "RegionContrasts",
    "SeedComparison",
    "SentenceLosses",
    "Spread",
    "Suite",
    "SuiteResult",
    "binomial_interval",
    "compare_perplexity",
    "compare_runs",
    "compare_seeds",
    "contrast_region",
    "evaluate_agreement",
    "evaluate_minimal_pairs",
    "evaluate_perplexity",
    "evaluate_suite",
    "mcnemar",
    "mean_accuracy",
    "metric_path",
    "pair_files",
    "read_agreement",
    "read_minimal_pairs",
    "read_suite",
    "region_by_columns",
    "region_by_pattern",
    "score_choices",
    "score_pairs",
    "sentence_losses",
    "split_words",
    "spreads",
    "stratified_interval",
]


def metric_path(name: str) -> str:
    """Return the path of a metric for `evaluate.load`, which then needs no network.

    Raises:
        InputError: if no metric has that name.
    """
    folder = Path(__file__).parent / "metrics"
    names = sorted(path.name for path in folder.iterdir() if (path / f"{path.name}.py").is_file())
    check_name("metric", name, names)
    return str(folder / name)
