"""The temperature schedule: the released one, from transformers' Trainer and from a loop of one's own."""

import math

import pytest
import torch
from conftest import tiny_config
from transformers import Trainer, TrainingArguments

from stack_lm import StackRNNForCausalLM, TemperatureSchedule
from stack_lm.training.temperature import temperatures

WARM = {"memory": "superposition", "operation_control": "softmax_temperature"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_released_schedule(dtype):
    """T <- max(T exp(-1e-4), 0.5) before each sequence, from 1: it stays at half from the 6,932nd on."""
    model = StackRNNForCausalLM(tiny_config(**WARM)).to(dtype)
    (temperature,) = temperatures(model)
    released = 1.0
    for n in range(1, 7001):
        released = max(released * math.exp(-1e-4), 0.5)
        if n % 500 == 1:
            TemperatureSchedule().step(model, n)
            torch.testing.assert_close(temperature, torch.tensor(released, dtype=dtype))
    assert released == 0.5


def test_it_changes_what_the_model_computes():
    model = StackRNNForCausalLM(tiny_config(**WARM)).eval()
    batch = torch.randint(1, 23, (2, 6))
    before = model(batch, output_actions=True).actions.operation
    TemperatureSchedule(decay=1.0, minimum=0.1).step(model, 2)
    after = model(batch, output_actions=True).actions.operation
    assert (after.max(-1).values > before.max(-1).values).all()


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_calls_it_once_an_update(tmp_path):
    model = StackRNNForCausalLM(tiny_config(**WARM))
    data = [{"input_ids": row, "labels": row} for row in torch.randint(1, 23, (24, 5))]
    arguments = TrainingArguments(
        tmp_path,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        report_to="none",
        use_cpu=True,
        save_strategy="epoch",
    )
    schedule = TemperatureSchedule(decay=0.01, minimum=0.1)
    Trainer(model, arguments, train_dataset=data, callbacks=[schedule]).train()
    (temperature,) = temperatures(model)
    assert float(temperature) == pytest.approx(math.exp(-0.48), rel=1e-5)
    (saved,) = temperatures(StackRNNForCausalLM.from_pretrained(tmp_path / "checkpoint-6"))
    assert torch.equal(saved, temperature)
    plain = StackRNNForCausalLM(tiny_config())
    with pytest.raises(ValueError, match="a temperature schedule needs a model with operation_control="):
        Trainer(plain, arguments, train_dataset=data, callbacks=[schedule]).train()


@pytest.mark.parametrize("arguments", [{"decay": 0.0}, {"decay": float("nan")}, {"minimum": -1.0}])
def test_bad_numbers_are_refused(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be a number above 0"):
        TemperatureSchedule(**arguments)
