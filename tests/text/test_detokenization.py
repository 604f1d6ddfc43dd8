"""Ordinary text and a treebank's tokens have the same subwords, and tokens keep to the treebank's words."""
# ruff: noqa: RUF001

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack_lm.scoring.encoding import SentenceEncoder
from stack_lm.text import generate_corpus
from stack_lm.text.tokenization import splits_words, train_subword_tokenizer, word_splitter_of
from stack_lm.training.config import TokenizerConfig

# Ordinary text in ASCII, its words in the Penn Treebank, and other text that is read alike.
FORMS = (
    ("Duck.", "Duck .", ["Duck ."]),
    ("The dog can't bark, isn't it?", "The dog ca n't bark , is n't it ?", ["The dog can’t bark, isn’t it?"]),
    ('"Found it," he said.', '" Found it , " he said .', ["“Found it,” he said.", "`` Found it , '' he said ."]),
    (
        'It said "no." and "yes, (if) I must."',
        'It said " no. " and " yes , ( if ) I must . "',
        ["It said “ no. ” and “ yes , -LRB- if -RRB- I must . ”"],
    ),
    ("The dogs' tails, John's [sic] $5; 3% or 1/2.", "The dogs ' tails , John 's [ sic ] $ 5 ; 3 % or 1/2 .", []),
    ("They cannot pay...", "They can not pay ...", ["They cannot pay…", "They can not pay …"]),
    (
        "The stack—a memory—grows, as in 1990-95.",
        "The stack — a memory — grows , as in 1990-95 .",
        ["The stack -- a memory -- grows, as in 1990–95.", "The stack–a memory–grows, as in 1990‑95."],
    ),
    ("It is the 'end' of it.", "It is the ' end ' of it .", ["It is the ‘end’ of it.", "It is the ‘ end ’ of it ."]),
)
CORPUS = [(sentence.words, None) for sentence in generate_corpus(60, seed=3)]
CORPUS += [(treebank.split(), None) for _, treebank, _ in FORMS] * 9
TOKENIZERS = {
    (kind, case): train_subword_tokenizer(CORPUS, 420, kind=kind, lowercase=case, detokenize=True)
    for kind, case in (("bpe", "none"), ("bpe", "first_word"), ("unigram", "all"))
}
ENCODER = SentenceEncoder(TOKENIZERS["bpe", "none"])
EACH = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=map(" ".join, TOKENIZERS))
# Words whose spaces the rules change, beside others.
WORDS = (
    *"a dogs runnin U.S. Mr. é 5 can not Not n't 's 'll 'em '90s ' \" `` '' “ ” ‘ ’".split(),
    *", . ; : ? ! % ( ) [ ] { } $ £ - -- --- – — / & # .. ... … ?! -LRB- -RRB- 1\\/2 x' « »".split(),
)


@EACH
@pytest.mark.parametrize(("text", "treebank", "others"), FORMS)
def test_both_forms_have_the_same_tokens_and_come_back_as_ordinary_text(tokenizer, text, treebank, others):
    ids = tokenizer(text).input_ids
    assert [tokenizer(other).input_ids for other in (treebank, " " + text, *others)] == [ids] * (len(others) + 2)
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert decoded.lower() == " " + text.lower()
    assert tokenizer(decoded).input_ids == ids


@EACH
@pytest.mark.parametrize(("text", "treebank", "others"), FORMS)
def test_ordinary_text_is_split_into_the_words_of_a_treebank(tokenizer, text, treebank, others):
    assert splits_words(tokenizer)
    assert [word for word, _ in word_splitter_of(tokenizer).pre_tokenize_str(text)] == treebank.split()
    (encoding,) = SentenceEncoder(tokenizer).encode([SentenceEncoder(tokenizer).split(text)], None)
    assert encoding.ids == tokenizer(text).input_ids


def check_alignment(words, tokenizer=TOKENIZERS["bpe", "none"]):
    """Each word has tokens, in order, and they are its characters where the rules replace none."""
    (encoding,) = ENCODER.encode([words], None)
    ids, word_of = np.array(encoding.ids)[1:], encoding.word_of[1:]  # without <s>
    assert np.unique(word_of).tolist() == list(range(len(words)))
    assert (np.diff(word_of) >= 0).all()
    for i, word in enumerate(words):
        if word.isalnum() or word in {"n't", "U.S.", "%", "&"}:
            assert tokenizer.decode(ids[word_of == i].tolist()).strip() == word


def test_no_token_is_of_two_words_whatever_the_rules_join():
    for words in product(WORDS, repeat=2):
        check_alignment(words)


@given(st.lists(st.sampled_from(WORDS) | st.text("aé5'\".-—,", min_size=1, max_size=4), min_size=1, max_size=9))
def test_no_token_is_of_two_words_in_any_sentence(words):
    check_alignment(words)


def test_a_continuation_by_itself_has_the_tokens_that_it_has_in_its_text():
    tokenizer = TOKENIZERS["bpe", "none"]
    for text, end in (("The dog", " barks"), ("The dog barks", "."), ("The dog did", "n't"), ("The dogs", ", barks")):
        ends = tokenizer(end, add_special_tokens=False).input_ids
        assert tokenizer(text + end).input_ids == tokenizer(text).input_ids + ends


def test_words_alone_cannot_be_detokenised():
    with pytest.raises(ValueError, match="tokenizer.detokenize needs tokenizer.kind bpe or unigram; got word"):
        TokenizerConfig(detokenize=True).check()


@pytest.mark.parametrize("punctuation", ["attach", "split"])
@pytest.mark.parametrize("words", ["the dogs -LRB- the cats -RRB- .", "U.S. -LCB- a -RCB- run .", "-rrb-"])
def test_an_escaped_bracket_is_a_word_whatever_touches_it(words, punctuation):
    """Its token stands for "-" alone, which is punctuation, as the normalizers of tokenizers count."""
    (encoded,) = ENCODER.encode([words.split()], None, punctuation=punctuation)
    escapes = [i for i, word in enumerate(encoded.words) if "b-" in word.lower()]
    assert len(escapes) == words.lower().count("b-")
    assert set(escapes) <= set(encoded.core_of.tolist())
