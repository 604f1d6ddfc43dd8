"""The `stack-lm` command."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from typing import TYPE_CHECKING, Any

from .. import __version__

if TYPE_CHECKING:
    from ..core.console import Parser

# A summary of each command, by what it is for; its module in `commands` has the same name. A module is loaded only when
# its command runs, because its imports can take seconds.
GROUPS = {
    "use": {
        "demo": "train a stack model and an LSTM on generated English, and show perplexity, parses and agreement",
        "parse": "parse sentences with a model's push strengths",
        "surprisal": "compute the surprisal of each word of sentences, and a memory's strengths, for reading-time "
        "studies",
        "warmup": "compile the fast scan now, once for this machine, so that the first run need not",
    },
    "score": {
        "perplexity": "measure perplexity on a text",
        "parse-f1": "score models' trees, or trees from files, against a treebank",
        "agreement": "score subject-verb agreement, by attractors, number, construction and distance",
        "minimal-pairs": "compare acceptable with unacceptable sentences, by construction",
        "suites": "test predictions about the surprisal of regions, as in SyntaxGym, by suite and circuit",
        "contrasts": "compare the surprisal of regions between conditions, by item, from a table of words",
        "results": "print a paper's table beside ours, from trials of `stack-lm train task`; or compare scores of "
        "models",
    },
    "inspect": {
        "inspect": "show how a model uses its stack over one sentence, as an HTML page",
        "trace": "write what a network does at each step of strings, as arrays",
        "strengths": "summarise a model's strengths by part of speech, and for verbs with and without an object",
        "interventions": "measure how perplexity and agreement change when the actions of a trained memory are "
        "replaced",
        "plot": "draw the scores of trials of formal tasks, or the training of models of language",
    },
    "train": {
        "train": "train a language model, a classifier, a parser, or models of formal tasks: the recipes of the papers",
        "presets": "list, show or copy the configurations of the papers' models",
        "tasks": "list the papers' formal tasks, show examples, or check strings with their targets",
    },
    "publish": {
        "card": "write a model's card: its data, its training and its scores, with their conventions",
        "export": "copy a model with its tokenizer and its card, its weights in half precision",
        "push": "upload a model to the hub with its code and its card, or show what would be uploaded",
    },
}
COMMANDS = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}


def make_parser(arguments: Sequence[str] | None = None) -> Parser:
    """The parser of the command and of its subcommands.

    Args:
        arguments: the arguments to parse; only the options of their subcommand are then added. None adds those of all
            subcommands.
    """
    from ..core.console import Parser, add_command, add_import

    parser = Parser(
        prog="stack-lm",
        description="Stack RNN language models: parse with their push strengths, and score them.",
        epilog=f"{_list_commands()}\n\nexample:\n  stack-lm demo        show the whole workflow in five to ten minutes",
    )
    add_import(parser)
    parser.add_argument("--version", action="version", version=f"stack-lm {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "fish", "powershell"),
        metavar="SHELL",
        help='print code for Tab completion in a shell: eval "$(stack-lm --print-completion bash)"',
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, help="see below; each has its own --help")
    for name, summary in COMMANDS.items():
        if arguments is None or name in arguments:
            module = import_module(f".commands.{name.replace('-', '_')}", __package__)
            module.add_options(add_command(subparsers, name, module.run, summary=summary, example=module.EXAMPLE))
        else:
            subparsers.add_parser(name)
    return parser


class _PrintCompletion(argparse.Action):
    """The option that prints code for a shell to evaluate."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        import argcomplete

        print(argcomplete.shellcode([parser.prog], shell=str(value)))
        parser.exit()


def _list_commands() -> str:
    """The commands with their summaries, by what they are for."""
    lines = []
    for group, commands in GROUPS.items():
        lines.append(f"\n{group}:")
        for name, summary in commands.items():
            lines.append(fill(summary, 100, initial_indent=f"  {name:<16}", subsequent_indent=" " * 18))
    return "\n".join(lines).lstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the arguments of the command; None takes those of the process, which then ends with the command.

    Returns:
        The exit status: see `run_command`.
    """
    # Loading makes a million objects and no garbage: the collector need not scan them again and again, nor at exit.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)
    own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments

    def run() -> Any:
        options = make_parser(arguments).parse_args(arguments)
        result = options.run(options)
        return result if isinstance(result, int | None) else result.print(options.json)

    try:
        if "_ARGCOMPLETE" in os.environ:  # a shell asks, for a Tab
            import argcomplete

            parser = make_parser(os.environ.get("COMP_LINE", "").split())
            argcomplete.autocomplete(parser, always_complete_options="long")
        from ..core.console import run_command

        return run_command("stack-lm", run, arguments)
    except KeyboardInterrupt:  # while the console loads; `run_command` handles the rest
        print("stack-lm: interrupted", file=sys.stderr)
        return 130
    finally:
        if own_process:  # only the libraries' shutdown is left
            signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
