"""Numerical gradient checks: `gradcheck` for first derivatives, `gradgradcheck` for second ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gt import _absent, _gt
from gt._autograd import no_grad
from gt._functions import top
from gt._gt import Tensor, complex128, float64

__getattr__ = _absent.getter(__name__)

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient differs from the finite differences."""


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """The outputs that have gradients; of complex ones, the real and imaginary parts along another axis."""
    result = func(*inputs)
    several = result if isinstance(result, tuple | list) else (result,)
    found = [t for t in several if isinstance(t, Tensor) and (t.dtype.is_floating_point or t.dtype.is_complex)]
    return [top.view_as_real(t) if t.dtype.is_complex else t for t in found]


def _in_parts(func: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of the real and imaginary parts of complex inputs that require gradients, and its inputs."""
    places = [i for i, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad and t.dtype.is_complex]
    if not places:
        return func, inputs

    def of_parts(*args: Any) -> Any:
        return func(*(top.view_as_complex(t) if i in places else t for i, t in enumerate(args)))

    parts = {i: top.view_as_real(inputs[i].detach()).clone().requires_grad_() for i in places}
    return of_parts, tuple(parts.get(i, t) for i, t in enumerate(inputs))


@no_grad()
def _numerical(func: Callable[..., Any], inputs: Sequence[Any], which: int, eps: float) -> list[list[list[float]]]:
    """The Jacobian of each output with respect to one input by central differences, one row for each input element."""
    inputs = [t.detach() if isinstance(t, Tensor) else t for t in inputs]
    start = inputs[which].reshape(-1).tolist()
    shape, dtype = inputs[which].shape, inputs[which].dtype

    def at(values: list[float]) -> list[list[float]]:
        moved = _gt.tensor(values, dtype=dtype).reshape(shape)
        changed = [*inputs[:which], moved, *inputs[which + 1 :]]
        return [t.detach().reshape(-1).tolist() for t in _outputs(func, changed)]

    rows: list[list[list[float]]] = [[] for _ in _outputs(func, inputs)]
    for i, value in enumerate(start):
        ahead = at([*start[:i], value + eps, *start[i + 1 :]])
        behind = at([*start[:i], value - eps, *start[i + 1 :]])
        for row, a, b in zip(rows, ahead, behind, strict=True):
            row.append([(x - y) / (2 * eps) for x, y in zip(a, b, strict=True)])
    return rows


def _analytical(output: Tensor, wanted: Sequence[Tensor]) -> list[list[list[float]]]:
    """The Jacobian of an output with respect to each input by autograd, one row for each input element."""
    columns: list[list[list[float]]] = [[] for _ in wanted]
    for i in range(output.numel()):
        seed = top.zeros(output.numel(), dtype=output.dtype)
        seed[i] = 1.0
        found = [None] * len(wanted)
        if output.requires_grad:
            found = _gt.gradients([output], [seed.reshape(output.shape)], wanted, True, False)
        for column, gradient, t in zip(columns, found, wanted, strict=True):
            column.append([0.0] * t.numel() if gradient is None else gradient.reshape(-1).tolist())
    return [[list(row) for row in zip(*column, strict=True)] for column in columns]


def _is_close(a: float, b: float, rtol: float, atol: float) -> bool:
    return abs(a - b) <= atol + rtol * abs(b) or a == b


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Compares the gradients of `func(*inputs)` with central finite differences.

    Inputs should be float64 or complex128. All elements are perturbed, of complex ones the real and the imaginary
    parts, whatever `fast_mode` is.

    Args:
        func: A function of tensors that returns a tensor or a tuple of them.
        inputs: Its arguments.
        eps: The perturbation.
        atol: The absolute tolerance.
        rtol: The relative tolerance.
        raise_exception: Whether to raise an error rather than to return false.
        nondet_tol: The largest difference between two backward passes.
        check_undefined_grad: Ignored.
        check_grad_dtypes: Ignored.
        check_batched_grad: Not supported.
        check_forward_ad: Not supported.
        check_backward_ad: Whether gradients are checked.
        fast_mode: Ignored.

    Raises:
        GradcheckError: The gradients differ, unless `raise_exception` is false.
        NotImplementedError: An unsupported check is requested.

    Example:
        >>> x = gt.tensor([1.0, 2.0], dtype=gt.float64, requires_grad=True)
        >>> gt.autograd.gradcheck(lambda x: x.exp(), (x,))
        True
    """
    del check_undefined_grad, check_grad_dtypes, fast_mode, nondet_tol
    if check_batched_grad or check_forward_ad or not check_backward_ad:
        raise NotImplementedError("gradcheck: there is neither forward mode nor vmap: only backward gradients")
    several = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    places = [i for i, t in enumerate(several) if isinstance(t, Tensor) and t.requires_grad]
    if not places:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have it.")
    for i in places:
        if several[i].dtype not in (float64, complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point. This check will likely "
                "fail if all the inputs are not of double precision floating point.",
                stacklevel=2,
            )
    func, several = _in_parts(func, several)
    outputs = _outputs(func, several)
    exact = [_analytical(output, [several[i] for i in places]) for output in outputs]
    for n, i in enumerate(places):
        for o, numerical in enumerate(_numerical(func, several, i, eps)):
            analytical = exact[o][n]
            pairs = zip(analytical, numerical, strict=True)
            if all(_is_close(a, b, rtol, atol) for rows in pairs for a, b in zip(*rows, strict=True)):
                continue
            if not raise_exception:
                return False
            raise GradcheckError(
                f"Jacobian mismatch for output {o} with respect to input {i},\n"
                f"numerical:{numerical}\nanalytical:{analytical}\n"
            )
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Compares the second derivatives of `func(*inputs)` with finite differences of its gradients: see `gradcheck`.

    `grad_outputs` are the gradients of the outputs, drawn at random if not given.
    """
    del gen_non_contig_grad_outputs
    if check_fwd_over_rev or not check_rev_over_rev:
        raise NotImplementedError("gradgradcheck: there is no forward mode: only gradients of backward gradients")
    several = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    count = len(several)
    if grad_outputs is None:
        shapes = _outputs(func, several)
        grad_outputs = tuple(top.randn(tuple(t.shape), dtype=t.dtype).requires_grad_() for t in shapes)
    weights = tuple(grad_outputs) if isinstance(grad_outputs, tuple | list) else (grad_outputs,)
    places = [i for i, t in enumerate(several) if isinstance(t, Tensor) and t.requires_grad]

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        # Finite differences pass plain tensors; taking a gradient needs leaves.
        own = [
            t if not isinstance(t, Tensor) or t.requires_grad or i not in places else t.requires_grad_()
            for i, t in enumerate(args[:count])
        ]
        previous = _gt.set_grad_enabled(True)
        try:
            outputs = _outputs(func, own)
            live = [(o, w) for o, w in zip(outputs, args[count:], strict=True) if o.requires_grad]
            roots, seeds = zip(*live, strict=True)
            found = _gt.gradients(roots, seeds, [own[i] for i in places], True, True)
        finally:
            _gt.set_grad_enabled(previous)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        several + weights,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
    )
