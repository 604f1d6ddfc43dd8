"""Make training, validation and test files of the number prediction task (Linzen et al. 2016) from text.

The text is tagged, by a tagger that is trained on the corpora treebank, conll2000 and brown of NLTK. Rules find verbs
in the present tense and the common nouns that head their subjects. Each line of the files is VBZ or VBP, a tab, and the
words before the verb; rare words are replaced by their tags. numpred.test.2, for one, has the items of numpred.test
with two attractors and no other common noun between subject and verb. items.tsv has subject, verb and intervening nouns
of all items. Blocks of 1,000 sentences go to one part, so that an article is rarely in two.

Example:
    python recipes/make_number_prediction.py wikipedia.txt data/numpred
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from stack_lm.cli.options import option, shared
from stack_lm.core.atomic import atomic_directory
from stack_lm.core.console import (
    print_json,
    print_note,
    print_table,
    progress,
    run_command,
    script_parser,
    write_table,
)
from stack_lm.core.errors import InputError
from stack_lm.text import open_corpus
from stack_lm.text.number_prediction import MOST_ATTRACTORS, NumberItem, NumberItemCollector, part_of
from stack_lm.text.tagging import tagged_sentences, train_tagger, treebank_quotes

CORPORA = ("treebank", "conll2000", "brown")


def make_tagger(iterations: int) -> Any:
    """Train the tagger on NLTK's corpora."""
    print_note(f"training a tagger on {', '.join(CORPORA)}, which takes a few minutes")
    training = [
        sentence
        for name in CORPORA
        for sentence in tagged_sentences(open_corpus(f"nltk:{name}"), brown=name == "brown")
    ]
    return train_tagger(training, iterations)


def collect(source: str, column: str | None, limit: int | None, iterations: int) -> NumberItemCollector:
    """Tag the sentences of a text and collect their items."""
    tagger = make_tagger(iterations)
    collector = NumberItemCollector()
    with progress("tagging", limit) as advance:
        for sentence in islice(open_corpus(source, column=column), limit):
            words = treebank_quotes(sentence.words)
            collector.add(words, [tag for _, tag in tagger.tag(words)])
            advance(1)
    return collector


def write(directory: Path, items: Iterable[NumberItem], shares: Mapping[str, float], seed: int) -> dict[str, Any]:
    """Write the files of all parts; returns their numbers of items and other statistics, by file.

    Raises:
        InputError: if a part has no items.
    """
    lines: dict[str, list[str]] = {part: [] for part in ("train", *shares)}
    figures: dict[str, Counter[str]] = {}
    columns = ("part", "sentence", "label", "subject", "verb", "distance", "intervening", "attractors")
    rows = []
    for item in items:
        part = part_of(item, shares, seed)
        names = [part]
        if part != "train" and item.homogeneous and item.attractors <= MOST_ATTRACTORS:
            names.append(f"{part}.{item.attractors}")
        for name in names:
            lines.setdefault(name, []).append(item.line())
            figures.setdefault(name, Counter()).update(
                items=1,
                singular=item.label == "VBZ",
                words=len(item.prefix),
                tags=sum(word.isupper() for word in item.prefix),
                attracted=item.attractors > 0,
            )
        between = " ".join(item.intervening)
        rows.append((part, item.sentence, item.label, item.subject, item.verb, item.distance, between, item.attractors))
    write_table(str(directory / "items.tsv"), columns, rows)
    for name, content in lines.items():
        if not content:
            raise InputError(f"the part {name!r} has no items: the text is too short, or its share too small")
        (directory / f"numpred.{name}").write_text("".join(content), encoding="utf-8")
    return {
        f"numpred.{name}": {
            "items": found["items"],
            "singular": 100 * found["singular"] / found["items"],
            "words": found["words"] / found["items"],
            "tags": 100 * found["tags"] / found["words"],
            "attracted": 100 * found["attracted"] / found["items"],
        }
        for name, found in sorted(figures.items())
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__, "make_number_prediction.py")
    option(parser, "TEXT", "as for training: a file with a sentence a line or row, or nltk:NAME", dest="source")
    shared(parser, "--column")
    option(parser, "DIRECTORY", "folder for the files; it must be absent or empty", dest="output")
    option(parser, "--limit N", "read the first N sentences only")
    option(parser, "--vocab-size N", "words kept", default=10_000)
    option(parser, "--minimum N", "occurrences of both forms of subject and verb that the text must have", default=10)
    option(parser, "--validation X", "share of the text for validation", default=0.05)
    option(parser, "--test X", "share of the text for the test", default=0.1)
    option(parser, "--iterations N", "passes over the tagger's training data", default=5)
    option(parser, "--seed SEED", "seed of the choice of verbs and parts", default=0)
    option(parser, "--json", "print exactly one JSON object on standard output")
    options = parser.parse_args(arguments)

    def run() -> None:
        shares = {"val": options.validation, "test": options.test}
        if not all(0 < share < 1 for share in shares.values()) or sum(shares.values()) >= 1:
            raise InputError(
                "--validation and --test must be above 0 and together below 1; got "
                f"{options.validation:g} and {options.test:g}"
            )
        with atomic_directory(options.output) as directory:
            collector = collect(options.source, options.column, options.limit, options.iterations)
            items = collector.items(options.vocab_size, options.minimum, options.seed)
            files = write(directory, items, shares, options.seed)
        if options.json:
            print_json({"source": options.source, "sentences": collector.sentences, "files": files})
            return
        print_table(
            f"number prediction items from {collector.sentences:,} sentences",
            ["file", "items", "singular in %", "words before the verb", "tags in %", "with attractors in %"],
            [(name, *found.values()) for name, found in files.items()],
        )

    return run_command("make_number_prediction", run)


if __name__ == "__main__":
    sys.exit(main())
