"""`Parameter`: a leaf tensor that a `Module` registers and an optimizer trains.

`Buffer`: registered state, not trained.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from gt import _absent, overrides
from gt import _core as gt
from gt._gt import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]

__getattr__ = _absent.getter(__name__)


class _ParameterType(type(Tensor)):  # type: ignore[misc]
    """Makes `isinstance(t, Parameter)` read a flag, which tensors of other derived classes can have, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is not Parameter:
            return type.__instancecheck__(cls, instance)
        return isinstance(instance, Tensor) and instance._is_parameter


class Parameter(Tensor, metaclass=_ParameterType):
    """A leaf tensor that is registered as a parameter when it is assigned to an attribute of a `Module`.

    Args:
        data: The initial value; a tensor without elements if not given.
        requires_grad: Whether the parameter is trained.

    Raises:
        TypeError: `data` is not a tensor.

    Example:
        >>> module = gt.nn.Module()
        >>> module.scale = gt.nn.Parameter(gt.ones(2))
        >>> [name for name, _ in module.named_parameters()]
        ['scale']
    """

    # Operations on parameters give plain tensors, without a call of `__torch_function__`.
    __torch_function__ = overrides.disabled

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        """A leaf tensor with the shape, dtype and value of `data`; of a class derived from `Tensor` if `data` is."""
        data = gt.empty(0) if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a Tensor, but got {type(data).__name__}: wrap it in gt.tensor(...)")
        if type(data) is Tensor or issubclass(type(data), Parameter):
            leaf = Tensor.__new__(cls, _detached=data)
        else:
            leaf = data.detach()
            if type(leaf) is not type(data):
                raise RuntimeError(
                    f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() "
                    f"returns an instance of the same type, but return type {type(leaf).__name__} was found instead. "
                    "To use the type as a Parameter, please correct the detach() semantics defined by its "
                    "__torch_function__() implementation."
                )
        leaf.requires_grad = requires_grad
        leaf._is_parameter = True
        return leaf


class _BufferType(type):
    """Makes `isinstance(t, Buffer)` ask whether `Buffer` made the tensor."""

    # Maps id(tensor) to its `persistent` flag: tensors compare by value. An entry is removed with its tensor.
    made: dict[int, tuple[weakref.ref[Tensor], bool]] = {}  # noqa: RUF012 (there is one for all)

    def __instancecheck__(cls, instance: object) -> bool:
        return id(instance) in cls.made

    def is_persistent(cls, buffer: Tensor) -> bool:
        """Whether a buffer is saved in state dicts."""
        return cls.made[id(buffer)][1]


class Buffer(metaclass=_BufferType):
    """A tensor that is registered as a buffer when it is assigned to an attribute of a `Module`.

    Args:
        data: The initial value; a tensor without elements if not given.
        persistent: Whether the buffer is in `state_dict`.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        """A tensor with the value of `data`, detached from the autograd graph."""
        data = gt.empty(0) if data is None else data
        made = data.detach().requires_grad_(data.requires_grad)
        key = id(made)
        cls.made[key] = (weakref.ref(made, lambda _: cls.made.pop(key)), persistent)
        return made


class UninitializedParameter:
    """The placeholder of a lazy module's parameter, whose shape is not known yet.

    Args:
        requires_grad: Whether the parameter will be trained.
        device: Where the parameter will be.
        dtype: The dtype it will have.
    """

    is_leaf = True

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        self.requires_grad = requires_grad
        self.grad = None
        # A tensor without elements that carries the device and dtype through `Module.to`.
        self.data = gt.empty(0, device=device, dtype=dtype)
        self._place: tuple[Any, str, str] | None = None
        # Optimizers' parameter lists that hold this placeholder; `materialize` replaces it there.
        self._groups: list[list[Any]] = []

    @property
    def dtype(self) -> Any:
        """The dtype the parameter will have."""
        return self.data.dtype

    @property
    def device(self) -> Any:
        """The device the parameter will be on."""
        return self.data.device

    def detach(self) -> Tensor:
        """A tensor without elements."""
        return self.data

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Replaces this placeholder, in its module and in optimizers, by a parameter of a shape.

        Its elements are uninitialized.
        """
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
    """The placeholder of a lazy module's buffer, whose shape is not known yet."""

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__(requires_grad, device, dtype)


def is_lazy(param: object) -> bool:
    """Whether `param` is the placeholder of a parameter or buffer."""
    return isinstance(param, UninitializedParameter)
