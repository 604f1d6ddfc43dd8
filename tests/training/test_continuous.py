"""Continuous text in training: the state is carried, gradients are cut, documents begin anew, resuming is exact."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import thinned
from test_run_directory import MODEL, records, same

from stack_lm.core.errors import InputError
from stack_lm.text import generate_corpus
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.continuous import Segments
from stack_lm.training.language_model import Trainer
from stack_lm.training.validation import evaluate_continuous


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Twenty documents of seven sentences."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    sentences = [" ".join(sentence.words) for sentence in generate_corpus(140, seed=4)]
    path.write_text("\n\n".join("\n".join(sentences[i : i + 7]) for i in range(0, 140, 7)) + "\n")
    return path


def config(directory, text, *, data=None, model=None, **training):
    fixed = {"threads": 1, "loss_dtype": "float32", "learning_rate": 5e-3}
    loop = {"epochs": 2, "batch_size": 3, "log_every": 5} | fixed | training
    fields = {"source": str(text), "mode": "continuous", "sequence_length": 9, "held_out": 4} | (data or {})
    return RunConfig(
        output_dir=str(directory),
        model=MODEL | (model or {}),
        tokenizer=TokenizerConfig(vocab_size=200),
        data=DataConfig(**fields),
        training=LoopConfig(**loop),
    )


MEMORIES = [
    {},
    {"memory": "none"},
    {"memory": "queue"},
    {"memory": "superposition"},
    {"memory": "baby_ntm", "memory_depth": 4},
    {"learn_initial_state": True},
]


@pytest.mark.parametrize("model", MEMORIES, ids=str)
def test_the_losses_of_an_epoch_are_those_of_whole_documents(tmp_path, text, model):
    """Each document from its first token to its last, although it is read in pieces, beside others."""
    trainer = Trainer(config(tmp_path, text, model=model | {"output_dropout": 0.0}), quiet=True)
    nats, batches = 0.0, trainer.batches.read(None)
    with torch.no_grad():
        for _ in range(trainer.batches.steps_per_epoch):
            batch, _ = next(batches)
            nats += float(trainer.loss(trainer.collate(batch).inputs, 1.0))
        documents = trainer.batches.pools.whole
        rows = sum(len(document) > 1 for document in documents)
        assert rows == len(documents) == 16
        longest = -(-int((documents.lengths - 1).sum()) // 27) * 9
        assert documents.lengths.max() <= longest + 1  # so that none was cut
        expected = 0.0
        for document in documents:
            ids = torch.tensor([document])
            expected += float(trainer.model(ids, labels=ids).loss) * (len(document) - 1)
    assert nats == pytest.approx(expected, rel=1e-5)


def test_gradients_stop_where_a_segment_begins(tmp_path, text):
    trainer = Trainer(config(tmp_path, text, model={"output_dropout": 0.0}), quiet=True)
    first, second = ([[5, 6, 7]] * 3, [[7, 8, 9]] * 3)
    for tokens, fresh in ((first, True), (second, False)):
        trainer.model.zero_grad()
        trainer.loss(trainer.collate(Segments(tokens, [fresh] * 3)).inputs, 1.0).backward()
    gradient = trainer.model.model.embed_tokens.weight.grad
    assert gradient[5].abs().sum() == gradient[6].abs().sum() == 0
    assert gradient[7].abs().sum() > 0
    assert all(not part.requires_grad for part in trainer.carried.value.state().reading.detach()[None])


def test_validation_reads_documents_whole(tmp_path, text):
    trainer = Trainer(config(tmp_path, text), quiet=True)
    trainer.model.eval()
    losses = evaluate_continuous(trainer.model, trainer.data.validation, trainer.accelerator, sequence_length=9)
    expected, count = 0.0, 0
    for document in trainer.data.validation:
        ids = torch.tensor([document])
        with torch.no_grad():
            expected += float(trainer.model(ids, labels=ids).loss) * (len(document) - 1)
        count += len(document) - 1
    assert losses.tokens == count
    assert losses.nats == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("model", thinned(MEMORIES), ids=str)
@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["in memory", "stream"])
def test_resuming_is_exact_within_documents(tmp_path, text, model, streaming):
    data = {"streaming": True, "held_out": 0.2, "pool": 40, "workers": 0} if streaming else {}
    arguments = {"max_steps": 40, "epochs": 9, "save_every": 7, "keep_checkpoints": 99, "gradient_accumulation": 1}
    whole, part = (config(tmp_path / name, text, data=data, model=model, **arguments) for name in ("whole", "part"))
    Trainer(whole, quiet=True).train()
    Trainer(part, quiet=True).train()
    for step in (21, 28, 35, 40):
        shutil.rmtree(tmp_path / "part" / "checkpoints" / f"checkpoint-{step}")
    resumed = Trainer(part, resume=True, quiet=True)
    assert resumed.step == 14
    assert resumed.position["batch"] > 0
    resumed.train()
    assert same(tmp_path / "part", tmp_path / "whole")
    volatile = ("seconds", "tokens_per_second")
    logs = [
        [{key: value for key, value in record.items() if key not in volatile} for record in records(tmp_path / name)]
        for name in ("part", "whole")
    ]
    assert json.dumps(logs[0]) == json.dumps(logs[1])


def test_segments_of_an_update_follow_each_other(tmp_path, text):
    """With accumulation the state goes from each batch of an update to the next."""
    settings = {"output_dropout": 0.0}
    trainer = Trainer(config(tmp_path, text, model=settings, gradient_accumulation=2), quiet=True)
    one, two = (Segments([tokens] * 3, [fresh] * 3) for tokens, fresh in (([5, 6, 7], True), ([7, 8, 9], False)))
    with torch.no_grad():
        parts = [trainer.collate(batch) for batch in (one, two)]  # both are collated before the first is run
        loss = sum(float(trainer.loss(part.inputs, 6.0)) for part in parts)
        ids = torch.tensor([[5, 6, 7, 8, 9]] * 3)
        trainer.model.eval()
        assert loss == pytest.approx(float(trainer.model(ids, labels=ids).loss) * 2, rel=1e-5)


def test_a_skipped_update_leaves_the_state_as_it_was(tmp_path, text):
    trainer = Trainer(config(tmp_path / "run", text, on_nan="skip", epochs=1), quiet=True)
    word = trainer.data.validation[0][3]
    with torch.no_grad():
        trainer.model.model.embed_tokens.weight[word] = float("nan")
    trainer.evaluate = lambda: ({"eval_nats_per_token": 1.0}, "")
    trainer.updater.fault = lambda step: None  # the poisoned one stays
    trainer.train()
    log = [record for record in records(tmp_path / "run") if "skipped_updates" in record]
    assert sum(record["skipped_updates"] for record in log) > 0
    assert any("train_nats_per_token" in record for record in log)
    assert torch.isfinite(trainer.carried.value.state().reading).all()


def test_another_number_of_processes_is_refused(tmp_path, text):
    settings = config(tmp_path / "run", text, epochs=1)
    Trainer(settings, quiet=True).train()
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    state = json.loads((checkpoint / "trainer_state.json").read_text()) | {"processes": 2}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    (checkpoint / "manifest.json").unlink()
    longer = replace(settings, training=replace(settings.training, epochs=2))
    with pytest.raises(InputError, match=r"of continuous text is of 2 process\(es\), and this run has 1"):
        Trainer(longer, resume=True, quiet=True)
