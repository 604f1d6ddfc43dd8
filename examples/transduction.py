"""An LSTM with a stack learns to reverse strings of 1 to 8 symbols, and is also tested on 9 to 16; a minute or two."""

import torch

from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.tasks import DelimitedFormat, Transduction, evaluate_transduction

BEGIN, SEPARATOR, END = 0, 1, 2  # the symbols of the strings are 3 to 10


def reversals(number, shortest, longest):
    lengths = torch.randint(shortest, longest + 1, (number,)).tolist()
    sources = [torch.randint(3, 11, (length,)).tolist() for length in lengths]
    return [Transduction(source, source[::-1]) for source in sources]


torch.manual_seed(0)
strengths = {"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": 1.0, "pop_strength_init": 0.26894142}
model = StackRNNForCausalLM(StackRNNConfig(vocab_size=11, embedding_size=16, hidden_size=32, **strengths))
format = DelimitedFormat(separator=SEPARATOR, end=END, begin=BEGIN)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(500):
    model(**format(reversals(20, 1, 8))).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
scores = {
    "lengths 1 to 8": evaluate_transduction(model, format, reversals(500, 1, 8)),
    "lengths 9 to 16": evaluate_transduction(model, format, reversals(500, 9, 16)),
}
for lengths, score in scores.items():
    print(lengths, score)
