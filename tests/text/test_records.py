"""One reader for every format, packed or not, and what it refuses."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from stack_lm.core.errors import InputError, fail
from stack_lm.parsing.treebank import read_treebank
from stack_lm.text import open_corpus
from stack_lm.text.formats import read_tagged_conllu
from stack_lm.text.records import Record, read_records

TEXTS = ["Die Käufer sagten: „Schön!“", "", 'a "quote", a comma\tand a tab', "two\nlines", "日本 🙂"]
ROWS = [{"id": str(i), "sentence": text, "label": "x" if i else ""} for i, text in enumerate(TEXTS)]


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": None}


def table(delimiter, rows=ROWS):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(rows=ROWS):
    raw = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), raw)
    return raw.getvalue()


WRITERS = {
    ".txt": lambda: "\n".join(text.replace("\n", " ") for text in TEXTS).encode(),
    ".jsonl": lambda: "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    ".ndjson": lambda: "\r\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode(),
    ".json": lambda: json.dumps(ROWS, indent=1).encode(),
    ".csv": lambda: table(","),
    ".tsv": lambda: table("\t"),
    ".parquet": parquet,
}
TREES = b"""( (S (NP-SBJ (-NONE- *)) (VP (VB Go)
       (ADVP (RB away))) (. !)) )
*x* a remark (of the treebank
( (S (-NONE- *)) )
(X the (X (X old) dog)) (X barks)
"""


def write(path, raw):
    """Write a file, packed as its ending says."""
    if path.suffix == ".zst":
        with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(raw)
    else:
        path.write_bytes(PACKERS.get(path.suffix, bytes)(raw))
    return path


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("ending", WRITERS)
def test_every_format(tmp_path, ending, packed):
    path = write(tmp_path / f"a{ending}{packed}", WRITERS[ending]())
    records = list(read_records(path))
    texts = [text.replace("\n", " ") for text in TEXTS] if ending == ".txt" else TEXTS
    assert [record.text for record in records] == texts
    assert [record.number for record in records] == [1, 2, 3, 4, 5]
    assert [record.fields for record in records] == ([{}] * 5 if ending == ".txt" else ROWS)
    unit = {".txt": "line", ".jsonl": "line", ".ndjson": "line", ".json": "item"}.get(ending, "row")
    assert records[2].where == f"{path}, {unit} 3"
    assert [record.number for record in read_records(path, keep_empty=False)] == [1, 3, 4, 5]


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("ending", [".mrg", ".tree", ".ptb"])
def test_the_words_of_trees(tmp_path, ending, packed):
    path = write(tmp_path / f"a{ending}{packed}", TREES)
    records = list(read_records(path))
    assert [record.text for record in records] == ["Go away !", "", "the old dog", "barks"]
    assert [" ".join(tree.words) for tree in read_treebank(str(path))] == ["Go away !", "the old dog", "barks"]
    assert [(record.number, record.unit, record.fields) for record in records][3] == (4, "tree", {})


def test_trees_that_cannot_be_read_are_left_out(tmp_path):
    """The readers of words and of trees leave out the same."""
    path = tmp_path / "a.mrg"
    path.write_text("(S (NN a)\n (VB b))\n(S (NN c)\n(S (VP) (NN d))\n( (S (NN e)))\n")
    of_words, of_trees = [], []
    records = list(read_records(path, on_error=of_words.append))
    assert [(record.number, record.text) for record in records] == [(1, "a b"), (4, "e")]
    assert [" ".join(tree.words) for tree in read_treebank(str(path), on_error=of_trees.append)] == ["a b", "e"]
    expected = [
        f"{path}: the tree that starts on line 3 lacks 1 closing bracket",
        f"{path}, line 4: empty brackets (VP)",
    ]
    assert list(map(str, of_words)) == list(map(str, of_trees)) == expected


CONLLU = """# sent_id = 1
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2-3\tdo\t_\t_\t_\t_\t_\t_\t_\t_
2\tde\tde\tADP\t_\t_\t4\tcase\t_\t_
3\to\to\tDET\t_\t_\t4\tdet\t_\t_
4\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_

# sent_id = 2
1\tSim\tsim\tINTJ\t_\t_\t0\troot\t_\t_
1.1\tvou\tir\tVERB\t_\t_\t_\t_\t_\t_
"""


def test_the_words_of_conllu(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    records = list(read_records(tmp_path / "a.conllu"))
    assert [(record.number, record.unit, record.text) for record in records] == [
        (1, "sentence", "Vamos do mar"),
        (2, "sentence", "Sim"),
    ]
    (tmp_path / "a.conllu").write_text(CONLLU.replace("4\tmar", "mar"))
    with pytest.raises(InputError, match=r"a.conllu, line 6: a word of CoNLL-U has 10 columns .* got 'mar mar NOUN"):
        list(read_records(tmp_path / "a.conllu"))
    errors = []
    (rest,) = read_records(tmp_path / "a.conllu", on_error=errors.append)
    assert (rest.number, rest.text, len(errors)) == (2, "Sim", 1)


def test_the_tags_of_conllu(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    found = list(read_tagged_conllu(tmp_path / "a.conllu", fail))
    assert [each[:3] for each in found] == [
        (1, ["Vamos", "do", "mar"], ["VERB", "ADP+DET", "NOUN"]), (2, ["Sim"], ["INTJ"]),
    ]  # fmt: skip
    assert found[0].parts == [(0, "0", "root"), (1, "4", "case"), (1, "4", "det"), (2, "1", "obl")]
    (tmp_path / "a.conllu").write_text(CONLLU.replace("NOUN", "_"))
    assert [each.tags for each in read_tagged_conllu(tmp_path / "a.conllu", fail)] == [None, ["INTJ"]]


def conllu(*lines):
    """Lines with the ten columns of words, from an id and a form, and others as they are."""
    cells = (line.split(" ", 1) for line in lines)
    words = ("\t".join([*word, *"________"]) if word[1:] and word[0] != "#" else " ".join(word) for word in cells)
    return "".join(word + "\n" for word in words)


@pytest.mark.parametrize(
    ("lines", "sentences"),
    [
        (("1 a", "2 b", "# sent_id = 2", "1 c"), ["a b", "c"]),
        (("1 a", "2 b", "1 c", "", "1 d"), ["a b", "c", "d"]),
        (("1-2 du", "1 de", "2 le", "1-2 au", "1 à", "2 le"), ["du", "au"]),
        (("1 a", "1.1 x", "0.1 y", "1 b"), ["a", "b"]),
    ],
)
def test_sentences_of_conllu_begin_without_empty_lines(tmp_path, lines, sentences):
    (tmp_path / "a.conllu").write_text(conllu(*lines))
    with pytest.warns(UserWarning, match=r"a.conllu, line [34]: a sentence begins without an empty line"):
        assert [record.text for record in read_records(tmp_path / "a.conllu")] == sentences


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("1 a", "2 b", "2 c", "3 d"), "line 3: the numbers of a sentence's words count up from 1, and 3 comes here"),
        (("1 a", "3 b"), "line 2: the numbers .* and 2 comes here"),
        (("2 a",), "line 1: the numbers .* and 1 comes here"),
        (("1-2 du", "1 de", "2-3 x"), "line 3: the numbers .* and 2 comes here"),
        (("2-1 du",), "line 1: the numbers"),
        (("1-2 du", "1 de"), "line 1: the sentence ends inside of 'du'"),
        (("1 ",), "line 1: the word is empty"),
        (("1 _", "2 _"), "line 1: the sentence has no words"),
    ],
)
def test_bad_sentences_of_conllu(tmp_path, lines, message):
    """The sentence is left out, and the next keeps its number."""
    (tmp_path / "a.conllu").write_text(conllu(*lines, "", "1 e"))
    with pytest.raises(InputError, match=f"a.conllu, {message}"):
        list(read_records(tmp_path / "a.conllu"))
    errors = []
    (rest,) = read_records(tmp_path / "a.conllu", on_error=errors.append)
    assert (rest.number, rest.text, len(errors)) == (2, "e", 1)


SPACES = ["\u00a0", "\u2009", "\u202f", "\u3000", "\u0085", "\u2028"]


@pytest.mark.parametrize("space", SPACES)
def test_words_with_spaces(tmp_path, space):
    """Only ASCII's white space separates the words of trees, as in EVALB; in text all of it does."""
    word = f"2{space}1/2"
    trees = {
        "a.mrg": f"(S (NP (CD {word}) (NNS years)))",
        "a.jsonl": json.dumps({"words": [word, "years"], "distances": [1, 1]}),
        "b.jsonl": json.dumps({"binary_parse": f"( {word} years )"}),
        "c.jsonl": json.dumps({"brackets": f"(S (CD {word}) (NNS years))"}),
    }
    for name, text in trees.items():
        (tmp_path / name).write_text(text + "\n")
        (tree,) = read_treebank(str(tmp_path / name))
        assert tree.words == (word, "years")
    (record,) = read_records(tmp_path / "a.mrg")
    assert record.words == (word, "years")
    for name in ("a.mrg", "a.conllu"):
        (tmp_path / "a.conllu").write_text(conllu(f"1 {word}", "2 years"))
        (sentence,) = open_corpus(str(tmp_path / name))
        assert sentence.words == [word if name == "a.mrg" else "2\u00a01/2", "years"]
    (tmp_path / "a.txt").write_text(f"{word} years\n")
    (record,) = read_records(tmp_path / "a.txt")
    assert record.words == ("2", "1/2", "years")


@pytest.mark.parametrize("ending", [".txt", ".csv", ".jsonl", ".conllu", ".mrg"])
def test_marks_where_files_were_joined(tmp_path, ending):
    sentences = ["the dog barks .", "the cat sleeps ."]
    whole = {
        ".txt": sentences,
        ".csv": ["text", *sentences],
        ".jsonl": [json.dumps({"text": text}) for text in sentences],
        ".conllu": ["1\tthe" + "\t_" * 8, "2\tdog" + "\t_" * 8, ""] * 2,
        ".mrg": ["(S (DT the) (NN dog))"] * 2,
    }[ending]
    path = tmp_path / f"a{ending}"
    path.write_text("\n".join(whole), encoding="utf-8-sig")
    plain = [record.text for record in read_records(path)]
    path.write_text("".join(f"\ufeff{line}\n" for line in whole), encoding="utf-8-sig")
    assert [record.text for record in read_records(path)] == plain
    if ending == ".txt":
        path.write_text("\ufeff".join(whole))
        assert [record.text for record in read_records(path)] == [" ".join(sentences)]


@pytest.mark.parametrize("first", ["( (S", "(S (NP (DT the) (NN dog))", "((S (NP (DT the)", "(X (X the) (X dog))"])
def test_trees_that_are_read_as_plain_text_are_reported(tmp_path, first):
    (tmp_path / "a.txt").write_text(f"\n{first}\n (VP (VBZ barks)))\n")
    with pytest.warns(UserWarning, match=r"a.txt looks like bracketed trees, .* ends in .mrg"):
        list(read_records(tmp_path / "a.txt"))
    assert len(list(read_records(tmp_path / "a.txt", format_name="text"))) == 3  # what is asked for needs no warning


def test_brackets_in_a_text_are_no_trees(tmp_path):
    for first in ("(Applause", "( ( ) )", "(the dog ( barks ) )", "(A dog (or cat) barks)", "( a ( b"):
        (tmp_path / "a.txt").write_text(f"{first}\n")
        assert next(read_records(tmp_path / "a.txt")).text == first


def test_numbers_types_and_nulls(tmp_path):
    rows = [{"n": 1, "body": "a b", "tags": ["x"]}, {"n": None, "body": None, "tags": None}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.parquet").write_bytes(parquet(rows))
    for name in ("a.jsonl", "a.parquet"):
        first, second = read_records(tmp_path / name)  # the only column of text
        assert (first.text, first.fields) == ("a b", rows[0])
        assert (second.text, second.fields) == ("", rows[1])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_marks(tmp_path, end, mark):
    (tmp_path / "a.txt").write_bytes((mark + end.join(["one two", "", "thrée", ""])).encode())
    assert [(r.number, r.text) for r in read_records(tmp_path / "a.txt")] == [(1, "one two"), (2, ""), (3, "thrée")]
    (tmp_path / "a.csv").write_bytes((mark + end.join(["text,id", '"one, two",1', "", "thrée,2", ""])).encode())
    assert [(r.number, r.text) for r in read_records(tmp_path / "a.csv")] == [(1, "one, two"), (2, ""), (3, "thrée")]


def test_directories_and_patterns(tmp_path):
    for name in ("b/2.csv", "b/1.csv.gz", "b/.hidden.csv", ".git/x.csv", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, table(",", [{"text": name}]))
    assert [record.text for record in read_records(tmp_path)] == ["b/1.csv.gz", "b/2.csv"]
    assert [record.text for record in read_records(f"{tmp_path}/**/*.csv")] == ["b/2.csv"]
    assert next(read_records(f"{tmp_path}/b/?.csv")).source == str(tmp_path / "b" / "2.csv")
    (tmp_path / "[1].txt").write_text("a name, not a pattern")
    assert next(read_records(tmp_path / "[1].txt")).text == "a name, not a pattern"
    with pytest.raises(
        InputError, match=r"has files of several formats \(csv, text\); name those to read, as in '.*/\*\*/\*.csv'"
    ):
        list(read_records(tmp_path))


def test_hub(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    (tmp_path / "train.parquet").write_bytes(parquet())
    records = list(read_records(f"hub:{tmp_path}", column="sentence"))
    assert [record.text for record in records] == TEXTS
    assert records[3].where == f"hub:{tmp_path}, row 4"
    with pytest.raises(InputError, match=r"has no column 'Sentences' \(did you mean 'sentence'\?\)"):
        list(read_records(f"hf:{tmp_path}", column="Sentences"))


def give(monkeypatch, raw):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))


def test_standard_input(monkeypatch):
    for raw, column, text in (
        (b"one two\n", None, "one two"),
        (b'\n{"text": "one two"}\n', None, "one two"),
        (b'{"a": "x", "b": "one"}\n', "b", "one"),
        (b"id\tbody\n1\tone, two\n", "body", "one, two"),
        (b'"id","text"\n1,one\n', "text", "one"),
        (b"one two\n", "text", "one two"),
    ):
        give(monkeypatch, raw)
        assert [r.text for r in read_records("-", column=column) if r.text] == [text]
    give(monkeypatch, b"the dog\nthe cat\n")
    with pytest.raises(InputError, match="standard input has no column 'body'; its columns are the dog"):
        list(read_records("-", column="body"))


HOSTILE = {
    "text that is JSON": (
        "a.txt", b'\n{"text": "a"}\n',
        "a.txt holds JSON objects; rename it to end in .jsonl",
    ),
    "JSON lines in .json": (
        "a.json", b'{"text": "a"}\n{"text": "b"}\n',
        "a.json has a JSON object on each line; rename",
    ),
    "a list of others": ("a.json", b'[{"text": "a"}, 3]', "a.json, item 2: a JSON object is needed; got '3'"),
    "lines that are no JSON": ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl, line 2: not JSON (Expecting value)"),
    "a number": (
        "a.jsonl", b'{"text": "a"}\n{"text": 12}\n',
        "a.jsonl, line 2: the column 'text' must be text; got '12'",
    ),
    "columns of text": (
        "a.csv", b"title,body\na,b\n",
        "a.csv has several columns of text: name one",
    ),
    "a short row": ("a.csv", b"text,id\na,1\n\nb\n", "a.csv, row 3 (line 4): 1 columns, but the header has 2"),
    "an open quotation mark": (
        "a.csv", b'text,id\na,1\n"b,1\nc,1\n',
        "a.csv, row 2 (line 3): a quotation mark opens a field that none closes",
    ),
    "packed": ("a.txt", gzip.compress(b"a\n"), "a.txt is not UTF-8 text: it is compressed by gzip; rename it to .gz"),
    "UTF-16": ("a.txt", "the dog".encode("utf-16"), "a.txt is not UTF-8 text: it looks like UTF-16; save it as UTF-8"),
    "Latin-1": ("a.txt", b"a\n\ncaf\xe9\n", "a.txt, line 3: not UTF-8 text (invalid continuation byte)"),
    "a tree that goes on": (
        "a.mrg", b"(S (N a))\n\n(S (N b)\n", "a.mrg: the tree that starts on line 3 lacks 1 closing bracket"
    ),
    "nothing": ("a.jsonl", b"", "a.jsonl is empty"),
}  # fmt: skip


@pytest.mark.parametrize("fault", HOSTILE)
def test_hostile_files(tmp_path, fault):
    name, raw, message = HOSTILE[fault]
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(InputError) as error:
        list(read_records(path))
    assert message in str(error.value)
    assert str(error.value).count(str(path)) == 1
    assert "\n" not in str(error.value)


def test_columns_that_are_not_there(tmp_path):
    (tmp_path / "a.csv").write_text("Text,label\na,b\n")
    with pytest.raises(
        InputError, match="a.csv has no column 'txt' \\(did you mean 'Text'\\?\\); its columns are Text, label"
    ):
        list(read_records(tmp_path / "a.csv", column="txt"))
    (tmp_path / "a.txt").write_text("a b\n")
    assert next(read_records(tmp_path / "a.txt", column="text")) == Record(1, "a b", {}, str(tmp_path / "a.txt"))
    with pytest.raises(InputError, match="a.txt is plain text, which has no columns; got the column 'body'"):
        list(read_records(tmp_path / "a.txt", column="body"))


def test_sources_that_are_not_there(tmp_path):
    for source, message in (
        (tmp_path / "none.csv", "none.csv does not exist"),
        (f"{tmp_path}/*.csv", "no file matches"),
        ("owner/name", "owner/name does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            list(read_records(source))


def test_errors_are_skipped(tmp_path):
    """One line or row, or one file of several, and never the rest."""

    def read(source):
        errors = []
        texts = [record.text for record in read_records(source, on_error=errors.append)]
        return texts, [str(error).replace(f"{tmp_path}/", "") for error in errors]

    (tmp_path / "a.txt").write_bytes(b"one\ncaf\xe9\n\nthree\n")
    texts, errors = read(tmp_path / "a.txt")
    assert (texts, len(errors)) == (["one", "", "three"], 1)
    assert errors[0].startswith("a.txt, line 2: not UTF-8 text")
    (tmp_path / "a.csv").write_text("text,id\none,1\ntwo\nthree,3\n")
    assert read(tmp_path / "a.csv") == (["one", "three"], ["a.csv, row 2 (line 3): 1 columns, but the header has 2"])
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").write_text('{"text": "one"}\n[]\n{"text": 2}\n{"text": "three"}\n')
    (tmp_path / "d" / "b.jsonl").write_text("")
    (tmp_path / "d" / "c.jsonl").write_text('{"text": "four"}\n')
    texts, errors = read(tmp_path / "d")
    assert (texts, len(errors)) == (["one", "three", "four"], 3)
    assert errors[2] == "d/b.jsonl is empty"
    with pytest.raises(InputError, match="b.jsonl is empty"):
        read(tmp_path / "d" / "b.jsonl")


def test_a_dataset_that_was_saved_to_disk(tmp_path):
    """As `Dataset.save_to_disk` writes it, which the hub's own loader refuses."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    from stack_lm.text import open_corpus

    datasets.Dataset.from_list([{"text": "the dog barks ."}, {"text": "it ran ."}]).save_to_disk(str(tmp_path / "d"))
    for _ in range(2):
        corpus = open_corpus(f"hub:{tmp_path / 'd'}")
        assert [sentence.words for sentence in corpus] == [["the", "dog", "barks", "."], ["it", "ran", "."]]
    with pytest.raises(InputError, match=f"is a dataset that `save_to_disk` wrote: name it as hub:{tmp_path / 'd'}"):
        open_corpus(str(tmp_path / "d"))


@pytest.mark.parametrize("ending", ["", "\r\n"])
def test_quotation_marks_in_fields_with_tabs_are_text(tmp_path, ending):
    """Unless they are around the field, as in .csv."""
    rows = ["word\tzone", '"Ah\t1', 'well,"\t2', 'a "b" c\t3', '"in ""quotes"""\t4', '"two\nlines"\t5']
    (tmp_path / "a.tsv").write_text("\n".join(rows) + ending, newline="")
    records = list(read_records(tmp_path / "a.tsv", column="word"))
    assert [record.text for record in records] == ['"Ah', 'well,"', 'a "b" c', 'in "quotes"', "two\nlines"]
    assert [record.fields["zone"] for record in records] == list("12345")
    cells = [row.split("\t") for row in rows]
    (tmp_path / "b.tsv").write_text("\n".join(f"{zone}\t{word}" for word, zone in cells) + ending, newline="")
    assert [record.text for record in read_records(tmp_path / "b.tsv", column="word")] == [r.text for r in records]
