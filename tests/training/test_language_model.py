"""The training loop: learning, resuming exactly, streams, several processes, and what stops it."""

import dataclasses
import json
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import yaml
from accelerate.state import AcceleratorState
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stack_lm.core import clock
from stack_lm.core.checks import build
from stack_lm.core.clock import Clock
from stack_lm.core.errors import InputError
from stack_lm.text import Sentence
from stack_lm.text.tokenization import Frame
from stack_lm.training import language_model, loop
from stack_lm.training.batches import SentenceBatches, WholePools, collate
from stack_lm.training.checkpoints import all_checkpoints, checkpoint_step
from stack_lm.training.compact import SentenceStore, TokenArray
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.continuous import Segments
from stack_lm.training.data import prepare_data
from stack_lm.training.encoding import encode_sentences
from stack_lm.training.language_model import Trainer, choose_loss_dtype

TINY = {"embedding_size": 6, "hidden_size": 8, "memory_size": 3, "output_dropout": 0.1}


def run_config(directory, *, data=None, model=TINY, **training):
    fixed = {"threads": 1, "loss_dtype": "float32"}  # the same on every machine
    loop = {"epochs": 2, "batch_size": 8, "log_every": 5, "learning_rate": 5e-3} | fixed | training
    return RunConfig(
        output_dir=str(directory),
        model=model,
        tokenizer=TokenizerConfig(vocab_size=200),
        data=data or DataConfig(source="generated:150", held_out=30),
        training=LoopConfig(**loop),
    )


def metrics(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def weights(directory):
    return load_file(directory / "model.safetensors")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_a_run_writes_what_is_needed(tmp_path):
    directory = tmp_path / "run"
    result = Trainer(run_config(directory, save_epochs=True), quiet=True).train()
    assert (result["step"], result["epoch"]) == (30, 2)
    evaluations = [record for record in metrics(directory) if "eval_perplexity" in record]
    assert [record["epoch"] for record in evaluations] == [1, 2]
    assert evaluations[1]["eval_perplexity"] < evaluations[0]["eval_perplexity"]
    assert evaluations[-1] == result
    assert all(r["train_nats_per_token"] > 0 for r in metrics(directory) if "train_nats_per_token" in r)
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.pad_token_id == tokenizer.pad_token_id
    for epoch in (1, 2):
        AutoModelForCausalLM.from_pretrained(directory / "epochs" / str(epoch))
    assert same(weights(directory), weights(directory / "epochs" / "2"))
    last = directory / "checkpoints" / "checkpoint-30"  # a checkpoint is a model too
    assert same(AutoModelForCausalLM.from_pretrained(last).state_dict(), model.state_dict())
    assert AutoTokenizer.from_pretrained(last).get_vocab() == tokenizer.get_vocab()
    assert (directory / "training_config.yaml").is_file()
    assert not list(directory.rglob("*partial*"))
    assert not list(directory.rglob(".new"))


def test_models_of_parts_of_epochs_are_kept(tmp_path):
    config = run_config(tmp_path, save_epochs=[0.2, 1.0, 1.5], log_every=100, keep_checkpoints=99, save_every=1)
    Trainer(config, quiet=True).train()
    assert {path.name for path in (tmp_path / "epochs").iterdir()} == {"0.2", "1", "1.5"}
    for epoch, step in (("0.2", 3), ("1", 15), ("1.5", 22)):
        assert same(weights(tmp_path / "epochs" / epoch), weights(tmp_path / "checkpoints" / f"checkpoint-{step}"))
    Trainer(run_config(tmp_path, epochs=1), overwrite=True, quiet=True)
    assert not (tmp_path / "epochs").exists()


def test_a_long_epoch_has_a_checkpoint_every_half_hour(tmp_path, monkeypatch):
    fixed = {"epochs": 1, "keep_checkpoints": 99}
    Trainer(run_config(tmp_path / "other", **fixed, save_every=1000), quiet=True).train()
    now, update = [0.0], loop.TrainingLoop._update

    def takes_700_seconds(self, batches):
        now[0] += 700
        return update(self, batches)

    monkeypatch.setattr(loop.TrainingLoop, "_update", takes_700_seconds)
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    run = tmp_path / "run"
    Trainer(run_config(run, **fixed), quiet=True).train()
    assert [checkpoint_step(path) for path in all_checkpoints(run / "checkpoints")] == [3, 6, 9, 12, 15]
    assert same(weights(run), weights(tmp_path / "other"))
    for step in (12, 15):
        shutil.rmtree(run / "checkpoints" / f"checkpoint-{step}")
    resumed = Trainer(run_config(run, **fixed), resume=True, quiet=True)
    assert resumed.step == 9
    resumed.train()
    assert same(weights(run), weights(tmp_path / "other"))


@pytest.mark.parametrize(
    ("wanted", "device", "mixed", "native", "expected", "note"),
    [
        ("auto", "cpu", "no", True, "bfloat16", "matrix products are in bfloat16 (training.loss_dtype)"),
        ("auto", "cpu", "no", False, "float32", "in float32, because this processor does not multiply bfloat16"),
        (
            "bfloat16",
            "cpu",
            "no",
            False,
            "float32",
            "in float32, because this processor does not multiply bfloat16",
        ),
        ("auto", "cpu", "bf16", True, None, "matrix products are in bf16"),
        ("auto", "cuda", "no", True, None, "matrix products are in float32"),
    ],
)
def test_the_type_of_the_loss(monkeypatch, wanted, device, mixed, native, expected, note):
    monkeypatch.setattr(language_model, "multiplies_bfloat16", lambda: native)
    accelerator = SimpleNamespace(device=torch.device(device), mixed_precision=mixed)
    chosen, told = choose_loss_dtype(wanted, accelerator)
    assert chosen == expected
    assert told.endswith(note)


def test_a_sampled_softmax_trains_and_resumes_with_a_whole_one(tmp_path):
    """A resumed run draws the same words, and may end with the whole softmax."""
    whole = Trainer(run_config(tmp_path / "whole", softmax_samples=3), quiet=True).train()
    exact = Trainer(run_config(tmp_path / "exact"), quiet=True).train()
    assert not same(weights(tmp_path / "whole"), weights(tmp_path / "exact"))
    assert whole["eval_nats_per_token"] == pytest.approx(exact["eval_nats_per_token"], rel=0.1)
    for name, then in (("resumed", 3), ("ends exact", None)):
        Trainer(run_config(tmp_path / name, softmax_samples=3, max_steps=20, save_every=20), quiet=True).train()
        config = run_config(tmp_path / name, softmax_samples=then)
        Trainer(config, resume=True, quiet=True).train()
        assert same(weights(tmp_path / "whole"), weights(tmp_path / name)) == (then == 3)


def test_the_validation_loss_is_the_mean_over_tokens(tmp_path):
    trainer = Trainer(run_config(tmp_path / "run", epochs=1), quiet=True)
    result = trainer.train()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run")
    tokenizer = trainer.data.tokenizer
    nats = count = inner = inner_count = 0
    for sentence in trainer.data.validation:
        ids = torch.tensor([sentence])
        losses = F.cross_entropy(model(ids).logits[0, :-1], ids[0, 1:], reduction="none").tolist()
        nats, count = nats + sum(losses), count + len(losses)
        assert sentence[0] == tokenizer.bos_token_id
        # Without the first word, and without the end where the sentence was not cut.
        whole = sentence[-1] == tokenizer.eos_token_id
        some = losses[1:-1] if whole else losses[1:]
        inner, inner_count = inner + sum(some), inner_count + len(some)
    assert (result["eval_tokens"], result["eval_inner_tokens"]) == (count, inner_count)
    assert result["eval_nats_per_token"] == pytest.approx(nats / count, rel=1e-5)
    assert result["eval_inner_perplexity"] == pytest.approx(math.exp(inner / inner_count), rel=1e-5)


@pytest.mark.parametrize("mode", ["sentences", "packed", "continuous"])
def test_a_process_without_a_batch_has_a_gradient_for_every_parameter(tmp_path, mode):
    """Processes that average gradients wait for those of every parameter."""
    packing = mode == "packed"
    data = DataConfig(source="generated:60", validation="generated:9", mode="sentences" if packing else mode)
    trainer = Trainer(run_config(tmp_path / "run", data=data, packing=packing), quiet=True)
    trainer.model.set_scan_backend("reference")
    rows = trainer.config.training.batch_size
    batch = trainer.collate(Segments([[]] * rows, [False] * rows) if mode == "continuous" else [])
    loss = trainer.loss(batch.inputs, 8)
    loss.backward()
    assert loss == 0
    assert all(parameter.grad is not None for parameter in trainer.model.parameters())
    trainer.run.close()


GPT2 = {
    "model_type": "gpt2",
    "n_embd": 8,
    "n_layer": 1,
    "n_head": 2,
    "resid_pdrop": 0,
    "embd_pdrop": 0,
    "attn_pdrop": 0,
}
TRANSFORMER = {"model_type": "stack_transformer", "hidden_size": 8, "num_attention_heads": 2, "dropout": 0.0}
TRANSFORMER["attention_dropout"] = 0.0


@pytest.mark.parametrize("model", [TINY | {"output_dropout": 0.0}, TRANSFORMER, GPT2], ids=["stack", "own", "gpt2"])
def test_packing_changes_the_batches_and_not_their_loss(tmp_path, model):
    """Sentences of all lengths are in a batch, without padding; a packed batch has the loss of a padded one."""
    trainer = Trainer(run_config(tmp_path / "run", model=model, packing=True, max_steps=4), quiet=True)
    batch = next(trainer.data.batches.read(None))[0]
    lengths = [*map(len, batch)]
    assert max(lengths) > 1.5 * min(lengths)
    packed = trainer.collate(batch)
    assert (packed.targets, packed.tokens, packed.padded) == (sum(lengths) - 8, sum(lengths), sum(lengths))
    ids, labels = collate(batch, torch.device("cpu"))
    apart = packed.inputs | {"input_ids": ids, "labels": labels, "position_ids": None}
    torch.testing.assert_close(*(trainer.loss(inputs, packed.targets) for inputs in (packed.inputs, apart)))
    assert trainer.train()["step"] == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1, "state_size": 4}},
            r"training.packing must be false with model.model_type 'mamba', which reads on from text to text",
        ),
        (
            {"model": {"model_type": "rwkv", "hidden_size": 8, "num_hidden_layers": 2, "attention_hidden_size": 8}},
            r"training.packing must be false with model.model_type 'rwkv'",
        ),
        ({"data": {"mode": "continuous"}}, "training.packing is for sentences; continuous text has no padding"),
    ],
)
def test_what_cannot_be_packed(tmp_path, values, message):
    own = {"output_dir": str(tmp_path / "run"), "training": {"packing": True}}
    with pytest.raises(InputError, match=message):
        Trainer(build(RunConfig, own | values), quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["lm_head", "model.embed_tokens"])
def test_tied_weights_are_frozen_under_either_name(tmp_path, name):
    tied = TINY | {"tie_word_embeddings": True, "embedding_size": 8}
    trainer = Trainer(run_config(tmp_path / "run", model=tied, max_steps=2, freeze=[name]), quiet=True)
    before = trainer.model.lm_head.weight.clone()
    trainer.train()
    assert torch.equal(weights(tmp_path / "run")["model.embed_tokens.weight"], before)


def test_frozen_weights_stay(tmp_path):
    def training(*names):
        return Trainer(run_config(tmp_path / "run", max_steps=4, freeze=list(names)), quiet=True)

    trainer = training("model.cell.controls", "lm_head.bias")
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.train()
    stayed = {name for name, weight in weights(tmp_path / "run").items() if torch.equal(weight, before[name])}
    assert stayed == {name for name in before if name.startswith("model.cell.controls.") or name == "lm_head.bias"}
    shutil.rmtree(tmp_path / "run")
    allowed = r"training.freeze must be one of model, lm_head, model.embed_tokens, model.cell, .*"
    with pytest.raises(InputError, match=rf"{allowed}; got 'model.cel'; did you mean 'model.cell'\?"):
        training("model.cel")
    with pytest.raises(InputError, match="training.freeze leaves no weight to train"):
        training("model", "lm_head")


def test_gradient_accumulation_equals_a_larger_batch(tmp_path):
    """The loss is the mean over all tokens of an update, however they are split."""
    sentences = [[3, 4, 5], [5, 4], [6, 3, 4, 5, 6], [4, 6, 5, 3]]

    def gradients(directory, batches, accumulation):
        config = run_config(directory, gradient_accumulation=accumulation)
        trainer = Trainer(replace(config, model=TINY | {"output_dropout": 0.0}), quiet=True)
        trainer.updater.optimizer.zero_grad = lambda: None
        trainer._signals, trainer._saving = SimpleNamespace(received=None), Clock(60.0)
        trainer._update(iter([(batch, {"epoch": 0}) for batch in batches]))
        return [parameter.grad.clone() for parameter in trainer.model.parameters()]

    one = gradients(tmp_path / "a", [sentences], 1)
    two = gradients(tmp_path / "b", [sentences[:1], sentences[1:]], 2)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "model",
    [
        {"embedding_size": 7, "hidden_size": 7},
        {
            "model_type": "deep_stack_rnn",
            "embedding_size": 7,
            "output_size": 7,
            "auxiliary_losses": [{"layer": 0, "head": "shared"}],
        },
        {"model_type": "stack_transformer", "hidden_size": 8, "num_attention_heads": 2},
    ],
    ids=["stack RNN", "deep", "transformer"],
)
def test_tied_embeddings_are_saved_once_and_resumed_exactly(tmp_path, model):
    model = model | {"tie_word_embeddings": True}
    Trainer(run_config(tmp_path / "whole", model=model, max_steps=12), quiet=True).train()
    Trainer(run_config(tmp_path / "part", model=model, max_steps=8, save_every=8), quiet=True).train()
    checkpoint = AutoModelForCausalLM.from_pretrained(tmp_path / "part" / "checkpoints" / "checkpoint-8")
    assert checkpoint.get_input_embeddings().weight is checkpoint.get_output_embeddings().weight
    Trainer(run_config(tmp_path / "part", model=model, max_steps=12), resume=True, quiet=True).train()
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))
    assert "lm_head.weight" not in weights(tmp_path / "whole")


def test_the_temperature_falls_and_is_resumed(tmp_path):
    fields = {"memory": "superposition", "operation_control": "softmax_temperature", "temperature": 2.0}
    schedule = {"temperature_decay": 1e-3, "temperature_minimum": 0.1, "save_every": 7}
    configs = [
        replace(run_config(tmp_path / name, epochs=1, **schedule), model=TINY | fields) for name in ("whole", "part")
    ]
    Trainer(configs[0], quiet=True).train()
    name = "model.cell.controls.choices.operation.temperature"
    assert weights(tmp_path / "whole")[name] == pytest.approx(2 * math.exp(-0.12), rel=1e-5)  # of 120 sentences
    Trainer(configs[1], quiet=True).train()
    shutil.rmtree(tmp_path / "part" / "checkpoints" / "checkpoint-15")
    (tmp_path / "part" / "model.safetensors").unlink()
    resumed = Trainer(configs[1], resume=True, quiet=True)
    assert resumed.step == 14
    resumed.train()
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))


def test_the_order_of_batches_is_that_of_documented_runs():
    """As a list of lists was bucketed: sorted by length times a random number, cut, and shuffled."""
    lengths = [2 + (7 * i) % 31 for i in range(101)]
    sentences = TokenArray.pack([[[i] * length for i, length in enumerate(lengths)]], 101)
    reader = SentenceBatches(WholePools(sentences), 8, seed=5).read(None)
    for epoch in range(2):
        rng = random.Random(f"5/{epoch}")
        order = [i for _, i in sorted((length * rng.uniform(0.9, 1.1), i) for i, length in enumerate(lengths))]
        expected = [order[start : start + 8] for start in range(0, 101, 8)]
        rng.shuffle(expected)
        assert [[sentence[0] for sentence in batch] for batch, _ in zip_first(reader, 13)] == expected


@given(st.data())
def test_sentences_are_found_again(data):
    rows = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=12)
    own, others = data.draw(rows), data.draw(rows)
    found = TokenArray.pack([own], 10).contains(TokenArray.pack([others], 10))
    assert found.tolist() == [row in own for row in others]


def test_validation_text_that_is_trained_on_is_named(tmp_path):
    lines = [f"the {a} {b} ." for a in "cat dog man bird".split() for b in "runs sings sleeps".split()]
    for name, copies in (("once", 1), ("twice", 2)):
        (tmp_path / name).write_text("\n".join(lines * copies))
        config = RunConfig(data=DataConfig(source=str(tmp_path / name), held_out=3))
        notes = " ".join(prepare_data(config).notes)
        assert ("of validation text are in the training text too" in notes) == (copies > 1)


@pytest.mark.parametrize("vocab_size", [2**16, 2**16 + 1])
def test_sentences_in_compact_arrays(vocab_size):
    sentences = [[5, 0], [], [vocab_size - 1, 3, 1], [7]]
    packed = TokenArray.pack([sentences[:1], [], sentences[1:]], vocab_size)
    assert list(packed) == sentences
    assert packed[-1] == [7]
    assert packed[1:3] == sentences[1:3]
    assert packed.lengths.tolist() == [2, 0, 3, 1]
    assert packed.ids.nbytes == 6 * (2 if vocab_size == 2**16 else 4)
    with pytest.raises(IndexError):
        _ = packed[4]
    assert len(TokenArray.pack([], 10)) == 0


def test_a_store_gives_back_its_sentences():
    sentences = [
        Sentence(["a", "b c", "\u00e9"], ["X", "Y", "Z"]), Sentence(["\ud800"]), Sentence([]), Sentence(["d"], ["V"])
    ]  # fmt: skip
    store = SentenceStore(iter(sentences))
    assert list(store) == sentences
    assert store[-1] == sentences[3]


def test_runs_of_several_seeds_can_share_held_out_sentences():
    def held_out(seed, held_out_seed):
        data = DataConfig(source="generated:200", held_out=20, held_out_seed=held_out_seed)
        return list(prepare_data(RunConfig(seed=seed, data=data)).validation)

    assert held_out(0, None) == held_out(7, 0) != held_out(7, None) == held_out(0, 7)


def zip_first(iterator, n):
    return [next(iterator) for _ in range(n)]


def test_collate():
    ids, labels = collate([[1, 2, 3], [4]], torch.device("cpu"))
    assert ids.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert labels.tolist() == [[1, 2, 3], [4, -100, -100]]


def test_encoding_frames_and_cuts():
    from stack_lm import train_word_tokenizer

    tokenizer = train_word_tokenizer([("a b c".split(), None)])
    sentences = [Sentence(["a"]), Sentence(["a", "b"]), Sentence([]), Sentence(["a", "b", "c", "a"])]
    a, b, c = tokenizer.convert_tokens_to_ids(["a", "b", "c"])
    # Without special tokens there is nothing to predict in a sentence of one word.
    assert list(map(list, encode_sentences(tokenizer, sentences, 3, Frame([], [])))) == [[a, b], [a, b, c]]
    framed = encode_sentences(tokenizer, sentences, 4, Frame([2], [3]))
    assert list(map(list, framed)) == [[2, a, 3], [2, a, b, 3], [2, a, b, c]]


def test_a_pretrained_subword_tokenizer(tmp_path):
    from conftest import byte_level_tokenizer

    byte_level_tokenizer().save_pretrained(tmp_path / "bpe")
    config = replace(
        run_config(tmp_path / "run", epochs=1), tokenizer=TokenizerConfig(pretrained=str(tmp_path / "bpe"))
    )
    Trainer(config, quiet=True).train()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run").config.eos_token_id is not None


# --- several processes


TRAIN_LM = Path(__file__).parents[2] / "recipes" / "train_lm.py"


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(tmp_path):
    """The same updates: each of the mean over the tokens of both processes' batches."""
    config = run_config(tmp_path / "one", epochs=1, batch_size=4, log_every=1, gradient_accumulation=2)
    config = replace(config, model=TINY | {"output_dropout": 0.0})
    trainer = Trainer(config, quiet=True)
    result = trainer.train()
    twice = dataclasses.asdict(config) | {"output_dir": str(tmp_path / "two")}
    twice["training"]["gradient_accumulation"] = 1
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(twice))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += [str(TRAIN_LM), str(tmp_path / "two.yaml"), "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert "training on 2 process(es)" in run.stderr
    both = json.loads(run.stdout)  # one object, of one process
    assert both["eval_tokens"] == result["eval_tokens"]
    assert both["eval_nats_per_token"] == pytest.approx(result["eval_nats_per_token"], rel=1e-3)
    for name, value in weights(tmp_path / "two").items():
        torch.testing.assert_close(value, weights(tmp_path / "one")[name], rtol=1e-3, atol=1e-4)
    losses = [
        [r["train_nats_per_token"] for r in metrics(tmp_path / name) if "train_nats_per_token" in r]
        for name in ("two", "one")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


# --- what stops a run


def test_nan_in_the_loss_stops_without_a_model(tmp_path):
    directory = tmp_path / "run"
    config = run_config(directory, learning_rate=3e37)
    with pytest.raises(InputError, match=r"the loss is (nan|inf) at step \d+.*training.learning_rate \(now 3e\+37\)"):
        Trainer(config, quiet=True).train()
    assert not (directory / "model.safetensors").exists()
    assert not (directory / "checkpoints").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"vocab_size": 5}}, "model.vocab_size cannot be set"),
        ({"model": {"memory": "heap"}}, "model: memory must be one of .*; got 'heap'"),
        (
            {"training": LoopConfig(temperature_decay=0.1)},
            "temperature_decay: .* needs a model with operation_control",
        ),
        ({"training": LoopConfig(tracker="nonesuch")}, "training.tracker.*: Unsupported logging capability: nonesuch"),
    ],
)
def test_bad_configurations(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        Trainer(replace(run_config(tmp_path / "run", data=DataConfig(source="generated:60")), **change), quiet=True)
    assert not (tmp_path / "run").exists()


def test_mixed_precision(tmp_path):
    AcceleratorState._reset_state(reset_partial_state=True)  # one process has one precision
    result = Trainer(run_config(tmp_path / "a", epochs=1, mixed_precision="bf16"), quiet=True).train()
    AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.raises(InputError, match="mixed_precision=fp16 needs a GPU; on a CPU it must be"):
        Trainer(run_config(tmp_path / "c", mixed_precision="fp16"), quiet=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    exact = Trainer(run_config(tmp_path / "b", epochs=1, mixed_precision="no"), quiet=True).train()
    assert result["eval_nats_per_token"] == pytest.approx(exact["eval_nats_per_token"], rel=0.05)
    assert weights(tmp_path / "a")["lm_head.weight"].dtype == torch.float32
