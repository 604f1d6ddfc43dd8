"""The parser object: every kind of input, several models, NLTK's interface, and what it refuses."""

import argparse
import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import run, run_json, tiny_config

from stack_lm import (
    ModelScorer,
    Parser,
    StackRNNForCausalLM,
    StackTransformerConfig,
    StackTransformerForCausalLM,
    train_word_tokenizer,
)
from stack_lm.cli.models import open_parser
from stack_lm.core.errors import InputError
from stack_lm.parsing import combine_runs, distances_from_trace, read_treebank, tree_from_distances
from stack_lm.scoring.dropout import embedding_dropout
from stack_lm.text.generated import generate_corpus

TEXTS = ["the dog that the cats fear chases a rabbit.", "a cat sleeps .", "the teacher near the old house is happy ."]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three untrained models that know the words of the generated English, one of them without a memory."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer = train_word_tokenizer([(s.words, None) for s in generate_corpus(2000)])
    for name, memory in (("one", "stack"), ("two", "stack"), ("lstm", "none")):
        model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), memory=memory))
        for parameter in model.parameters():
            parameter.data *= 4
        model.save_pretrained(directory / name)
        tokenizer.save_pretrained(directory / name)
    return directory


@pytest.fixture(scope="module")
def parser(models):
    return Parser.from_pretrained(str(models / "one"), device="cpu")


def test_a_parse_is_what_the_definitions_give(parser, models):
    scorer = ModelScorer.from_pretrained(str(models / "one"), device="cpu")
    parse = parser(TEXTS[0])
    words = scorer.split(TEXTS[0])
    (trace,) = scorer.trace([words])
    distances = distances_from_trace(trace, "push_strength")
    assert parse.words == tuple(words)
    assert parse.words[-2:] == ("rabbit", ".")
    assert parse.tree == tree_from_distances(words, distances)
    np.testing.assert_allclose(parse.distances, distances, atol=1e-6)
    np.testing.assert_allclose(parse.strengths["total_strength"], trace.signals["total_strength"], atol=1e-6)
    assert parse.to_nltk() == parse.tree.nltk_tree()
    assert str(parse) == str(parse.tree)
    assert json.loads(json.dumps(parse.record()))["tree"] == str(parse)


def test_every_kind_of_input_is_the_same(parser, models, capsys, tmp_path):
    singles = [parser(text) for text in TEXTS]
    words = [list(parse.words) for parse in singles]
    file = tmp_path / "s.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    printed = run_json(capsys, "parse", models / "one", "--data", file)["parses"]
    assert [parse["tree"] for parse in printed] == [str(parse) for parse in singles]
    wrapped = Parser(parser.scorer.model, parser.scorer.tokenizer)
    for batch in (TEXTS, tuple(TEXTS), words, iter(words), np.array(TEXTS)):
        for one, parse in zip(singles, wrapped(batch), strict=True):
            assert parse.tree == one.tree
            np.testing.assert_allclose(parse.distances, one.distances, atol=1e-5)
    assert parser(tuple(words[1]), is_split_into_words=True).tree == singles[1].tree


def test_strings_in_a_list_are_sentences(parser):
    assert [p.words for p in parser(["the dog", "sleeps"])] == [("the", "dog"), ("sleeps",)]
    assert [p.words for p in parser(["sleeps"])] == [("sleeps",)]
    with pytest.warns(UserWarning, match="2 sentences of one word each; pass is_split_into_words=True if they are the"):
        assert [p.words for p in parser(["the", "dog"])] == [("the",), ("dog",)]
    assert [p.words for p in parser(["the", "dog"], is_split_into_words=False)] == [("the",), ("dog",)]
    assert parser(["the", "dog", "sleeps"], is_split_into_words=True).words == ("the", "dog", "sleeps")
    assert parser(["the dog", "sleeps"], is_split_into_words=True).words == ("the dog", "sleeps")


def test_the_backend_does_not_depend_on_the_number_of_sentences(models, monkeypatch):
    """Else one sentence could have two trees: backends differ in the last digits of strengths."""
    monkeypatch.delenv("STACK_LM_SCAN_BACKEND", raising=False)
    options = argparse.Namespace(
        **dict.fromkeys(("signal", "decoder", "layer")),
        **{"device": "cpu", "word_strength": "last", "dropout_samples": (0, None), "batch_tokens": 64},
    )
    layer = open_parser(str(models / "one"), options).scorer.memories[0]
    assert layer.scan_backend is None


def test_sentences_without_a_tree(parser):
    good, *rest = parser(["the dog sleeps", "", "qwx zzk", " \n"])
    assert good is not None
    assert rest == [None, None, None]
    assert parser([["the"], []])[1] is None
    assert parser([[], []]) == [None, None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "the sentence has no words"),
        ("qwx zzk", "the sentence has no word that the model knows: 'qwx zzk'"),
        (["the dog", ["a", "cat"]], "sentences are all texts, or all lists of words; 1 of 2 are texts"),
        (None, "a sentence is a text or a list of words; got None"),
        ([["the", 3]], "sentence 1: words must be texts; got 3"),
        ("the \udcff", "a sentence is not UTF-8 text (character 5)"),
        ([["the", ""]], "the tokenizer makes no token of the word ''"),
    ],
)
def test_what_is_refused(parser, given, message):
    with pytest.raises(InputError) as caught:
        parser(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_settings(models):
    one, lstm = str(models / "one"), str(models / "lstm")
    for path, settings, message in (
        (one, {"decoder": "best"}, "decoder must be one of algorithm1, gap; got 'best'"),
        (one, {"layer": 1}, "layer must be the number of a memory layer"),
        (one, {"ensemble": one}, "ensemble must be a list of models"),
        (one, {"dropout_samples": -1}, "dropout_samples must be at least 0; got -1"),
        (one, {"dropout_samples": 2, "dropout": 1.0}, r"dropout must be above 0 and below 1; got 1\.0"),
        (lstm, {"signal": "push_strength"}, "the model has no memory"),
    ):
        with pytest.raises(InputError, match=message):
            Parser.from_pretrained(path, device="cpu", **settings)


def test_settings_change_the_tree(parser):
    model, tokenizer = parser.scorer.model, parser.scorer.tokenizer
    (trace,) = parser.scorer.trace([parser.split(TEXTS[0])])
    for signal, decoder in (("pop_strength", "gap"), ("read_strength", "algorithm1")):
        parse = Parser(model, tokenizer, signal=signal, decoder=decoder)(TEXTS[0])
        assert parse.tree == tree_from_distances(trace.words, distances_from_trace(trace, signal), decoder)


def test_several_models_vote(parser, models, capsys):
    paths = [str(models / name) for name in ("one", "two")]
    both = Parser.from_pretrained(paths[0], ensemble=paths[1:], device="cpu")
    runs = [Parser.from_pretrained(path, device="cpu")(TEXTS) for path in paths]
    expected = combine_runs([[parse.tree for parse in run] for run in runs], outlier_share=0, pool_punctuation=True)
    voted = both([*TEXTS, "qwx zzk"])
    assert voted.pop() is None
    assert [parse.tree for parse in voted] == list(expected.trees)
    assert [parse.runs for parse in voted] == list(zip(*([p.tree for p in run] for run in runs), strict=True))
    assert (voted[0].distances, voted[0].strengths) == (None, {})
    printed = run_json(capsys, "parse", paths[0], *TEXTS, "--ensemble", paths[1])
    assert printed["parses"] == [parse.record() for parse in voted]
    np.testing.assert_allclose(printed["agreement"], expected.agreement)
    with pytest.raises(InputError, match="no word that every one of the models knows: 'qwx'"):
        both("qwx")


def test_readings_with_dropout_vote(parser, models, capsys):
    model, tokenizer, plain = parser.scorer.model, parser.scorer.tokenizer, parser(TEXTS)
    steps, size = 40, model.config.embedding_size
    kept = [torch.tensor(np.random.default_rng(seed).random((steps, size)) >= 0.3) / 0.7 for seed in range(3)]
    readings = []
    for mask in kept:
        hook = model.get_input_embeddings().register_forward_hook(
            lambda m, i, out, mask=mask: out * mask[: out.size(1)]
        )
        readings.append([parse.tree for parse in parser(TEXTS)])
        hook.remove()
    expected = combine_runs(readings, outlier_share=0, pool_punctuation=True)
    sampling = Parser(model, tokenizer, dropout_samples=3, dropout=0.3)
    done = []
    parses = sampling.parse_batch(TEXTS, progress=done.append)
    assert [parse.tree for parse in parses] == list(expected.trees) != [parse.tree for parse in plain]
    assert sum(done) == sampling.readings * len(TEXTS) == 12
    for parse, reading in zip(parses, plain, strict=True):
        assert parse.distances is None
        np.testing.assert_array_equal(parse.strengths["push_strength"], reading.strengths["push_strength"])
    assert [sampling(text).tree for text in TEXTS] == [parse.tree for parse in parses]  # whatever shares its batch
    assert [parse.tree for parse in parser(TEXTS)] == [parse.tree for parse in plain]  # the model is as before
    options = ["--dropout-samples", "3:0.3"]
    printed = run_json(capsys, "parse", models / "one", *TEXTS, *options)
    assert [parse["tree"] for parse in printed["parses"]] == [str(parse) for parse in parses]


def test_the_layers_after_the_memory_run_only_for_probabilities(parser):
    cell = {"controller": "rnn", "memory": "stack", "memory_size": 3, "push_control": "sigmoid", "pop_control": 1.0}
    tokenizer, ran = parser.scorer.tokenizer, []
    config = StackTransformerConfig(vocab_size=len(tokenizer), hidden_size=8, layers=[cell, "attention"])
    model = StackTransformerForCausalLM(config)
    model.model.layers[1].register_forward_hook(lambda *_: ran.append(1))
    parses = Parser(model, tokenizer)(TEXTS)
    assert not ran
    whole = Parser(model, tokenizer).parse_batch(TEXTS, logprobs=True)
    assert ran
    assert [parse.tree for parse in parses] == [parse.tree for parse in whole]
    assert all(np.isnan(parse.trace.logprobs).all() for parse in parses)
    assert all(np.isfinite(parse.trace.logprobs[1:]).all() for parse in whole)


def test_the_embeddings_drop_the_share_of_units_that_was_asked_for():
    model = StackRNNForCausalLM(tiny_config(embedding_size=100))
    ids = torch.zeros(2, 300, dtype=torch.long)
    before = model.get_input_embeddings()(ids)
    with embedding_dropout(model, 0.2, seed=1):
        after = model.get_input_embeddings()(ids)
        torch.testing.assert_close(model.get_input_embeddings()(ids[:1, :7]), after[:1, :7])
    kept = after != 0
    assert 0.78 < kept.double().mean() < 0.82
    torch.testing.assert_close(after[kept], before[kept] / 0.8)
    torch.testing.assert_close(model.get_input_embeddings()(ids), before)


def test_a_notebook_shows_the_tree(parser):
    parse = parser(["the", "<b>", "cat"], is_split_into_words=True)
    (svg,) = ElementTree.fromstring(parse._repr_html_())
    assert {"the", "<b>", "cat"} <= {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert ElementTree.fromstring(parse._repr_html_()).tag == "div"
    assert repr(parse).startswith("Parse('(")


def test_the_command_goes_on_behind_a_sentence_without_a_tree(models, capsys, tmp_path):
    file, page, trees = tmp_path / "s.txt", tmp_path / "t.html", tmp_path / "t.mrg"
    file.write_text("the dog sleeps .\nqwx zzk\n\na cat waits .\n")
    for output in (page, trees):
        status, out, err = run(capsys, "parse", models / "one", "--data", file, "--output", output)
        assert status == 0
        assert [bool(line) for line in out.splitlines()] == [True, False, False, True]
        assert err == f"line 3 is empty; line 2 has no word that the model knows\nwritten: {output}\n"
    assert [bool(line) for line in trees.read_text().splitlines()] == [True, False, False, True]
    assert len(read_treebank(str(trees))) == 2
    text = page.read_text()
    assert 'id="t4"' in text
    assert 'id="t2"' not in text
    assert f"2 trees: {models / 'one'}" in text
    file.write_text("qwx zzk\n")
    status, out, err = run(capsys, "parse", models / "one", "--data", file, "--output", tmp_path / "none.html")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "none.html").exists()
