"""A stack layer learns to reverse up to 30 letters, and is tested on up to 240; a few seconds on one core."""

import matplotlib.pyplot as plt
import torch
from torch import nn

from stack_lm import StackAttention


class Network(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.embedding, self.below = nn.Embedding(6, size), nn.GRU(size, size, batch_first=True)
        self.stack, self.head = StackAttention(size, memory="stack", num_heads=4), nn.Linear(size, 4)

    def forward(self, ids):
        hidden, _ = self.below(self.embedding(ids))
        return self.head(hidden + self.stack(hidden)[0])


def reversal(length, batch=32):
    letters, blanks = torch.randint(4, (batch, length)), torch.full((batch, length), 5)
    blanks[:, 0] = 4  # the mark
    return torch.cat((letters, blanks), dim=1), letters.flip(1)


torch.manual_seed(1)
network, losses = Network(), []
optimizer = torch.optim.AdamW(network.parameters())
rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=300)
for _ in range(300):
    length = int(torch.randint(3, 31, ()))
    ids, target = reversal(length)
    loss = nn.functional.cross_entropy(network(ids)[:, length:].flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    rate.step()
    losses.append(loss.item())
for length in (30, 60, 120, 240):
    ids, target = reversal(length, batch=64)
    print(length, f"{100 * (network(ids)[:, length:].argmax(-1) == target).float().mean():.1f}")
plt.figure(figsize=(5, 2.5), layout="constrained")
plt.plot(losses)
plt.gca().set(xlabel="update", ylabel="loss (nats)")
plt.savefig("reversal.png")
