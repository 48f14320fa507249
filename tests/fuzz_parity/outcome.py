"""The outcome of a program: its variables at the end, or the exception of its last line."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

# The relative tolerance of each dtype's results; an absolute one follows from a tensor's largest element.
TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 2e-4, "float64": 1e-8}
# The size of numbers near 1 whose rounding is what remains where they cancel.
ROUNDING = 1e-2
# Gradients in half precision get ten times as much: that of a softmax whose rows are summed is 0 but for the rounding
# of the softmax itself, 2^-11 in float16 and 2^-8 in bfloat16, in each term of a row.
HALF_GRADIENT_ROUNDING = 1e-1
# How many times as much as PyTorch's own results with other rounding differ from each other, GT's may differ from them.
SPREAD_TIMES = 4.0

Outcome = dict[str, Any]


def run(lines: list[str], module: Any) -> Outcome:
    """Runs a program in which `torch` is `module`; only its last line may raise.

    An error of looking at the variables is one of the line after the last: PyTorch has some about views of several.
    """
    scope: dict[str, Any] = {"torch": module}
    line = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for text in lines:
                notice_gradients(scope, module)
                exec(text, scope)
                line += 1
            return {"variables": variables(scope, module)}
        except Exception as error:
            return {"error": [kind.__name__ for kind in type(error).__mro__], "line": line, "text": str(error)}


def notice_gradients(scope: dict[str, Any], module: Any) -> None:
    """Reads `grad_fn` of all tensors. PyTorch takes a view for a leaf, and refuses to write to it, until somebody has
    read this after its base began to require a gradient.
    """
    for value in scope.values():
        if isinstance(value, module.Tensor):
            # PyTorch may refuse this for one of several views, and then also the line that uses it.
            with contextlib.suppress(RuntimeError):
                value.grad_fn  # noqa: B018 (the attribute is computed when it is read)


def variables(scope: dict[str, Any], module: Any) -> dict[str, Any]:
    """The tensors and NumPy arrays of a program, by name."""
    tensors = {name: observed(value) for name, value in scope.items() if isinstance(value, module.Tensor)}
    arrays = {name: observed_array(value) for name, value in scope.items() if isinstance(value, np.ndarray)}
    return dict(sorted({**tensors, **arrays}.items()))


def observed_array(array: np.ndarray) -> dict[str, Any]:
    """All that is compared of an array, as if it were a tensor."""
    values = [number(value) for value in array.reshape(-1).tolist()]
    shape = list(array.shape)
    return {"dtype": str(array.dtype), "shape": shape, "values": values, "requires_grad": False, "is_leaf": True}


def observed(t: Any, with_grad: bool = True) -> dict[str, Any]:
    """All that is compared of a tensor, as JSON has it."""
    found = {
        "dtype": str(t.dtype).rpartition(".")[2],
        "shape": list(t.shape),
        "values": [number(value) for value in t.detach().reshape(-1).tolist()],
        "requires_grad": t.requires_grad,
        "is_leaf": t.is_leaf,
    }
    if with_grad and (t.is_leaf or t.retains_grad) and t.grad is not None:
        found["grad"] = observed(t.grad, with_grad=False)
    return found


def number(value: float | bool) -> float | int | str:
    """A number as JSON has it: NaN and infinities are strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def difference(expected: Outcome, found: Outcome, others: Sequence[Outcome] = ()) -> str | None:
    """The first difference between PyTorch's outcome and GT's, in words; None if there is none.

    `others` are outcomes of PyTorch with other rounding: an element may differ as far as they do.
    """
    if "error" in expected:
        kind = expected["error"][0]
        if "error" not in found:
            return f"PyTorch raises {kind} in the last line ({expected['text'][:200]}), GT raises nothing"
        if kind not in found["error"]:
            return f"PyTorch raises {kind} ({expected['text'][:200]}), GT {found['error'][0]} ({found['text'][:200]})"
        return None
    if "error" in found:
        return f"GT raises {found['error'][0]} in line {found['line'] + 1}: {found['text'][:300]}"
    if expected["variables"].keys() != found["variables"].keys():
        return f"there are {sorted(expected['variables'])} in PyTorch and {sorted(found['variables'])} in GT"
    alike = [
        other["variables"] for other in others if other.get("variables", {}).keys() == expected["variables"].keys()
    ]
    pairs = ((name, own, found["variables"][name]) for name, own in expected["variables"].items())
    # A rounded number may be converted to a more precise dtype.
    used = [TOLERANCE[own["dtype"]] for own in expected["variables"].values() if own["dtype"] in TOLERANCE]
    tolerance = max(used, default=0.0)
    found_differences = (
        f"{name}: {text}"
        for name, own, other in pairs
        if (text := differs(own, other, [variables[name] for variables in alike], tolerance))
    )
    return next(found_differences, None)


def differs(
    expected: dict[str, Any],
    found: dict[str, Any],
    others: list[dict[str, Any]],
    tolerance: float,
    rounding: float = ROUNDING,
) -> str | None:
    """The first difference between two tensors, of which `others` are PyTorch's with other rounding."""
    for key in ("dtype", "shape", "requires_grad", "is_leaf"):
        if expected[key] != found[key]:
            return f"{key} is {expected[key]} in PyTorch and {found[key]} in GT"
    relative = tolerance if expected["dtype"] in TOLERANCE else 0.0
    if not agree(expected["values"], found["values"], [other["values"] for other in others], relative, rounding):
        return f"{expected['dtype']} {expected['shape']} is {expected['values']} in PyTorch and {found['values']} in GT"
    if ("grad" in expected) != ("grad" in found):
        return f"grad is {expected.get('grad')} in PyTorch and {found.get('grad')} in GT"
    if "grad" not in expected:
        return None
    rounding = HALF_GRADIENT_ROUNDING if expected["dtype"] in ("float16", "bfloat16") else ROUNDING
    grads = [other["grad"] for other in others if "grad" in other]
    own = expected["grad"]
    if found["grad"]["requires_grad"] and not any(own["values"]):
        # The gradient of a part without elements is of zeros, which PyTorch does not record where the part was written.
        own = own | {"requires_grad": True, "is_leaf": found["grad"]["is_leaf"]}
    text = differs(own, found["grad"], grads, tolerance, rounding)
    return f"grad: {text}" if text else None


def agree(expected: list[Any], found: list[Any], others: list[list[Any]], relative: float, rounding: float) -> bool:
    """Whether two lists have the same numbers: exactly, or within a relative tolerance of themselves or `rounding`, or
    within the spread of `others`.
    """
    if expected == found:
        return True
    alike = [other for other in others if len(other) == len(expected)]
    if len(expected) != len(found) or (relative == 0.0 and not alike):
        return False
    finite = [abs(value) for value in expected if not isinstance(value, str)]
    absolute = relative * min(max(finite, default=0.0), 1e4) * 0.1 + relative * rounding
    return all(
        close(own, other, relative, absolute if relative else 0.0)
        or within(own, other, [numbers[i] for numbers in alike])
        for i, (own, other) in enumerate(zip(expected, found, strict=True))
    )


def close(expected: Any, found: Any, relative: float, absolute: float) -> bool:
    """Whether two numbers are close."""
    if isinstance(expected, str) or isinstance(found, str):
        return expected == found
    return math.isclose(expected, found, rel_tol=relative, abs_tol=absolute)


def within(expected: Any, found: Any, others: list[Any]) -> bool:
    """Whether a number differs from the expected one as `others` do, or some of these are infinite or NaN."""
    if any(isinstance(other, str) != isinstance(expected, str) for other in others):
        return True
    if isinstance(expected, str) or isinstance(found, str):
        return expected == found
    spread = max((abs(other - expected) for other in others), default=0.0)
    return abs(found - expected) <= SPREAD_TIMES * spread
