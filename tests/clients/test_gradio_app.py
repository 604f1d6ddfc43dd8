"""The app of examples/: what it shows of a sentence, and its server without a browser."""

import json
import subprocess
import sys
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from conftest import tiny_config
from transformers import AutoTokenizer

from stack_lm import Parser, StackRNNForCausalLM

pytestmark = pytest.mark.slow  # training is
PATH = Path(__file__).parents[2] / "examples" / "gradio_app.py"
SENTENCE = "The boy near the house is kind."


@pytest.fixture(scope="module")
def app():
    spec = spec_from_file_location("gradio_app", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def parser(small_run):
    return Parser.from_pretrained(small_run, device="cpu")


def test_what_is_shown(app, parser):
    tree, rows, frame = app.analyse(parser, "small", SENTENCE)
    words = parser.split(SENTENCE)
    assert tree.replace("(", " ").replace(")", " ").split() == words
    assert [row[0] for row in rows] == words
    (trace,) = parser.scorer.trace([words])
    np.testing.assert_allclose([row[1] for row in rows], trace.signals["push_strength"], atol=6e-4)
    assert frame.startswith('<iframe title="The stack" sandbox="" ')
    page = unescape(frame.partition('srcdoc="')[2])
    assert "<h1>The boy near the house is kind .</h1>" in page
    assert "model: small; tree: push strength" in page


def test_words_are_no_markup(app, parser):
    _, rows, frame = app.analyse(parser, "small", 'The boy </script><img src=x> "is kind.\0')
    assert frame.count("<") == 2  # the frame's own
    assert frame.count('"') == 8
    assert any(row[0].endswith("(unknown)") for row in rows)


def test_errors_of_the_command_are_one_line(app, capsys, tmp_path, small_run):
    pytest.importorskip("gradio", reason="needs Gradio: pip install 'stack-lm[clients]'")
    StackRNNForCausalLM(tiny_config(memory="none", vocab_size=1000)).save_pretrained(tmp_path / "none")
    AutoTokenizer.from_pretrained(small_run).save_pretrained(tmp_path / "none")
    for model, message in ((tmp_path / "nope", "the directory does not exist"), (tmp_path / "none", "has no memory")):
        capsys.readouterr()
        assert app.main([str(model)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("gradio_app: error: ")
        assert message in error
        assert error.count("\n") == 1


# In a process of its own: Gradio leaves sockets open, and here warnings are errors.
SERVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from gradio_client import Client
from gradio_client.exceptions import AppError
from gradio_app import make_app
page = make_app(sys.argv[2], "cpu")
_, url, _ = page.launch(prevent_thread_lock=True, quiet=True)
client = Client(url, verbose=False, analytics_enabled=False)
tree, table, frame = client.predict(sys.argv[3], api_name="/parse")
try:
    client.predict("", api_name="/parse")
except AppError as error:
    refusal = str(error)
page.close(verbose=False)
print(json.dumps([tree, table["headers"], table["data"], frame, refusal]))
"""


def test_the_server(app, parser, small_run):
    pytest.importorskip("gradio", reason="needs Gradio: pip install 'stack-lm[clients]'")
    command = [sys.executable, "-c", SERVER, str(PATH.parent), small_run, SENTENCE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    tree, headers, rows, frame, refusal = json.loads(done.stdout.splitlines()[-1])
    assert (tree, rows, frame) == app.analyse(parser, small_run, SENTENCE)
    assert headers[:2] == ["word", "push strength"]
    assert "this one has 0" in refusal
