"""Word-level tokenizers and how they prepare words."""

import pytest
from transformers import AutoTokenizer

from stack_lm.errors import InputError
from stack_lm.tokenization import WordPreparation, lowercase_words, train_word_tokenizer

CORPUS = [
    ("The dog saw the cat .".split(), "DT NN VBD DT NN .".split()),
    ("The dog barked .".split(), "DT NN VBD .".split()),
]


def test_vocabulary_is_the_most_frequent_words():
    tokenizer = train_word_tokenizer(CORPUS, vocab_size=3)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == ["<pad>", "<unk>", ".", "The", "dog"]
    assert tokenizer("dog flew The").input_ids == [4, 1, 3]


@pytest.mark.parametrize(
    ("lowercase", "expected"), [("none", "The Dog"), ("first_word", "the Dog"), ("all", "the dog")]
)
def test_lowercase(lowercase, expected):
    assert " ".join(lowercase_words(["The", "Dog"], lowercase)) == expected
    tokenizer = train_word_tokenizer([(["The", "Dog"], None)], lowercase=lowercase)
    assert set(expected.split()) <= set(tokenizer.get_vocab())


def test_preparation_is_saved_with_the_tokenizer(tmp_path):
    tokenizer = train_word_tokenizer(CORPUS, vocab_size=4, lowercase="first_word", tag_rare_words=True)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    prepare = WordPreparation(loaded)
    assert (prepare.lowercase, prepare.tag_rare_words) == ("first_word", True)
    words, tags = "The dog ate mice".split(), "DT NN VBD NNS".split()
    # `ate` is rare and its tag is known; `mice` is rare too, but the tag NNS was never seen.
    assert prepare(words, tags) == ["the", "dog", "VBD", "mice"]
    assert prepare(words) == ["the", "dog", "ate", "mice"]
    assert loaded(" ".join(prepare(words, tags))).input_ids.count(loaded.unk_token_id) == 1


def test_tags_are_used_only_where_the_tokenizer_was_trained_so():
    prepare = WordPreparation(train_word_tokenizer(CORPUS, vocab_size=3))
    assert prepare(["flew"], ["The"]) == ["flew"]


def test_begin_and_end_tokens():
    tokenizer = train_word_tokenizer(CORPUS, add_bos=True, add_eos=True)
    assert tokenizer.convert_ids_to_tokens(tokenizer("dog").input_ids) == ["<s>", "dog", "</s>"]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


def test_decoding_puts_a_space_before_each_word():
    """So that clients can decode a continuation alone and put it behind their prompt."""
    tokenizer = train_word_tokenizer(CORPUS)
    ids = tokenizer("The dog saw the cat").input_ids
    assert "The dog" + tokenizer.decode(ids[2:]) == "The dog saw the cat"


def test_a_special_token_in_the_text_is_not_a_word_of_its_own():
    tokenizer = train_word_tokenizer([("the <unk> the".split(), None)])
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == ["<pad>", "<unk>", "the"]


@pytest.mark.parametrize(
    ("sentences", "arguments", "message"),
    [
        ([], {}, "the corpus has no words"),
        ([(["a"], None)], {"tag_rare_words": True}, "the corpus has none"),
        ([(["a"], None)], {"lowercase": "upper"}, "lowercase must be one of none, first_word, all; got 'upper'"),
    ],
)
def test_bad_input(sentences, arguments, message):
    with pytest.raises(InputError, match=message):
        train_word_tokenizer(sentences, **arguments)


def test_as_many_tags_as_words():
    prepare = WordPreparation(train_word_tokenizer(CORPUS, tag_rare_words=True))
    with pytest.raises(InputError, match="2 words but 1 tags: 'a b'"):
        prepare(["a", "b"], ["X"])
