"""A part-of-speech tagger in plain PyTorch, on packed batches, with `nn.LSTM` and with `StackRNN`: both reach 0.98."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from stack_lm import StackRNN
from stack_lm.text import generate_corpus

sentences = list(generate_corpus(1200, seed=1))  # generated English: words with their tags
words = {word: i for i, word in enumerate(sorted({word for s in sentences for word in s.words}))}
tags = {tag: i for i, tag in enumerate(sorted({tag for s in sentences for tag in s.tags}))}


class Tagger(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.embedding, self.rnn, self.head = nn.Embedding(len(words), 32), rnn, nn.Linear(64, len(tags))

    def forward(self, packed):
        outputs, _ = self.rnn(packed._replace(data=self.embedding(packed.data)))
        return self.head(outputs.data)


def batches(part):
    for k in range(0, len(part), 32):
        given = [torch.tensor([words[word] for word in s.words]) for s in part[k : k + 32]]
        gold = [torch.tensor([tags[tag] for tag in s.tags]) for s in part[k : k + 32]]
        yield pack_sequence(given, enforce_sorted=False), pack_sequence(gold, enforce_sorted=False).data


def train(tagger):
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
    for _ in range(3):
        for given, gold in batches(sentences[:1000]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(tagger(given), gold).backward()
            optimizer.step()


def accuracy(tagger):
    with torch.no_grad():
        right = [tagger(given).argmax(-1) == gold for given, gold in batches(sentences[1000:])]
    return torch.cat(right).float().mean()


torch.manual_seed(0)
for make_rnn in (
    lambda: nn.LSTM(32, 64),
    lambda: StackRNN(32, 64, memory="stack", memory_size=8),
):
    tagger = Tagger(make_rnn())
    train(tagger)
    print(f"{type(tagger.rnn).__name__:8} {accuracy(tagger):.2f}")
