"""Functions of methods: `gt.name(x, …)` checks its first argument, and may write its result to `out=`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gt import _table
from gt._gt import Tensor, as_tensor, is_grad_enabled

Function = Callable[..., Any]

# The functions that take `out=`, as PyTorch's do, and are not declared in the extension.
OUT = _table.named("out") | set(
    """
    addbmm addmm addmv addr alias_copy baddbmm bmm column_stack concat concatenate cross diag dot dstack ger hstack
    index_add index_copy index_reduce index_select inner kron kthvalue masked_select mm mode msort multinomial mv
    nanmedian nanquantile narrow_copy nonzero_static normal outer quantile randperm row_stack scatter_reduce sort
    stack take take_along_dim tensordot topk vdot vstack
    """.split()
)
# The functions whose `out` must have the dtype of the result.
_SAME_DTYPE = _table.named("out_same_dtype") | {"aminmax", "multinomial"}
# In-place methods that are functions too, and are not declared in the extension.
IN_PLACE = """
    addmv_ as_strided_ detach_ fill_ index_put_ resize_as_ zero_
""".split()


def is_foreign(value: object) -> bool:
    """Whether `value` is another library's tensor, as PyTorch's; NumPy's arrays are not."""
    return not isinstance(value, Tensor) and hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__")


def check_tensor(name: str, word: str, position: int, value: object) -> None:
    """Raises PyTorch's TypeError unless `value` is a tensor of GT's or of another library's."""
    if not isinstance(value, Tensor) and not is_foreign(value):
        kind = type(value).__name__
        raise TypeError(f"{name}(): argument '{word}' (position {position}) must be Tensor, not {kind}")


def write(name: str, out: Any, result: Any) -> Any:
    """Writes a result to `out`, or a tuple of results to a tuple; `out` is resized to the result's shape."""
    if not isinstance(result, Tensor):
        if not isinstance(out, Sequence) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
        parts = [write(name, *pair) for pair in zip(out, result, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    check_tensor(name, "out", 0, out)
    if name in _SAME_DTYPE and out.dtype != result.dtype:
        raise RuntimeError(
            f"{name}(): Expected the dtype for input and out to match, but got {result.dtype} for input's dtype and "
            f"{out.dtype} for out's dtype."
        )
    if is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if out.shape != result.shape:
        resized = out.new_empty(result.shape)
        resized._rebind(result)
        out.data = resized
        return out
    return out._rebind(result)


class LazySignature(inspect.Signature):
    """A signature that is worked out when it is first looked at: `import gt` has hundreds of them."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], inspect.Signature]) -> None:
        self._make = make
        self._made: inspect.Signature | None = None

    def _signature(self) -> inspect.Signature:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return self._signature().parameters

    @property
    def return_annotation(self) -> Any:
        return self._signature().return_annotation

    def replace(self, **changes: Any) -> inspect.Signature:
        return self._signature().replace(**changes)


def method_signature(method: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method as a function's: `input` for `self`."""
    signature = inspect.signature(method)
    _, *others = signature.parameters.values()
    first = inspect.Parameter("input", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return signature.replace(parameters=[first, *others])


def _signature_with_out(function: Function) -> inspect.Signature:
    signature = inspect.signature(function)
    parameter = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    parameters = list(signature.parameters.values())
    place = len(parameters) - (parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*parameters[:place], parameter, *parameters[place:]])


def function_form(name: str, function: Function) -> Function:
    """The function `gt.name` with an `out`; where it is a method too, its first argument is a tensor."""
    of_tensor = hasattr(Tensor, name)

    @functools.wraps(function)
    def form(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if of_tensor and args and not isinstance(args[0], Tensor):
            check_tensor(name, "input", 1, args[0])
            args = (as_tensor(args[0]), *args[1:])
        result = function(*args, **kwargs)
        return result if out is None else write(name, out, result)

    form.__signature__ = LazySignature(functools.partial(_signature_with_out, function))
    return form
