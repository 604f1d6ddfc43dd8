"""stack_lm.surprisal: each number against the definition, token by token from the model's logits."""

import math
from collections import defaultdict
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_models import gpt2, word_scorer
from tokenizers import Tokenizer, models, trainers
from transformers import PreTrainedTokenizerFast

from stack_lm import ModelScorer, StackRNNForCausalLM, surprisal
from stack_lm.core.errors import InputError

WORDS = "the dogs that cats fear do n't bark near old bridges . , ( ) `` ''".split()
STRENGTHS = ["push_strength", "pop_strength", "read_strength", "total_strength"]


def word_model(begin=True, **fields):
    """A model of this package and its Penn-Treebank tokenizer."""
    scorer = word_scorer(special=begin, words=WORDS, **fields)
    return scorer.model, scorer.tokenizer


@lru_cache(maxsize=1)
def transformer():
    """A GPT-2 of random weights, with a byte-level tokenizer that has a beginning token and does not add it."""
    return gpt2(128, 3, bos_token="<|end|>")


def by_hand(model, tokenizer, pieces, *, base=2.0, end=False):
    """Surprisals of pieces of text: of each the sum over its own tokens, token by token from the model's logits."""
    ids = [tokenizer.bos_token_id]
    sums = []
    tokens_of = [tokenizer(piece, add_special_tokens=False).input_ids for piece in pieces]
    for tokens in [*tokens_of, [tokenizer.eos_token_id]] if end else tokens_of:
        total = 0.0
        for token in tokens:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1].double().numpy()
            total -= (logits[token] - np.log(np.exp(logits).sum())) / math.log(base)
            ids.append(token)
        sums.append(total)
    return sums


@pytest.mark.parametrize("fields", [{"memory": "none"}, {"memory": "stack"}, {"memory": "deque"}], ids=str)
def test_a_word_is_the_sum_of_the_treebanks_tokens(fields):
    model, tokenizer = word_model(**fields)
    table = surprisal(model, ["The dogs, that   don't\nbark.", "cats (old) zebra"], tokenizer)
    assert table["word"].tolist() == ["The", "dogs,", "that", "don't", "bark.", "cats", "(old)", "zebra"]
    assert table["sentence"].tolist() == [1] * 5 + [2] * 3
    assert table["position"].tolist() == [1, 2, 3, 4, 5, 1, 2, 3]
    assert table["n_tokens"].tolist() == [1, 2, 1, 2, 2, 1, 3, 1]
    assert table["unknown"].tolist() == [True] + [False] * 6 + [True]
    expected = by_hand(model, tokenizer, ["The", "dogs ,", "that", "do n't", "bark ."])
    expected += by_hand(model, tokenizer, ["cats", "( old )", "zebra"])
    np.testing.assert_allclose(table["surprisal"], expected, rtol=1e-5)
    if fields["memory"] == "stack":
        ids = tokenizer("The dogs, that don't bark.", return_tensors="pt")
        actions = model(**ids, output_actions=True).actions
        for name in STRENGTHS:  # after the last token of a word, without its punctuation; <s> comes first
            values = actions[name][0, [1, 2, 4, 6, 7]].detach()
            np.testing.assert_allclose(table[name][:5], values, atol=1e-6)
    else:
        assert ("push_strength" in table, "push_strength_top" in table) == (False, fields["memory"] == "deque")


GERMAN = "„Öl kostet viel“, sagte die Bäuerin (müde) …"


def test_punctuation_and_german():
    model, tokenizer = transformer()
    attached = surprisal(model, [GERMAN], tokenizer, word_ends="next")
    words = GERMAN.split()
    assert attached["word"].tolist() == words
    pieces = [words[0], *(f" {word}" for word in words[1:])]
    np.testing.assert_allclose(attached["surprisal"], by_hand(model, tokenizer, pieces), rtol=1e-5)
    assert "punctuation" not in attached
    split = surprisal(model, [GERMAN], tokenizer, punctuation="split", word_ends="next")
    pieces = ["„", "Öl", " kostet", " viel", "“,", " sagte", " die", " Bäuerin", " (", "müde", ")", " …"]
    assert split["word"].tolist() == [piece.strip() for piece in pieces]
    assert split["position"].tolist() == [1, 1, 2, 3, 3, 4, 5, 6, 7, 7, 7, 8]
    assert split["word"][split["punctuation"]].tolist() == ["„", "“,", "(", ")", "…"]
    np.testing.assert_allclose(split["surprisal"], by_hand(model, tokenizer, pieces), rtol=1e-5)
    assert not split["unknown"].any()


def distributions(model, tokenizer, text):
    """The tokens of a text with its beginning, and the distribution after each, in double precision."""
    ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids]
    with torch.no_grad():
        return ids, model(torch.tensor([ids])).logits[0].double().softmax(-1).numpy()


@pytest.mark.parametrize("kind", ["words", "bytes"])
def test_entropies(kind):
    model, tokenizer = word_model() if kind == "words" else transformer()
    text = "the dogs bark near old bridges"
    table = surprisal(model, [text], tokenizer, entropy=True, word_ends="next")
    _, after = distributions(model, tokenizer, text)
    entropies = -(after * np.log2(after, where=after > 0, out=np.zeros_like(after))).sum(-1)
    lengths = table["n_tokens"].to_numpy()
    assert (lengths.max() > 1) == (kind == "bytes")
    before = np.append(0, np.cumsum(lengths))  # the token before each word, and the last
    np.testing.assert_allclose(table["entropy"], entropies[before[:-1]], rtol=1e-4)
    expected = np.maximum(0, entropies[before[:-1]] - entropies[before[1:]])
    np.testing.assert_allclose(table["entropy_reduction"], expected, rtol=1e-3, atol=1e-4)
    assert 0 < (expected > 0).mean() < 1


@pytest.mark.parametrize("punctuation", ["attach", "split"])
def test_the_end_of_a_word_is_its_own(punctuation):
    """A word's probability has that of a space after it, and not that of the space before it."""
    model, tokenizer = transformer()
    text = "the dog (old) barks, no"
    ids, after = distributions(model, tokenizer, text)
    tokens = tokenizer.convert_ids_to_tokens(range(model.config.vocab_size))
    spaces = [token is not None and (token.startswith("Ġ") or token == "<|end|>") for token in tokens]
    ends = np.log2(after[:, spaces].sum(-1))
    settings = {"sentences": [text], "tokenizer": tokenizer, "punctuation": punctuation}
    plain = surprisal(model, **settings, word_ends="next")
    table = surprisal(model, **settings)
    last = np.cumsum(plain["n_tokens"].to_numpy())
    first = np.append(0, last[:-1]) + 1
    begins = np.array([spaces[ids[i]] for i in first])
    before = np.where(begins, ends[first - 1], 0)  # the text's first word and split punctuation have no space
    following = np.append(before[1:], ends[-1])
    np.testing.assert_allclose(table["surprisal"], plain["surprisal"] - following + before, rtol=1e-4, atol=1e-4)
    assert begins.tolist() == (
        [False] + [True] * 4 if punctuation == "attach" else list(map(bool, [0, 1, 1, 0, 0, 1, 0, 1]))
    )
    words = word_model()
    pd.testing.assert_frame_equal(
        surprisal(*words[:1], ["the dogs"], words[1]), surprisal(*words[:1], ["the dogs"], words[1], word_ends="next")
    )


def test_lags_know_beginnings_and_unknown_words():
    model, tokenizer = word_model()
    frame = pd.DataFrame({"text": ["the dogs, zebra bark .", "", "cats fear"], "story": [1, 1, 1]})
    counts = {"the": 6, "dogs": 2}
    table = surprisal(model, frame, tokenizer, lags=2, frequencies=counts, end=True)
    assert table["length"].tolist() == [3, 4, 5, 4, 1, 4, 4, 4, 4]
    values = table["surprisal"].tolist()
    nan = float("nan")
    np.testing.assert_equal(table["surprisal_1"].tolist(), [nan, *values[:2], nan, values[3], nan, nan, values[6], nan])
    np.testing.assert_equal(table["surprisal_2"].tolist(), [nan, nan, *values[:2], nan, nan, nan, nan, nan])
    np.testing.assert_allclose(table["log_frequency"][:3], np.log2([7 / 11, 3 / 11, 1 / 11]))
    np.testing.assert_equal(table["log_frequency_2"][2:4].tolist(), table["log_frequency"][:2].tolist())
    context = surprisal(model, frame, tokenizer, lags=2, context="story", end=True)
    np.testing.assert_equal(context["surprisal_1"][6:8].tolist(), context["surprisal"][[4, 6]].tolist())
    assert context["length_2"][6] == 4


def test_the_end_and_the_sum():
    model, tokenizer = word_model()
    scorer, texts = ModelScorer(model, tokenizer), ["the dogs bark.", "old bridges"]
    table = surprisal(scorer, texts, end=True)
    ends = table[~table["sentence"].duplicated(keep="last")]
    assert (ends["word"].tolist(), ends["position"].tolist()) == (["</s>", "</s>"], [4, 3])
    assert (ends["n_tokens"].tolist(), ends["unknown"].tolist()) == ([1, 1], [False, False])
    assert ends[STRENGTHS].isna().all(axis=None)
    np.testing.assert_allclose(table["surprisal"][:4], by_hand(model, tokenizer, texts[0].split(), end=True), rtol=1e-5)
    traces = scorer.trace([text.split() for text in texts])
    sums = table.groupby("sentence")["surprisal"].sum() * math.log(2)
    np.testing.assert_allclose(sums, [-trace.logprobs.sum() - trace.end_logprob for trace in traces], rtol=1e-9)
    without = surprisal(scorer, texts)
    pd.testing.assert_frame_equal(without, table.drop(ends.index).reset_index(drop=True))
    sums = -without.groupby("sentence")["surprisal"].sum() * math.log(2)
    np.testing.assert_allclose(sums, np.concatenate(scorer.sentence_logprobs([[t.split()] for t in texts])), rtol=1e-5)
    with pytest.raises(InputError, match="end: the model has no token that ends sentences"):
        surprisal(*transformer()[:1], texts, transformer()[1], end=True)


def test_the_first_word_of_a_model_without_a_beginning():
    table = surprisal(word_model(begin=False)[0], ["the dogs bark"], word_model(begin=False)[1])
    assert table["surprisal"].isna().tolist() == [True, False, False]
    assert table["push_strength"].notna().all()


def test_types_and_columns():
    frame = pd.DataFrame(
        {"word": ["a", "b", "c"], "text": ["the dogs", None, "zebra , old"], "item": [7, 8, 9], "rt": [0.5, 0.25, 1]},
        index=[5, 5, 6],
    )
    model, tokenizer = word_model()
    table = surprisal(model, frame, tokenizer, punctuation="split")
    kinds = {"word_input": "str", "item": "int64", "rt": "float64", "sentence": "int64", "position": "int64"}
    kinds |= {"word": "str", "n_tokens": "int64", "unknown": "bool", "punctuation": "bool", "surprisal": "float64"}
    kinds |= dict.fromkeys(STRENGTHS, "float64")
    assert {name: str(kind) for name, kind in table.dtypes.items()} == kinds
    assert list(table) == list(kinds)
    assert table["sentence"].tolist() == [1, 1, 3, 3, 3]
    assert (table["item"].tolist(), table["word_input"].tolist()) == ([7, 7, 9, 9, 9], list("aaccc"))
    only = surprisal(model, frame[["text", "rt"]].rename(columns={"text": "utterance"}), tokenizer)
    assert only["word"].tolist() == ["the", "dogs", "zebra", ",", "old"]
    nothing = surprisal(model, ["", "  \n"], tokenizer)
    assert len(nothing) == 0
    assert [str(nothing[name].dtype) for name in ("sentence", "word", "unknown", "surprisal")] == [
        "int64", "str", "bool", "float64",
    ]  # fmt: skip


def test_blocks_change_nothing(monkeypatch):
    scorer = ModelScorer(*word_model())
    texts = ["the dogs bark", "", "old bridges .", "cats", "", "do n't"]
    whole = surprisal(scorer, texts, end=True)
    monkeypatch.setattr("stack_lm.scoring.surprisal._BLOCK", 2)
    done = []
    pd.testing.assert_frame_equal(surprisal(scorer, texts, end=True, progress=done.append), whole)
    assert sum(done) == 4


CHARACTERS = st.sampled_from([*"ab .,'\"(-„“é\n\u00a0\u2009中🙂", "\u0301"])


@pytest.mark.filterwarnings("ignore:.* is read as ")
@settings(max_examples=60, deadline=None)
@given(text=st.text(CHARACTERS, max_size=25))
def test_nothing_is_lost(text):
    """Rows are the words of the text, and their sum is the sentence's log-probability, however it is split."""
    model, tokenizer = transformer()
    scorer = ModelScorer(model, tokenizer)
    for punctuation in ("attach", "split"):
        table = surprisal(scorer, [text], punctuation=punctuation, base="e", word_ends="next")
        words = defaultdict(str)
        for position, part in zip(table["position"], table["word"], strict=True):
            words[position] += part
        assert list(words.values()) == text.split()
        assert list(words) == list(range(1, len(words) + 1))
        if words:
            logprob = scorer.sentence_logprobs([[text.split()]])[0][0]
            assert table["surprisal"].sum() == pytest.approx(-logprob, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 0}, "base must be one of 2, e, 10; got 0"),
        ({"tokenizer": None}, "tokenizer: a model that is given as an object needs one"),
        ({"sentences": "the dogs"}, "sentences must be a list of texts or a data frame; got one text"),
        ({"sentences": ["the \udcff"]}, r"sentence 1 is not UTF-8 text \(character 5\)"),
        ({"sentences": pd.DataFrame({"a": ["the"], "b": ["a"]})}, "column must be one of 'a', 'b'; got None"),
        (
            {"sentences": pd.DataFrame({"sentence": ["a"], "word": [1], "word_input": [2]})},
            "the result has a column 'word' of its own, and 'word_input' is taken; rename one of them",
        ),
        ({"window": 129}, "window must be 2 to 128 tokens; got 129"),
        ({"context": "story"}, "context: a column, so the texts must come in a data frame"),
        (
            {"sentences": pd.DataFrame({"text": ["a"]}), "context": "story"},
            "context must be one of 'text'; got 'story'",
        ),
        (
            {"sentences": pd.DataFrame({"text": ["a", "b"], "story": ["x", None]}), "context": "story"},
            "sentence 2 has no value in the column 'story', its context",
        ),
        (
            {"lags": 2, "sentences": ["a b", "a"]},
            "lags must be below 2, the number of words of the longest text; got 2",
        ),
        ({"lags": -1}, "lags must be at least 0; got -1"),
        ({"word_ends": "none"}, "word_ends must be one of auto, own, next; got 'none'"),
    ],
    ids=str,
)
def test_wrong_arguments(change, message):
    model, tokenizer = transformer()
    arguments = {"model": model, "sentences": ["the"], "tokenizer": tokenizer} | change
    with pytest.raises(InputError, match=f"^{message}$"):
        surprisal(**arguments)


def test_escapes_and_lists_of_words():
    """A treebank's words have the numbers of ordinary ones, and stay as they are in the table."""
    model, tokenizer = word_model()
    plain = surprisal(model, ["cats ( old ) fear"], tokenizer, punctuation="split")
    with pytest.warns(UserWarning, match="'-LRB-' is read as '\\('"):
        escaped = surprisal(model, [["cats", "-LRB-", "old", "-RRB-", "fear"]], tokenizer, punctuation="split")
    assert escaped["word"].tolist() == ["cats", "-LRB-", "old", "-RRB-", "fear"]
    pd.testing.assert_frame_equal(escaped.drop(columns="word"), plain.drop(columns="word"))
    table = surprisal(model, [["cats", "a-LRB-b-RRB-"]], tokenizer, punctuation="split")
    assert table["word"].tolist() == ["cats", "a-LRB-b-RRB-"]
    (wide,) = surprisal(model, [["cats", "old\u00a0dogs"]], tokenizer)["n_tokens"][1:]
    assert wide == 2


def test_a_token_over_two_words():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(["new york"] * 9, trainers.BpeTrainer(show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(fast)))
    with pytest.raises(InputError, match="sentence 1: the tokenizer makes one token of 'new york' in 'new york'"):
        surprisal(model, ["new york"], fast)
