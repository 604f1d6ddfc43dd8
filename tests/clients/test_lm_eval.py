"""lm-evaluation-harness: from its command line alone, its choices are ours."""

import json
import math
import os
import subprocess
import sys
from itertools import product

import pytest
from conftest import run_json

pytestmark = pytest.mark.slow
pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'stack-lm[clients]'")

# As in the harness's own tasks for BLiMP.
TASK = """
task: blimp_local
dataset_path: json
dataset_kwargs:
  data_files: {{validation: {path}}}
output_type: multiple_choice
validation_split: validation
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
num_fewshot: 0
metric_list:
  - metric: acc
"""
NOUNS = ("teacher", "boy", "poet", "doctor")


@pytest.fixture
def pairs(tmp_path):
    """Pairs in BLiMP's format: capitals and final periods as they come."""
    path = tmp_path / "pairs.jsonl"
    with open(path, "w") as file:
        for noun, one, many in product(NOUNS, ("is", "was"), ("are", "were")):
            for good, bad in (
                (f"The {noun} {one} old.", f"The {noun} {many} old."),
                (f"A {noun}, near the house, {one} kind.", f"A {noun}, near the house, {many} kind."),
            ):
                file.write(json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "agreement"}) + "\n")
    return path


@pytest.mark.parametrize("installed", [True, False], ids=["with the package", "without the package"])
def test_blimp_from_the_command_line(capsys, tmp_path, small_run, pairs, installed):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "blimp_local.yaml").write_text(TASK.format(path=pairs))
    program = "import sys; from lm_eval.__main__ import cli_evaluate; cli_evaluate()"
    if not installed:
        program = "import sys; sys.modules['stack_lm'] = None; " + program
    command = [
        *(sys.executable, "-c", program, "--model", "hf", "--trust_remote_code", "--device", "cpu"),
        *("--model_args", f"pretrained={small_run},dtype=float32", "--tasks", "blimp_local", "--batch_size", "4"),
        *("--include_path", str(tmp_path / "tasks"), "--output_path", str(tmp_path / "out"), "--log_samples"),
    ]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = (tmp_path / "out").rglob("results_*.json")
    accuracy = 100 * json.loads(result.read_text())["results"]["blimp_local"]["acc,none"]
    items = tmp_path / "items.tsv"
    ours = run_json(capsys, "minimal-pairs", small_run, "--data", pairs, "--format", "blimp", "--items", items)
    assert ours["n"] == 32
    assert accuracy == pytest.approx(ours["accuracy"])
    # Not the choices alone: the log-probabilities of the sentences.
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    theirs = [json.loads(line) for line in samples.read_text().splitlines()]
    head, *rows = [line.split("\t") for line in items.read_text().splitlines()]
    assert len(theirs) == len(rows) == 32
    columns = [place for place, name in enumerate(head) if name.startswith("logprob")]
    for sample, row in zip(sorted(theirs, key=lambda sample: sample["doc_id"]), rows, strict=True):
        scores = [float(choice[0]) for choice in sample["filtered_resps"]]
        assert scores == pytest.approx([float(row[place]) for place in columns], rel=1e-4, abs=1e-3)


def test_rolling_likelihoods_are_those_of_perplexity(capsys, tmp_path, small_run):
    """The harness puts the beginning token before a text itself; the end is in the text."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    text = "the teacher near the house is old ."
    (tmp_path / "text.txt").write_text(text + "\n")
    ours = run_json(capsys, "perplexity", small_run, "--data", tmp_path / "text.txt")
    options = {"dtype": "float32", "device": "cpu", "trust_remote_code": True}
    model = HFLM(pretrained=str(small_run), add_bos_token=False, **options)
    (theirs,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (f"{text} </s>",), 0)])
    assert theirs == pytest.approx(-math.log(ours["perplexity"]) * ours["n_tokens"], rel=1e-4)
    twice = HFLM(pretrained=str(small_run), **options)
    assert twice.tok_encode(text) == [model.prefix_token_id, *model.tok_encode(text)]
