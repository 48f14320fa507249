"""Random numbers: seeds, and where the default generator is in its sequence.

Numbers are counter-based: a draw is told by a seed and how many draws were made from it, so a seed gives the same
numbers in every process and on every device. They are not those PyTorch draws from the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gt._gt import Generator, Tensor, default_generator

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def manual_seed(seed: int) -> Generator:
    """Starts the default generator over from `seed`, and returns it."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Starts the default generator over from a seed nobody chose, and returns it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed the default generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Where the default generator is, as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Goes on from where `get_rng_state` was called."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: Sequence[Any] | None = None,
    enabled: bool = True,
) -> Iterator[None]:
    """What is drawn inside leaves the default generator where it was before."""
    if not enabled:
        yield
        return
    state = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(state)
