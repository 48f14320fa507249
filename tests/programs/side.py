"""Programs in one framework: `python -m tests.programs.side`, or by `python -m gt.torch -m` in GT.

The runner writes commands to the process's standard input, one JSON list a line, and reads one JSON object a line from
its standard output. Arrays travel in files of NumPy's.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.programs import catalogue

LEARNING_RATE = 0.01
MOMENTUM = 0.9
# The error that a Python program prints last is cut off here, in characters.
MESSAGE_MAX = 300


class Side:
    """The program, made once; its methods are the commands."""

    def __init__(self, name: str) -> None:
        import torch

        torch.manual_seed(0)
        # Random numbers differ between the frameworks, so nothing is dropped in either.
        torch.nn.functional.dropout = lambda x, *_, **__: x
        attention = torch.nn.functional.scaled_dot_product_attention
        if not hasattr(attention, "keeps_all"):
            torch.nn.functional.scaled_dot_product_attention = _keeping_all(attention)
        self.made = catalogue.load()[name].make()
        for module in self.made.model.modules() if self.made.model is not None else ():
            kind = type(module).__name__
            for name in ("p", "drop_prob"):
                if ("Dropout" in kind or kind in ("StochasticDepth", "DropPath")) and hasattr(module, name):
                    setattr(module, name, 0.0)
        if isinstance(self.made, catalogue.Training):
            parameters = [p for p in self.made.model.parameters() if p.requires_grad]
            self.optimizer = self.made.optimizer or torch.optim.SGD(parameters, LEARNING_RATE, MOMENTUM)

    def weights(self, path: str) -> None:
        """Writes the model's weights and buffers to a file."""
        state = {} if self.made.model is None else self.made.model.state_dict()
        np.savez(path, **{name: value.numpy(force=True) for name, value in _tensors(state)})

    def take(self, path: str) -> None:
        """Gives the model the weights and buffers of a file."""
        import torch

        if self.made.model is None:
            return
        with np.load(path) as file:
            state = {name: torch.from_numpy(file[name]) for name in file.files}
        self.made.model.load_state_dict({**self.made.model.state_dict(), **state})

    def results(self, path: str) -> None:
        """Runs once, and writes all that comes of it to a file: outputs, gradients, and weights after the step."""
        found = {"outputs": self._run()}
        if isinstance(self.made, catalogue.Training):
            named = list(self.made.model.named_parameters())
            found["gradients"] = {name: p.grad for name, p in named if p.grad is not None}
            found["weights"] = dict(self.made.model.state_dict())
        np.savez(path, **dict(_leaves(found)))

    def time(self, steps: int) -> float:
        """Returns the seconds of one run, as the mean of `steps`."""
        start = time.perf_counter()
        for _ in range(steps):
            self._run()
        return (time.perf_counter() - start) / steps

    def _run(self) -> Any:
        if isinstance(self.made, catalogue.Values):
            found = self.made.compute()
            # The clock must not stop before the values are there.
            for _ in _leaves(found):
                pass
            return found
        self.optimizer.zero_grad()
        found = self.made.loss()
        loss = found[0] if isinstance(found, tuple) else found
        loss.backward()
        self.optimizer.step()
        loss.item()
        return found


def _keeping_all(attention: Any) -> Any:
    """Returns attention without dropout."""

    def keeps_all(*arguments: Any, dropout_p: float = 0.0, **options: Any) -> Any:
        del dropout_p
        return attention(*arguments, **options)

    keeps_all.keeps_all = True
    return keeps_all


def _tensors(state: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in state.items() if hasattr(value, "numpy"))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields every tensor, array and number below a value as an array, with its path."""
    if isinstance(value, dict):
        parts: Any = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    elif value is None or isinstance(value, str):
        return
    else:
        if hasattr(value, "detach"):
            value = value.detach()
            value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy(force=True)
        yield path.replace("/", "."), np.asarray(value)
        return
    for name, part in parts:
        yield from _leaves(part, f"{path}:{name}" if path else str(name))


def main() -> None:
    """Answers commands until standard input ends."""
    # Libraries print; only answers go to the runner.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    side = None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        try:
            if command == "make":
                side = None  # The program before is freed first.
                side, value = Side(*arguments), None
            else:
                value = getattr(side, command)(*arguments)
            answer = {"value": value}
        except Exception as error:  # The runner's table says why a program fails.
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}".strip().splitlines()
            answer = {"error": " ".join(text)[:MESSAGE_MAX]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
