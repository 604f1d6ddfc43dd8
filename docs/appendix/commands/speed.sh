# Timings
# Not to run as a whole: these are the commands behind the tables of docs/appendix, most of which train for hours.


# --- The scan

python benchmarks/scan.py --threads 1 --json scan.json
python benchmarks/scan.py --from scan.json --markdown
python benchmarks/plot.py scan.json docs/figures/scan.png


# --- Memories

python benchmarks/memories.py --rounds 30


# --- Nondeterministic stacks

pip install --no-deps torch_semiring_einsum nvidia-ml-py   # of the first table alone
python benchmarks/nondeterministic.py --threads 1 --json nondeterministic.json
python benchmarks/plot.py nondeterministic.json docs/figures/nondeterministic.png


# --- Stack attention

python benchmarks/stack_attention.py


# --- Several seeds at once

python benchmarks/seeds.py --threads 1


# --- Trials of formal tasks

python benchmarks/trials.py --threads 1 --only flare
python benchmarks/trials.py --threads 1 --only deletang2023


# --- On a GPU

python -m pytest -m gpu tests/kernels tests/trials
python benchmarks/gpu.py --only scan --rounds 8 --batch-size 64 --embedding-size 400 --hidden-size 650 --memory-size 16
python benchmarks/gpu.py --only language-model --ways lstm triton triton-graphs --rounds 10 --batch-size 64 --length 64 \
    --memory-size 16
python benchmarks/training.py --device cuda --only loop
python - <<END    # the loss
import time, torch
from stack_lm.models import loss

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_default_device("cuda")
hidden, weight = torch.randn(32768, 384).requires_grad_(), (torch.randn(16003, 384) * 0.05).requires_grad_()
bias, labels = torch.zeros(16003, requires_grad=True), torch.randint(16003, (32768,))
for dtype in (torch.float32, torch.bfloat16):
    for rows in (None, 2048, 16384):
        for times in (3, 8):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(times):
                loss.linear_cross_entropy(hidden, weight, bias, labels, dtype=dtype, chunk_rows=rows).backward()
            torch.cuda.synchronize()
        print(dtype, rows, (time.perf_counter() - start) / times)
END


# --- Loss

stack-lm train lm deep/wikipedia_base_384 data.source=wiki.txt data.streaming=false training.max_steps=40 training.threads=1 \
    training.batch_size=64 model.dropout=0 training.log_every=5 training.mixed_precision=null output_dir=runs/float32    # or bf16

stack-lm train lm merrill2019/brown_u1 seed=0 training.loss_dtype=bfloat16 training.epochs=2 output_dir=runs/bfloat16-0


# --- A sampled softmax

run="merrill2019/brown_u1 data.source=tenth.txt data.validation=others.txt training.epochs=1 training.max_grad_norm=0.5
    tokenizer.kind=bpe tokenizer.vocab_size=16000 training.save_every=1000"
stack-lm train lm $run output_dir=runs/whole
stack-lm train lm $run output_dir=runs/sampled training.softmax_samples=2000
stack-lm train lm $run output_dir=runs/end training.softmax_samples=2000 training.max_steps=7000
stack-lm train lm $run output_dir=runs/end --resume


# --- Models of transformers on a CPU

python benchmarks/library_models.py --batch 4 --length 64 --seconds 5


# --- The training loop

python benchmarks/training.py --threads 1 --only loop optimizers

# The share of padding in batches of sentences of like length: 7.9%, 8.2%, 8.2%
python - <<END
from itertools import islice

from stack_lm.training.batches import SentenceBatches, WholePools
from stack_lm.training.compact import TokenArray

rows = [[0] * (len(line.split()) + 1) for line in open("wiki.txt") if line.strip()]
for size in 16, 32, 128:
    batches = SentenceBatches(WholePools(TokenArray.pack([rows], 1)), size, seed=0)
    lengths = [[*map(len, batch)] for batch, _ in islice(batches.read(None), batches.steps_per_epoch)]
    padded = sum(max(batch) * len(batch) for batch in lengths)
    print(size, f"{1 - sum(map(sum, lengths)) / padded:.1%}")
END


# --- How to measure

python benchmarks/scan.py --threads 1 --json scan.json    # the scan, whole training steps, generation, memory
python benchmarks/loss.py --threads 1 --json loss.json    # the loss, and the rows of a chunk
python benchmarks/scan.py --from scan.json --markdown     # the tables of this page
python benchmarks/plot.py scan.json docs/figures/scan.png         # their curves
