"""transformers' Trainer, on the same batches with the same optimizer and schedule, has the same losses."""

from dataclasses import replace

import pytest
import torch
from test_language_model import metrics, run_config
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, TrainingArguments
from transformers import Trainer as TransformersTrainer

from stack_lm import DeepStackRNNConfig, DeepStackRNNForCausalLM, LossParts
from stack_lm.training.batches import collate
from stack_lm.training.language_model import Trainer, make_model
from stack_lm.training.new_model import InitialModel


class GivenBatches(TransformersTrainer):
    """On batches as they come."""

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=None, collate_fn=lambda batch: batch)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_loss_curve_is_that_of_transformers_trainer(tmp_path, accumulation):
    config = run_config(
        tmp_path / "ours",
        epochs=1,
        log_every=1,
        gradient_accumulation=accumulation,
        schedule="linear",
        warmup_steps=3,
        max_grad_norm=0.5,
        learning_rate=1e-2,
    )
    config = replace(config, model=config.model | {"output_dropout": 0.0})
    ours = Trainer(config, quiet=True)
    reader = ours.batches.read(None)
    batches = [next(reader)[0] for _ in range(ours.batches.steps_per_epoch)]
    start = {name: value.clone() for name, value in ours.model.state_dict().items()}
    ours.train()
    expected = [record for record in metrics(tmp_path / "ours") if "train_nats_per_token" in record]

    model, _ = make_model(config, ours.data.tokenizer, InitialModel(None))
    model.load_state_dict(start)
    inputs = [dict(zip(("input_ids", "labels"), collate(batch, torch.device("cpu")), strict=True)) for batch in batches]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "theirs"),
        num_train_epochs=1,
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-2,
        lr_scheduler_type="linear",
        warmup_steps=3,
        weight_decay=0.0,  # without which AdamW is Adam
        max_grad_norm=0.5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    theirs = GivenBatches(model, arguments, train_dataset=inputs)
    theirs.train()
    log = [record for record in theirs.state.log_history if "loss" in record]
    assert len(log) == len(expected) == -(-len(batches) // accumulation)
    losses = [[record["loss"] for record in log], [record["train_nats_per_token"] for record in expected]]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    rates = [[record["learning_rate"] for record in log], [record["learning_rate"] for record in expected]]
    assert rates[0] == pytest.approx(rates[1])  # of the update itself
    for name, value in ours.model.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_parts_of_the_loss_are_logged_by_name(tmp_path):
    """With accumulated gradients; the loss itself is that of prediction, in training as in evaluation."""
    layers = [{"memory": "stack", "hidden_size": 8, "memory_size": 4}, {"memory": "none", "hidden_size": 8}]
    model = DeepStackRNNForCausalLM(DeepStackRNNConfig(vocab_size=20, layers=layers, auxiliary_losses=[{"layer": 0}]))
    ids = torch.randint(20, (8, 6))
    with torch.no_grad():
        parts = [model.train()(each, labels=each).loss_parts for each in ids.split(2)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=2,
        logging_steps=2,
        learning_rate=0.0,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": row, "labels": row} for row in ids]
    trainer = TransformersTrainer(model, arguments, train_dataset=data, callbacks=[LossParts()])
    trainer.train()
    (record,) = (each for each in trainer.state.log_history if "loss" in each)
    for name in ("main", "auxiliary_0"):
        assert record[f"loss_{name}"] == pytest.approx(sum(float(part[name]) for part in parts) / 4, rel=1e-5)
    assert record["loss"] == pytest.approx(record["loss_main"], rel=1e-5)
    assert not model._forward_hooks


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_evaluation_of_transformers_trainer_does_not_depend_on_padding(tmp_path, side):
    """The number of labels that it counts has the first token after padding on the left, which nothing predicts."""
    ours = Trainer(run_config(tmp_path / "run", epochs=1), quiet=True)
    tokenizer, model = ours.data.tokenizer, ours.model.eval()
    tokenizer.padding_side = side
    sentences = [ours.data.validation[i] for i in range(12)]
    assert len({len(ids) for ids in sentences}) > 1
    arguments = TrainingArguments(
        output_dir=str(tmp_path), per_device_eval_batch_size=12, report_to="none", use_cpu=True, disable_tqdm=True
    )
    data = [{"input_ids": ids} for ids in sentences]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    theirs = TransformersTrainer(model, arguments, eval_dataset=data, data_collator=collator).evaluate()
    with torch.no_grad():
        alone = [(model(ids := torch.tensor([each]), labels=ids).loss.item(), len(each) - 1) for each in sentences]
    nats = sum(loss * n for loss, n in alone)
    assert theirs["eval_loss"] == pytest.approx(nats / sum(n for _, n in alone), rel=1e-5)
