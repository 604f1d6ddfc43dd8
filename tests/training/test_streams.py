"""Training on a stream: its epochs, exact resuming, and what it cannot do."""

import shutil
from dataclasses import replace

import pytest
from test_language_model import metrics, run_config, same, weights

from stack_lm.core.errors import InputError
from stack_lm.training.config import DataConfig
from stack_lm.training.language_model import Trainer


@pytest.fixture
def articles(tmp_path):
    from datasets import Dataset, disable_progress_bars

    from stack_lm.text.generated import generate_corpus

    disable_progress_bars()
    words = [" ".join(sentence.words) for sentence in generate_corpus(400, seed=5)]
    directory = tmp_path / "articles"
    directory.mkdir()
    for shard in range(4):
        texts = ["\n".join(words[i : i + 5]) for i in range(100 * shard, 100 * (shard + 1), 5)]
        Dataset.from_dict({"text": texts}).to_parquet(str(directory / f"train-{shard}.parquet"))
    (directory / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train-*.parquet\n---\n"
    )
    return DataConfig(source=f"hf:{directory}", streaming=True, held_out=0.2, pool=64, validation_limit=50)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])  # a process each, for each epoch
def test_training_on_a_stream_and_resuming_exactly(tmp_path, articles, workers):
    articles = replace(articles, workers=workers)
    whole, part = tmp_path / "whole", tmp_path / "part"
    arguments = {"data": articles, "max_steps": 60, "save_every": 25, "eval_every": 30, "keep_checkpoints": 9}
    result = Trainer(run_config(whole, **arguments), quiet=True).train()
    assert (result["step"], result["eval_tokens"] > 100) == (60, True)
    assert result["epoch"] >= 1  # 320 sentences in batches of 8: the stream was read to its end and again
    Trainer(run_config(part, **arguments | {"max_steps": 50}), quiet=True).train()
    shutil.rmtree(part / "checkpoints" / "checkpoint-50")
    resumed = Trainer(run_config(part, **arguments), resume=True, quiet=True)
    assert resumed.step == 25
    resumed.train()
    assert same(weights(part), weights(whole))


def test_a_stream_has_the_epochs_of_the_same_text_in_memory(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sees a dog\na dog sees the cat\n" * 20)
    (tmp_path / "other.txt").write_text("a cat sees the dog\n" * 4)
    found = {}
    for name, streaming in (("memory", False), ("stream", True)):
        # Five batches an epoch.
        data = DataConfig(source=str(text), validation=str(tmp_path / "other.txt"), streaming=streaming, workers=0)
        config = run_config(
            tmp_path / name, data=data, epochs=9, max_steps=13, save_epochs=True, keep_checkpoints=9, log_every=100
        )
        Trainer(config, quiet=True).train()
        evaluations = [(r["step"], r["epoch"]) for r in metrics(tmp_path / name) if "eval_perplexity" in r]
        kept = [sorted(path.name for path in (tmp_path / name / part).iterdir()) for part in ("checkpoints", "epochs")]
        found[name] = evaluations, *kept
    assert found["stream"] == found["memory"]
    assert found["stream"][0] == [(5, 1), (10, 2), (13, 2)]

    shutil.rmtree(tmp_path / "stream" / "checkpoints" / "checkpoint-13")
    (tmp_path / "stream" / "model.safetensors").rename(tmp_path / "model.safetensors")
    resumed = Trainer(config, resume=True, quiet=True)
    assert resumed.step == 10
    resumed.train()
    assert same(weights(tmp_path / "stream"), weights(tmp_path))


def test_a_stream_needs_a_number_of_steps(tmp_path, articles):
    with pytest.raises(InputError, match=r"data.streaming needs training.max_steps"):
        Trainer(run_config(tmp_path / "run", data=articles), quiet=True)
    with pytest.raises(InputError, match="cannot be streamed: it is neither a text file nor a dataset"):
        data = replace(articles, source="generated:100")
        Trainer(run_config(tmp_path / "run", data=data, max_steps=5), quiet=True)


@pytest.mark.parametrize("mode", ["sentences", "continuous"])
@pytest.mark.parametrize(("held_out", "what"), [(1e-9, "held out"), (1 - 1e-9, "left to train on")])
def test_documents_on_both_sides_of_a_stream(tmp_path, held_out, what, mode):
    (tmp_path / "text.txt").write_text("the cat sees a dog\n" * 40)  # one document
    data = DataConfig(source=str(tmp_path / "text.txt"), streaming=True, held_out=held_out, mode=mode)
    with pytest.raises(InputError, match=f"no document of .*text.txt is {what} with data.held_out="):
        Trainer(run_config(tmp_path / "run", data=data, max_steps=5), quiet=True)


@pytest.mark.parametrize(("key", "value"), [("limit", 10), ("held_out_seed", 0)])
def test_settings_that_a_stream_would_ignore(tmp_path, key, value):
    data = DataConfig(source="text.txt", streaming=True, **{key: value})
    with pytest.raises(InputError, match=f"data.{key} is not for a stream"):
        run_config(tmp_path, data=data, max_steps=3).check()
