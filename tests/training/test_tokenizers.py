"""Runs with tokenizers of each kind: their settings, and validation that compares between them."""

import json
from dataclasses import replace

import pytest
import torch
from conftest import run_json
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from stack_lm import ModelScorer, train_word_tokenizer
from stack_lm.core.errors import InputError
from stack_lm.eval import evaluate_perplexity
from stack_lm.text import Sentence
from stack_lm.text.tokenization import Frame, train_subword_tokenizer
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.encoding import TextSize, encode_documents, encode_sentences
from stack_lm.training.language_model import Trainer

TEXT = ["the dog barks .", "Grüße aus Köln !", "a 🐶 in 1995 .", "the old dog sees the cat near the bridge ."] * 6
MODEL = {"embedding_size": 8, "hidden_size": 8, "memory_size": 4}


def run_config(tmp_path, **fields):
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    config = RunConfig(
        output_dir=str(tmp_path / "run"),
        model=MODEL,
        data=DataConfig(source=str(tmp_path / "text.txt"), validation=str(tmp_path / "text.txt")),
        training=LoopConfig(max_steps=2),
    )
    return replace(config, **fields)


@pytest.mark.parametrize(
    "tokenizer",
    [
        TokenizerConfig(kind="bpe", vocab_size=300, lowercase="none"),
        TokenizerConfig(kind="unigram", vocab_size=300, split_digits=True),
        TokenizerConfig(vocab_size=8),
        TokenizerConfig(kind="word", add_bos=False, add_eos=False),
    ],
    ids=["bpe", "unigram", "word", "no special tokens"],
)
def test_validation_is_what_the_command_computes(tmp_path, capsys, tokenizer):
    result = Trainer(run_config(tmp_path, tokenizer=tokenizer), quiet=True).train()
    command = run_json(capsys, "perplexity", tmp_path / "run", "--data", tmp_path / "text.txt")
    for name in ("perplexity", "word_perplexity", "bits_per_byte"):
        assert result[f"eval_{name}"] == pytest.approx(command[name], rel=1e-5)
    assert (result["eval_words"], result["eval_bytes"]) == (command["n_words"], command["n_bytes"])
    assert result["eval_unknown"] == pytest.approx(command["n_unknown"] / command["n_all_words"])
    assert (result["eval_unknown"] > 0) == (tokenizer.vocab_size == 8)
    if tokenizer.add_bos:
        assert result["eval_bytes"] == len("".join(f"{line}\n" for line in TEXT).encode())
    suppressed = json.loads((tmp_path / "run" / "generation_config.json").read_text())["suppress_tokens"]
    assert suppressed == ([0, 1] if tokenizer.kind == "word" else [0])


def test_a_model_of_gpt2s_tokens(tmp_path):
    """One token is unknown, begins, ends and pads: it must be generated, and nothing is unknown."""
    from conftest import byte_level_tokenizer

    byte_level_tokenizer(bos_token="<|end|>", unk_token="<|end|>").save_pretrained(tmp_path / "gpt2")
    config = run_config(tmp_path, tokenizer=TokenizerConfig(pretrained=str(tmp_path / "gpt2")))
    result = Trainer(config, quiet=True).train()
    assert result["eval_unknown"] == 0
    assert "suppress_tokens" not in json.loads((tmp_path / "run" / "generation_config.json").read_text())
    scorer = ModelScorer.from_pretrained(str(tmp_path / "run"))
    measured = evaluate_perplexity(scorer.trace([line.split() for line in TEXT]))
    assert measured.bits_per_byte == pytest.approx(result["eval_bits_per_byte"], rel=1e-5)


RAW = "She isn't here. The dog barked, and the cat (a big one) ran off.\nMr. Hill didn't see them!\n"


@pytest.mark.parametrize("own", [False, True], ids=["pretrained", "trained here"])
def test_raw_text_reaches_a_tokenizer_as_it_will_later(tmp_path, capsys, own):
    """A tokenizer from elsewhere gets the characters of the text; one made here splits punctuation off itself."""
    from conftest import byte_level_tokenizer, run

    (tmp_path / "raw.txt").write_text(RAW * 3)
    tokenizer = TokenizerConfig(kind="bpe", vocab_size=300, lowercase="none")
    if not own:
        byte_level_tokenizer(bos_token="<|end|>").save_pretrained(tmp_path / "theirs")
        tokenizer = TokenizerConfig(pretrained=str(tmp_path / "theirs"))
    raw = DataConfig(source=str(tmp_path / "raw.txt"), validation=str(tmp_path / "raw.txt"), segmentation="raw")
    trainer = Trainer(run_config(tmp_path, data=raw, tokenizer=tokenizer), quiet=True)
    result = trainer.train()
    first = trainer.data.tokenizer.decode(trainer.data.validation[0], skip_special_tokens=True)
    assert first.strip() == ("She is n't here ." if own else "She isn't here.")
    command = ("perplexity", tmp_path / "run", "--data", tmp_path / "raw.txt")
    assert "data.segmentation=raw" in run(capsys, *command)[2]
    found = run_json(capsys, *command, "--segmentation", "raw")
    assert found["bits_per_byte"] == pytest.approx(result["eval_bits_per_byte"], rel=1e-5)
    later = ModelScorer.from_pretrained(str(tmp_path / "run")).split("She isn't here.")
    assert later == (["She", "is", "n't", "here", "."] if own else ["She", "isn't", "here."])


def test_notes_on_text_and_tokenizer(tmp_path):
    """Ordinary text that is read as lines, and a tokenizer that has no token for the ends of sentences."""
    from conftest import byte_level_tokenizer

    (tmp_path / "raw.txt").write_text(RAW * 3)
    tokenizer = byte_level_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "bare")
    data = DataConfig(source=str(tmp_path / "raw.txt"))
    config = run_config(tmp_path, data=data, tokenizer=TokenizerConfig(pretrained=str(tmp_path / "bare")))
    trainer = Trainer(config, quiet=True)
    raw, begin, end, repeated = trainer.data.notes
    assert raw.startswith("50% of the lines of")
    assert raw.endswith("raw.txt have several sentences: for ordinary text, data.segmentation=raw")
    assert "no beginning token" in begin
    assert "no end token" in end
    assert "are in the training text too" in repeated
    trainer.run.close()
    (tmp_path / "marked.txt").write_text("<s> the dog sleeps . </s>\n" * 30)
    for streaming in (False, True):
        texts = {"source": str(tmp_path / "marked.txt"), "validation": str(tmp_path / "text.txt")}
        data = DataConfig(**texts, streaming=streaming, workers=0)
        config = run_config(tmp_path, data=data, output_dir=str(tmp_path / f"marked-{streaming}"))
        trainer = Trainer(config, quiet=True)
        (note,) = trainer.data.notes
        assert note.endswith(
            "marked.txt has the words </s> and <s>, which the run adds itself; remove them from the text"
        )
        trainer.run.close()
    config = run_config(tmp_path, output_dir=str(tmp_path / "split"))
    trainer = Trainer(config, quiet=True)
    assert [note for note in trainer.data.notes if "in the training text too" not in note] == []


def test_a_note_on_tokens_that_span_words(tmp_path, capsys):
    """The command that scores words refuses them; training says so first."""
    from conftest import run

    spanning = Tokenizer(models.BPE(unk_token="<unk>"))
    spanning.train_from_iterator(TEXT * 5, trainers.BpeTrainer(vocab_size=60, special_tokens=["<unk>"]))
    PreTrainedTokenizerFast(tokenizer_object=spanning, unk_token="<unk>").save_pretrained(tmp_path / "spanning")
    config = run_config(tmp_path, tokenizer=TokenizerConfig(pretrained=str(tmp_path / "spanning")))
    trainer = Trainer(config, quiet=True)
    (note,) = (note for note in trainer.data.notes if "cannot be scored" in note)
    assert "sentence 1: the tokenizer makes one token of 'the' in 'the dog barks .'" in note
    trainer.train()
    status, _, err = run(capsys, "perplexity", tmp_path / "run", "--data", tmp_path / "text.txt")
    assert (status, "the tokenizer makes one token of" in err) == (2, True)


def test_the_size_of_text():
    tokenizer = train_subword_tokenizer([(line.split(), None) for line in TEXT], 300)
    sentence = Sentence("the Grüße 🐶 barks".split())
    tokens = [len(tokenizer(word, add_special_tokens=False).input_ids) for word in sentence.words]
    frame = Frame([1], [2])
    two_words = 1 + sum(tokens[:2])
    for length, words, end in ((None, 4, "\n"), (two_words, 2, ""), (two_words - 1, 2, ""), (2, 1, "")):
        size = TextSize()
        encode_sentences(tokenizer, [sentence], length, frame, size=size)
        assert (size.words, size.bytes) == (words, len((" ".join(sentence.words[:words]) + end).encode()))


@pytest.mark.parametrize(
    ("frame", "predicted"),
    [
        (Frame([1], [2]), "the Bär barks\nthe Bär barks\nthe Bär barks\n"),
        (Frame([], []), " Bär barks\nthe Bär barks Bär barks"),
    ],
)
def test_the_size_of_documents(frame, predicted):
    tokenizer = train_subword_tokenizer([(line.split(), None) for line in TEXT], 300)
    sentence, size = Sentence("the Bär barks".split()), TextSize()
    encode_documents(tokenizer, [[sentence, sentence], [], [sentence]], frame, size=size)
    assert (size.words, size.bytes) == (len(predicted.split()), len(predicted.encode()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "bpe", "tag_rare_words": True}, "tokenizer.tag_rare_words needs tokenizer.kind word; got bpe"),
        ({"split_digits": True}, "tokenizer.split_digits needs tokenizer.kind bpe or unigram; got word"),
        ({"pretrained": "nope/tokenizer.json"}, "cannot load a tokenizer from nope/tokenizer.json: there is no such"),
        ({"pretrained": ""}, "cannot load a tokenizer from '': its name is empty"),
    ],
)
def test_bad_settings_are_found_before_any_text_is_read(tmp_path, fields, message):
    config = replace(run_config(tmp_path), data=DataConfig(source="nope.txt"), tokenizer=TokenizerConfig(**fields))
    with pytest.raises(InputError, match=message):
        Trainer(config, quiet=True)


def own_frame(tmp_path, template, **roles):
    """A WordPiece tokenizer that puts its special tokens around each text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=30, special_tokens=special))
    ids = [(token, made.token_to_id(token)) for token in special if token in template]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    roles = {"pad_token": "[PAD]", "unk_token": "[UNK]"} | roles
    PreTrainedTokenizerFast(tokenizer_object=made, **roles).save_pretrained(tmp_path / "own")
    return str(tmp_path / "own")


def test_the_tokens_around_a_sentence_begin_and_end_generated_text(tmp_path):
    own = own_frame(tmp_path, "[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]")
    Trainer(run_config(tmp_path, tokenizer=TokenizerConfig(pretrained=own)), quiet=True).train()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    for config in (model.config, model.generation_config):
        assert (config.bos_token_id, config.eos_token_id) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    assert "sentence tokens: `[CLS]` and `[SEP]`." in (tmp_path / "run" / "README.md").read_text()
    assert tokenizer.sep_token_id not in model.generation_config.suppress_tokens
    model.lm_head.bias.data[tokenizer.sep_token_id] = 100.0
    assert model.generate(torch.tensor([[5, 6]]), max_new_tokens=9).tolist() == [[5, 6, tokenizer.sep_token_id]]


def test_sizes_of_text_that_begins_in_the_middle_of_a_word_are_left_out(tmp_path, capsys):
    """Without a beginning token the rest of a first word is predicted, but a word counts whole or not at all."""
    own = own_frame(tmp_path, "$A [SEP]", eos_token="[SEP]")
    result = Trainer(run_config(tmp_path, tokenizer=TokenizerConfig(pretrained=own)), quiet=True).train()
    assert result["eval_word_perplexity"] is result["eval_bits_per_byte"] is None
    config = run_config(tmp_path, tokenizer=TokenizerConfig(pretrained=own), output_dir=str(tmp_path / "whole"))
    continuous = replace(config, data=replace(config.data, mode="continuous"))
    result = Trainer(continuous, quiet=True).train()
    assert result["eval_word_perplexity"] is result["eval_bits_per_byte"] is None
    assert "bits per byte" not in (tmp_path / "run" / "README.md").read_text().lower()
    command = run_json(capsys, "perplexity", tmp_path / "run", "--data", tmp_path / "text.txt")
    assert command["bits_per_byte"] > 0


def test_escapes_of_treebanks_are_read_as_in_scoring():
    tokenizer = train_word_tokenizer([("a ( b ) 1/2 c".split(), None)])
    plain, escaped = ("a ( b ) 1/2".split(), "a -LRB- b -RRB- 1\\/2".split())
    with pytest.warns(UserWarning, match="'-LRB-' is read as '\\('"):
        ids = list(
            map(list, encode_sentences(tokenizer, [Sentence(words) for words in (plain, escaped)], 9, Frame([], [])))
        )
    assert ids[0] == ids[1] == tokenizer("a ( b ) 1/2", add_special_tokens=False).input_ids
