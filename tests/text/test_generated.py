"""The built-in generated English."""

import random
from collections import Counter

from stack_lm.parsing import ConstituencyTree
from stack_lm.text.generated import generate_corpus, generate_sentence

SENTENCES = list(generate_corpus(3000, seed=3))


def test_a_seed_gives_the_same_sentences():
    again = list(generate_corpus(50, seed=3))
    assert [s.words for s in again] == [s.words for s in SENTENCES[:50]]
    assert again[0].words == generate_sentence(random.Random(3)).words
    assert [s.words for s in generate_corpus(50, seed=4)] != [s.words for s in again]


def test_no_two_sentences_are_alike_and_none_is_too_long():
    assert len({s.words for s in SENTENCES}) == len(SENTENCES)
    assert max(len(s.words) for s in SENTENCES) <= 40


def test_more_than_300_words_and_all_constructions():
    words = Counter(word for s in SENTENCES for word in s.words)
    assert len(words) > 500
    labels = Counter(label for s in SENTENCES for _, _, label in ConstituencyTree.from_nltk(s.tree).spans)
    assert {"S", "NP", "VP", "PP", "SBAR", "ADJP", "ADVP", "WHNP"} <= set(labels)
    text = [" ".join(s.words) for s in SENTENCES]
    trees = [" ".join(str(s.tree).split()) for s in SENTENCES]
    assert any("(SBAR (WHNP (WP who)) (S (VP" in tree for tree in trees)  # a subject relative clause
    assert any("(SBAR (WHNP (WDT that)) (S (NP" in tree for tree in trees)  # an object relative clause
    assert any("(SBAR (IN that) (S" in tree for tree in trees)  # a sentential complement
    assert any(" gave " in sentence and " to " in sentence for sentence in text)  # a ditransitive verb
    assert any("(CC and) (NP" in tree for tree in trees)
    assert any("(CC and) (VP" in tree for tree in trees)


def test_trees_are_over_the_sentences():
    for sentence in SENTENCES:
        flat = ConstituencyTree.from_nltk(sentence.tree)
        assert flat.words == tuple(sentence.words)
        assert flat.tags == tuple(sentence.tags)
        assert sentence.tree.label() == "S"


def test_agreement():
    attractors = Counter()
    for sentence in SENTENCES:
        for item in sentence.agreement:
            assert sentence.words[item.verb] == item.correct != item.wrong
            attractors[item.n_attractors] += 1
            tag = sentence.tags[item.verb]
            if tag in ("VBZ", "VBP"):
                assert item.number == ("singular" if tag == "VBZ" else "plural")
            if item.correct in ("is", "was", "are", "were"):
                assert item.number == ("singular" if item.correct in ("is", "was") else "plural")
    assert {0, 1, 2} <= set(attractors)


def test_attractors_are_nouns_of_the_other_number_between_subject_and_verb():
    """By hand: count from the tree's own words for the first verb of sentences that begin with their subject."""
    checked = 0
    for sentence in SENTENCES:
        subject, *rest = sentence.tree
        if subject.label() != "NP" or rest[0].label() != "VP" or not sentence.agreement:
            continue
        head = next(i for i, tag in enumerate(sentence.tags) if tag in ("NN", "NNS", "NNP"))
        verb = len(subject.leaves())
        items = [item for item in sentence.agreement if item.verb == verb]
        conjuncts = any(child.label() == "CC" for child in subject)
        if not items or conjuncts:
            continue
        plural = sentence.tags[head] == "NNS"
        others = ("NN", "NNP") if plural else ("NNS",)
        assert items[0].n_attractors == sum(tag in others for tag in sentence.tags[head + 1 : verb])
        assert items[0].number == ("plural" if plural else "singular")
        checked += 1
    assert checked > 500


def test_spelling():
    words = {word for s in generate_corpus(5000, seed=9) for word in s.words}
    assert {"children", "wolves", "cities", "watches", "carries", "swimming", "carried", "running"} <= words
    assert not words & {"childs", "citys", "runing", "goed", "carryed", "visitting", "a a"}
    for sentence in SENTENCES:
        for word, following in zip(sentence.words, sentence.words[1:], strict=False):
            if word in ("a", "an"):
                assert (word == "an") == (following[0] in "aeiou"), sentence.words
