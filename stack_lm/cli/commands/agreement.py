"""`stack-lm agreement`: subject-verb agreement, by attractors, number, construction and distance."""

from __future__ import annotations

import argparse
from typing import Any

from ...core.errors import InputError
from ...core.messages import check_name
from ...eval.agreement import AgreementItem, agreement_properties, evaluate_agreement
from ...eval.agreement_formats import AGREEMENT_FORMATS, read_agreement
from ...eval.choices import begun
from ...eval.pair_formats import PAIR_FORMATS
from ..choices import ChoiceTask, add_choice_options, check_choice_options, load_language_model, read_items, score_task
from ..report import Problems, Report

EXAMPLE = """stack-lm agreement runs/brown-u1 --data linzen_sentences/ --format linzen-gulordava --items items.tsv
  stack-lm agreement runs/u1-s0 runs/u1-s1 --against runs/lstm-s0 runs/lstm-s1 --data seed/ --format linzen-gulordava"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm agreement`."""
    add_choice_options(
        parser,
        list(AGREEMENT_FORMATS),
        models="a model directory, or a model on the hub (for linzen-numpred, a classifier), or its --items table; "
        "several count as runs of one model",
        data="files or directories; SEED or SEED:N for the format generated, with N (300) items for each number of "
        "attractors",
    )


def run(options: argparse.Namespace) -> Report:
    """Score agreement."""
    classifiers = options.format == "linzen-numpred"
    check_choice_options(options, "number classifier" if classifiers else "language model")
    problems = Problems(options.keep_going)
    if options.format in PAIR_FORMATS:
        raise InputError(
            f"the format {options.format} is for `stack-lm minimal-pairs`, which compares verbs with --method prefix"
        )
    check_name("format", options.format, AGREEMENT_FORMATS)

    def read(source: str) -> list[AgreementItem]:
        return read_agreement(source, options.format, on_error=problems.on_error)

    items, files = read_items(options.data, read, options, problems)

    def load(path: str) -> Any:
        if classifiers:
            from ...scoring.number_classifier import NumberClassifier

            return NumberClassifier.from_pretrained(path, device=options.device, batch_tokens=options.batch_tokens)
        return load_language_model(path, options)

    def texts(item: AgreementItem) -> dict[str, str]:
        return {"prefix": " ".join(item.prefix), "correct": item.correct, "wrong": item.wrong}

    task = ChoiceTask(
        items,
        files,
        agreement_properties,
        evaluate_agreement,
        load,
        texts,
        names=("correct", "wrong"),
        shared=None if classifiers else lambda item: begun(item.prefix),
    )
    return score_task(options, problems, task)
