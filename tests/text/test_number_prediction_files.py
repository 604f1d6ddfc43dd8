"""Subjects of verbs, and the items made of them."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from conftest import needs_real_data

from stack_lm.eval import read_agreement
from stack_lm.text.number_prediction import NumberItem, NumberItemCollector, part_of
from stack_lm.text.subjects import find_dependencies

RECIPES = Path(__file__).parents[2] / "recipes"


def split(text):
    words, tags = zip(*(part.rsplit("/", 1) for part in text.split()), strict=True)
    return list(words), list(tags)


# A > marks the head of a subject, * its verb, ! a verb whose subject has no common noun as its head, or is not found.
@pytest.mark.parametrize(
    "text",
    [
        "The/DT >dogs/NNS *bark/VBP",
        "The/DT >keys/NNS to/TO the/DT old/JJ cabinet/NN *are/VBP here/RB",
        "The/DT >ratio/NN of/IN men/NNS to/TO women/NNS *is/VBZ not/RB clear/JJ",
        "The/DT >man/NN who/WP lives/VBZ! in/IN Rome/NNP *has/VBZ a/DT dog/NN",
        "The/DT >man/NN that/IN the/DT >dogs/NNS *fear/VBP *has/VBZ a/DT dog/NN",
        "The/DT >owner/NN ,/, a/DT man/NN of/IN means/NNS ,/, *has/VBZ dogs/NNS",
        "Rome/NNP ,/, the/DT capital/NN of/IN Italy/NNP ,/, has/VBZ! hills/NNS",
        "Ann/NNP Lee/NNP ,/, the/DT head/NN of/IN X/NNP ,/, a/DT firm/NN in/IN Rome/NNP ,/, says/VBZ! so/RB",
        "The/DT ``/`` old/JJ ''/'' >dogs/NNS *bark/VBP",
        "In/IN practice/NN ,/, the/DT >word/NN *is/VBZ rare/JJ",
        "Several/JJ times/NNS ,/, the/DT >guards/NNS *have/VBP fled/VBN",
        "The/DT >dogs/NNS and/CC the/DT cat/NN *sleep/VBP",
        "The/DT >dogs/NNS ,/, cats/NNS and/CC birds/NNS *sleep/VBP",
        "The/DT >houses/NNS built/VBN of/IN stone/NN in/IN the/DT city/NN *are/VBP old/JJ",
        "The/DT >ability/NN to/TO grow/VB crops/NNS *is/VBZ rare/JJ",
        "The/DT state/NN 's/POS >taxes/NNS *are/VBP low/JJ",
        "The/DT >word/NN ``/`` dogs/NNS ''/'' (/( or/CC cats/NNS )/) *is/VBZ rare/JJ",
        "He/PRP says/VBZ! that/IN the/DT >dogs/NNS often/RB *bark/VBP",
        "It/PRP is/VBZ! a/DT city/NN where/WRB the/DT >houses/NNS *are/VBP old/JJ",
        "There/EX are/VBP! dogs/NNS",
        "This/DT is/VBZ! clear/JJ",
        "The/DT >dogs/NNS *bark/VBP and/CC the/DT >cat/NN *sleeps/VBZ",
        "If/IN >dogs/NNS *bark/VBP ,/, >cats/NNS *run/VBP",
        "Books/NNS by/IN men/NNS were/VBD sold/VBN",
    ],
)
def test_the_subject(text):
    words, tags = split(text)
    marked = [word[:1] if word[:1] in ">*" else "" for word in words]
    tags = [tag.removesuffix("!") for tag in tags]
    verbs = [i for i, mark in enumerate(marked) if mark == "*"]
    found = list(find_dependencies([word.lstrip(">*") for word in words], tags))
    assert [dependency.verb for dependency in found] == verbs
    subjects = [i for i, mark in enumerate(marked) if mark == ">"]
    assert sorted(dependency.subject for dependency in found) == subjects
    for dependency in found:
        between = tags[dependency.subject + 1 : dependency.verb]
        assert list(dependency.intervening) == [tag for tag in between if tag in ("NN", "NNS")]


@needs_real_data
@pytest.mark.slow
def test_subjects_in_the_treebank():
    """By the trees of NLTK's sample and its own tags: present-tense verbs with a subject of their number."""
    from nltk.corpus import treebank

    right = wrong = 0
    for tree in treebank.parsed_sents():
        words, tags, subjects = gold_subjects(tree)
        for found in find_dependencies(words, tags):
            if found.verb in subjects and (tags[found.verb], tags[found.subject]) in (("VBZ", "NN"), ("VBP", "NNS")):
                if found.subject in subjects[found.verb]:
                    right += 1
                else:
                    wrong += 1
    assert right > 1100
    assert right / (right + wrong) > 0.97


def gold_subjects(tree):
    """Words, tags, and for each verb in the present tense the nouns of the first base phrase of its subject."""
    words, tags, subjects = [], [], {}

    def number(node):
        for child in node:
            if isinstance(child[0], str):
                child.place = len(words)
                if child.label() != "-NONE-":
                    words.append({"-LRB-": "(", "-RRB-": ")"}.get(child[0], child[0]))
                    tags.append(child.label())
            else:
                number(child)

    def verb_of(phrase):
        for child in phrase:
            if isinstance(child[0], str):
                if child.label() in ("VBZ", "VBP"):
                    return child.place
                if child.label() in ("VBD", "MD", "TO", "VB", "VBG", "VBN"):
                    return None
            elif child.label().startswith("VP"):
                return verb_of(child)
        return None

    def heads(phrase):
        nouns = [c.place for c in phrase if isinstance(c[0], str) and c.label() in ("NN", "NNS", "NNP", "NNPS", "PRP")]
        inner = [c for c in phrase if not isinstance(c[0], str) and c.label().startswith(("NP", "NX"))]
        return nouns or (heads(inner[0]) if inner else [])

    number(tree)
    for clause in tree.subtrees(lambda node: node.label().startswith("S") and not isinstance(node[0], str)):
        subject = [child for child in clause if "-SBJ" in child.label() and child.label().startswith("NP")]
        verbs = [verb_of(child) for child in clause if child.label().startswith("VP")]
        if subject and verbs and verbs[0] is not None:
            found = heads(subject[0])
            if found:
                subjects[verbs[0]] = found
    return words, tags, subjects


def collector(*sentences):
    found = NumberItemCollector()
    for sentence in sentences:
        found.add(*split(sentence))
    return found


KEYS = "The/DT Keys/NNS to/TO the/DT cabinets/NNS of/IN the/DT man/NN are/VBP here/RB"
FORMS = ["A/DT key/NN opens/VBZ a/DT cabinet/NN ./.", "The/DT men/NNS open/VBP it/PRP ./.", "it/PRP is/VBZ so/RB ./."]


def test_items():
    items = list(collector(KEYS, *FORMS).items(vocab_size=5, minimum=1))
    assert items == [
        NumberItem(
            "VBP", ("the", "NNS", "TO", "the", "NNS", "IN", "the", "NN"), "keys", "are", 7, ("NNS", "NN"), 0
        ),
        NumberItem("VBZ", ("a", "NN"), "key", "opens", 1, (), 1),
        NumberItem("VBP", ("the", "NNS"), "men", "open", 1, (), 2),
    ]  # fmt: skip
    assert [(item.attractors, item.homogeneous) for item in items] == [(1, False), (0, True), (0, True)]
    assert items[1].line() == "VBZ\ta NN\n"
    assert [item.verb for item in collector(KEYS, *FORMS).items(minimum=2)] == []


def test_one_verb_of_a_sentence_is_taken():
    both = "Dogs/NNS bark/VBP and/CC a/DT dog/NN barks/VBZ"
    found = collector(*[both] * 40)
    taken = [item.verb for item in found.items(minimum=1)]
    assert len(taken) == 40
    assert 5 < taken.count("bark") < 35
    assert [item.verb for item in found.items(minimum=1)] == taken
    assert [item.verb for item in found.items(minimum=1, seed=1)] != taken


def test_parts_are_of_whole_blocks():
    items = [NumberItem("VBZ", ("a",), "a", "b", 1, (), sentence) for sentence in range(0, 400_000, 250)]
    parts = [part_of(item, {"val": 0.1, "test": 0.3}) for item in items]
    assert all(len(set(parts[i : i + 4])) == 1 for i in range(0, len(parts), 4))
    assert 0.05 < parts.count("val") / len(parts) < 0.16
    assert 0.2 < parts.count("test") / len(parts) < 0.4


@pytest.fixture
def recipe(monkeypatch):
    """The script, with a tagger that looks words up."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import make_number_prediction

    class Lookup:
        def tag(self, words):
            tags = {"the": "DT", "dogs": "NNS", "dog": "NN", "bark": "VBP", "barks": "VBZ", "near": "IN", ".": "."}
            return [(word, tags[word.lower()]) for word in words]

    monkeypatch.setattr(make_number_prediction, "make_tagger", lambda iterations: Lookup())
    yield make_number_prediction
    del sys.modules["make_number_prediction"]


def test_the_recipe(recipe, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The dogs near the dog bark .\nthe dog barks .\nthe dogs bark .\n" * 8000)
    command = [str(text), str(tmp_path / "out"), "--validation", "0.2", "--test", "0.2", "--json"]
    assert recipe.main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sentences"] == 24_000
    files = result["files"]
    whole = [files[f"numpred.{part}"]["items"] for part in ("train", "val", "test")]
    assert sum(whole) == 24_000
    assert files["numpred.test"]["items"] == files["numpred.test.0"]["items"] + files["numpred.test.1"]["items"]
    items = read_agreement(str(tmp_path / "out" / "numpred.test.1"), "linzen-numpred")
    assert len(items) == files["numpred.test.1"]["items"]
    assert (items[0].prefix, items[0].n_attractors) == (("the", "dogs", "near", "the", "dog"), 1)
    assert len((tmp_path / "out" / "items.tsv").read_text().splitlines()) == 24_001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--validation", "0.5", "--test", "0.5"], "must be above 0 and together below 1; got 0.5 and 0.5"),
        (["--limit", "3"], "the part 'train' has no items: the text is too short, or its share too small"),
        (["--limit", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_the_recipe_refuses(recipe, tmp_path, capsys, options, message):
    text = tmp_path / "text.txt"
    text.write_text("the dog barks .\nthe dogs bark .\n")
    with contextlib.suppress(SystemExit):
        assert recipe.main([str(text), str(tmp_path / "out"), "--limit", "2", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
