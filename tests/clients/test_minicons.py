"""minicons: the scores of its `IncrementalLMScorer` are ours, by sentence, by word and by token."""

import numpy as np
import pytest
from conftest import byte_level_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

from stack_lm import ModelScorer, surprisal

pytestmark = pytest.mark.slow
scorer = pytest.importorskip("minicons.scorer", reason="needs minicons: pip install 'stack-lm[clients]'")

# Capitals, punctuation and contractions as they come; "zebra" is unknown.
SENTENCES = [
    "The boy is loud.",
    "The teacher that is near the house can see the poet.",
    "A doctor, an old zebra and the boy are kind.",
    "every boy near the house is tired .",
]


@pytest.fixture(scope="module")
def both(small_run):
    """minicons's scorer and ours."""
    return scorer.IncrementalLMScorer(small_run, "cpu"), ModelScorer.from_pretrained(small_run, device="cpu")


def test_sentence_scores(both):
    theirs, ours = both
    expected = ours.sentence_logprobs([[ours.split(text)] for text in SENTENCES])
    sums = theirs.sequence_score(SENTENCES, reduction=lambda scores: scores.sum(0).item())
    np.testing.assert_allclose(sums, np.concatenate(expected), rtol=1e-5, atol=1e-4)


def test_token_scores(both):
    theirs, ours = both
    traces = ours.trace([ours.split(text) for text in SENTENCES])
    for tokens, trace in zip(theirs.token_score(SENTENCES), traces, strict=True):
        (begin, nothing), *scores = tokens
        assert (begin, nothing) == ("<s>", 0.0)
        assert [token for token, _ in scores][-1] == trace.words[-1]
        np.testing.assert_allclose([score for _, score in scores], trace.logprobs, rtol=1e-5, atol=1e-4)
    assert [trace.unknown.any() for trace in traces] == [False, False, True, False]


def test_continuations(both):
    theirs, ours = both
    prefixes, words = ["The boy near the house", "The"], ["is", "teacher"]
    (first,), (second,) = ours.continuation_logprobs([p.split() for p in prefixes], [[w] for w in words])
    found = theirs.conditional_score(prefixes, words, reduction=lambda scores: scores.sum(0).item())
    np.testing.assert_allclose(found, [first, second], rtol=1e-5, atol=1e-4)


def test_surprisal_of_words(both):
    """Of a GPT-2, whose words are several tokens, and of a stack model, from texts in the Penn Treebank's tokens."""
    tokenizer = byte_level_tokenizer(bos_token="<|end|>", pad_token="<|end|>")
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    gpt2 = scorer.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    treebank = [" ".join(both[1].split(text)) for text in SENTENCES]
    for theirs, ours, texts, bos in [(gpt2, ModelScorer(model, tokenizer), SENTENCES, True), (*both, treebank, False)]:
        table = surprisal(ours, texts, word_ends="next")
        found = theirs.word_score_tokenized(texts, str.split, bos_token=bos, surprisal=True, base_two=True)
        pairs = [pair for of_text in found for pair in of_text]
        assert table["word"].tolist() == [word for word, _ in pairs]
        np.testing.assert_allclose(table["surprisal"], [score for _, score in pairs], rtol=1e-4, atol=1e-4)
        assert (table["n_tokens"].max() > 1) == bos
