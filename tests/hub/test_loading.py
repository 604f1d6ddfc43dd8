"""Loading models in a program and in a command."""

import os

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from stack_lm.core import console
from stack_lm.hub.loading import load_pretrained


@pytest.mark.parametrize("running", [[], ["stack-lm parse"]], ids=["program", "command"])
def test_only_a_command_moves_what_is_printed_while_a_model_loads(small_run, capfd, monkeypatch, running):
    """Compiled code of tokenizers prints notes, which would corrupt a command's JSON; a program has other threads."""
    load = AutoTokenizer.from_pretrained

    def load_and_print(*arguments, **options):
        os.write(1, b"printed\n")
        return load(*arguments, **options)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", load_and_print)
    monkeypatch.setattr(console, "_running", running)
    load_pretrained(AutoModelForCausalLM, small_run, "cpu")
    assert ("printed" in capfd.readouterr().out) == (not running)
