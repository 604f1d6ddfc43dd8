"""Subword tokenizers: nothing is unknown, no token is of two words, and batches go on as their sentences do."""

import json

import numpy as np
import pytest
from conftest import tiny_config
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from stack_lm import ModelScorer, StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.hub.tokenizers import find_tokenizer, open_tokenizer
from stack_lm.scoring.encoding import SentenceEncoder, strengths_of_words
from stack_lm.text import generate_corpus
from stack_lm.text.tokenization import splits_words, train_subword_tokenizer, train_word_tokenizer, word_splitter_of

CORPUS = [(sentence.words, None) for sentence in generate_corpus(60, seed=3)]
KINDS = ("bpe", "unigram")
TEXTS = (
    "the dog barks in 1995 .",
    "Grüße aus Köln , sagte sie ; der Bär schläft .",
    "\" It is n't “ naïve ” , 's , `` no '' , « non » .",
    "🐶 likes 👩‍👩‍👧 and 日本語 , 3,14159 ² ½ ٣",
    "<pad <unk> Ġ ▁ \x00 \ufffd",
)
TOKENIZERS = {kind: train_subword_tokenizer(CORPUS, 400, kind=kind) for kind in KINDS}
# Both Python and the tokenizers' Rust separate at these.
WORDS = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Z", "Cc")), min_size=1, max_size=6), min_size=1, max_size=6
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was(kind, text):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.unk_token_id is None
    ids = tokenizer(text).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == " " + text


@given(WORDS, st.sampled_from(KINDS))
def test_each_token_is_of_the_word_whose_characters_it_covers(words, kind):
    """By brute force: the tokens aligned to a word, decoded, are that word."""
    tokenizer = TOKENIZERS[kind]
    (encoding,) = SentenceEncoder(tokenizer, begin=True, end=True).encode([words], None)
    ids = np.array(encoding.ids)
    assert ids[0] == tokenizer.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id
    for i, word in enumerate(words):
        of_word = ids[encoding.word_of == i].tolist()
        assert tokenizer.convert_ids_to_tokens(of_word[0]).startswith("Ġ")
        assert tokenizer.decode(of_word).replace(" ", "") == word


def test_punctuation_is_split_off_as_the_treebank_does_it():
    for tokenizer in TOKENIZERS.values():
        assert tokenizer("The dog didn't bark.").input_ids == tokenizer("The dog did n't bark .").input_ids
        assert SentenceEncoder(tokenizer).split("It can't be 1,995.") == "It ca n't be 1,995 .".split()


def test_digits_one_by_one():
    tokenizer = train_subword_tokenizer([("in 1995 1995 1995 A1995".split(), None)] * 9, 400, split_digits=True)
    tokens = tokenizer.convert_ids_to_tokens(tokenizer("in 1995 A19", add_special_tokens=False).input_ids)
    assert tokens == ["Ġin", "Ġ1", "9", "9", "5", "ĠA", "1", "9"]
    assert tokenizer.decode(tokenizer("1995 A19").input_ids, skip_special_tokens=True) == " 1995 A19"


def test_the_vocabulary_is_the_bytes_and_then_the_most_useful_parts():
    tokenizer = TOKENIZERS["bpe"]
    assert len(tokenizer) == 400 + 3
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "<s>", "</s>"]
    assert train_subword_tokenizer(CORPUS, 400).get_vocab() == tokenizer.get_vocab()  # always the same one
    assert train_subword_tokenizer([(["a"], None)], 5000).get_vocab().keys() >= {"Ġa"}


@pytest.mark.parametrize(
    ("corpus", "arguments", "message"),
    [
        ([], {}, "the corpus has no words to make a vocabulary from"),
        ([], {"kind": "unigram"}, "the corpus has no words to make a vocabulary from"),
        ([([], None)], {}, "the corpus has no words to make a vocabulary from"),
        (CORPUS, {"vocab_size": 256}, "vocab_size must be more than the 256 bytes with kind bpe.*; got 256"),
        (CORPUS, {"kind": "wordpiece"}, "kind must be one of bpe, unigram; got 'wordpiece'"),
        (CORPUS, {"lowercase": "upper"}, "lowercase must be one of none, first_word, all; got 'upper'"),
    ],
)
def test_what_no_tokenizer_can_be_made_of(corpus, arguments, message):
    with pytest.raises(InputError, match=message):
        train_subword_tokenizer(corpus, **arguments)


# --- generation


@pytest.mark.parametrize("tokenizer", [TOKENIZERS["bpe"], train_word_tokenizer(CORPUS)], ids=["bpe", "word"])
@pytest.mark.parametrize("fields", [{}, {"memory": "none"}, {"memory": "deque"}], ids=str)
def test_a_batch_goes_on_as_each_of_its_sentences(tokenizer, fields):
    config = tiny_config(vocab_size=len(tokenizer), bos_token_id=tokenizer.bos_token_id, **fields)
    model = StackRNNForCausalLM(config).eval()
    texts = ["the dog", "the old teacher near the bridge that the cats fear", "a", "the dogs bark ."]
    options = {"max_new_tokens": 12, "do_sample": False}
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    together = model.generate(**batch, **options)[:, batch["input_ids"].shape[1] :]
    for row, text in zip(together, texts, strict=True):
        alone = tokenizer(text, return_tensors="pt")
        assert row.tolist() == model.generate(**alone, **options)[0, alone["input_ids"].shape[1] :].tolist()


# --- tokenizers that are there already


def test_paths_are_never_looked_for_on_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr("stack_lm.hub.tokenizers.ask_hub", lambda *arguments: pytest.fail("the hub was asked"))
    TOKENIZERS["bpe"].save_pretrained(tmp_path / "whole")
    bare = tmp_path / "my.json"
    bare.write_text((tmp_path / "whole" / "tokenizer.json").read_text())
    text = "the dog barks ."
    for source in (tmp_path / "whole", tmp_path / "whole" / "tokenizer.json", bare):
        tokenizer = open_tokenizer(source)
        assert tokenizer(text).input_ids == TOKENIZERS["bpe"](text).input_ids
        assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<pad>")
        assert tokenizer.padding_side == "left"
    bare_files = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>"}
    (tmp_path / "whole" / "tokenizer_config.json").write_text(json.dumps(bare_files))  # does not say where it pads
    open_tokenizer(tmp_path / "whole").save_pretrained(tmp_path / "saved")
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").padding_side == "left"
    for missing in ("nope.json", "./nope", str(tmp_path / "nope"), "~/nope", "a/b/c", f"{tmp_path}/nope/x"):
        with pytest.raises(InputError, match=r"there is no such file or directory"):
            open_tokenizer(missing)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"the directory has no tokenizer \(tokenizer.json\)"):
        open_tokenizer(tmp_path / "empty")
    assert find_tokenizer("gpt2") is None


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"model": 3}', "\x00"])
def test_damaged_tokenizers(tmp_path, content):
    for path in (tmp_path / "tokenizer.json", tmp_path / "other.json"):
        path.write_text(content)
        with pytest.raises(InputError, match="cannot load a tokenizer from") as caught:
            open_tokenizer(path)
        assert "\n" not in str(caught.value)


def test_a_template_without_its_token(tmp_path):
    """The tokenizers library panics, which is no `Exception`."""
    TOKENIZERS["bpe"].save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"]["special_tokens"] = {}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="its settings contradict each other"):
        open_tokenizer(tmp_path)


# --- strengths of words


def test_strengths_of_words():
    word_of = np.array([-1, 0, 0, 0, 1, 2, 2, -1])
    push = np.array([9.0, 1, 3, 2, 5, 0, 4, 9])
    actions = {"push_strength": push, "total_strength": push, "push_distribution": np.stack([push, -push], -1)}
    expected = {"first": [1, 5, 0], "last": [2, 5, 4], "sum": [6, 5, 4], "max": [3, 5, 4]}
    for how, values in expected.items():
        found = strengths_of_words(actions, word_of, how)
        assert found["push_strength"].tolist() == values
        assert found["total_strength"].tolist() == expected["last"]
        one = expected["first" if how == "first" else "last"]
        assert found["push_distribution"].tolist() == [[value, -value] for value in one]


def test_a_scorer_takes_the_strengths_that_it_is_told_to():
    tokenizer = TOKENIZERS["bpe"]
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2))
    words = "the Grüße barks".split()
    found = {how: ModelScorer(model, tokenizer, word_strength=how).trace([words])[0] for how in ("last", "sum", "max")}
    pushes = {how: trace.signals["push_strength"] for how, trace in found.items()}
    assert (pushes["sum"] >= pushes["max"]).all()
    assert (pushes["max"] >= pushes["last"]).all()
    assert pushes["sum"][1] > pushes["max"][1]  # a word that the corpus does not have
    with pytest.raises(InputError, match="word_strength must be one of first, last, sum, max; got 'mean'"):
        ModelScorer(model, tokenizer, word_strength="mean")


# --- tokenizers of other scripts, and of characters


def own_tokenizer(kind, lines):
    """A tokenizer as one makes it oneself: of characters, or Unigram after Metaspace."""
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    if kind == "characters":
        letters = sorted({letter for line in lines for letter in line} - {" "})
        vocabulary = {symbol: i for i, symbol in enumerate([*special, *letters])}
        made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    else:
        made = Tokenizer(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=40, special_tokens=special, unk_token="<unk>")
        made.train_from_iterator(lines, trainer)
    roles = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, **roles)


@pytest.mark.parametrize("kind", ["characters", "unigram"])
@pytest.mark.parametrize("words", [["הכלב", "רואה", "את", "החתול"], ["犬が", "走る"]], ids=["Hebrew", "Japanese"])
def test_words_of_other_scripts_are_known(kind, words):
    """The vocabulary has no Latin letter, and that of characters no space."""
    encoder = SentenceEncoder(own_tokenizer(kind, [" ".join(words)] * 50))
    for text in (*words, " ".join(words)):
        assert encoder.knows(text)
        assert not encoder.knows(f"{text}Ж")
    assert encoder.split(" ".join(words)) == words


def test_a_tokenizer_of_characters_reads_text_as_it_stands():
    tokenizer = own_tokenizer("characters", ["the dog barks ."])
    assert not splits_words(tokenizer)
    assert word_splitter_of(tokenizer) is None
    assert SentenceEncoder(tokenizer).split("the dog") == ["the", "dog"]
    assert splits_words(train_word_tokenizer([(["a", "dog"], None)]))
