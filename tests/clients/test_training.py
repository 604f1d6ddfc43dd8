"""TRL's supervised fine-tuning, datasets' streams and transformers' pipelines, on a model as training leaves it."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
def test_supervised_fine_tuning(small_run, tmp_path):
    trl = pytest.importorskip("trl", reason="needs TRL: pip install 'stack-lm[clients]'")
    texts = ["The teacher is old.", "The boy near the house was kind."] * 20
    model = AutoModelForCausalLM.from_pretrained(small_run)
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        learning_rate=0.01,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
    )
    trainer = trl.SFTTrainer(model, arguments, train_dataset=Dataset.from_dict({"text": texts}))
    # The tokenizer that TRL loads begins and ends a text as training here did.
    tokenizer = AutoTokenizer.from_pretrained(small_run)
    ids = tokenizer(texts[0]).input_ids
    assert trainer.train_dataset[0]["input_ids"] == [*ids, tokenizer.eos_token_id]
    assert ids[0] == tokenizer.bos_token_id
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert losses[-1] < 0.5 * losses[0]


def test_text_generation_pipeline(small_run):
    generate = pipeline("text-generation", model=small_run)
    (result,) = generate("The teacher near the", max_new_tokens=5, do_sample=False)
    assert result["generated_text"].startswith("The teacher near the ")
    (again,) = generate(" The teacher near the", max_new_tokens=5, do_sample=False)
    assert again["generated_text"].split() == result["generated_text"].split()
    model, tokenizer = generate.model, generate.tokenizer
    ids = tokenizer("The teacher near the", return_tensors="pt").input_ids
    assert ids[0, 0] == tokenizer.bos_token_id
    expected = model.generate(ids, max_new_tokens=5, do_sample=False)[0, ids.shape[1] :]
    assert result["generated_text"].split()[4:] == tokenizer.decode(expected, skip_special_tokens=True).split()
    # A model that was trained with ends ends by itself.
    torch.manual_seed(0)
    samples = generate("The", max_new_tokens=200, num_return_sequences=5)
    assert all(len(sample["generated_text"].split()) < 200 for sample in samples)
