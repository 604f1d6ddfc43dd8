"""What the tests of commands share: a small model, and commands that must fail."""

import torch
from conftest import run, tiny_config

from stack_lm import StackRNNForCausalLM, train_word_tokenizer
from stack_lm.text import Sentence

WORDS = "the dog cat old sees sleeps a near .".split()


def save_model(directory, **fields):
    torch.manual_seed(0)
    tokenizer = train_word_tokenizer([Sentence(WORDS)])
    StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), pop_control=1.0, **fields)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def fails(capsys, *arguments):
    """The message of a command that must fail: one line, and nothing on standard output."""
    try:
        status, out, err = run(capsys, *arguments)
    except SystemExit as end:  # of the parser of arguments
        captured = capsys.readouterr()
        status, out, err = end.code, captured.out, captured.err
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1, err
    assert len(err) < 1000
    assert ": error: " in err
    return err.partition(": error: ")[2].rstrip("\n")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path
