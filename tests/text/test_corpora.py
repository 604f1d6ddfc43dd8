"""Opening corpora by name."""

import gzip
import json
import sys
import textwrap
from io import BytesIO
from types import SimpleNamespace

import pytest
from conftest import needs_real_data

from stack_lm.core.errors import InputError
from stack_lm.text import Corpus, Sentence, hold_out, open_corpus, register_source
from stack_lm.text.generated import generate_corpus
from stack_lm.text.plain import Segmenter, has_several_sentences, read_lines
from stack_lm.text.tokenization import word_splitter


def article(number):
    """A text as Wikipedia's: headings, abbreviations, and enough variety to learn the abbreviations from."""
    words = [list(sentence.words) for sentence in generate_corpus(6, seed=number)]
    filler = " ".join(" ".join([w[0].capitalize(), *w[1:-1]]) + "." for w in words)
    return (
        f"Title {number}\n\nDr. Smith met Mr. Jones in 19{number:02}. {filler} It was late in {number}!\n\n"
        f"See also\n\nThe end of {number}."
    )


@pytest.fixture
def hub_directory(tmp_path):
    """A dataset as the hub has it: three Parquet files and a README with its configuration."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    for shard in range(3):
        rows = [{"title": f"t{shard}{i}", "text": article(4 * shard + i)} for i in range(4)]
        datasets.Dataset.from_list(rows).to_parquet(str(tmp_path / f"train-{shard}.parquet"))
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train-*.parquet\n---\n"
    )
    return f"hf:{tmp_path}"


def test_generated():
    corpus = open_corpus("generated:7:2")
    assert len(list(corpus)) == 7
    assert list(corpus) == list(corpus)
    assert list(corpus) != list(open_corpus("generated:7:3"))
    assert next(iter(open_corpus())).tags is not None


def test_text_file_and_directory(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_text("one two\n\nthree\n", encoding="utf-8")
    (tmp_path / "b" / "c.txt").write_text("\ufefffour\n", encoding="utf-8")
    (tmp_path / "ignored.md").write_text("x")
    assert [s.words for s in open_corpus(str(tmp_path / "a.txt"))] == [["one", "two"], ["three"]]
    assert [s.words for s in open_corpus(str(tmp_path))] == [["one", "two"], ["three"], ["four"]]


def test_compressed_files_are_unpacked_as_they_are_read(tmp_path):
    path = tmp_path / "long.txt.gz"
    packed = gzip.compress(b"".join(b"%d\n" % i for i in range(200_000)))
    path.write_bytes(packed[: len(packed) // 2])
    lines = read_lines(path)
    assert next(lines) == (1, "0")  # before the end of the file, which is not there
    with pytest.raises(InputError, match=r"cannot read .*long.txt.gz: .*ended before"):
        list(lines)


@pytest.mark.usefixtures("registries")
def test_a_new_source_is_one_function():
    @register_source("haiku[:N]")
    def open_haiku(request):
        return Corpus(request.source, lambda: [Sentence(["old", "pond"])] * int(request.argument or 1))

    assert list(open_corpus("haiku:2")) == [Sentence(["old", "pond"])] * 2
    with pytest.raises(InputError, match=r"brwon:1 does not exist; a corpus must be one of: .*nltk:NAME.*haiku\[:N\]"):
        open_corpus("brwon:1")
    with pytest.raises(ValueError, match="the corpus name 'haiku' is taken"):
        register_source("haiku")(open_haiku)
    with pytest.raises(ValueError, match="must start with its name; got ':N'"):
        register_source(":N")


def test_standard_input_can_be_iterated_twice(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(b"a b\nc\n")))
    corpus = open_corpus("-")
    assert list(corpus) == list(corpus) == [Sentence(["a", "b"]), Sentence(["c"])]


def test_articles_are_split_into_sentences_and_words():
    segment = Segmenter("articles", map(article, range(40)))
    sentences = [" ".join(words) for words in segment(article(7))]
    assert len(sentences) == 9
    # Headings are left out, and abbreviations do not end sentences.
    assert sentences[0] == "Dr. Smith met Mr. Jones in 1907 ."
    assert sentences[-2:] == ["It was late in 7 !", "The end of 7 ."]


def test_raw_text_loses_nothing():
    """Headings, lines that end in an emoji or a colon, and other scripts."""
    for text in (article(7), "i love 🐱 🐱\nthe list:\n- milk\n- eggs", "a\n\nb"):
        segment = Segmenter("raw", map(article, range(40)))
        kept = "".join("".join(words) for words in segment(text))
        assert kept == "".join(text.split())


def test_raw_text_has_the_words_of_a_tokenizer():
    """So that none is unknown to a model when it is in the vocabulary, such as a quotation mark."""
    text = '"We know the name," he said. He saw A&B Inc. at http://x.org. The dogs\' owner lives in the U.S.'
    sentences = Segmenter("raw", [text] * 5, split_words=False)(text)
    split = [[word for word, _ in word_splitter().pre_tokenize_str(" ".join(words))] for words in sentences]
    assert list(Segmenter("raw", [text] * 5)(text)) == split
    assert split[0][:3] == ['"', "We", "know"]


@pytest.mark.parametrize("width", [45, 60, 72, 79])
def test_lines_that_were_wrapped_by_hand_are_joined(tmp_path, width):
    paragraphs = [" ".join(" ".join(sentence.words) for sentence in generate_corpus(12, seed=i)) for i in range(6)]
    wrapped = "\n\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs)
    (tmp_path / "text.txt").write_text(wrapped + "\n")
    (tmp_path / "whole.txt").write_text("\n\n".join(paragraphs) + "\n")
    found, expected = (
        [sentence.words for sentence in open_corpus(str(tmp_path / f"{name}.txt"), segmentation="raw")]
        for name in ("text", "whole")
    )
    assert found == expected
    assert len(found) > 6
    assert sum(map(len, found)) == len(" ".join(paragraphs).split())


def test_wrapping_is_one_decision_for_a_file(tmp_path):
    """A paragraph with a short line is joined too, and verse is not."""
    paragraphs = [textwrap.wrap(" ".join(" ".join(s.words) for s in generate_corpus(9, seed=i)), 72) for i in range(5)]
    early = paragraphs[0][0].rpartition(" ")
    ragged = [early[0][:55].rpartition(" ")[0], early[0][:55].rpartition(" ")[2] + early[0][55:] + " " + early[2]]
    paragraphs.append([*ragged, "and", *paragraphs[0][1:]])
    verse = ["Twinkle , twinkle , little bat !", "How I wonder what you 're at !", "Up above the world you fly ."]
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in [*paragraphs, verse]))
    (tmp_path / "whole.txt").write_text("\n\n".join([*map(" ".join, paragraphs), *verse]))
    found, expected = (
        [sentence.words for sentence in open_corpus(str(tmp_path / f"{name}.txt"), segmentation="raw")]
        for name in ("text", "whole")
    )
    assert found == expected


def test_lines_that_were_not_wrapped_stay_apart():
    segment = Segmenter("raw", map(article, range(40)))
    poem = "Short lines\nof a poem\nwithout ends"
    listed = (
        "The first of a long list of many entries here\nMilk\nThe third of a long list of entries, with a part\nEggs"
    )
    for text in (poem, listed, "犬が走る\n猫が犬を見る"):
        assert list(segment(text)) == [next(iter(segment(line))) for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "犬が走る。猫が犬を見る\uff01「王は女王を見る。」と言う。",
            ["犬が走る 。", "猫が犬を見る \uff01", "「王は女王を見る 。 」", "と言う 。"],
        ),
        ("हिन्दी एक भाषा है। राम घर गया।", ["हिन्दी एक भाषा है ।", "राम घर गया ।"]),
        ("هل ذهب الولد؟ نعم ذهب.", ["هل ذهب الولد ؟", "نعم ذهب ."]),
        ("הכלב רואה את החתול. המלך רץ.", ["הכלב רואה את החתול .", "המלך רץ ."]),
    ],
)
def test_sentences_of_other_scripts(text, expected):
    for mode in ("raw", "articles"):
        assert [" ".join(words) for words in Segmenter(mode, [text] * 5)(text)] == expected
    as_it_stands = Segmenter("raw", [text] * 5, split_words=False)(text)
    assert "".join("".join(words) for words in as_it_stands) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("The dog barks. The cat sleeps.", True),
        ("犬が走る。猫が寝る。", True),
        ("「犬が走る。」と言った", False),
        ("犬が走る。」", False),
        ("the dog barks . the cat sleeps .", False),
        ("Mr. Smith of the U.S. Army", False),
    ],
)
def test_texts_of_several_sentences(text, several):
    assert has_several_sentences(text) == several


def test_paragraphs_of_wikitext():
    segment = Segmenter("paragraphs", ["He left . She stayed ."] * 5)
    assert list(segment(" = A heading = \n He left . She stayed . ")) == [["He", "left", "."], ["She", "stayed", "."]]


def test_hub_dataset(hub_directory):
    corpus = open_corpus(hub_directory, segmentation="raw")
    sentences = list(corpus)
    assert len(sentences) > 3 * 4 * 5
    assert list(corpus) == sentences
    assert next(iter(open_corpus(hub_directory, segmentation="lines", column="title"))).words == ["t00"]


def test_a_stream_continues_from_any_block(hub_directory):
    stream = open_corpus(hub_directory, segmentation="raw").stream
    blocks = list(stream.blocks(None, 1_000))
    texts = [text for block in blocks for text in block.texts]
    assert len(blocks) > 3
    assert all(sum(map(len, block.texts[:-1])) < 1_000 <= sum(map(len, block.texts)) for block in blocks[:-1])
    for i, block in enumerate(blocks):
        following = [text for later in stream.blocks(block.end, 1_000) for text in later.texts]
        assert following == [text for later in blocks[i + 1 :] for text in later.texts]
    segmented = [words for text in texts for words in stream.segmenter(text)]
    assert (
        segmented
        == [s.words for s in stream.sentences()]
        == [s.words for s in open_corpus(hub_directory, segmentation="raw")]
    )


def test_parts_of_a_stream_continue_from_any_block(hub_directory, tmp_path):
    """Every second file, also from the end; held-out documents stay out."""
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"a {number}{i}\n\n" for i in range(9)))
    for source in (hub_directory, str(tmp_path / "*.txt")):
        stream, _ = open_corpus(source, segmentation="raw").stream.hold_out(0.3)
        assert stream.n_files == 3
        parts = [[*stream.part(number, 2).blocks(None, 9)] for number in range(2)]
        texts = sorted(text for part in parts for block in part for text in block.texts)
        assert texts == sorted(text for block in stream.blocks(None, 9) for text in block.texts)
        assert min(map(len, parts)) > 1
        for number, part in enumerate(parts):
            for i, block in enumerate(part):
                later = stream.part(number, 2).blocks(json.loads(json.dumps(block.end)), 9)
                assert [each.texts for each in later] == [each.texts for each in part[i + 1 :]]


def test_documents_are_held_out_of_a_stream(hub_directory):
    stream = open_corpus(hub_directory, segmentation="articles").stream
    train, held = stream.hold_out(0.3)
    kept, left_out = ({" ".join(s.words) for s in part.sentences()} for part in (train, held))
    whole = {" ".join(s.words) for s in stream.sentences()}
    assert kept | left_out == whole
    assert not kept & left_out
    assert 0 < len(left_out) < len(kept)


def test_text_files_as_a_stream(tmp_path):
    (tmp_path / "a.txt").write_text("a b\nc\n\nd\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(2_500))))
    stream = open_corpus(str(tmp_path)).stream
    assert len(list(stream.sentences())) == 2_503
    assert [len(block.texts[0].split("\n")) for block in stream.blocks(None, 1)] == [2, 1, 1_000, 1_000, 500]
    blocks = list(stream.blocks(None, 1))
    for i, block in enumerate(blocks):
        assert [later.texts for later in stream.blocks(block.end, 1)] == [later.texts for later in blocks[i + 1 :]]


def test_hold_out():
    sentences = [Sentence([str(i)]) for i in range(100)]
    train, held = hold_out(sentences, 0.1, seed=1)
    assert (len(train), len(held)) == (90, 10)
    assert sorted([*train, *held], key=lambda s: int(s.words[0])) == sentences
    assert hold_out(sentences, 10, seed=1) == (train, held)
    assert hold_out(sentences, 10, seed=2)[1] != held


@needs_real_data
@pytest.mark.parametrize(
    ("name", "count"),
    [pytest.param("brown", 57340, marks=pytest.mark.slow), ("treebank", 3914), ("conll2000", 10948)],
)
def test_nltk_corpora(name, count):
    sentences = list(open_corpus(f"nltk:{name}"))
    assert len(sentences) == count
    assert all(len(s.words) == len(s.tags) and "-NONE-" not in s.tags for s in sentences)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda d: str(d / "missing.txt"), "missing.txt does not exist; a corpus must be one of: .*wikitext"),
        (lambda d: "", "the name of the corpus is empty"),
        (lambda d: "generated:many", "generated.*with whole numbers; got 'generated:many'"),
        (lambda d: "nltk:nonesuch", "NLTK has no corpus 'nonesuch'"),
        (lambda d: "hf:/no/such/directory", "cannot open the dataset '/no/such/directory'"),
    ],
)
def test_bad_sources(tmp_path, source, message):
    with pytest.raises(InputError, match=message):
        list(open_corpus(source(tmp_path)))


def test_a_missing_nltk_corpus_says_how_to_get_it(monkeypatch):
    import nltk.corpus

    class Missing:
        fileids = None

        def ensure_loaded(self):
            raise LookupError("no such resource")

    monkeypatch.setattr(nltk.corpus, "brown", Missing(), raising=False)
    with pytest.raises(InputError, match="run `python -m nltk.downloader brown`, or set NLTK_DATA"):
        open_corpus("nltk:brown")
