"""`Parameter`: a leaf tensor that a `Module` registers and an optimizer trains; `Buffer`: one that is state alone."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import gt
from gt._gt import Tensor


class _ParameterType(type):
    """`isinstance(t, Parameter)` asks the tensor: a parameter is a tensor with a mark, not a class of its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance._is_parameter


class Parameter(metaclass=_ParameterType):
    """A tensor that, assigned to an attribute of a `Module`, becomes one of its parameters."""

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        """A leaf with the value of `data`, of the same shape and dtype; without it, one of no elements.

        Raises:
            TypeError: `data` is not a tensor.
        """
        data = gt.empty(0) if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a Tensor, but got {type(data).__name__}: wrap it in gt.tensor(...)")
        leaf = data.detach()
        leaf.requires_grad = requires_grad
        leaf._is_parameter = True
        return leaf


class _BufferType(type):
    """`isinstance(t, Buffer)` asks whether the tensor was made as one."""

    # Whether it is in state dicts, by its identity, as tensors compare by value; an entry ends with its tensor.
    made: dict[int, tuple[weakref.ref[Tensor], bool]] = {}  # noqa: RUF012 (there is one for all)

    def __instancecheck__(cls, instance: object) -> bool:
        return id(instance) in cls.made

    def is_persistent(cls, buffer: Tensor) -> bool:
        """Whether a buffer is in state dicts."""
        return cls.made[id(buffer)][1]


class Buffer(metaclass=_BufferType):
    """A tensor that, assigned to an attribute of a `Module`, becomes one of its buffers."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        """A leaf with the elements of `data`, in `state_dict` if `persistent`."""
        data = gt.empty(0) if data is None else data
        made = data.detach().requires_grad_(data.requires_grad)
        key = id(made)
        cls.made[key] = (weakref.ref(made, lambda _: cls.made.pop(key)), persistent)
        return made


class UninitializedParameter:
    """A place for a parameter of a lazy module, whose shape is not known yet; its dtype and device are."""

    is_leaf = True

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        self.requires_grad = requires_grad
        self.grad = None
        # An empty tensor, which the module takes to devices and dtypes with the others.
        self.data = gt.empty(0, device=device, dtype=dtype)
        self._place: tuple[Any, str, str] | None = None
        # The groups of optimizers that wait for the parameter.
        self._groups: list[list[Any]] = []

    @property
    def dtype(self) -> Any:
        """Of the parameter to come."""
        return self.data.dtype

    @property
    def device(self) -> Any:
        """Of the parameter to come."""
        return self.data.device

    def detach(self) -> Tensor:
        """No elements."""
        return self.data

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Puts a parameter of this shape into the place, its elements whatever is there."""
        if self._place is None:
            raise RuntimeError("materialize: assign the parameter to an attribute of a lazy module first")
        module, registry, name = self._place
        made = gt.empty(*shape, device=device or self.device, dtype=dtype or self.dtype)
        made = Parameter(made, self.requires_grad) if registry == "_parameters" else made
        module.__dict__[registry][name] = made
        for group in self._groups:
            group[:] = [made if p is self else p for p in group]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __getattr__(self, name: str) -> Any:
        if name == "shape":
            raise RuntimeError(
                "Can't access the shape of an uninitialized parameter or buffer. Call `forward` to initialize the "
                "parameters before accessing their attributes."
            )
        if hasattr(Tensor, name) and not name.startswith("__"):
            raise ValueError(
                f"Attempted to use an uninitialized parameter in '{name}'. This happens with a lazy module: call "
                "`forward` with a dummy batch to initialize the parameters before using them."
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class UninitializedBuffer(UninitializedParameter):
    """The same for a buffer."""

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(requires_grad, device, dtype)


def is_lazy(param: object) -> bool:
    """Whether it is a place for a parameter or buffer to come."""
    return isinstance(param, UninitializedParameter)
