"""`Variable`, PyTorch's old name for a tensor that may require a gradient."""

from __future__ import annotations

from gt import _absent
from gt._gt import Tensor

__all__ = ["Variable"]

__getattr__ = _absent.getter(__name__)


class _VariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False) -> Tensor:
        return data.detach().requires_grad_() if requires_grad else data.detach()


class Variable(metaclass=_VariableType):
    """Every tensor is one; `Variable(t)` is `t` as a leaf."""
