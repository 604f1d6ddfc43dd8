"""The description of the metrics for `evaluate`, which is their card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import evaluate


def metric_info(name: str, features: Any) -> evaluate.MetricInfo:
    """The description, usage and citation of a metric, from the README in its folder.

    Args:
        name: the name of the metric.
        features: the types of its predictions and references, or a list of alternatives.
    """
    card = (Path(__file__).parent / "metrics" / name / "README.md").read_text(encoding="utf-8")
    description, _, usage = card.partition("## How to use")
    usage, _, citation = usage.partition("## Citation")
    return evaluate.MetricInfo(
        description=description.partition("## Description")[2].strip(),
        inputs_description=usage.strip(),
        citation=citation.strip(),
        features=features,
    )
