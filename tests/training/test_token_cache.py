"""Texts that are tokenised once, and runs that are resumed on the text they had."""

import gzip
import json
import shutil

import pytest
from test_language_model import run_config

from stack_lm.core.errors import InputError
from stack_lm.training import encoding
from stack_lm.training.config import DataConfig, RunConfig, TokenizerConfig
from stack_lm.training.data import prepare_data
from stack_lm.training.language_model import Trainer


def test_text_files_are_tokenised_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STACK_LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_BYTES", 1)
    text = tmp_path / "text.txt"
    lines = [
        f"the {noun} sees the {other} ." for noun in "cat dog man bird".split() for other in "fish cow".split()
    ] * 9
    text.write_text("\n".join(lines))
    packed = tmp_path / "same.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))

    def prepare(source=text, seed=0, vocab_size=50, **data):
        fields = {"source": str(source), "held_out": 10} | data
        config = RunConfig(seed=seed, data=DataConfig(**fields), tokenizer=TokenizerConfig(vocab_size=vocab_size))
        return prepare_data(config, quiet=False)

    first = prepare()
    assert "from the cache" not in capsys.readouterr().err
    again = prepare()
    assert "from the cache" in capsys.readouterr().err
    assert list(again.batches.pools.whole) == list(first.batches.pools.whole)
    assert list(again.validation) == list(first.validation)
    assert again.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    # What a model would be saved with.
    assert not {"is_local", "local_files_only"} & again.tokenizer.init_kwargs.keys()
    assert again.tokenizer.backend_tokenizer.to_str() == first.tokenizer.backend_tokenizer.to_str()
    assert again.frame == first.frame == ([2], [3])
    shutil.copy(text, tmp_path / "copy.txt")  # the same text under another name
    prepare(tmp_path / "copy.txt")
    assert "from the cache" in capsys.readouterr().err
    prepare(seed=1)
    prepare(held_out=11)
    prepare(max_length=3)
    prepare(validation=str(packed))
    prepare(vocab_size=8)
    assert list(prepare(packed).batches.pools.whole) == list(first.batches.pools.whole)
    shutil.copy(text, tmp_path / "text.tsv")  # the same bytes, read in another way
    prepare(tmp_path / "text.tsv", column=lines[0])
    text.write_text(text.read_text().replace("cow", "cat"))
    prepare()
    assert "from the cache" not in capsys.readouterr().err
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 9


def test_a_pretrained_tokenizer_counts_by_its_content(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STACK_LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_BYTES", 1)
    text = tmp_path / "text.txt"
    text.write_text("the cat sees the dog .\n" * 30 + "a dog sees a cat .\n" * 10)
    data = DataConfig(source=str(text), held_out=10)
    own = prepare_data(RunConfig(data=data, tokenizer=TokenizerConfig(vocab_size=50)), quiet=True).tokenizer
    own.save_pretrained(tmp_path / "one")

    def prepare(name, **fields):
        tokenizer = TokenizerConfig(pretrained=str(tmp_path / name), **fields)
        prepared = prepare_data(RunConfig(data=data, tokenizer=tokenizer), quiet=False)
        return prepared, "from the cache" in capsys.readouterr().err

    first, cached = prepare("one")
    assert not cached
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    for name in ("one", "copy"):
        again, cached = prepare(name)
        assert cached
        assert list(again.batches.pools.whole) == list(first.batches.pools.whole)
        assert again.tokenizer.padding_side == first.tokenizer.padding_side == "left"
        assert again.frame == first.frame
    assert not prepare("one", add_eos=False)[1]
    own.add_tokens(["zyx"])
    own.save_pretrained(tmp_path / "one")
    assert not prepare("one")[1]
    assert prepare("copy")[1]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    monkeypatch.setenv("STACK_LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_BYTES", 1)
    (tmp_path / "text.txt").write_text("a b c\n" * 40)
    config = RunConfig(data=DataConfig(source=str(tmp_path / "text.txt"), held_out=4))
    assert len(prepare_data(config).validation) == 4


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A text file that is large enough for the cache."""
    monkeypatch.setenv("STACK_LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoding, "MIN_BYTES", 1)
    (tmp_path / "text.txt").write_text("the cat sees a dog\na dog sees the cat\n" * 20)
    return tmp_path / "text.txt"


def test_a_run_is_not_resumed_on_another_text(tmp_path, text):
    def trainer(steps, **options):
        data = DataConfig(source=str(text), held_out=4)
        return Trainer(run_config(tmp_path / "run", data=data, max_steps=steps), quiet=True, **options)

    trainer(2).train()
    same_text = text.read_text()
    text.write_text(same_text.replace("cat", "cow"))
    with pytest.raises(InputError, match=r"cannot resume .*run: the text of data.source, .*text.txt, has changed"):
        trainer(3, resume=True)
    text.write_text(same_text)
    assert trainer(3, resume=True).train()["step"] == 3

    # A checkpoint of a version that kept no digests: its tokenizer is neither replaced nor kept for the other text.
    checkpoint = tmp_path / "run" / "checkpoints" / "checkpoint-3"
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    assert state.pop("texts").keys() == {"data.source"}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    (checkpoint / "manifest.json").unlink()
    text.write_text(same_text.replace("cat", "cow"))
    config = run_config(tmp_path / "run", data=DataConfig(source=str(text), held_out=4))
    for _ in range(2):  # without an entry for the text, and with one
        assert "cat" in prepare_data(config, checkpoint).tokenizer.get_vocab()
        assert "cow" in prepare_data(config).tokenizer.get_vocab()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train_ids.npy", lambda content: content[:-10]),
        ("tokenizer/tokenizer.json", lambda content: content[:50]),
    ],
)
def test_a_damaged_entry_is_made_anew(tmp_path, text, name, content):
    config = RunConfig(data=DataConfig(source=str(text), held_out=4))
    first = prepare_data(config)
    (entry,) = (tmp_path / "cache" / "tokens").iterdir()
    damaged, whole = entry / name, (entry / name).read_bytes()
    damaged.unlink()
    if content(whole) is not None:
        damaged.write_bytes(content(whole))
    assert list(prepare_data(config).batches.pools.whole) == list(first.batches.pools.whole)
    assert damaged.read_bytes() == whole
