#!/bin/sh
# All checks that need a GPU, in at most eight minutes: their results go to a file that the documentation quotes.
#
#     pip install -e ".[dev]"
#     sh benchmarks/gpu_check.sh [OUTPUT]      (gpu_check.txt by default)
#
# Each part has its own time limit, and a part that fails or hangs does not end the others: its line says so, and the
# exit status is 1. STACK_LM_GPU_CHECK_QUICK=1 tries the script on a CPU, with small sizes, and times nothing of interest.
set -u
output=$(realpath "${1:-gpu_check.txt}") || exit 2
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
failed=0
: > "$output" || exit 2

part() { # SECONDS TITLE COMMAND...
    seconds=$1 title=$2
    shift 2
    printf '\n== %s\n$ %s\n' "$title" "$*" >> "$output"
    start=$(date +%s)
    timeout -k 1 "$seconds" "$@" >> "$output" 2>&1
    status=$?
    case $status in
        0) said=passed ;;
        124 | 137) said="HANGS or is slow: stopped after $seconds s" ;;
        *) said="FAILED with status $status" ;;
    esac
    [ "$status" -eq 0 ] || failed=1
    printf -- '-- %s, %s s\n' "$said" "$(($(date +%s) - start))" >> "$output"
    echo "$title: $said"
}

if [ "${STACK_LM_GPU_CHECK_QUICK:-}" ]; then
    export TRITON_INTERPRET=1
    part 60 "a stack RNN, two updates" "$python" benchmarks/gpu_updates.py --device cpu --updates 2 --batch-size 2 --length 2
    part 60 "stack attention" "$python" benchmarks/stack_attention.py --quick --only scan
    exit $failed
fi
found=$(timeout -k 1 25 "$python" -c 'import pytest, torch, stack_lm.parsing
assert torch.cuda.is_available(), "torch sees no GPU"
print(torch.cuda.get_device_name())' 2>&1) || {
    echo "gpu_check.sh: $python: $(echo "$found" | tail -n 1)" | tee -a "$output" >&2
    exit 2
}
echo "$found" >> "$output"
# In files with such tests: to look for them in all takes half a minute.
part 95 "tests" "$python" -m pytest -q -p no:cacheprovider -m gpu $(grep -rl --include='*.py' 'mark\.gpu' tests)
# The updates that used to hang, once in a million sentences.
part 55 "20,000 updates of 16 sequences" "$python" benchmarks/gpu_updates.py --updates 20000 --batch-size 16
part 65 "20,000 updates of 1,024 sequences" "$python" benchmarks/gpu_updates.py --updates 20000 --batch-size 1024
for size in 100 650 1150; do
    part 28 "scan beside cuDNN, H $size" "$python" benchmarks/gpu.py --only scan --ways lstm triton triton-graphs \
        --rounds 8 --batch-size 64 --length 64 --hidden-size "$size" --embedding-size "$size" --memory-size 16
done
part 44 "stack layer beside attention" "$python" benchmarks/stack_attention.py --device cuda --only scan
part 26 "nondeterministic stack" "$python" benchmarks/nondeterministic.py --device cuda --only cell --quick
part 26 "loss" "$python" benchmarks/loss.py --device cuda --only losses --quick
part 47 "tokens a second in training" "$python" benchmarks/training.py --device cuda --only loop
exit $failed
