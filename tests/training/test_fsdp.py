"""Two processes, with weights shared out (FSDP2, FSDP1) or whole (DDP), train and validate as one process does."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from contextlib import nullcontext
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM
from types import SimpleNamespace
from stack_lm import DeepStackRNNConfig, StackRNNConfig, StackTransformerConfig
from stack_lm.training.validation import evaluate_loss

STACK = {"memory_size": 3, "hidden_size": 8}
CONFIGS = {
    "rnn": StackRNNConfig(vocab_size=23, embedding_size=6, hidden_size=8, memory_size=4),
    "deep": DeepStackRNNConfig(
        vocab_size=23, embedding_size=6, layers=[STACK, STACK | {"detach": True}], auxiliary_losses=[{"layer": 0}]
    ),
    "transformer": StackTransformerConfig(
        vocab_size=23, hidden_size=16, num_attention_heads=2, dropout=0.0, attention_dropout=0.0,
        layers=[STACK | {"controller": "lstm", "detach": True}, "stack", "attention"],
        auxiliary_losses=[{"layer": 0, "head": "shared"}], tie_word_embeddings=True, bias=False,
    ),
}
WHOLE = StateDictOptions(full_state_dict=True)


def make():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[sys.argv[1]]).train()


def wrapped(kind, model):
    units = {type(part) for part in model.modules() if type(part).__name__ in model._no_split_modules}
    if kind == "fsdp2 by layer":
        for part in [each for each in model.modules() if type(each) in units]:
            fully_shard(part)
    if kind.startswith("fsdp2"):
        return fully_shard(model)
    if kind == "fsdp1":
        options = {"auto_wrap_policy": ModuleWrapPolicy(units), "device_id": torch.device("cpu")}
        return FullyShardedDataParallel(model, use_orig_params=True, **options)
    return DistributedDataParallel(model)


def train(model, batches, reduce):
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for batch in batches:
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(reduce(loss.detach().clone()))
    return torch.stack(losses)


def mean(loss):
    dist.all_reduce(loss)
    return loss / 2


def zero(stage, rank, batches, one, expected):
    # The same with DeepSpeed, of whose checkpoint one process loads the weights.
    import deepspeed
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    def start(model):
        # DeepSpeed clips gradients to a norm of 1 unless told otherwise.
        options = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1e9, "zero_allow_untested_optimizer": True}
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        return deepspeed.initialize(
            model=model, optimizer=optimizer, config=options | {"zero_optimization": {"stage": stage}}
        )[0]
    engine, losses = start(make()), []
    for batch in batches[:, 2 * rank : 2 * rank + 2]:
        loss = engine(batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        losses.append(mean(loss.detach().clone()))
    torch.testing.assert_close(torch.stack(losses), expected, rtol=1e-5, atol=1e-6, msg=f"ZeRO {stage}")
    folder = f"{sys.argv[2]}/{stage}"
    engine.save_checkpoint(folder)
    alone, again = make(), make()
    alone.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(folder), strict=False)
    for (name, value), other in zip(one.named_parameters(), alone.parameters()):
        torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-5, msg=f"ZeRO {stage}, {name}")
    again.load_state_dict(one.state_dict())
    part = batches[0, 2 * rank : 2 * rank + 2]
    loss = mean(start(again)(part, labels=part).loss.detach())
    torch.testing.assert_close(loss, one(batches[0], labels=batches[0]).loss.detach(), rtol=1e-5, atol=1e-6)


dist.init_process_group("gloo")
rank = dist.get_rank()
batches = torch.randint(1, 23, (10, 4, 7), generator=torch.Generator().manual_seed(1))
one = make()
expected = train(one, batches, lambda loss: loss)
accelerator = SimpleNamespace(
    process_index=0, num_processes=1, device=torch.device("cpu"), unwrap_model=lambda model: model,
    autocast=nullcontext, reduce=lambda tensor, reduction: tensor,
)
validated = evaluate_loss(one, [[1, 2, 3, 4], [5, 6, 7]], accelerator).nats
for stage in (1, 2, 3) if sys.argv[2:] else ():
    zero(stage, rank, batches, one, expected)
for kind in ("fsdp2", "fsdp2 by layer", "fsdp1", "ddp") if not sys.argv[2:] else ():
    model = wrapped(kind, make())
    losses = train(model, batches[:, 2 * rank : 2 * rank + 2], mean)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6, msg=kind)
    weights = get_model_state_dict(model, options=WHOLE)
    if rank == 0 or kind == "ddp":
        alone = make()
        alone.load_state_dict(weights)
        for (name, value), other in zip(one.named_parameters(), alone.parameters()):
            torch.testing.assert_close(other, value, rtol=1e-3, atol=1e-5, msg=f"{kind}, {name}")
    again = wrapped(kind, make())
    set_model_state_dict(again, one.state_dict(), options=WHOLE)
    if kind == "fsdp2":
        nats = evaluate_loss(again, [[1, 2, 3, 4], [5, 6, 7]], accelerator).nats
        assert abs(nats - validated) < 1e-4, (nats, validated)
        assert type(next(again.parameters())).__name__ == "DTensor"  # shared out again
    loss = mean(again(batches[0, 2 * rank : 2 * rank + 2], labels=batches[0, 2 * rank : 2 * rank + 2]).loss.detach())
    torch.testing.assert_close(loss, one(batches[0], labels=batches[0]).loss.detach(), rtol=1e-5, atol=1e-6, msg=kind)
dist.barrier()
dist.destroy_process_group()
print("equal")
"""


@pytest.mark.slow
@pytest.mark.parametrize("network", ["rnn", "deep", "transformer"])
@pytest.mark.parametrize("library", ["torch", "deepspeed"])
def test_two_processes_train_as_one(network, library, tmp_path):
    """Ten updates with the compiled scan; checkpoints of each load in the other; FSDP by layer; ZeRO 1 to 3."""
    pytest.importorskip(library, reason="DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed wheel")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        [*command, network, *([str(tmp_path)] if library == "deepspeed" else [])],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.stdout.count("equal") == 2, done.stderr[-3000:]
