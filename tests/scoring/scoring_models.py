"""Small scorers of untrained models."""

import torch
from conftest import byte_level_tokenizer, tiny_config
from transformers import GPT2Config, GPT2LMHeadModel

from stack_lm import ModelScorer, StackRNNForCausalLM, train_word_tokenizer

WORDS = "the dog that cats fear barks loudly near old bridges".split()


def sharpened(model, factor=3):
    """A model whose outputs differ more than those of its first weights."""
    for parameter in model.parameters():
        parameter.data *= factor
    return model.eval()


def word_scorer(batch_tokens=2048, special=False, tokenizer=None, words=WORDS, **fields):
    tokenizer = tokenizer or train_word_tokenizer([(words, None)], add_bos=special, add_eos=special)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **ids, **fields))
    return ModelScorer(sharpened(model), tokenizer, batch_tokens=batch_tokens)


def gpt2(n_positions=64, factor=1, **tokens):
    """A GPT-2 and its byte-level tokenizer, which does not add special tokens."""
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer(**tokens)
    begin = tokenizer.bos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=n_positions, bos_token_id=begin
    )
    return sharpened(GPT2LMHeadModel(config), factor), tokenizer
