"""A run that begins with the weights of a model: its fields and tokenizer, new weights, and what does not fit."""

import shutil
from dataclasses import replace

import pytest
import torch
from test_language_model import same
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from stack_lm.core.config_files import read_config
from stack_lm.core.errors import InputError
from stack_lm.training.classification import ClassificationTrainer
from stack_lm.training.config import (
    ClassificationConfig,
    ClassificationDataConfig,
    ClassificationLoopConfig,
    DataConfig,
    LoopConfig,
    RunConfig,
    SpanParserLoopConfig,
    SpanParserTrainingConfig,
    TokenizerConfig,
    TreesConfig,
)
from stack_lm.training.language_model import Trainer
from stack_lm.training.span_parser import SpanParserTrainer

TINY = {"embedding_size": 6, "hidden_size": 8, "memory_size": 3, "push_control": "sigmoid", "max_pop": 2}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    directory = tmp_path_factory.mktemp("earlier") / "run"
    config = RunConfig(
        output_dir=str(directory),
        model=TINY,
        tokenizer=TokenizerConfig(vocab_size=60),
        data=DataConfig(source="generated:60", held_out=20),
        training=LoopConfig(max_steps=3, threads=1),
    )
    Trainer(config, quiet=True).train()
    return directory


def further(earlier, output_dir, **model):
    return RunConfig(
        output_dir=str(output_dir),
        model=model,
        data=DataConfig(source="generated:90:1", held_out=20),
        training=LoopConfig(initial_model=str(earlier), epochs=2, save_every=3, threads=1),
    )


def parameters(directory):
    return AutoModelForCausalLM.from_pretrained(directory).state_dict()


def test_it_has_the_weights_the_fields_and_the_tokenizer(earlier, tmp_path):
    trainer = Trainer(further(earlier, tmp_path / "run"), quiet=True)
    assert same(trainer.model.state_dict(), parameters(earlier))
    trainer.train()
    assert not same(parameters(tmp_path / "run"), parameters(earlier))
    before, after = (AutoConfig.from_pretrained(path) for path in (earlier, tmp_path / "run"))
    assert before.to_diff_dict() == after.to_diff_dict()
    vocabularies = [AutoTokenizer.from_pretrained(path).get_vocab() for path in (earlier, tmp_path / "run")]
    assert vocabularies[0] == vocabularies[1]


def test_fields_of_its_own_and_new_weights(earlier, tmp_path, capsys):
    trainer = Trainer(further(earlier, tmp_path / "run", reading_exit="output", output_dropout=0.2))
    assert trainer.model.config.output_dropout == 0.2
    own, before = trainer.model.state_dict(), parameters(earlier)
    assert own.keys() - before.keys() == {"model.reading_exit.weight"}
    assert all(torch.equal(own[name], before[name]) for name in before)
    trainer.train()
    assert f"{earlier} has no model.reading_exit.weight: they keep their initial values" in capsys.readouterr().err


def test_a_vocabulary_may_be_padded(earlier, tmp_path):
    """As is usual on the hub, to a multiple that a processor likes."""
    model, padded = AutoModelForCausalLM.from_pretrained(earlier), tmp_path / "padded"
    model.resize_token_embeddings(pad_to_multiple_of=100)
    model.save_pretrained(padded)
    AutoTokenizer.from_pretrained(earlier).save_pretrained(padded)
    trainer = Trainer(further(padded, tmp_path / "run"), quiet=True)
    assert same(trainer.model.state_dict(), parameters(padded))
    assert trainer.model.config.vocab_size == 100
    trainer.train()
    assert parameters(tmp_path / "run")["lm_head.weight"].shape[0] == 100


def test_resuming_is_exact(earlier, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    Trainer(further(earlier, whole), quiet=True).train()
    config = further(earlier, part)
    Trainer(replace(config, training=replace(config.training, epochs=1)), quiet=True).train()
    Trainer(config, resume=True, quiet=True).train()
    assert same(parameters(whole), parameters(part))
    assert read_config(str(part / "training_config.yaml"))["training"]["initial_model"] == str(earlier)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hidden_size": 9}, r"run has another shape of model: .* is \[36, 6\] here, there \[32, 6\]"),
        ({"memory": "queue", "reading_exit": "output"}, "reading_exit='output' needs a memory with an exit"),
    ],
)
def test_fields_that_do_not_fit(earlier, tmp_path, model, message):
    with pytest.raises(InputError, match=message):
        Trainer(further(earlier, tmp_path / "run", **model), quiet=True)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_models_that_do_not_fit(earlier, tmp_path):
    with pytest.raises(InputError, match=r"cannot load a model from .*nowhere"):
        further(tmp_path / "nowhere", tmp_path / "run").check()
    with pytest.raises(InputError, match="did you mean"):
        further(f"{earlier}n", tmp_path / "run").check()
    damaged = shutil.copytree(earlier, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot load a language model from .*damaged"):
        Trainer(further(damaged, tmp_path / "run"), quiet=True)
    tokenizer = TokenizerConfig(pretrained=str(other_tokenizer(earlier, tmp_path)))
    with pytest.raises(InputError, match=r"the run's tokenizer has 65 tokens, that of .*run has 64; without tokenizer"):
        Trainer(replace(further(earlier, tmp_path / "run"), tokenizer=tokenizer), quiet=True)


def other_tokenizer(earlier, tmp_path):
    directory = tmp_path / "tokenizer"
    tokenizer = AutoTokenizer.from_pretrained(earlier)
    tokenizer.add_tokens(["zyx"])
    tokenizer.save_pretrained(directory)
    return directory


def test_a_classifier_begins_with_a_language_model(earlier, tmp_path, capsys):
    """It has all but the head, which is new."""
    rows = [f"the {noun} {verb},{verb}" for noun in ("dogs", "cats") for verb in ("bark", "sleep")] * 6
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    data = ClassificationDataConfig(train=str(tmp_path / "train.csv"))
    config = ClassificationConfig(
        output_dir=str(tmp_path / "run"),
        data=data,
        training=ClassificationLoopConfig(initial_model=str(earlier), epochs=1, threads=1),
    )
    trainer = ClassificationTrainer(config)
    own, before = trainer.model.state_dict(), parameters(earlier)
    assert own.keys() - before.keys() == {"score.weight", "score.bias"}
    assert all(torch.equal(own[name], before[name]) for name in own.keys() & before.keys())
    assert trainer.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(earlier).get_vocab()
    trainer.train()
    assert f"{earlier} has no score.weight, score.bias: they keep their initial values" in capsys.readouterr().err
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    assert (classifier.config.hidden_size, classifier.config.id2label) == (8, {0: "bark", 1: "sleep"})


def test_a_parser_begins_with_a_parser(earlier, tmp_path):
    (tmp_path / "trees.mrg").write_text("(((the dog) barks) .)\n((the (old cat)) sleeps)\n" * 10)
    trees = TreesConfig(trees=str(tmp_path / "trees.mrg"))
    loop = SpanParserLoopConfig(epochs=1, threads=1)
    small = {"embedding_size": 4, "hidden_size": 5, "span_size": 6, "num_layers": 1}
    first = SpanParserTrainingConfig(output_dir=str(tmp_path / "first"), model=small, data=trees, training=loop)
    SpanParserTrainer(first, quiet=True).train()
    loop = replace(loop, initial_model=str(tmp_path / "first"))
    second = SpanParserTrainer(
        SpanParserTrainingConfig(output_dir=str(tmp_path / "second"), data=trees, training=loop), quiet=True
    )
    assert same(second.model.state_dict(), AutoModel.from_pretrained(tmp_path / "first").state_dict())
    second.train()
    loop = replace(loop, initial_model=str(earlier))
    with pytest.raises(InputError, match="model.model_type must be"):
        SpanParserTrainer(SpanParserTrainingConfig(output_dir=str(tmp_path / "x"), data=trees, training=loop))
