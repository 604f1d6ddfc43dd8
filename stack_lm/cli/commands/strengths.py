"""`stack-lm strengths`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.console import print_note, progress, write_table
from ...core.errors import InputError
from ...core.messages import shortened
from ...figures.figures import plot_groups, save_figure
from ...figures.strengths import ALL_WORDS, by_tag, classes, contrast, frames_by_tag, known_words, summarize
from ...figures.verbs import VERB_FRAMES, verb_frames
from ...hub.locating import find_models
from ...parsing.dependencies import verb_frames_of
from ...parsing.distances import distances_from_trace
from ...parsing.treebank import NLTK_TREEBANK, read_every_tree
from ...parsing.trees import base_label
from ...text import open_corpus
from ...text.corpora import SOURCES
from ...text.formats import format_of, read_tagged_conllu
from ..files import check_files
from ..models import open_scorer
from ..options import DEVICE, LAYER, option, shared
from ..printing import PrintedTable
from ..report import Problems, Report

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

EXAMPLE = "stack-lm strengths runs/brown-u1 --data nltk:treebank --figure strengths.png"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm strengths`."""
    shared(parser, "MODEL")
    data = "a treebank (as for parse-f1), whose trees show the verbs' objects; a .conllu file; or a corpus with tags, "
    option(parser, "--data SOURCE", f"{data}such as nltk:brown, generated or one of your own", required=True)
    shared(parser, "--limit", "--figure", "--items", limit="sentences", figure="the distributions", items="words")
    shared(parser, "--signal", "--keep-going", *LAYER, *DEVICE, keep_going="trees")


def run(options: argparse.Namespace) -> Report:
    """Trace the corpus and summarise the groups' strengths."""
    check_files(options, options.model, options.data)
    find_models(options.model)
    problems = Problems(options.keep_going)
    read = list(_read_tagged(options.data, options.limit, problems))
    if not read:
        raise InputError(f"{options.data} has no sentence with part-of-speech tags")
    numbers, sentences, tags, of_verbs = zip(*read, strict=True)
    frames = None if None in of_verbs else of_verbs
    scorer = open_scorer(options.model, options)
    signal = scorer.choose_signal(options.signal)
    with progress("tracing", len(sentences)) as advance:
        traces = scorer.trace(sentences, tags, logprobs=False, progress=advance)
    if signal not in traces[0].signals:
        distances_from_trace(traces[0], signal)  # raises an error that lists the signals
    words = known_words(traces, signal, tags, frames)
    if words.empty:
        raise InputError(f"{options.model} knows no word of {options.data}: {shortened(' '.join(sentences[0]), 80)!r}")
    verbs = {f"{frame} verbs": (words["frame"] == frame).to_numpy() for frame in VERB_FRAMES}
    verbs = {name: chosen for name, chosen in verbs.items() if chosen.any()}
    groups = classes(words) | verbs
    names = ("model", "data", "limit", "layer", "word_strength")
    record = {name: getattr(options, name) for name in names} | {"signal": signal, "n_sentences": len(sentences)}
    record |= {"n_words": len(words), "n_unknown": sum(int(trace.unknown.sum()) for trace in traces)}
    record |= _summaries(words, groups, list(verbs))
    if options.figure:
        values = {name: words["value"].to_numpy()[chosen] for name, chosen in groups.items()}
        save_figure(options.figure, _corpus_figure(values, record, list(verbs)))
    if options.items:
        rows = words.assign(sentence=np.array(numbers)[words["sentence"]]).astype(object)
        write_table(options.items, ("sentence", "word", "tag", "frame", signal), rows.to_numpy().tolist())
    if not options.json and frames is None:
        print_note(f"{options.data} has no trees to show which verbs have an object")
    return Report(record, _tables(record), [options.figure, options.items], problems.finish)


def _summaries(words: pd.DataFrame, groups: Mapping[str, np.ndarray], verbs: Sequence[str]) -> dict[str, Any]:
    pairs = [("verbs", "nouns"), *((name, verbs[-1]) for name in verbs[:-1])]
    places = words["value"].to_numpy(), words["sentence"].to_numpy()
    contrasts = [contrast(a, b, *places, groups[a], groups[b]) for a, b in pairs if a in groups and b in groups]
    return {
        "groups": {name: summarize(words["value"][chosen]) for name, chosen in groups.items()},
        "contrasts": [each._asdict() for each in contrasts if each is not None],
        "by_tag": by_tag(words),
        "frames_by_tag": frames_by_tag(words),
    }


Tagged = tuple[int, Sequence[str], Sequence[str], "list[str | None] | None"]


def _read_tagged(source: str, limit: int | None, problems: Problems) -> Iterator[Tagged]:
    """Read each sentence's number, words, tags and, of a full tree, the frames of its verbs."""
    if source.partition(":")[0] in SOURCES and source != NLTK_TREEBANK:
        for number, sentence in enumerate(islice(open_corpus(source), limit), start=1):
            if sentence.tags is None:
                raise InputError(f"{source} has no part-of-speech tags")
            yield number, sentence.words, sentence.tags, None
    elif format_of(source) == "conllu":
        for number, words, tags, parts in islice(read_tagged_conllu(source, problems.on_error), limit):
            where = f"{source}, sentence {number}"
            if tags is None:
                problems.on_error(InputError(f"{where}: a word has no universal tag (column 4)"))
            else:
                has_heads = any(part.head.isdecimal() for part in parts)
                yield number, words, tags, verb_frames_of(tags, parts, where) if has_heads else None
    else:
        trees = enumerate(read_every_tree(source, on_error=problems.on_error), start=1)
        for number, tree in islice(trees, limit):
            if tree is None:
                continue
            if tree.word_tags is None:
                problems.on_error(InputError(f"{tree.origin}: the tree has no part-of-speech tags"))
            else:
                # NN-NK is a noun whose edge has a label.
                yield number, tree.words, list(map(base_label, tree.word_tags)), verb_frames(tree)


def _corpus_figure(values: Mapping[str, np.ndarray], result: dict[str, Any], verbs: Sequence[str]) -> Figure:
    panels = [
        (title, {name: values[name] for name in names if name in values})
        for title, names in (
            ("all words", [ALL_WORDS]),
            ("nouns and verbs", ["nouns", "verbs"]),
            ("verbs with and without an object", verbs),
        )
    ]
    title = f"{result['model']} on {result['data']}"
    return plot_groups([panel for panel in panels if panel[1]], result["signal"], title=title)


def _tables(result: dict[str, Any]) -> Iterator[PrintedTable]:
    groups = result["groups"]
    share = 100 * result["n_unknown"] / (result["n_unknown"] + result["n_words"])
    yield PrintedTable(
        f"{result['signal'].replace('_', ' ')} in elements, {result['n_sentences']:,} sentences of {result['data']}",
        ["words", "n", "mean", "sd", *list(next(iter(groups.values())))[3:]],
        [(name, *summary.values()) for name, summary in groups.items()],
        note=f"words that the model does not know ({share:.1f}%) are left out",
    )
    if contrasts := result["contrasts"]:
        rows = []
        for each in contrasts:
            interval = f"{each['low']:.3f} to {each['high']:.3f}"
            superiority = 100 * each["superiority"]
            rows.append((each["first"], each["second"], f"{each['difference']:.3f}", interval, superiority))
        yield PrintedTable(
            "differences",
            ["first", "second", "difference of means", "95% interval", "first is greater, %"],
            rows,
            note="interval: bootstrap over sentences; last column: of all pairs of words, one from each group",
        )
    if frames := result["frames_by_tag"]:
        yield PrintedTable(
            "verbs by form: mean, and in brackets how many",
            ["tag", *VERB_FRAMES],
            [
                (tag, *(f"{of[f]['mean']:.3f} ({of[f]['n']:,})" if f in of else None for f in VERB_FRAMES))
                for tag, of in frames.items()
            ],
        )
