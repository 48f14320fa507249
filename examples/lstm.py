"""A language model of letters on text that Python itself ships: an LSTM, or with --cell gru a GRU.

    python -m gt.torch examples/lstm.py     # on GT
    python examples/lstm.py                 # on PyTorch

It learns to say the next letter of the help texts of Python's standard library, and then writes some of its own.
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
    """The documentation of some modules of the standard library, and of what is in them."""
    parts = []
    for name in MODULES:
        module = import_module(name)
        parts.append(inspect.getdoc(module) or "")
        for _, member in sorted(vars(module).items(), key=lambda item: item[0]):
            if inspect.isclass(member) or inspect.isfunction(member):
                parts.append(inspect.getdoc(member) or "")
    return "\n\n".join(parts)


class Model(nn.Module):
    """Letters to vectors, through a recurrent net, to the scores of the next letter."""

    def __init__(self, letters: int, hidden: int, layers: int, cell: str, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, hidden)
        self.rnn = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](hidden, hidden, layers, dropout=dropout)
        self.head = nn.Linear(hidden, letters)

    def forward(self, x: torch.Tensor, state=None):
        h, state = self.rnn(self.embed(x), state)
        return self.head(h), state


def detached(state):
    """The state without what it was computed from: gradients end here."""
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


@torch.no_grad()
def write(model: Model, letters: list[str], count: int, temperature: float) -> str:
    model.eval()
    number = {letter: i for i, letter in enumerate(letters)}
    x, state, text = torch.tensor([[number["\n"]]]), None, ""
    for _ in range(count):
        scores, state = model(x, state)
        probs = torch.softmax(scores[-1, 0] / temperature, dim=-1)
        x = torch.distributions.Categorical(probs).sample().view(1, 1)
        text += letters[x.item()]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=["lstm", "gru"], default="lstm")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=32, help="steps that gradients go back")
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
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text])
    # As many long columns as the batch is wide: a step goes on where the last one ended.
    rows = len(data) // args.batch_size
    data = data[: rows * args.batch_size].view(args.batch_size, rows).t().contiguous()
    print(
        f"{len(text)} letters, {len(letters)} different ones: {math.log(len(letters)):.2f} nats each if all are alike"
    )

    model = Model(len(letters), args.hidden, args.layers, args.cell, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    state, at, total = None, 0, 0.0
    for step in range(1, args.steps + 1):
        if at + args.length + 1 > rows:
            state, at = None, 0
        x, y = data[at : at + args.length], data[at + 1 : at + 1 + args.length]
        at += args.length
        scores, state = model(x, state)
        state = detached(state)
        loss = criterion(scores.view(-1, len(letters)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        total += loss.item()
        if step % 20 == 0:
            print(f"step {step:4d}   loss {total / 20:.3f}   perplexity {math.exp(total / 20):.1f}")
            total = 0.0
    print(write(model, letters, 300, args.temperature))


if __name__ == "__main__":
    main()
