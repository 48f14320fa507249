"""Random numbers: seeds, and the state of the default generator.

The generator is counter-based: its state is a seed and the number of draws from it, so a seed gives the same numbers in
every process and on every device. They differ from PyTorch's for the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gt import _absent
from gt._gt import Generator, Tensor, default_generator

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

__getattr__ = _absent.getter(__name__)


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator, and returns it.

    Example:
        >>> _ = gt.manual_seed(0)
        >>> a = gt.rand(3)
        >>> _ = gt.manual_seed(0)
        >>> bool((a == gt.rand(3)).all())
        True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the default generator with a nondeterministic number, and returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restores the state that `get_rng_state` returned."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: Sequence[Any] | None = None,
    enabled: bool = True,
) -> Iterator[None]:
    """A context that restores the state of the default generator at its end."""
    if not enabled:
        yield
        return
    state = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(state)
