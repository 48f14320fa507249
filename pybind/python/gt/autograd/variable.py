"""`Variable`, PyTorch's deprecated name of a tensor."""

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
    """A tensor: `isinstance(t, Variable)` is true for all tensors, and `Variable(t)` is `t` as a leaf."""
