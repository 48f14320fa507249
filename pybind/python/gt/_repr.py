"""`repr(t)` in PyTorch's layout: elements aligned in columns, large tensors abbreviated.

Start at `tensor_repr`. Only the elements that are printed are fetched from the daemon.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gt import _gt
from gt._functions import top
from gt._gt import Tensor


@dataclass
class _Options:
    """The options of `set_printoptions`."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
}
_options = _Options()

PREFIX = "tensor("


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors are printed. Options that are not given keep their value, except `sci_mode`.

    Args:
        precision: The number of digits after the decimal point.
        threshold: The number of elements above which only the first and last of each axis are printed.
        edgeitems: The number of those at each end of an axis.
        linewidth: The number of characters in a line.
        profile: "default", "short" or "full": defaults to set first.
        sci_mode: Whether scientific notation is used; the elements decide if not given.

    Raises:
        ValueError: There is no such profile.

    Example:
        >>> gt.set_printoptions(precision=2)
        >>> gt.tensor([1.2345])
        tensor([1.23])
        >>> gt.set_printoptions(profile="default")
    """
    if profile is not None:
        if profile.lower() not in _PROFILES:
            raise ValueError(f"set_printoptions: profile is one of {', '.join(_PROFILES)}, but got {profile!r}")
        vars(_options).update(asdict(_PROFILES[profile.lower()]))
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    vars(_options).update({name: value for name, value in given.items() if value is not None}, sci_mode=sci_mode)


def tensor_repr(t: Tensor) -> str:
    """The string `tensor(...)` with the elements, and where they are not obvious the size, dtype and autograd state.

    A class that derives from `Tensor` has its own name there.
    """
    prefix = PREFIX if type(t) is Tensor or t._is_parameter else f"{type(t).__name__}("
    notes = []
    if t.numel() == 0:
        body = "[]"
        if t.ndim != 1:
            notes.append(f"size={tuple(t.shape)}")
        if t.dtype != _gt.get_default_dtype():
            notes.append(f"dtype={t.dtype}")
    else:
        body = _body(t, len(prefix))
        default = _gt.get_default_dtype()
        if t.dtype not in (default, default.to_complex(), _gt.int64, _gt.bool):
            notes.append(f"dtype={t.dtype}")
    if t.grad_fn is not None:
        notes.append(f"grad_fn=<{t.grad_fn.name()}>")
    elif t.requires_grad:
        notes.append("requires_grad=True")
    text = _with_notes(prefix + body, notes, len(prefix))
    return f"Parameter containing:\n{text}" if t._is_parameter else text


def tensor_str(t: Tensor) -> str:
    """The string that `repr` gives, also that of a derived class."""
    return repr(t)


def _with_notes(text: str, notes: list[str], indent: int) -> str:
    """Appends notes, each to the last line if it fits there."""
    column = len(text) - text.rfind("\n") + 1
    for note in notes:
        if column + len(note) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            text += ", " + note
            column += len(note) + 2
    return text + ")"


def _body(t: Tensor, indent: int) -> str:
    shortened = t.numel() > _options.threshold
    previous = _gt.set_grad_enabled(False)
    try:
        shown = t.detach()
        if shortened:
            for axis in range(shown.ndim):
                shown = _edges(shown, axis)
        if shown.dtype == _gt.bfloat16:  # NumPy has no bfloat16
            shown = shown.to(_gt.float32)
        values = shown.numpy()
    finally:
        _gt.set_grad_enabled(previous)
    # The axes whose middle is left out; an ellipsis stands there.
    cut = [shortened and size > 2 * _options.edgeitems for size in t.shape]
    element, width = _formatter(values)
    return _layout(values, cut, element, width, indent=indent)


def _edges(t: Tensor, axis: int) -> Tensor:
    """The first and last elements along `axis`."""
    if t.shape[axis] <= 2 * _options.edgeitems:
        return t
    before = (slice(None),) * axis
    return top.cat(
        [t[(*before, slice(None, _options.edgeitems))], t[(*before, slice(-_options.edgeitems, None))]], dim=axis
    )


def _formatter(values: np.ndarray[Any, Any]) -> tuple[Callable[[Any], str], int]:
    """A function that formats an element in its column, and the width of the column."""
    if values.dtype.kind == "c":
        (real, real_width), (imag, imag_width) = _formatter(values.real), _formatter(values.imag)

        def complex_number(value: complex) -> str:
            part = imag(value.imag).lstrip()
            return f"{real(value.real)}{part if part[0] in '+-' else '+' + part}j"

        return complex_number, real_width + imag_width + 1
    write, width = _writer(values)
    return lambda value: write(value).rjust(width), width


def _writer(values: np.ndarray[Any, Any]) -> tuple[Callable[[Any], str], int]:
    """A function that formats a real element, and the width of the widest."""
    if values.dtype.kind != "f":
        return str, max(len(str(value)) for value in values.flat)
    values = values.astype(np.float64)
    # NaN, infinities and zeros do not affect the format.
    telling = values[np.isfinite(values) & (values != 0)]
    if telling.size == 0:
        write = _whole
    else:
        low, high = np.abs(telling).min(), np.abs(telling).max()
        whole = bool((telling == np.ceil(telling)).all())
        # Scientific notation is for a wide range of magnitudes, and for numbers beyond the usual digits.
        wide = high / low > 1000 or high > 1e8 or (low < 1e-4 and not whole)
        if wide if _options.sci_mode is None else _options.sci_mode:
            write = _scientific
        else:
            write = _whole if whole else _fixed
    return write, max((len(write(value)) for value in telling), default=1)


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


def _fixed(value: float) -> str:
    return f"{value:.{_options.precision}f}"


def _scientific(value: float) -> str:
    return f"{value:.{_options.precision}e}"


def _layout(
    values: np.ndarray[Any, Any], cut: list[bool], element: Callable[[Any], str], width: int, indent: int
) -> str:
    """Nested brackets with rows wrapped at the line's end, and blank lines between blocks of more axes."""
    if values.ndim == 0:
        return element(values.item())
    if values.ndim == 1:
        words = [element(value) for value in values.tolist()]
        if cut[0]:
            words.insert(_options.edgeitems, " ...")
        per_line = max(1, (_options.linewidth - indent) // (width + 2))
        lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_layout(row, cut[1:], element, width, indent + 1) for row in values]
    if cut[0]:
        rows.insert(_options.edgeitems, "...")
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(rows) + "]"


def tensor_format(t: Tensor, spec: str) -> str:
    """`format(t, spec)`: the number of a tensor without axes; for other tensors `repr`, if `spec` is empty.

    Raises:
        TypeError: The tensor has axes, and `spec` is not empty.
    """
    if t.ndim == 0:
        return format(t.item(), spec)
    if not spec:
        return tensor_repr(t)
    raise TypeError(f"the format {spec!r} is for one number, but the tensor has shape {tuple(t.shape)}: use t.item()")
