"""`stack-lm minimal-pairs`: acceptable against unacceptable sentences, by construction."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from ...core.console import print_note
from ...core.errors import InputError
from ...eval.minimal_pairs import MinimalPair, evaluate_minimal_pairs, pair_properties
from ...eval.pair_formats import PAIR_FORMATS, Method, pair_files, read_minimal_pairs
from ..choices import ChoiceTask, add_choice_options, check_choice_options, load_language_model, read_items, score_task
from ..options import option
from ..report import Problems, Report

EXAMPLE = "stack-lm minimal-pairs gpt2 --data blimp/data/ --format blimp --items items.tsv"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm minimal-pairs`."""
    add_choice_options(
        parser,
        list(PAIR_FORMATS),
        models="a model directory, or a model on the hub, or its --items table; several count as runs of one model",
        data="files, or directories of .jsonl or .pickle files",
    )
    method = "compare whole sentences, or what follows given prefixes"
    option(parser, "--method", method, choices=get_args(Method), default="sentence")
    words = "words as given, or with punctuation and contractions split off; auto: split where the tokenizer does not"
    option(parser, "--words", words, choices=("auto", "given", "split"), default="auto")


def run(options: argparse.Namespace) -> Report:
    """Score minimal pairs."""
    check_choice_options(options)
    problems = Problems(options.keep_going)
    sources: list[str] = []
    for source in options.data:
        with problems.skipping():
            sources += pair_files(source, options.format)
    first = next((path for path in (*options.models, *options.against) if not Path(path).is_file()), None)
    model = None if first is None else load_language_model(first, options)
    words = options.words
    if words == "auto":
        if model is None:
            raise InputError("--words must be given or split if all models are tables: auto depends on a model")
        words = "split" if model.is_word_level else "given"
        how = "separated by white space" if words == "given" else "split as in the Penn Treebank"
        print_note(f"the words of the sentences are {how} (--words {words})")

    def read(source: str) -> list[MinimalPair]:
        return read_minimal_pairs(
            source, options.format, method=options.method, words=words, on_error=problems.on_error
        )

    pairs, files = read_items(sources, read, options, problems)

    def load(path: str) -> Any:
        return model if path == first else load_language_model(path, options)

    def texts(pair: MinimalPair) -> dict[str, str]:
        sides = ("prefix_good", "good", "prefix_bad", "bad")
        return {side: " ".join(getattr(pair, side)) for side in sides}

    if model is not None and not model.predicts_first_word:
        n = sum(pair.begins_differently for pair in pairs)
        if n and options.method == "sentence":
            print_note(
                f"{n} pairs begin differently: the model does not predict the first token, so the rest is compared"
            )
    task = ChoiceTask(
        pairs,
        files,
        pair_properties,
        evaluate_minimal_pairs,
        load,
        texts,
        names=("good", "bad"),
        shared=lambda pair: pair.shared_words,
    )
    return score_task(options, problems, task, words=words, method=options.method)
