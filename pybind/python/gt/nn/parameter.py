"""`Parameter`: a leaf tensor that a `Module` registers and an optimizer trains."""

from __future__ import annotations

from typing import Any

from gt._gt import Tensor


class _ParameterType(type):
    """`isinstance(t, Parameter)` asks the tensor: a parameter is a tensor with a mark, not a class of its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance._is_parameter


class Parameter(metaclass=_ParameterType):
    """A tensor that, assigned to an attribute of a `Module`, becomes one of its parameters."""

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Any:
        """A leaf with the value of `data`, of the same shape and dtype.

        Raises:
            TypeError: `data` is not a tensor.
        """
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a Tensor, but got {type(data).__name__}: wrap it in gt.tensor(...)")
        leaf = data.detach()
        leaf.requires_grad = requires_grad
        leaf._is_parameter = True
        return leaf
