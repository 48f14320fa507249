"""`torch.distributed.tensor`: how a tensor would lie on a mesh of processes. There are no such tensors."""

from __future__ import annotations

from dataclasses import dataclass

from gt import _absent

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

__getattr__ = _absent.getter(__name__)


class Placement:
    """How a tensor lies along one axis of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether the tensor is divided, along `dim` if given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """Whether the processes' tensors are still to be reduced."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Shard(Placement):
    """The tensor is divided along `dim`."""

    dim: int


@dataclass(frozen=True)
class Replicate(Placement):
    """Every process has the whole tensor."""


@dataclass(frozen=True)
class Partial(Placement):
    """The processes' tensors are still to be reduced."""

    reduce_op: str = "sum"
