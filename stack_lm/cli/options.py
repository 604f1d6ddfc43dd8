"""Declare options: those of several commands once, with one meaning, and the others in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.console import non_negative_int, positive_int
from ..text.plain import Segmenter
from .files import FIGURES, TABLES

# The types of values, by their names in a usage line.
_TYPES = {"N": positive_int, "SEED": non_negative_int, "X": float}
_SETTINGS: dict[str, dict[str, Any]] = {
    "--batch-tokens N": {"default": 2048},
    "--data SOURCE": {"required": True},
    "--figure FILE": {"endings": FIGURES},
    "--items FILE": {"endings": TABLES},
    "--layer N": {"type": int},
    "--segmentation": {"choices": Segmenter.MODES},
    "--word-strength": {"choices": ("first", "last", "sum", "max"), "default": "last"},
}
_HELP = {
    "MODEL": "a model directory, or a model on the hub",
    "MODEL ...": "model directories, or models on the hub",
    "--against MODEL ...": "another model, or several runs of it: show the difference, tested over {}",
    "--batch-tokens N": "tokens in a batch, padding included",
    "--column NAME": "column with the text, in tables and JSON (default: text, sentence, or the only column of text)",
    "--data SOURCE": "{}: a file of text, .jsonl, .json, .csv, .tsv, .parquet or .mrg, a directory of them, nltk:NAME, "
    "generated:N:SEED, wikitext, hub:DATASET, or - for standard input",
    "--decoder": "how distances become trees (default: gap for run_depth, because it keeps all spans of the run; "
    "otherwise algorithm1)",
    "--device NAME": "such as cpu or cuda:1; a GPU if there is one, by default",
    "--ensemble MODEL ...": "more {}: all vote for the spans of one tree; their mutual F1 is shown",
    "--figure FILE": "draw {}: .png, .pdf or .svg",
    "--items FILE": "write a table of all {}, from which scores can be recomputed",
    "--keep-going": "leave out {} that cannot be read, and fail at the end",
    "--layer N": "for models with several memory layers: the number of one, from 0 (default: the only one that can "
    "parse)",
    "--limit N": "only the first N {}",
    "--max-words N": "only sentences of at most N words, not counting removed ones",
    "--seed SEED": "{}",
    "--segmentation": "layout of the text (default: the one that fits the source)",
    "--signal": "source of the distances (default: the push strength; the pop strength if the push is fixed; the depth "
    "of the most probable run, run_depth, for a nondeterministic stack)",
    "--split NAME": "split of a dataset of the hub (default: {})",
    "--word-strength": "the strength of a word with several tokens: that of its first or last token, their sum, or the "
    "largest",
}
_FORMS = {form.split()[0]: form for form in _HELP if form.startswith("-")} | {"MODEL": "MODEL"}
LAYER = ("--layer", "--word-strength")
DEVICE = ("--device", "--batch-tokens")
TEXT = ("--split", "--segmentation", "--column")
PARSING = ("--signal", "--decoder", *LAYER, *DEVICE)  # of models whose strengths become trees


def option(parser: Any, form: str, help: str, *, endings: Sequence[str] | None = None, **settings: Any) -> None:
    """Add an option or an argument in the form of a usage line.

    Args:
        parser: the parser or group.
        form: such as "--limit N", "--by NAME ..." or the flag "--end"; or an argument: "MODEL", "MODEL ...",
            "[SENTENCE ...]", whose name is that of its value, in the plural for several. N is a whole number of at
            least 1, SEED one of at least 0, X a number; "..." adds up if the option is repeated.
        help: to which a default is added.
        endings: of a file that the command writes; see `check_files`.
        settings: further settings of `add_argument`.
    """
    words = form.strip("[]").split() if form.startswith("[") else form.split()
    names = [word.rstrip(",") for word in words if word.startswith("-")]
    value, *several = [word for word in words if not word.startswith("-")] or [""]
    if value:
        settings = {"metavar": value, "type": _TYPES.get(value)} | settings
    elif "choices" not in settings:
        settings["action"] = "store_true"
    if several:
        settings = {"nargs": "*" if form.startswith("[") else "+", "default": []} | settings
        if names:
            settings["action"] = "extend"
    elif form.startswith("["):
        settings["nargs"] = "?"
    if settings.get("default"):
        help += f" (default: {settings['default']})"
    if not names:
        names = [settings.pop("dest", value.lower() + "s" * bool(several))]
    action = parser.add_argument(*names, help=help, **settings)
    if endings is not None:
        parser.set_defaults(endings=(parser.get_default("endings") or {}) | {action.dest: endings})


def shared(parser: Any, *names: str, **subjects: str) -> None:
    """Add options that several commands share.

    Args:
        parser: the parser or group.
        names: such as "--device"; "MODEL" and "MODEL ..." are the models that a command runs.
        subjects: words for the help of an option, by its name, such as limit="sentences".
    """
    for name in names:
        form = _FORMS.get(name, name)
        subject = subjects.get(name.lstrip("-").replace("-", "_"), "")
        settings = dict(_SETTINGS.get(form, {}))
        if form in ("--signal", "--decoder"):
            from ..parsing.distances import DECODERS, SHIFTS  # slow to load, so only in commands with these options

            settings["choices"] = list(SHIFTS if form == "--signal" else DECODERS)
        option(parser, form, _HELP[form].format(subject), **settings)


def declare(parser: Any, options: Mapping[str, str | tuple[str, dict[str, Any]]]) -> None:
    """Add options by their forms.

    Args:
        parser: the parser or group.
        options: the help of each form, alone or with `option`'s further settings; the form of an option that commands
            share is its name, with the words for its help.
    """
    for form, described in options.items():
        help, settings = (described, {}) if isinstance(described, str) else described
        if form in _FORMS and form != "MODEL":
            shared(parser, form, **{form.lstrip("-").replace("-", "_"): help})
        else:
            option(parser, form, help, **settings)
