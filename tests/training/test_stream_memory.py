"""Two million sentences as a stream take no more memory than the first pools."""

import json
import os
import subprocess
import sys

import pytest

# One epoch of a stream's pools, and the most memory that the process has had after ten pools and in the end, in KiB.
SCRIPT = """
import json, resource, sys
from stack_lm.text import Sentence, open_corpus
from stack_lm.text.tokenization import Frame, train_word_tokenizer
from stack_lm.training.encoding import TextEncoder
from stack_lm.training.batches import StreamPools

stream = open_corpus(sys.argv[1]).stream
tokenizer = train_word_tokenizer([Sentence([f"w{i}" for i in range(1000)])])
pools = StreamPools(stream, TextEncoder(tokenizer, stream.segmenter, 200, Frame([], [])), 20_000)
sentences, sizes, n = 0, [], 0
for pool in pools.read(None):
    sentences += len(pool.tokens)
    n += 1
    if n == 10 or pool.behind["epoch"]:
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    if pool.behind["epoch"]:
        break
print(json.dumps({"sentences": sentences, "pools": n, "kib": sizes}))
"""
SENTENCES, IN_A_DOCUMENT = 2_000_000, 20


def document(number):
    return "\n".join(
        f"w{number % 997} w{(7 * number + i) % 1000} w{i} sees w{(number + i) % 13} ." for i in range(IN_A_DOCUMENT)
    )


def write_text(directory):
    with open(directory / "text.txt", "w", encoding="utf-8") as file:
        for number in range(SENTENCES // IN_A_DOCUMENT):
            file.write(document(number) + "\n\n")
    return str(directory)


def write_dataset(directory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for shard in range(4):
        numbers = range(shard, SENTENCES // IN_A_DOCUMENT, 4)
        table = pa.table({"text": [document(number) for number in numbers]})
        pq.write_table(table, directory / f"train-{shard}.parquet", row_group_size=1000)
    (directory / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train-*.parquet\n---\n"
    )
    return f"hf:{directory}"


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_text, write_dataset])
def test_memory_stays(tmp_path, write):
    source = write(tmp_path)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, source], env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["sentences"] == SENTENCES
    assert found["pools"] > 20
    after_ten, in_the_end = found["kib"]
    assert in_the_end < after_ten + 50 * 1024, found
    print(found)
