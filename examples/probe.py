"""A probe: how much of the depth of brackets is linear in the hidden states? Needs `pip install scikit-learn`.

stack-lm train task suzgun2019/stack_rnn_softmax suzgun2019/dyck2 --seeds 1 output_dir=runs/dyck2
stack-lm trace runs/dyck2/models/1/0 --split test --limit 1000 --output traces.npz
python examples/probe.py
"""

import itertools

import numpy as np
from sklearn.linear_model import Ridge

with np.load("traces.npz") as arrays:
    hidden, symbols, offsets = arrays["hidden_states.1"], arrays["symbols"], arrays["offsets"]
change = np.where(np.isin(symbols, ["(", "["]), 1, -1)
depth = np.concatenate([change[i:j].cumsum() for i, j in itertools.pairwise(offsets)])
half = offsets[len(offsets) // 2]  # fit on the first strings, score on the others
probe = Ridge().fit(hidden[:half], depth[:half])
print(f"R2 = {probe.score(hidden[half:], depth[half:]):.2f}")
