"""Input that is wrong, odd or absurd: each ends in one line that names the fault, or in the right result."""

import errno
import json
import os
import sys
from types import SimpleNamespace

import pytest
from cli.cases import fails, save_model, write
from conftest import run, run_json

from stack_lm import train_word_tokenizer
from stack_lm.core.errors import InputError
from stack_lm.hub import locating
from stack_lm.parsing.export import write_trees
from stack_lm.text import Sentence

SENTENCE = "the old dog sleeps ."


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained model that knows nine words."""
    return save_model(tmp_path_factory.mktemp("models") / "model")


# --- texts are shown as they are


def test_brackets_and_colons_are_no_markup(capsys, model, tmp_path):
    words = "the [sic] dog [red] is [/] :3 :smile: [bold]"
    status, out, err = run(capsys, "parse", model, words)
    assert status == 0
    assert err.endswith("is it a model of this language?\n")
    for word in "[ sic ] red / :3 :smile : bold".split():  # brackets are split off
        assert f"│ {word} " in out
    data = write(tmp_path / "a:smile:[b].jsonl", '{"good": "a dog .", "bad": "a cat .", "[kind]": "[red]:smile:"}\n')
    status, out, err = run(capsys, "minimal-pairs", model, "--data", data, "--format", "pairs", "--by", "[kind]")
    assert (status, "[kind]: [red]:smile:" in out, "a:smile:[b].jsonl" in out) == (0, True, True)


def test_messages_have_no_control_characters_and_an_end(capsys, model):
    assert "\\x1b[31m" in fails(capsys, "parse", model, "a", "--decoder", "\x1b[31m\nx")
    assert "..." in fails(capsys, "parse", model, "a", "--decoder", "x" * 10_000)
    assert "got 'frobnicate'" in fails(capsys, "frobnicate")
    assert "at most 15 digits" in fails(capsys, "parse", model, "a", "--batch-tokens", "9" * 5000)


# --- files that are written


def test_no_output_is_also_an_input(capsys, model, treebank, tmp_path):
    text, pairs = write(tmp_path / "in.txt", SENTENCE), write(tmp_path / "d.jsonl", '{"good": "a", "bad": "the"}\n')
    trees = write(tmp_path / "p.mrg", treebank.read_text())
    (tmp_path / "other.tsv").symlink_to(pairs)
    os.link(trees, tmp_path / "linked.txt")
    f1 = ("parse-f1", trees, "--data", treebank, "--convention", "prpn")
    strengths = ("strengths", model, "--data", trees)
    commands = [
        ("parse", model, "--data", text, "--output", text),
        ("parse", model, SENTENCE, "--output", model / "." / "tokenizer.json.txt"),
        ("minimal-pairs", model, "--data", pairs, "--format", "pairs", "--items", tmp_path / "other.tsv"),
        ("agreement", model, "--data", text, "--format", "linzen", "--items", text),
        (*f1, "--output", trees),
        (*f1, "--items", tmp_path / "linked.txt"),
        (*strengths, "--items", tmp_path / "linked.txt"),
        ("inspect", model, "--data", tmp_path, "--sentence", "1", "--output", tmp_path / "page.htm"),
    ]
    (model / "tokenizer.json.txt").write_text("")
    before = {path: path.read_bytes() for path in (text, pairs, trees)}
    for command in commands[:-1]:
        assert "would overwrite a file that the command reads" in fails(capsys, *command), command
    assert before == {path: path.read_bytes() for path in before}
    (model / "tokenizer.json.txt").unlink()
    # A page in the directory of the data is none of it.
    (tmp_path / "page.htm").write_text("an earlier page")
    assert run(capsys, *commands[-1])[0] == 0
    assert "--items and --output must be different" in fails(
        capsys, *f1, "--output", tmp_path / "x.txt", "--items", tmp_path / "." / "x.txt"
    )


def test_an_ending_that_promises_something_else(capsys, model, treebank, tmp_path):
    f1 = ("parse-f1", model, "--data", treebank, "--convention", "prpn")
    trees = "must end in one of .mrg, .tree, .ptb, .txt, no ending, .jsonl, .tex, .svg, .html, .htm; got"
    for command, message in [
        (("parse", model, "the dog", "--output", tmp_path / "t.png"), f"--output {trees}"),
        ((*f1, "--output", tmp_path / "t.png"), f"--output {trees}"),
        ((*f1, "--items", tmp_path / "t.xlsx"), "--items must end in one of .tsv, .csv, .txt, no ending; got"),
        (("strengths", model, "--data", treebank, "--items", tmp_path / "t.json"), "--items must end in one of .tsv"),
        (("inspect", model, "the dog", "--output", tmp_path / "t.pdf"), "--output must end in one of .html, .htm; got"),
    ]:
        assert message in fails(capsys, *command)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="trees are written to .mrg"):
        write_trees(str(tmp_path / "t.png"), [])


def test_links_and_devices_as_outputs(capsys, model, tmp_path):
    target, link = tmp_path / "target.mrg", tmp_path / "link.mrg"
    link.symlink_to(target)
    assert run(capsys, "parse", model, "the dog", "--output", link)[0] == 0
    assert (link.is_symlink(), target.read_text()) == (True, "(X (X the) (X dog))\n")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in fails(capsys, "parse", model, "the dog", "--output", tmp_path / "pipe")


def test_a_full_disk_is_one_line(capsys, monkeypatch, model):
    class Full:
        encoding = "utf-8"

        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def fileno(self):
            return os.open(os.devnull, os.O_WRONLY)

    monkeypatch.setattr(sys, "stdout", Full())
    from stack_lm.cli.main import main

    assert main(["parse", str(model), "the dog", "--json"]) == 1
    assert capsys.readouterr().err == "stack-lm: error: No space left on device\n"


def test_no_memory_is_one_line(capsys, monkeypatch, model):
    def refuse(*arguments, **settings):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 99 bytes")

    from stack_lm import ModelScorer
    from stack_lm.cli.main import main

    monkeypatch.setattr(ModelScorer, "trace", refuse)
    assert main(["parse", str(model), "the dog"]) == 1
    assert capsys.readouterr().err.startswith("stack-lm: error: out of memory: ")


# --- sentences


def test_a_line_without_a_known_word_keeps_its_place(capsys, model, tmp_path):
    table = tmp_path / "s.csv"
    table.write_text('id,sentence\n1,"the dog, sleeps"\n2,\n3,qwx zzk\n4,a cat sleeps .\n')
    command = ("parse", model, "--data", table, "--column", "sentence", "--output", tmp_path / "t.jsonl")
    for more in ((), ("--ensemble", model)):
        status, out, err = run(capsys, *command, *more)
        knows = "every one of the models knows" if more else "the model knows"
        written = f"written: {tmp_path / 't.jsonl'}\n"
        assert (status, err) == (0, f"row 2 is empty; row 3 has no word that {knows}\n{written}")
        assert [line == "" for line in out.split("\n")[:4]] == [False, True, True, False]
        lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
        words = [["the", "dog", ",", "sleeps"], [], [], ["a", "cat", "sleeps", "."]]
        assert [line["words"] for line in lines] == words
        assert [parse["words"] for parse in run_json(capsys, *command, *more)["parses"]] == words
    message = fails(capsys, "parse", model, "--data", table, "--column", "Sentence")
    assert "s.csv has no column 'Sentence' (did you mean 'sentence'?); its columns are id, sentence" in message
    assert "--column is for --data" in fails(capsys, "parse", model, "the dog", "--column", "a")


def test_a_line_that_cannot_be_read_keeps_its_place(capsys, model, tmp_path):
    (tmp_path / "s.jsonl").write_text('{"text": "the dog"}\n{"text": 3}\n\n{"text": "a cat sleeps"}\n')
    command = ("parse", model, "--data", tmp_path / "s.jsonl", "--output", tmp_path / "t.mrg")
    assert "s.jsonl, line 2: the column 'text' must be text; got '3'" in fails(capsys, *command)
    assert not (tmp_path / "t.mrg").exists()
    status, out, err = run(capsys, *command, "--keep-going")
    assert (status, out.split("\n")[:3]) == (2, ["(the dog)", "", ""])
    assert [line != "" for line in (tmp_path / "t.mrg").read_text().split("\n")] == [True, False, False, True, False]
    notes = err.splitlines()
    assert (len(notes), *notes[1:3]) == (4, "line 3 is empty", f"written: {tmp_path / 't.mrg'}")
    assert notes[0].startswith("left out: ")
    assert "something was left out: " in notes[3]


@pytest.mark.parametrize("command", ["parse", "inspect"])
def test_an_argument_that_is_no_text(capsys, model, tmp_path, command):
    assert "is not UTF-8 text (character 5)" in fails(capsys, command, model, "the \udcff dog")


# --- files that are read


def test_links_and_pipes_as_inputs(capsys, model, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe")
    assert "loop does not exist" in fails(capsys, "parse", model, "--data", loop)
    assert "pipe is not a regular file; name - to read" in fails(capsys, "parse", model, "--data", tmp_path / "pipe")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"words": ["a", "b"], "distances": [1, 1%s]}' % ("0" * 500), "distances[1] must be a finite number"),
        ('{"words": ["a", "\\ud800"], "distances": [1, 2]}', "'\\ud800' is not a valid character in text"),
    ],
)
def test_predictions_that_no_parser_writes(capsys, tmp_path, line, message):
    predictions, gold = write(tmp_path / "p.jsonl", line + "\n"), write(tmp_path / "g.mrg", "(S (X a) (X b))\n")
    command = ("parse-f1", predictions, "--data", gold, "--convention", "evalb")
    assert f"p.jsonl, line 1: {message}" in fails(capsys, *command)


# --- choices


def test_what_is_left_out_has_reasons(capsys, model, tmp_path):
    lines = [("a dog .", "a cat ."), ("a qwx .", "a cat ."), ("a cat .", "a cat .")]
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"good": good, "bad": bad}) + "\n" for good, bad in lines))
    command = ("minimal-pairs", model, "--data", data, "--format", "pairs", "--words", "given")
    out = run(capsys, *command)[1]
    assert (
        "left out: 2 of 3 (1 with a word outside the vocabulary, 1 whose two sides are the same); "
        "ties (not correct): 0\n"
    ) in out
    out = run(capsys, *command, "--oov", "wrong")[1]
    assert "left out: 1 of 3 (1 whose two sides are the same); not correct: 1 with a word outside the vocabulary" in out


# --- models


def test_what_looks_like_a_path_is_not_asked_for(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr(locating, "ask_hub", lambda name, file: pytest.fail(f"the hub was asked for {name}"))
    for name in ("runs/nope", "./nope", "../nope", "/nope/nope", "a/b/c", "nope/", "~/nope"):
        assert fails(capsys, "parse", name, "a") == (
            f"cannot load a language model from {name}: the directory does not exist"
        )
    assert "from loop: it is a symbolic link that leads nowhere" in fails(capsys, "parse", "loop", "a")
    assert "from '': its name is empty" in fails(capsys, "parse", "", "a")


def test_the_hub_is_asked_once(capsys, monkeypatch):
    import huggingface_hub

    asked = []

    def model_info(self, name, timeout):
        asked.append(name)
        raise answer

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    answer = ConnectionError("no route")
    assert "from no/such: no such directory, and the hub cannot be reached (no route)" in fails(
        capsys, "parse", "no/such", "a"
    )
    missing = SimpleNamespace(headers={}, request=SimpleNamespace(method="GET", url=""), status_code=404)
    answer = huggingface_hub.errors.RepositoryNotFoundError("not found", response=missing)
    assert "there is no such directory, and no such model on the hub" in fails(capsys, "parse", "nope", "a")
    assert asked == ["no/such", "nope"]
    monkeypatch.undo()
    assert fails(capsys, "parse", "a%b", "a").endswith("models on the hub have no such names")


@pytest.mark.parametrize("command", ["parse", "inspect", "perplexity", "strengths"])
def test_a_sentence_in_the_place_of_the_model(capsys, tmp_path, command):
    data = () if command in ("parse", "inspect") else ("--data", write(tmp_path / "a.mrg", "(S (D the) (N dog))\n"))
    assert fails(capsys, command, "the dog barks", *data) == (
        "cannot load a language model from the dog barks: there is no such directory; if it is a sentence, the model "
        "comes before it"
    )


def test_a_file_in_the_place_of_a_sentence(capsys, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "text.txt", "the dog")
    message = (
        "sentence 1 has no word that the model knows: 'text.txt'; --data text.txt parses the sentences of that file"
    )
    assert fails(capsys, "parse", model, "text.txt") == message


def test_a_corpus_in_the_place_of_a_file(capsys, model):
    assert fails(capsys, "parse", model, "--data", "generated:5").startswith(
        "generated:5 is a corpus, which perplexity"
    )


def test_a_missing_convention_names_those_there_are(capsys):
    error = fails(capsys, "parse-f1", "a.mrg", "--data", "gold.mrg")
    assert error.startswith("--convention is required, as F1 depends on it: one of prpn, compound-pcfg, htut, ")


def edit_config(directory, **fields):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def rewrite_weights(directory, change):
    from safetensors.torch import load_file, save_file

    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def break_weights(value):
    def change(weights):
        weights["lm_head.weight"][1, 1] = value

    return lambda directory: rewrite_weights(directory, change)


def save_pickle(directory):
    import pickle

    (directory / "model.safetensors").unlink()
    with open(directory / "pytorch_model.bin", "wb") as file:
        pickle.dump([os.system, "x" * 10_000], file)


def grow_tokenizer(directory):
    train_word_tokenizer([Sentence(["the", *map(str, range(50))])]).save_pretrained(directory)


def remove(*names):
    return lambda directory: [(directory / name).unlink() for name in names]


BROKEN = {
    "a list": (
        lambda d: (d / "config.json").write_text("[1, 2]"),
        "its config.json must be a JSON object; it is a list",
    ),
    "no configuration": (remove("config.json"), "it is not a model directory: it has no config.json"),
    "no weights": (remove("model.safetensors"), "it has no weights (model.safetensors)"),
    "no tokenizer": (remove("tokenizer.json", "tokenizer_config.json"), "it has no tokenizer (tokenizer.json)"),
    "other sizes": (lambda d: edit_config(d, hidden_size=8), "its weights do not fit its config.json: "),
    "a missing layer": (
        lambda d: edit_config(d, num_layers=2),
        "not a complete language model: its weights lack",
    ),
    "nan": (break_weights(float("nan")), "its weights are broken: lm_head.weight has values that are not finite"),
    "a larger tokenizer": (grow_tokenizer, "its tokenizer has token ids up to 54, but the model only 13 tokens"),
    "code": (
        lambda d: edit_config(d, model_type="mine", auto_map={"AutoConfig": "code.Config"}),
        "it needs code of its own (auto_map), which runs only if you give --import FILE.py",
    ),
    "a pickle": (save_pickle, "a pickle with more in it than tensors, which is refused"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_models(capsys, monkeypatch, tmp_path, fault):
    damage, message = BROKEN[fault]
    damage(save_model(tmp_path / "m"))
    monkeypatch.setattr("builtins.input", lambda *arguments: pytest.fail("a question was asked"))
    assert message in fails(capsys, "parse", tmp_path / "m", "the dog")


def test_our_models_need_no_code_of_their_own(capsys, monkeypatch, tmp_path):
    """Whatever `auto_map` says, the classes are those of this package."""
    edit_config(save_model(tmp_path), auto_map={"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"})
    monkeypatch.setattr("builtins.input", lambda *arguments: pytest.fail("a question was asked"))
    assert run_json(capsys, "parse", tmp_path, "the dog")["parses"][0]["tree"] == "(the dog)"


def test_results_that_are_not_finite(capsys, tmp_path, treebank):
    """Weights that are finite, but whose products are not."""
    directory = save_model(tmp_path / "m", push_control="sigmoid")

    def change(weights):
        for name in weights:
            weights[name].fill_(3e38)

    rewrite_weights(directory, change)
    (tmp_path / "s.txt").write_text("the dog sleeps .\n")
    (tmp_path / "d.jsonl").write_text('{"good": "a dog .", "bad": "a cat ."}\n')
    for command in (
        ("parse", directory, "the dog"),
        ("strengths", directory, "--data", treebank),
        ("perplexity", directory, "--data", tmp_path / "s.txt"),
        ("minimal-pairs", directory, "--data", tmp_path / "d.jsonl", "--format", "pairs", "--words", "given"),
    ):
        assert "not finite" in fails(capsys, *command), command


@pytest.mark.parametrize("device", ["meta", "cuda:99"])
def test_devices_that_cannot_compute(capsys, model, device):
    assert f"cannot use the device '{device}'" in fails(capsys, "parse", model, "the dog", "--device", device)
    assert f"{device}" in fails(capsys, "warmup", "--device", device)


# --- corpora


def test_perplexity_in_blocks(capsys, monkeypatch, model, tmp_path):
    """A corpus of any length is scored a block at a time."""
    from stack_lm.cli.commands import perplexity

    text = write(tmp_path / "s.txt", "the dog sleeps .\na cat sees the old dog .\na .\n" * 5)
    whole = run_json(capsys, "perplexity", model, "--data", text)
    monkeypatch.setattr(perplexity, "BLOCK", 2)
    parts = run_json(capsys, "perplexity", model, "--data", text)
    kept = ("command", "model", "data", "split", "segmentation", "column", "held_out", "held_out_seed", "limit")
    assert [parts.pop(key) for key in kept] == [whole.pop(key) for key in kept]
    for name, bounds in parts.pop("intervals").items():
        assert bounds == pytest.approx(whole["intervals"][name], rel=1e-6)
    del whole["intervals"]
    assert parts == pytest.approx(whole, rel=1e-6)
    assert run_json(capsys, "perplexity", model, "--data", text, "--limit", 4)["n_sentences"] == 4


def test_an_average_of_nothing(capsys, model, tmp_path):
    command = ("perplexity", model, "--data", write(tmp_path / "s.txt", "dog\ncat\n"))
    assert run_json(capsys, *command)["inner_perplexity"] is None
    assert "nan" not in run(capsys, *command)[1]
