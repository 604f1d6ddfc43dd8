"""A page in the browser: a sentence in; its tree, the strengths of its words and the stack after each word out.

Needs Gradio: pip install "stack-lm[clients]"

Example:
    python examples/gradio_app.py runs/demo/stack
"""

from __future__ import annotations

import sys
from html import escape

from stack_lm import Parser
from stack_lm.core.console import run_command, script_parser
from stack_lm.core.errors import InputError
from stack_lm.figures import computation_of_trace, render_page

SENTENCES = ["The dog that the cats fear sleeps.", "A teacher near the old house is happy."]
LONGEST = 100  # words
STYLE = "width: 100%; height: 88vh; min-height: 760px; border: 0; border-radius: 8px; background: #fff"
FRAME = f'<iframe title="The stack" sandbox="" style="{STYLE}" srcdoc="{{}}"></iframe>'


def analyse(parser: Parser, name: str, sentence: str) -> tuple[str, list[list[str | float]], str]:
    """What the page shows of a sentence.

    Args:
        parser: of a model with a stack.
        name: of the model.
        sentence: as typed.

    Returns:
        The tree in brackets; the words with their strengths, in elements; the page of `stack-lm inspect`, in a frame.

    Raises:
        InputError: for no words, too many, or none that the model knows.
    """
    words = parser.split(sentence.replace("\0", ""))
    if not 1 <= len(words) <= LONGEST:
        raise InputError(f"type a sentence of 1 to {LONGEST} words; this one has {len(words)}")
    (parse,) = parser.parse_batch([words], logprobs=True)
    if parse is None:
        raise InputError("the model knows none of these words")
    contents = parser.scorer.memory_contents(words)
    computation = computation_of_trace(parse.trace, {}, distances=parse.distances, contents=contents)
    page = render_page(computation, {"model": name, "tree": parser.signal.replace("_", " ")}, parse.tree)
    names = [f"{word} (unknown)" if new else word for word, new in zip(words, parse.trace.unknown, strict=True)]
    strengths = [values.round(3).tolist() for values in parse.strengths.values()]
    return str(parse), [list(row) for row in zip(names, *strengths, strict=True)], FRAME.format(escape(page))


def make_app(name: str, device: str | None = None):
    """The app of a model with a stack, by its directory or its name on the hub.

    Raises:
        InputError: if it cannot be loaded, or has no strengths to parse with.
    """
    try:
        import gradio as gr
    except ImportError as error:
        raise InputError('this page needs Gradio: pip install "stack-lm[clients]"') from error
    parser = Parser.from_pretrained(name, device=device)
    signal = parser.signal.replace("_", " ")
    columns = [column.replace("_", " ") for column in parser.scorer.trace([["a"]], logprobs=False)[0].signals]

    def show(sentence: str) -> tuple[str, list[list[str | float]], str]:
        try:
            return analyse(parser, name, sentence)
        except InputError as error:
            raise gr.Error(str(error), print_exception=False) from error

    with gr.Blocks(title="stack-lm", analytics_enabled=False) as app:
        gr.Markdown(f"# What {name} does with its memory")
        sentence = gr.Textbox(label="Sentence", value=SENTENCES[0], max_length=5000, submit_btn="Parse")
        examples = gr.Column()
        tree = gr.Textbox(label=f"Tree, from the {signal}", interactive=False, buttons=["copy"])
        frame = gr.HTML()
        with gr.Accordion("Strengths, in elements", open=False):
            table = gr.Dataframe(headers=["word", *columns], interactive=False)
        outputs = [tree, table, frame]
        sentence.submit(show, sentence, outputs, api_name="parse")
        app.load(show, sentence, outputs, api_visibility="private")
        with examples:
            gr.Examples(
                SENTENCES, sentence, outputs, show, cache_examples=False, run_on_click=True, api_visibility="private"
            )
    return app


def main(arguments: list[str] | None = None) -> int:
    """Serve the page until interrupted; returns the exit status."""
    parser = script_parser(__doc__)
    parser.add_argument("model", metavar="MODEL", help="a model directory, or a model on the hub")
    parser.add_argument("--device", help="such as cpu or cuda:1 (default: a GPU if there is one)")
    parser.add_argument("--port", type=int, help="of the server (default: the first free one from 7860)")
    options = parser.parse_args(arguments)

    def run() -> None:
        make_app(options.model, options.device).launch(server_port=options.port)

    return run_command("gradio_app", run)


if __name__ == "__main__":
    sys.exit(main())
