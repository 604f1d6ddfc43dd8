"""Weights & Biases as a tracker, without a login and without the network."""

import pytest
from test_language_model import run_config

from stack_lm.training.language_model import Trainer

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
def test_without_a_login_it_runs_offline_in_the_directory_of_the_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("wandb", reason="needs Weights & Biases: pip install 'stack-lm[clients]'")
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    Trainer(run_config(tmp_path / "run", epochs=1, tracker="wandb")).train()
    (directory,) = (tmp_path / "run" / "tracker" / "wandb").glob("offline-run-*")
    assert list(directory.glob("*.wandb"))
    lines = [line for line in capsys.readouterr().err.splitlines() if "wandb" in line]
    assert len(lines) == 1
    assert "wandb runs offline (No API key configured" in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
