"""The functions of the package and the methods of `Tensor`, made from the op table and the lists in `_composites`.

Each elementwise op of the table becomes a method, a function and an in-place method: `x.exp()` and `gt.exp(x)` issue
one instruction, and `x.exp_()` issues the same one and then binds `x` to its result. A composite is a function written
in terms of other ops. Start at `install`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from gt import _autocast, _forms, _functions, _gt, _placement, _settings, _table
from gt._composites import catalogue
from gt._composites.special import next_half
from gt._gt import Tensor
from gt._rows import ROWS, Function

# Aliases, by the function that they stand for: NumPy's names, and PyTorch's second names.
ALIASES = _table.ALIASES | {
    "moveaxis": "movedim",
    "trapz": "trapezoid",
    "swapdims": "transpose",
    "row_stack": "vstack",
    "ger": "outer",
}

# Methods, implemented by the extension, that are functions too: `gt.sum(x)` calls `x.sum()`.
_NATIVE = [
    row["name"]
    for row in _table.TABLE
    if row["function"] and row["name"] in vars(Tensor) and row["name"] not in _functions.MODULES[""]
]
METHODS = _NATIVE + (
    """
    max min var std transpose swapaxes squeeze unsqueeze flatten ravel narrow split chunk numel t diagonal clone
    detach is_floating_point
    """.split()
)


def _in_place(function: Function) -> Function:
    """The in-place method of a function: it binds the tensor to the function's result, and returns the tensor."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        since = _gt.tape_clock()
        return self._rebind(function(self, *args, **kwargs), since)

    return method


def _in_place_doc(name: str) -> str:
    return f"In-place `{name}`: writes the result to this tensor, and returns this tensor."


def _name(function: Function, name: str, doc: str) -> Function:
    """The function itself, after it got a name and a docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _method_function(name: str) -> Function:
    """The function `gt.name(x, ...)` that calls the method `x.name(...)`."""
    method = getattr(Tensor, name)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return method(_gt.as_tensor(input) if _forms.is_foreign(input) else input, *args, **kwargs)

    function.__signature__ = _forms.LazySignature(partial(_forms.method_signature, method))
    return _name(function, name, method.__doc__ or "")


def _scaled(plain: Function, sign: int) -> Function:
    """Addition and subtraction with PyTorch's `alpha`: `input ± alpha * other` in one instruction."""
    addcmul = ROWS["addcmul"]

    def function(input: Tensor, other: Tensor | complex, *, alpha: float = 1) -> Tensor:
        if alpha is False or alpha is True:
            return plain(
                input, other & alpha if isinstance(other, Tensor) and other.dtype == _gt.bool else other * alpha
            )
        if alpha == 1:
            return plain(input, other)
        if isinstance(input, Tensor) and isinstance(other, Tensor) and input.dtype == other.dtype:
            return addcmul(input, other, sign * alpha)
        return plain(input, other * alpha)

    return function


def _div(plain: Function) -> Function:
    def function(input: Tensor, other: Tensor | complex, *, rounding_mode: str | None = None) -> Tensor:
        if rounding_mode is None:
            return plain(input, other)
        if rounding_mode == "floor":
            return ROWS["floor_divide"](input, other)
        if rounding_mode == "trunc":
            if any(x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float) for x in (input, other)):
                return ROWS["trunc"](plain(input, other))
            # The division is exact once the remainder, which has the sign of the input, is subtracted.
            return ROWS["floor_divide"](input - ROWS["fmod"](input, other), other)
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )

    return function


def _gelu(exact: Function) -> Function:
    def function(input: Tensor, *, approximate: str = "none") -> Tensor:
        if approximate == "none":
            return exact(input)
        if approximate == "tanh":
            return ROWS["gelu_tanh"](input)
        raise RuntimeError(f"approximate argument must be either none or tanh, but got '{approximate}'")

    return function


def _round(plain: Function) -> Function:
    def function(input: Tensor, *, decimals: int = 0) -> Tensor:
        if decimals == 0:
            return plain(input)
        if not input.is_floating_point():
            raise RuntimeError(f'"round_cpu" not implemented for {input.dtype}: decimals are of floating-point tensors')
        scale = 10.0 ** abs(decimals)
        return plain(input * scale) / scale if decimals > 0 else plain(input / scale) * scale

    return function


def _nextafter(plain: Function) -> Function:
    def function(input: Tensor, other: Tensor) -> Tensor:
        if input.dtype in (_gt.float16, _gt.bfloat16) and isinstance(other, Tensor) and other.dtype == input.dtype:
            return next_half(input, other)
        return plain(input, other)

    return function


def _addcmul(plain: Function) -> Function:
    def function(input: Tensor, tensor1: Tensor | complex, tensor2: Tensor | complex, *, value: float = 1) -> Tensor:
        return plain(input, tensor1, tensor2 if value == 1 else tensor2 * value)

    return function


def _lerp(plain: Function) -> Function:
    def function(input: Tensor, end: Tensor, weight: Tensor | complex) -> Tensor:
        if not input.is_floating_point():
            raise NotImplementedError(f"lerp is not there for {input.dtype}: use floating-point tensors")
        return plain(input, end, weight)

    return function


def square(input: Tensor) -> Tensor:
    """The square of each element; bools become int64.

    Example:
        >>> gt.square(gt.tensor([-2.0, 3.0]))
        tensor([4., 9.])
    """
    return input.long() if input.dtype == _gt.bool else input * input


def flip(input: Tensor, dims: int | Sequence[int]) -> Tensor:
    """A copy with the elements in reverse order along axes.

    Args:
        input: A tensor.
        dims: An axis or several.

    Example:
        >>> gt.flip(gt.tensor([[1, 2], [3, 4]]), [0])
        tensor([[3, 4],
                [1, 2]])
    """
    rank = max(input.ndim, 1)
    backwards = set()
    for dim in [dims] if isinstance(dims, int) else dims:
        if not -rank <= dim < rank:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
            )
        backwards.add(dim % rank)
    return input[tuple(slice(None, None, -1 if axis in backwards else 1) for axis in range(input.ndim))].clone()


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether each element is close to its counterpart: `abs(input - other) <= atol + rtol * abs(other)`.

    Args:
        input: A tensor.
        other: A tensor of the same dtype.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        equal_nan: Whether NaN is close to NaN.

    Returns:
        A tensor of bools. Equal infinities are close.

    Example:
        >>> gt.isclose(gt.tensor([1.0, 2.0]), gt.tensor([1.0 + 1e-7, 2.1]))
        tensor([ True, False])
    """
    _forms.check_tensor("isclose", "input", 1, input)
    _forms.check_tensor("isclose", "other", 2, other)
    if input.dtype != other.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}")
    for word, tolerance in {"rtol": rtol, "atol": atol}.items():
        if tolerance < 0:
            raise RuntimeError(f"{word} must be greater than or equal to zero, but got {tolerance}")
    if input.dtype == _gt.bool:
        return input == other
    close = ((input - other).abs() <= other.abs() * rtol + atol) & other.isfinite()
    close = close | (input == other)
    return close | (input.isnan() & other.isnan()) if equal_nan else close


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements of two tensors are close; see `isclose`. Waits for the result.

    Example:
        >>> gt.allclose(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 2.0]))
        True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and equal elements. Waits for the result.

    Example:
        >>> gt.equal(gt.tensor([1, 2]), gt.tensor([1, 2]))
        True
    """
    return input.shape == other.shape and bool((input == other).all())


def contains(self: Tensor, element: object) -> bool:
    """Whether an element equals a number, or the broadcast element of a tensor: `element in x`."""
    if not isinstance(element, Tensor | bool | int | float):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())


_wrapped = {
    "add": _scaled(ROWS["add"], 1),
    "sub": _scaled(ROWS["sub"], -1),
    "div": _div(ROWS["div"]),
    "gelu": _gelu(ROWS["gelu"]),
    "round": _round(ROWS["round"]),
    "addcmul": _addcmul(ROWS["addcmul"]),
    "nextafter": _nextafter(ROWS["nextafter"]),
    "lerp": _lerp(ROWS["lerp"]),
}


def install(namespace: dict[str, Any]) -> list[str]:
    """Adds the methods to `Tensor` and the functions to `namespace`; returns the functions' names."""
    functions: dict[str, Function] = {"square": square}
    for row in _table.TABLE:
        name = row["name"]
        # The op `clamp` takes two bounds. The extension's method takes one or both, so the function is made from that.
        if name in ROWS and row["function"] and name not in _NATIVE:
            functions[name] = _name(_wrapped.get(name, ROWS[name]), name, row["document"])
    for name, function in functions.items():
        setattr(Tensor, name, function)
        setattr(Tensor, name + "_", _name(_in_place(function), name + "_", _in_place_doc(name)))
    Tensor.clamp_ = _name(_in_place(Tensor.clamp), "clamp_", _in_place_doc("clamp"))
    for name in METHODS:
        functions[name] = _method_function(name)
    for function in (*catalogue.FUNCTIONS, *_placement.FUNCTIONS, *_settings.FUNCTIONS, *_autocast.FUNCTIONS):
        functions[function.__name__] = function
    for function in (*catalogue.TENSOR_METHODS, *_placement.TENSOR_METHODS):
        setattr(Tensor, function.__name__, function)
    for function in catalogue.IN_PLACE:
        name = function.__name__ + "_"
        setattr(Tensor, name, _name(_in_place(function), name, _in_place_doc(function.__name__)))
    Tensor.ndimension = Tensor.dim
    for function in (flip, isclose, allclose, equal, *catalogue.METHODS, *_placement.METHODS):
        functions[function.__name__] = function
        setattr(Tensor, function.__name__, function)
    functions.update(_functions.MODULES[""])
    for name, value in _placement.PROPERTIES.items():
        setattr(Tensor, name, property(lambda self, value=value: value))  # noqa: ARG005
    for getter in _placement.GETTERS:
        setattr(Tensor, getter.__name__, property(getter, doc=getter.__doc__))
    Tensor.storage = _placement.untyped_storage
    for name, getter in catalogue.PROPERTIES.items():
        setattr(Tensor, name, property(getter, doc=getter.__doc__))
    Tensor.__contains__ = contains
    Tensor.__rdiv__ = Tensor.__rtruediv__
    Tensor.__complex__ = lambda self: complex(self.item())
    Tensor.__reversed__ = lambda self: flip(self, 0)
    for alias, name in ALIASES.items():
        functions[alias] = functions[name]
        if hasattr(Tensor, name):
            setattr(Tensor, alias, getattr(Tensor, name))
        if hasattr(Tensor, name + "_"):
            setattr(Tensor, alias + "_", getattr(Tensor, name + "_"))
    for name in _forms.IN_PLACE:
        if hasattr(Tensor, name):
            namespace[name] = getattr(Tensor, name)
    namespace.update(functions)
    for name in (_forms.OUT & namespace.keys()) - _functions.MODULES[""].keys():
        namespace[name] = _forms.function_form(name, namespace[name])
    return list(functions)
