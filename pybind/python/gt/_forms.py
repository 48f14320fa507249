"""Functions of methods: `gt.name(x, …)` checks its first argument, and may write its result to `out=`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gt._gt import Tensor, as_tensor, is_grad_enabled

Function = Callable[..., Any]

# The functions that take `out=`, as PyTorch's do.
OUT = frozenset(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr alias_copy all amax amin aminmax angle any
    arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin asin asinh atan atan2 atanh baddbmm bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bucketize cat ceil cholesky
    cholesky_inverse cholesky_solve clamp clamp_max clamp_min clip column_stack concat concatenate conj_physical
    copysign cos cosh cross cummax cummin cumprod cumsum deg2rad diag diff digamma div divide dot dstack eq erf erfc
    erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac gather gcd ge geqrf ger greater
    greater_equal gt heaviside histc histogram hstack hypot i0 igamma igammac index_add index_copy index_reduce
    index_select inner inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma log log10
    log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit
    logsumexp lt lu lu_solve lu_unpack masked_select matmul matrix_power max maximum mean min minimum mm mode msort mul
    multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow_copy ne neg negative
    nextafter nonzero nonzero_static norm normal not_equal orgqr ormqr outer polygamma pow prod qr quantile rad2deg
    randperm reciprocal remainder renorm round row_stack rsqrt scatter scatter_add scatter_reduce searchsorted sgn
    sigmoid sign signbit sin sinc sinh slice_scatter slogdet softmax sort sqrt square stack std sub subtract sum svd
    take take_along_dim tan tanh tensordot topk triangular_solve tril triu true_divide trunc var vdot vstack where xlogy
    """.split()
)
# The functions whose `out` must have the dtype of the result.
_SAME_DTYPE = frozenset({"amax", "amin", "aminmax", "gather", "multinomial"})
# In-place methods that are functions too.
IN_PLACE = """
    abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_
    ceil_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_
    fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_
    rad2deg_ reciprocal_ relu_ resize_as_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_
    zero_
""".split()
# The functions whose first argument may be a number.
_NUMBER_FIRST = frozenset(
    """
    add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div divide float_power floor_divide
    mul multiply polygamma pow remainder sub subtract true_divide where xlogy
    """.split()
)
# The functions whose second argument must be a tensor too; the others take a number for it.
TENSORS_ONLY = frozenset(
    """
    atan2 fmax fmin gammainc gammaincc gcd heaviside hypot igamma igammac lcm ldexp logaddexp logaddexp2 logical_and
    logical_or logical_xor maximum minimum nextafter
    """.split()
)


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
    of_tensor = hasattr(Tensor, name) and name not in _NUMBER_FIRST
    of_two = name in TENSORS_ONLY

    @functools.wraps(function)
    def form(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if of_tensor and args and not isinstance(args[0], Tensor):
            check_tensor(name, "input", 1, args[0])
            args = (as_tensor(args[0]), *args[1:])
        if of_two and len(args) > 1:
            check_tensor(name, "values" if name == "heaviside" else "other", 2, args[1])
        if name in _NUMBER_FIRST and len(args) > 1 and not (isinstance(args[0], Tensor) or isinstance(args[1], Tensor)):
            check_tensor(name, "input", 1, args[0])
        result = function(*args, **kwargs)
        return result if out is None else write(name, out, result)

    form.__signature__ = LazySignature(functools.partial(_signature_with_out, function))
    return form
