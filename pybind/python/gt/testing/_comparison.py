"""`assert_close`: compares tensors, numbers and containers of them, and describes the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)

# The default relative and absolute tolerances by dtype; other dtypes must be equal.
_TOLERANCES = {
    gt.float16: (1e-3, 1e-5),
    gt.bfloat16: (1.6e-2, 1e-5),
    gt.float32: (1.3e-6, 1e-5),
    gt.float64: (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises an AssertionError unless `|actual - expected| <= atol + rtol * |expected|` for all elements.

    Args:
        actual: A tensor, a number, an array, or a sequence or mapping of them.
        expected: The expected value.
        allow_subclasses: Whether the types may differ, such as a tensor and an array.
        rtol: The relative tolerance; by default, it depends on the dtype.
        atol: The absolute tolerance, given together with `rtol`.
        equal_nan: Whether NaN equals NaN.
        check_device: Ignored.
        check_dtype: Whether the dtypes must be equal.
        check_layout: Ignored.
        check_stride: Whether the strides must be equal.
        msg: The error message, or a function that makes it of the default one.

    Raises:
        AssertionError: The values differ; the message says where and by how much.
        TypeError: The values cannot be compared.
        ValueError: Only one of `rtol` and `atol` is given.

    Example:
        >>> gt.testing.assert_close(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 2.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or unspecified, but got no {missing}.")
    del check_device, check_layout  # The daemon chooses devices, and all tensors are strided.
    options = {
        "allow_subclasses": allow_subclasses,
        "tolerances": None if rtol is None else (rtol, atol),
        "equal_nan": equal_nan,
        "check_dtype": check_dtype,
        "check_stride": check_stride,
    }
    told = _difference(actual, expected, "", **options)
    if told is not None:
        raise AssertionError(msg(told) if callable(msg) else msg or told)


def _difference(actual: Any, expected: Any, where: str, **options: Any) -> str | None:
    """The differences as text; `None` if the values are close."""
    end = f"\n\nThe failure occurred for item {where}" if where else ""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings do not match: {sorted(map(str, set(actual) ^ set(expected)))}{end}"
        pairs = [(f"{where}[{key!r}]", actual[key], expected[key]) for key in actual]
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{end}"
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(actual, expected, strict=True))]
    elif actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}{end}"
    else:
        if not options["allow_subclasses"] and type(actual) is not type(expected):
            return f"Type mismatch: {type(actual)} is not {type(expected)}{end}"
        told = _tensor_difference(actual, expected, **options)
        return None if told is None else told + end
    return next((told for place, *pair in pairs if (told := _difference(*pair, place, **options)) is not None), None)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _tensor_difference(
    actual: Any,
    expected: Any,
    *,
    tolerances: tuple[float, float] | None,
    equal_nan: bool,
    check_dtype: bool,
    check_stride: bool,
    allow_subclasses: bool,  # noqa: ARG001 (checked already)
) -> str | None:
    tensors = []
    for value in (actual, expected):
        if not isinstance(value, Tensor | np.ndarray | np.generic | int | float | bool):
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
            )
        tensors.append(gt.as_tensor(value).detach())
    a, b = tensors
    numbers = not isinstance(actual, Tensor) and not isinstance(expected, Tensor) and a.ndim == b.ndim == 0
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}."
    if check_dtype and not numbers and a.dtype != b.dtype:
        return f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}."
    if check_stride and a.stride() != b.stride():
        return f"The values for attribute 'stride()' do not match: {a.stride()} != {b.stride()}."
    if numbers:
        known = (_TOLERANCES[gt.float64] if gt.float64 in _dtypes(actual, expected) else (0.0, 0.0),)
    else:
        known = tuple(_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b))
    rtol, atol = tolerances or tuple(max(pair) for pair in zip(*known, strict=True))
    wide = gt.float64 if a.is_floating_point() or b.is_floating_point() else gt.int64
    x, y = a.to(wide), b.to(wide)
    close = gt.isclose(x, y, rtol, atol, equal_nan) if wide is gt.float64 or rtol or atol else x == y
    if bool(close.all()):
        return None
    x, y, wrong = x.double().numpy(), y.double().numpy(), ~close.numpy()
    with np.errstate(all="ignore"):
        absolute = np.where(wrong, np.abs(x - y), 0.0)
        relative = absolute / np.abs(y)
    kind = "Scalars" if a.ndim == 0 else "Tensor-likes"
    lines = [f"{kind} are not {'close' if rtol or atol else 'equal'}!", ""]
    if a.ndim == 0:
        lines += [f"Expected {expected} but got {actual}."]
        places = ["", ""]
    else:
        lines += [f"Mismatched elements: {wrong.sum()} / {wrong.size} ({100 * wrong.mean():.1f}%)"]
        places = [f" at index {_place(difference)}" for difference in (absolute, relative)]
    word = "Greatest absolute" if a.ndim else "Absolute"
    lines += [f"{word} difference: {_largest(absolute)}{places[0]} (up to {atol} allowed)"]
    relative_word = "Greatest relative" if a.ndim else "Relative"
    lines += [f"{relative_word} difference: {_largest(relative)}{places[1]} (up to {rtol} allowed)"]
    return "\n".join(lines)


def _dtypes(*values: Any) -> list[Any]:
    return [gt.float64 if isinstance(value, float | np.floating) else gt.int64 for value in values]


def _largest(differences: np.ndarray[Any, Any]) -> float:
    return float(np.nanmax(differences)) if not np.isnan(differences).all() else float("nan")


def _place(differences: np.ndarray[Any, Any]) -> tuple[int, ...]:
    filled = np.where(np.isnan(differences), np.inf, differences)
    return tuple(int(i) for i in np.unravel_index(int(filled.argmax()), filled.shape))
