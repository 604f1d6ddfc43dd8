"""`stack-lm strengths`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..console import (
    Problems,
    add_model,
    add_model_options,
    positive_int,
    print_json,
    print_note,
    print_table,
    print_written,
    progress,
    write_table,
)
from ..data import open_corpus
from ..data.corpora import SOURCES
from ..data.formats import format_of, read_tagged_conllu
from ..errors import InputError
from ..hub.locating import find_models
from ..interpretation.figures import check_figure_names, plot_groups, save_figure
from ..interpretation.strengths import ALL_WORDS, CLASSES, PUNCTUATION, Occurrences, Summary, contrast
from ..interpretation.verbs import VERB_FRAMES, verb_frames
from ..messages import check_name, shortened
from ..parsing.distances import SHIFTS, distances_from_trace
from ..parsing.treebank import NLTK_TREEBANKS, read_treebank
from ..parsing.trees import base_label
from .files import TABLES, check_ending, check_outputs
from .models import add_layer_option, open_scorer
from .texts import add_keep_going

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AT_LEAST = 20  # occurrences with a frame that a verb form needs to be listed by itself
SHOWN_VERBS = 8
SHOWN_TAGS, DRAWN_TAGS = 20, 4  # if most words have no class
_EXAMPLES = {"transitive": "took,made", "intransitive": "went,came"}

EXAMPLE = "stack-lm strengths runs/brown-u1 --data nltk:treebank --figure strengths.png"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm strengths`."""
    add_model(parser)
    parser.add_argument(
        "--data",
        metavar="SOURCE",
        required=True,
        help="a treebank (as for parse-f1), whose trees show the verbs' objects; a .conllu file; or a corpus with "
        "tags, such as nltk:brown, generated or one of your own",
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="only the first N sentences")
    for name in ("transitive", "intransitive"):
        parser.add_argument(
            f"--{name}", metavar="VERBS", help=f"compare these verbs, such as {_EXAMPLES[name]}, whatever the trees say"
        )
    parser.add_argument("--figure", metavar="F", help="draw the distributions: .png, .pdf or .svg")
    parser.add_argument("--items", metavar="F", help="write a table of all words with their strengths")
    parser.add_argument(
        "--signal", metavar="NAME", help=f"one of {', '.join(SHIFTS)} (default: the one that parses use)"
    )
    add_keep_going(parser, "trees")
    add_layer_option(parser)
    add_model_options(parser)


def run(options: argparse.Namespace) -> None:
    """Trace the corpus and print the groups' strengths."""
    if options.signal is not None:
        check_name("--signal", options.signal, SHIFTS)
    check_figure_names(options.figure)
    check_ending("--items", options.items, TABLES)
    check_outputs({"--figure": options.figure, "--items": options.items}, [options.model, options.data])
    listed = {name: _verbs(name, getattr(options, name)) for name in ("transitive", "intransitive")}
    if (listed["transitive"] is None) != (listed["intransitive"] is None):
        raise InputError("--transitive and --intransitive are compared with each other; give both")
    find_models(options.model)
    problems = Problems(options.keep_going)
    sentences, tags, frames = _read_tagged(options, problems)
    scorer = open_scorer(options.model, options)
    signal = scorer.choose_signal(options.signal)
    with progress("tracing", len(sentences)) as advance:
        traces = scorer.trace(sentences, tags, logprobs=False, progress=advance)
    if signal not in traces[0].signals:
        distances_from_trace(traces[0], signal)  # raises an error that lists the signals
    words = Occurrences.from_traces(traces, signal, tags, frames)
    if not words.words:
        raise InputError(f"{options.model} knows no word of {options.data}: {shortened(' '.join(sentences[0]), 80)!r}")
    classes = words.classes()
    verbs: dict[str, np.ndarray] = {}
    if listed["transitive"] is not None:
        verbs = {f"listed {name} verbs": words.listed_verbs(forms or ()) for name, forms in listed.items()}
        for (name, found), forms in zip(verbs.items(), listed.values(), strict=True):
            if not found.any():
                raise InputError(f"{options.data} has no {name} in the model's vocabulary: {', '.join(forms or ())}")
    elif frames is not None:
        verbs = {f"{frame} verbs": words.verbs(frame) for frame in VERB_FRAMES}
        verbs = {name: found for name, found in verbs.items() if found.any()}
    groups = classes | verbs
    pairs = [("verbs", "nouns"), *((name, list(verbs)[-1]) for name in list(verbs)[:-1])]
    contrasts = [
        contrast(a, b, words.values, words.sentences, groups[a], groups[b])
        for a, b in pairs
        if a in groups and b in groups
    ]
    result = {
        "model": options.model,
        "data": options.data,
        "limit": options.limit,
        "signal": signal,
        "layer": options.layer,
        "word_strength": options.word_strength,
        "n_sentences": len(sentences),
        "n_words": len(words.words),
        "n_unknown": words.n_unknown,
        "groups": {name: Summary.of(words.values[found]).as_dict() for name, found in groups.items()},
        "contrasts": [found.as_dict() for found in contrasts if found is not None],
        "by_tag": {tag: summary.as_dict() for tag, summary in words.by_tag().items()},
        "frames_by_tag": {
            tag: {frame: summary.as_dict() for frame, summary in of_tag.items()}
            for tag, of_tag in words.frames_by_tag().items()
        },
        "by_verb": words.by_verb(AT_LEAST),
    }
    if options.figure:
        save_figure(options.figure, _corpus_figure(words, result, groups, verbs, options))
    if options.items:
        columns = ("sentence", "word", "tag", "frame", signal)
        rows = zip(words.sentences + 1, words.words, words.tags, words.frames, words.values.tolist(), strict=True)
        write_table(options.items, columns, list(rows))
    if options.json:
        print_json(result)
    else:
        _print_strengths(result)
        print_written(options.figure, options.items)
        if frames is None and not verbs:
            print_note(f"{options.data} has no trees to show which verbs have an object; see --transitive")
    problems.finish()


def _verbs(name: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    forms = [form.strip() for form in text.split(",") if form.strip()]
    if not forms:
        raise InputError(f"--{name} takes verbs separated by commas, such as {_EXAMPLES[name]}; got {text!r}")
    return forms


Tagged = tuple[list[Sequence[str]], list[Sequence[str]], "list[list[str | None]] | None"]


def _read_tagged(options: argparse.Namespace, problems: Problems) -> Tagged:
    """Read each sentence's words, tags and, with full trees, verb frames."""
    source = options.data
    kind = source.partition(":")[0]
    words: list[Sequence[str]] = []
    tags: list[Sequence[str]] = []
    if kind in SOURCES and source not in NLTK_TREEBANKS:
        for sentence in islice(open_corpus(source), options.limit):
            if sentence.tags is None:
                raise InputError(f"{source} has no part-of-speech tags")
            words.append(sentence.words)
            tags.append(sentence.tags)
        return words, tags, None
    if format_of(source) == "conllu":
        for number, (found, own) in enumerate(islice(read_tagged_conllu(source, problems.on_error), options.limit), 1):
            if own is None:
                problems.on_error(InputError(f"{source}, sentence {number}: a word has no universal tag (column 4)"))
                continue
            words.append(found)
            tags.append(own)
        if not words:
            raise InputError(f"{source} has no sentence with part-of-speech tags")
        return words, tags, None
    trees = []
    for tree in read_treebank(source, on_error=problems.on_error)[: options.limit]:
        if tree.word_tags is None:
            problems.on_error(InputError(f"{tree.origin}: the tree has no part-of-speech tags"))
            continue
        tags.append([base_label(tag) for tag in tree.word_tags])  # NN-NK is a noun whose edge has a label
        trees.append(tree)
    if not trees:
        raise InputError(f"{source} has no tree with part-of-speech tags")
    # Chunks are not trees: the words to the right of a verb are not in its phrase.
    frames = None if kind == "chunks" else [verb_frames(tree) for tree in trees]
    return [tree.words for tree in trees], tags, frames


def _has_classes(result: dict[str, Any]) -> bool:
    """True if most words have a class; if not, the tags are of another set than those of `CLASSES`."""
    counts = {name: result["groups"][name]["n"] for name in CLASSES if name in result["groups"]}
    n_marks = counts.pop(PUNCTUATION, 0)  # whose tags many tag sets share
    return 2 * sum(counts.values()) >= result["n_words"] - n_marks


def _corpus_figure(
    words: Occurrences,
    result: dict[str, Any],
    groups: Mapping[str, np.ndarray],
    verbs: Mapping[str, np.ndarray],
    options: argparse.Namespace,
) -> Figure:
    if _has_classes(result):
        parts = ("nouns and verbs", {name: words.values[groups[name]] for name in ("nouns", "verbs") if name in groups})
    else:
        tags, frequent = np.array(words.tags), islice(result["by_tag"], DRAWN_TAGS)
        parts = ("the most frequent tags", {tag: words.values[tags == tag] for tag in frequent})
    panels = [
        ("all words", {ALL_WORDS: words.values}),
        parts,
        ("verbs with and without an object", {name: words.values[found] for name, found in verbs.items()}),
    ]
    title = f"{options.model} on {options.data}"
    return plot_groups([panel for panel in panels if panel[1]], result["signal"], title=title)


def _print_strengths(result: dict[str, Any]) -> None:
    signal = result["signal"].replace("_", " ")
    groups = result["groups"]
    if not _has_classes(result):
        groups = {name: of_words for name, of_words in groups.items() if name not in CLASSES}
        groups |= dict(islice(result["by_tag"].items(), SHOWN_TAGS))
        print_note(
            "most tags are not from the Penn Treebank, the Brown corpus, Universal Dependencies or STTS: the rows are "
            "tags"
        )
    share = 100 * result["n_unknown"] / (result["n_unknown"] + result["n_words"])
    quantiles = list(next(iter(groups.values())))[3:]
    print_table(
        f"{signal} in elements, {result['n_sentences']:,} sentences of {result['data']}",
        ["words", "n", "mean", "sd", *quantiles],
        [(name, *summary.values()) for name, summary in groups.items()],
        caption=f"words that the model does not know ({share:.1f}%) are left out",
    )
    if result["contrasts"]:
        print_table(
            "differences",
            ["first", "second", "difference of means", "95% interval", "first is greater, %"],
            [
                (
                    c["first"],
                    c["second"],
                    f"{c['difference']:.3f}",
                    f"{c['low']:.3f} to {c['high']:.3f}",
                    100 * c["superiority"],
                )
                for c in result["contrasts"]
            ],
            caption="interval: bootstrap over sentences; last column: of all pairs of words, one from each group",
        )
    if result["frames_by_tag"]:
        print_table(
            "verbs by form: mean, and in brackets how many",
            ["tag", *VERB_FRAMES],
            [
                (tag, *(f"{of[f]['mean']:.3f} ({of[f]['n']:,})" if f in of else None for f in VERB_FRAMES))
                for tag, of in result["frames_by_tag"].items()
            ],
        )
    if result["by_verb"]:
        rows = result["by_verb"]
        shown = rows if len(rows) <= 2 * SHOWN_VERBS else [*rows[:SHOWN_VERBS], *rows[-SHOWN_VERBS:]]
        print_table(
            f"verb forms by share with an object; {len(shown)} of {len(rows)} with {AT_LEAST} or more occurrences",
            ["verb", "with an object, %", "n", "mean", "sd"],
            [(row["verb"], row["transitive"], row["n"], row["mean"], row["std"]) for row in shown],
        )
