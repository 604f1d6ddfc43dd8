"""Word-level tokenizers: their vocabulary, and the rules that tokenizer.json carries."""
# ruff: noqa: RUF001

import json
import subprocess
import sys
import warnings

import pytest
from conftest import tiny_config
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from stack_lm import ModelScorer, StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.text.tokenization import (
    RareWordTags,
    TreebankForms,
    case_rule,
    sentence_frame,
    train_subword_tokenizer,
    train_word_tokenizer,
    word_splitter,
)

CORPUS = [
    ("The dog saw the cat .".split(), "DT NN VBD DT NN .".split()),
    ("The dog barked .".split(), "DT NN VBD .".split()),
]
BARE = {"add_bos": False, "add_eos": False}
# In the form of the Penn Treebank: each token is one.
TREEBANK = """\
Mr. Vinken is chairman of Elsevier N.V. , the Dutch publishing group .
`` We have no useful information on whether users are at risk , '' said James A. Talcott of Boston 's Dana-Farber .
He does n't say it could n't ; they 've gone and we 'll see -LRB- or I 'd say so -RRB- , is n't it ?
The N.Y.-based company 's 3.5 % rise to $ 1,000.50 -- a U.S. record -- was n't AT&T 's : it ca n't be !
In the early 1980s Dr. O'Brien and the students ' Gov. J. P. Bolduc paid C$ 2.4 million at 11:59 p.m. EST .
Yahoo Inc.'s " Ciona robusta " ( a d'état of Mi'kmaq , e.g. 3' and 5' ) can not be R&B ...
... and the 's and 'll and n't of # 1 ' o'clock ' [ sic ] { x } ; what ?! !!! ' 50s '' `
""".splitlines()
ORDINARY = {
    "The dog hurt herself.": "The dog hurt herself .",
    'He said, "No, I don\'t think so."': 'He said , " No , I do n\'t think so . "',
    "Who's there? It's John's dog; they'd've barked!": "Who 's there ? It 's John 's dog ; they 'd 've barked !",
    "She can't and won't, but I cannot say WHY (or DIDN'T she?).": (
        "She ca n't and wo n't , but I can not say WHY ( or DID N'T she ? ) ."
    ),
    "Mr. Smith paid $5, or 3.5% of 1,000, in the U.S.": "Mr. Smith paid $ 5 , or 3.5 % of 1,000 , in the U.S.",
    "We'll meet at 11:30--or later...": "We 'll meet at 11:30 -- or later ...",
    "``Yes,'' the N.Y.-based firm said.": "`` Yes , '' the N.Y.-based firm said .",
    "“It isn’t,” he’s told.": "“ It is n’t , ” he ’s told .",
    'It [sic] is "good".': 'It [ sic ] is " good " .',
    "What?! No!": "What ?! No !",
    # Quotation marks of other languages.
    "„Das ist gut.“": "„ Das ist gut . “",
    "„Komm!“, rief er.": "„ Komm ! “ , rief er .",
    "«Bonjour», dit-il.": "« Bonjour » , dit-il .",
    "Er sagte: «Komm!»": "Er sagte : « Komm ! »",
    "»Guten Tag«, sagte er.": "» Guten Tag « , sagte er .",
    "‚Ja‘, sagte er. ‹Oui›, dit-il.": "‚ Ja ‘ , sagte er. ‹ Oui › , dit-il .",
    # At the beginning and the end of a word, but for those that have an apostrophe there.
    "“‘Stop it,’ he said—then left…”": "“ ‘ Stop it , ’ he said — then left … ”",
    "‘No’ (‘ab’), ’Stop,’ 'I'll go', 'no'": "‘ No ’ ( ‘ ab ’ ) , ’ Stop , ’ ' I 'll go ' , ' no '",
    "’Tis the dogs’ rock 'n' roll, runnin' 5' o'er": "’Tis the dogs ’ rock 'n' roll , runnin' 5' o'er",
    "'Em in the '90s, l'été d'un o' the": "'Em in the '90s , l'été d'un o' the",
    "Wait-- no ...and a 62%-owned --firm--": "Wait -- no ... and a 62%-owned -- firm --",
}


def words_of(text):
    return [word for word, _ in word_splitter().pre_tokenize_str(text)]


@pytest.mark.parametrize("line", TREEBANK)
def test_text_in_the_treebanks_form_stays_as_it_is(line):
    assert words_of(line) == line.split()


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_split_as_in_the_treebank(text):
    assert words_of(text) == ORDINARY[text].split()


@given(st.lists(st.sampled_from([*"aBn'.,?!\"()$5%-` ", "can", "not", "n't", "'s", "``", "''", "--", "..."])))
def test_splitting_keeps_every_character(parts):
    text = "".join(parts)
    assert "".join(words_of(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dog", "the dog"),
        ("A dog", "a dog"),
        ("It's Ann's", "it's Ann's"),
        ("NASA said", "NASA said"),
        ("U.S. troops", "U.S. troops"),
        ("McDonald left", "McDonald left"),
        ("O'Brien left", "O'Brien left"),
        ("A. Smith", "A. Smith"),
        ("I am", "I am"),
        ("I'm", "I'm"),
        ("In", "in"),
        ('" The dog', '" The dog'),
        ("the Dog", "the Dog"),
        ("École ouverte", "école ouverte"),
    ],
)
def test_case_of_the_first_word(text, expected):
    for capital in "ABÉIMNOTU":
        text = case_rule(capital).normalize_str(text)
    assert text.replace("É", "é") == expected


def test_vocabulary_is_the_most_frequent_words():
    tokenizer = train_word_tokenizer(CORPUS, vocab_size=3)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [
        *("<pad>", "<unk>", "<s>", "</s>"),
        *(".", "The", "dog"),
    ]
    assert tokenizer("dog flew The").input_ids == [2, 6, 1, 5]


@pytest.mark.parametrize(
    ("lowercase", "expected"),
    [("none", "The Dog saw Dog"), ("first_word", "the Dog saw Dog"), ("all", "the dog saw dog")],
)
def test_lowercase(lowercase, expected):
    tokenizer = train_word_tokenizer([("The Dog saw Dog".split(), None)], lowercase=lowercase)
    assert tokenizer.decode(tokenizer("The Dog saw Dog").input_ids, skip_special_tokens=True) == " " + expected
    assert set(tokenizer.get_vocab()) == {"<pad>", "<unk>", "<s>", "</s>", *expected.split()}


def test_quotation_marks_are_the_corpus_own():
    text = 'He said "no" ("yes").'
    treebank = train_word_tokenizer([("`` no , '' He said ( yes ) .".split(), None)])
    assert treebank.decode(treebank(text).input_ids) == " <s> He said `` no '' ( `` yes '' ) ."
    plain = train_word_tokenizer([('" no , " He said ( yes ) .'.split(), None)])
    assert plain.decode(plain(text).input_ids) == ' <s> He said " no " ( " yes " ) .'


MARKED = "“Found ‘it’ – 1990–1995,” he said—then… don’t «go»"


@pytest.mark.parametrize("subwords", [False, True])
@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("\" ' -- - ... n't", '" Found \' it \' -- 1990-1995 , " he said -- then ... do n\'t " go "'),
        ("`` '' ` ' -- - ... n't", "`` Found ` it ' -- 1990-1995 , '' he said -- then ... do n't `` go ''"),
        ("“ ” ‘ ’ – — … « » n’t", "“ Found ‘ it ’ – 1990–1995 , ” he said — then … do n’t « go »"),
        ("of none", "“ Found ‘ it ’ – 1990–1995 , ” he said — then … do n’t « go »"),
    ],
)
def test_marks_become_those_of_the_vocabulary(subwords, corpus, expected):
    train = train_subword_tokenizer if subwords else train_word_tokenizer
    tokenizer = train([(corpus.split(), None)] * 9, 400)
    backend = tokenizer.backend_tokenizer
    text = MARKED if backend.normalizer is None else backend.normalizer.normalize_str(MARKED)
    assert [word for word, _ in word_splitter().pre_tokenize_str(text)] == expected.split()


TEXTS = [
    "The dog hurt herself.",
    'A cat said, "The dog doesn\'t know me."',
    "NASA saw the cat .",
    "Dogs can't see it, can they?",
]
PLAIN = """
import json, sys
from transformers import AutoTokenizer
assert "stack_lm" not in sys.modules
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps([tokenizer(texts).input_ids, tokenizer.decode(tokenizer(texts[0]).input_ids)]))
assert "stack_lm" not in sys.modules
"""


def test_a_program_without_this_package_gets_the_same_ids(tmp_path):
    corpus = [(text.split(), None) for text in TEXTS] + [("dogs know the dog".split(), None)] * 2
    tokenizer = train_word_tokenizer(corpus, lowercase="first_word")
    tokenizer.save_pretrained(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path), json.dumps(TEXTS)], capture_output=True, text=True, check=True
    )
    ids, text = json.loads(done.stdout)
    assert text == " <s> the dog hurt herself ."
    scorer = ModelScorer(StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), bos_token_id=2)), tokenizer)
    assert ids == tokenizer(TEXTS).input_ids
    for sentence, expected in zip(TEXTS, ids, strict=True):
        words = scorer.split(sentence)
        (encoding,) = scorer._encoder.encode([words], None)
        assert encoding.ids == expected
        assert encoding.word_of.tolist() == [-1, *range(len(words))]
        # As it stands in the text, with the same ids: each of its words is a known token.
        assert scorer._encoder.encode_texts([words])[0] == expected[1:]
        assert tokenizer.unk_token_id not in expected


def test_tags_of_rare_words(tmp_path):
    tokenizer = train_word_tokenizer(CORPUS, vocab_size=4, lowercase="first_word", tag_rare_words=True)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    replace = RareWordTags(loaded)
    words, tags = "The dog ate mice".split(), "DT NN VBD NNS".split()
    # `ate` is rare and its tag is known; `mice` is rare too, but the tag NNS was never seen.
    assert replace(words, tags) == ["The", "dog", "VBD", "mice"]
    assert replace(words) == words
    assert loaded(" ".join(replace(words, tags))).input_ids.count(loaded.unk_token_id) == 1
    assert replace([], []) == []


def test_tags_are_used_only_where_the_tokenizer_was_trained_so():
    replace = RareWordTags(train_word_tokenizer(CORPUS, vocab_size=3))
    assert replace(["flew"], ["The"]) == ["flew"]


def test_begin_and_end_tokens(tmp_path):
    train_word_tokenizer(CORPUS).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    # A text that is to be continued has no end.
    assert tokenizer.convert_ids_to_tokens(tokenizer("dog").input_ids) == ["<s>", "dog"]
    assert sentence_frame(tokenizer, begin=True, end=True) == ([2], [3])
    assert sentence_frame(tokenizer, begin=True, end=False) == ([2], [])
    bare = train_word_tokenizer(CORPUS, **BARE)
    assert (bare.bos_token, bare.eos_token) == (None, None)
    assert bare.convert_ids_to_tokens(bare("dog").input_ids) == ["dog"]
    assert sentence_frame(bare, begin=True, end=True) == ([], [])


def test_decoding_puts_a_space_before_each_word():
    """So that clients can decode a continuation alone and put it behind their prompt."""
    tokenizer = train_word_tokenizer(CORPUS)
    ids = tokenizer("The dog saw the cat").input_ids
    assert "The dog" + tokenizer.decode(ids[3:]) == "The dog saw the cat"


def test_a_special_token_in_the_text_is_not_a_word_of_its_own():
    tokenizer = train_word_tokenizer([("the <unk> the </s>".split(), None)], vocab_size=1)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == ["<pad>", "<unk>", "<s>", "</s>", "the"]


@pytest.mark.parametrize(
    ("sentences", "arguments", "message"),
    [
        ([], {}, "the corpus has no words"),
        ([(["a"], None)], {"tag_rare_words": True}, "the corpus has none"),
        ([(["a"], None)], {"lowercase": "upper"}, "lowercase must be one of none, first_word, all; got 'upper'"),
        (CORPUS, {"tag_rare_words": True, "lowercase": "all"}, "lowercase='all' leaves alone; it changes 'DT'"),
    ],
)
def test_bad_input(sentences, arguments, message):
    with pytest.raises(InputError, match=message):
        train_word_tokenizer(sentences, **arguments)


def test_as_many_tags_as_words():
    replace = RareWordTags(train_word_tokenizer(CORPUS, tag_rare_words=True))
    with pytest.raises(InputError, match="2 words but 1 tags: 'a b'"):
        replace(["a", "b"], ["X"])


@pytest.mark.parametrize("train", [train_word_tokenizer, train_subword_tokenizer])
@pytest.mark.parametrize("sentence", ["dogs bark", ("dogs", "bark")])
def test_sentences_are_pairs(train, sentence):
    with pytest.raises(InputError, match=r"a sentence must be \(words, tags or None\)"):
        train([sentence], 300)


UNESCAPED = 'the ( ) [ ] { } 1/2 a/b * " dog'.split()
ESCAPED = r"the -LRB- -RRB- -LSB- -RSB- -LCB- -RCB- 1\/2 a\/b \* `` dog".split()


def trained(words, kind):
    corpus = [(words, None)] * 5
    if kind == "words":
        return train_word_tokenizer(corpus, **BARE)
    return train_subword_tokenizer(corpus, 330, kind=kind, **BARE)


TOKENIZER = trained(UNESCAPED, "words")


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_escapes_are_read_as_the_vocabulary_has_them(kind):
    plain, escaped = TreebankForms(trained(UNESCAPED, kind)), TreebankForms(trained(ESCAPED, kind))
    with pytest.warns(UserWarning, match="^'-LRB-' is read as '\\(', as the vocabulary has it"):
        assert plain(ESCAPED) == UNESCAPED
    assert plain(UNESCAPED) == UNESCAPED
    assert plain(["-lrb-", "-Lcb-"]) == ["(", "{"]
    brackets = slice(1, 7)
    with pytest.warns(UserWarning, match="^'\\(' is read as '-LRB-', as the vocabulary has it"):
        assert escaped(UNESCAPED[brackets]) == ESCAPED[brackets]
    assert escaped(ESCAPED) == ESCAPED
    if kind == "words":
        assert escaped(UNESCAPED[7:10]) == ESCAPED[7:10]


def test_words_that_are_known_stay():
    forms = TreebankForms(train_word_tokenizer([(r"( ) `` '' 1\/2 -LRB- 3/4".split(), None)], **BARE))
    assert forms(r"( `` '' 1\/2 -LRB- 3/4 5\/6".split()) == r"( `` '' 1\/2 -LRB- 3/4 5\/6".split()


@given(st.lists(st.text("-LRBCS()[]{}/*\\`'\"ab", min_size=1, max_size=7), min_size=1, max_size=5))
def test_each_word_stays_one(words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forms = TreebankForms(TOKENIZER)(words)
    assert len(forms) == len(words)
    assert all(forms)
