"""Trains a character-level language model, an LSTM or with --cell gru a GRU, on docstrings of the standard library.

    python -m gt.torch examples/lstm.py     # on GT
    python examples/lstm.py                 # on PyTorch

The model learns to predict the next character, and then generates text.
"""

import argparse
import inspect
import math
from importlib import import_module

import torch
from torch import nn

MODULES = (
    "argparse",
    "collections",
    "datetime",
    "decimal",
    "email",
    "functools",
    "inspect",
    "json",
    "logging",
    "pathlib",
)


def library_text() -> str:
    """Returns the docstrings of some modules of the standard library and of their classes and functions."""
    parts = []
    for name in MODULES:
        module = import_module(name)
        parts.append(inspect.getdoc(module) or "")
        for _, member in sorted(vars(module).items(), key=lambda item: item[0]):
            if inspect.isclass(member) or inspect.isfunction(member):
                parts.append(inspect.getdoc(member) or "")
    return "\n\n".join(parts)


class Model(nn.Module):
    """An embedding, a recurrent network and a linear layer.

    Shape: characters `(length, batch)` to logits of the next ones `(length, batch, characters)`, with the new state.
    """

    def __init__(self, characters: int, hidden: int, layers: int, cell: str, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, hidden)
        self.rnn = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](hidden, hidden, layers, dropout=dropout)
        self.head = nn.Linear(hidden, characters)

    def forward(self, x: torch.Tensor, state=None):
        h, state = self.rnn(self.embed(x), state)
        return self.head(h), state


def detached(state):
    """Returns the state cut off from the graph: backpropagation through time is truncated here."""
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


@torch.no_grad()
def generate(model: Model, characters: list[str], count: int, temperature: float) -> str:
    """Samples `count` characters, each from the softmax of the logits divided by `temperature`."""
    model.eval()
    index_of = {character: i for i, character in enumerate(characters)}
    x, state, text = torch.tensor([[index_of["\n"]]]), None, ""
    for _ in range(count):
        logits, state = model(x, state)
        probs = torch.softmax(logits[-1, 0] / temperature, dim=-1)
        x = torch.distributions.Categorical(probs).sample().view(1, 1)
        text += characters[x.item()]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=["lstm", "gru"], default="lstm")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=32, help="steps of truncated backpropagation through time")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    text = library_text()
    characters = sorted(set(text))
    index_of = {character: i for i, character in enumerate(characters)}
    data = torch.tensor([index_of[character] for character in text])
    # The text is cut into one long column per sample of the batch: each step continues where the last one ended.
    rows = len(data) // args.batch_size
    data = data[: rows * args.batch_size].view(args.batch_size, rows).t().contiguous()
    entropy = math.log(len(characters))
    print(f"{len(text)} letters, {len(characters)} different ones: {entropy:.2f} nats each if all are alike")

    model = Model(len(characters), args.hidden, args.layers, args.cell, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    state, at, total = None, 0, 0.0
    for step in range(1, args.steps + 1):
        if at + args.length + 1 > rows:
            state, at = None, 0
        x, y = data[at : at + args.length], data[at + 1 : at + 1 + args.length]
        at += args.length
        logits, state = model(x, state)
        state = detached(state)
        loss = criterion(logits.view(-1, len(characters)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.item()
        if step % 20 == 0:
            print(f"step {step:4d}   loss {total / 20:.3f}   perplexity {math.exp(total / 20):.1f}")
            total = 0.0
    print(generate(model, characters, 300, args.temperature))


if __name__ == "__main__":
    main()
