"""The list of programs: each is a function that imports its library and returns its `Training` or `Values`.

A program is written for PyTorch. It makes its model with random weights from a configuration, so nothing is
downloaded; the runner gives both frameworks the same weights. Its batches come from NumPy with a fixed seed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MODULES = ("vision", "language", "science", "scripts")


@dataclass
class Training:
    """A model that is trained: `loss()` runs its forward pass and returns the loss, or the loss and more results.

    The runner adds the backward pass and a step of the optimizer, by default SGD, whose steps differ no more than
    gradients do.
    """

    model: Any
    loss: Callable[[], Any]
    optimizer: Any = None


@dataclass
class Values:
    """A computation without a model of its own: `compute()` returns tensors, numbers, or lists and dicts of them."""

    compute: Callable[[], Any]
    # The module whose weights both frameworks share, if there is one.
    model: Any = None


@dataclass(frozen=True)
class Program:
    """One line of the table."""

    name: str
    # The package to import, and its name at the package index.
    package: str
    distribution: str
    make: Callable[[], Training | Values]
    # Belongs to the part that `make test` runs where the package is installed.
    quick: bool


PROGRAMS: dict[str, Program] = {}


def program(
    name: str, package: str, distribution: str | None = None, *, quick: bool = False
) -> Callable[[Callable[..., Training | Values]], Callable[..., Training | Values]]:
    """Adds the decorated function to the list."""

    def add(make: Callable[..., Training | Values]) -> Callable[..., Training | Values]:
        add_program(name, package, make, distribution=distribution, quick=quick)
        return make

    return add


def add_program(
    name: str,
    package: str,
    make: Callable[..., Training | Values],
    *arguments: Any,
    distribution: str | None = None,
    quick: bool = False,
) -> None:
    """Adds `make(*arguments)` to the list."""
    assert name not in PROGRAMS, f"two programs are named {name}"
    PROGRAMS[name] = Program(name, package, distribution or package, lambda: make(*arguments), quick)


def load() -> dict[str, Program]:
    """Imports the modules that define programs; returns all programs by name."""
    for module in MODULES:
        importlib.import_module(f"tests.programs.{module}")
    return PROGRAMS


def normal(*shape: int, seed: int = 0) -> Any:
    """Returns a float32 tensor of normally distributed numbers, the same in both frameworks."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def integers(*shape: int, below: int, seed: int = 0) -> Any:
    """Returns an int64 tensor of integers from 0 to `below` - 1, the same in both frameworks."""
    import torch

    return torch.from_numpy(np.random.default_rng(seed).integers(0, below, shape))
