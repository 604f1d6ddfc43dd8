"""TRL's supervised fine-tuning, datasets' streams and transformers' pipelines, on a model as training leaves it."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, pipeline

from stack_lm import StackTransformerConfig, StackTransformerForCausalLM

pytestmark = pytest.mark.slow


PAIRS = {"prompt": ["The teacher"], "chosen": [" is old."], "rejected": [" are old."]}


def trl_trainer(kind, model, directory, data, **options):
    """One of TRL's trainers, such as "SFT", for updates on a CPU."""
    trl = pytest.importorskip("trl", reason="needs TRL: pip install 'stack-lm[clients]'")
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    settings = {name: options.pop(name) for name in ("reward_funcs",) if name in options}
    options = {"per_device_train_batch_size": 4, "learning_rate": 0.01, "bf16": False} | quiet | options
    arguments = getattr(trl, f"{kind}Config")(output_dir=str(directory), **options)
    return getattr(trl, f"{kind}Trainer")(model, args=arguments, train_dataset=Dataset.from_dict(data), **settings)


@pytest.mark.filterwarnings("ignore")
def test_supervised_fine_tuning(small_run, tmp_path):
    texts = ["The teacher is old.", "The boy near the house was kind."] * 20
    trainer = trl_trainer("SFT", small_run, tmp_path, {"text": texts}, num_train_epochs=3)
    # The tokenizer that TRL loads begins and ends a text as training here did.
    tokenizer = AutoTokenizer.from_pretrained(small_run)
    ids = tokenizer(texts[0]).input_ids
    assert trainer.train_dataset[0]["input_ids"] == [*ids, tokenizer.eos_token_id]
    assert ids[0] == tokenizer.bos_token_id
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert losses[-1] < 0.5 * losses[0]


@pytest.fixture(scope="module")
def layered(small_run, tmp_path_factory):
    """The directory of a transformer whose first layer learns only from its auxiliary loss."""
    path, tokenizer = tmp_path_factory.mktemp("layered"), AutoTokenizer.from_pretrained(small_run)
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    layers = [{"controller": "lstm", "hidden_size": 8, "memory_size": 4, "detach": True}, "attention"]
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "tie_word_embeddings": True}
    losses = [{"layer": 0, "head": "shared"}]
    config = StackTransformerConfig(vocab_size=len(tokenizer), layers=layers, auxiliary_losses=losses, **sizes, **ids)
    StackTransformerForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


KINDS = {
    "SFT": ({"text": ["The teacher is old."]}, {}),
    "DPO": (PAIRS, {}),
    "Reward": ({name: PAIRS[name] for name in ("chosen", "rejected")}, {}),
    "GRPO": (
        {"prompt": PAIRS["prompt"]},
        {
            "num_generations": 4,
            "max_completion_length": 5,
            "reward_funcs": lambda completions, **_: [float(i) for i, _ in enumerate(completions)],
        },
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_moves_under_trl(kind, layered, tmp_path):
    """But in a reward model those of the detached layer, for lack of an auxiliary loss, and biases that cancel."""
    data, options = KINDS[kind]
    data = {name: 8 * values for name, values in data.items()}
    trainer = trl_trainer(kind, layered, tmp_path, data, max_steps=2, **options)
    model = trainer.accelerator.unwrap_model(trainer.model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer.train()
    same = [name for name, value in model.state_dict().items() if torch.equal(value, before[name])]
    allowed = (".layers.0.", "score.bias", "model.norm.bias") if kind == "Reward" else ()
    assert not [name for name in same if not any(part in name for part in allowed)]


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
