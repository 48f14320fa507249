"""Gradient descent: with momentum (SGD), averaged (ASGD), by signs (Rprop), along orthogonalized momentum (Muon)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, descent_gradient, pair

__all__ = ["ASGD", "SGD", "Muon", "Rprop"]

__getattr__ = _absent.getter(__name__)


class SGD(Optimizer, declared=True):
    """Stochastic gradient descent: `v = momentum * v + (1 - dampening) * grad`, `p -= lr * v`.

    A step is one instruction for each parameter, and one more for each option.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The learning rate.
        momentum: The momentum factor.
        dampening: The dampening of the momentum.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        nesterov: Whether to use Nesterov momentum: `p -= lr * (grad + momentum * v)` (Sutskever et al. 2013).
        maximize: Whether to ascend the gradient.
        foreach: Ignored: it affects speed in PyTorch alone.
        differentiable: Not supported.
        fused: Ignored: it affects speed in PyTorch alone.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.SGD([w], lr=0.1, momentum=0.9)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.7000])
    """

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    _: KW_ONLY
    maximize: bool = False
    foreach: bool | None = None
    differentiable: bool = False
    fused: bool | None = None
    _nonnegative = ("lr", "momentum", "weight_decay")

    def _set(self, params: Any, **options: Any) -> None:
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super()._set(params, **options)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        # addcmul(a, b, c) is a + b * c in one instruction.
        grad = descent_gradient(p, grad, group)
        if momentum := group["momentum"]:
            state = self.state[p]
            direction = state.get("momentum_buffer")
            if direction is None:
                direction = grad.detach().clone()  # a copy, as the gradient may be changed in place
            else:
                gain = 1 - group["dampening"]
                direction = gt.addcmul(grad if gain == 1 else grad * gain, direction, momentum)
            state["momentum_buffer"] = direction
            grad = gt.addcmul(grad, direction, momentum) if group["nesterov"] else direction
        p.addcmul_(grad, -group["lr"])

    def _update_by_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        if group["maximize"]:
            grad = -grad
        if momentum := group["momentum"]:
            state = self.state[p]
            direction = state.get("momentum_buffer")
            if direction is None:
                direction = grad.detach().clone()
            else:
                # Coalesced, so that it names each row once, however many steps there are.
                direction = (momentum * direction + (1 - group["dampening"]) * grad).coalesce()
            state["momentum_buffer"] = direction
            grad = grad + momentum * direction if group["nesterov"] else direction
        p.index_put_(tuple(grad._indices()), grad._values() * -group["lr"], accumulate=True)


class ASGD(Optimizer, declared=True):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992): `ax` in the state is the mean of the iterates.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The initial learning rate.
        lambd: The decay: each step multiplies the parameter by `1 - lambd * eta`.
        alpha: The exponent of the learning rate `eta = lr / (1 + lambd * lr * t)^alpha` at step `t`.
        t0: The step from which on the mean is taken.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.
        capturable: Ignored.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.ASGD([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.7000])
    """

    lr: float = 1e-2
    lambd: float = 1e-4
    alpha: float = 0.75
    t0: float = 1e6
    weight_decay: float = 0.0
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False
    _nonnegative = ("lr", "weight_decay")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state = self.state[p]
        if not state:
            state.update(step=0, eta=group["lr"], mu=1.0, ax=gt.zeros_like(p))
        state["step"] += 1
        p.mul_(1 - group["lambd"] * state["eta"])
        p.addcmul_(grad, -state["eta"])
        state["ax"] = p.clone() if state["mu"] == 1 else gt.addcmul(state["ax"], p - state["ax"], state["mu"])
        state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])


class Rprop(Optimizer, declared=True):
    """Resilient backpropagation (Riedmiller and Braun 1993): each element has a step size of its own.

    The step size grows while the sign of the element's gradient stays the same, and shrinks when it changes. For
    gradients of the full batch.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The initial step size.
        etas: The factors of a step size when the sign changes, and when it does not.
        step_sizes: The smallest and the largest step size.
        capturable: Ignored.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.Rprop([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    lr: float = 1e-2
    etas: tuple[float, float] = (0.5, 1.2)
    step_sizes: tuple[float, float] = (1e-6, 50)
    _: KW_ONLY
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False

    def _set(self, params: Any, **options: Any) -> None:
        shrink, grow = pair("etas", options["etas"])
        if not 0.0 < shrink < 1.0 < grow:
            raise ValueError(f"Invalid eta values: {shrink}, {grow}")
        super()._set(params, **options)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["maximize"]:
            grad = -grad
        state = self.state[p]
        if not state:
            state.update(step=0, prev=gt.zeros_like(p), step_size=gt.full_like(p, group["lr"]))
        state["step"] += 1
        agrees = grad * state["prev"]
        shrink, grow = group["etas"]
        factor = gt.where(agrees > 0, grow, gt.where(agrees < 0, shrink, 1.0)).to(p.dtype)
        state["step_size"] = (state["step_size"] * factor).clamp(*group["step_sizes"])
        # An element whose sign has changed makes no step, and has no sign to compare with at the next one.
        grad = gt.where(agrees < 0, 0.0, grad).to(p.dtype)
        p.addcmul_(grad.sign(), state["step_size"] * -1)
        state["prev"] = grad


class Muon(Optimizer, declared=True):
    """Muon (Jordan et al. 2024): steps along the momentum of a matrix, orthogonalized by Newton-Schulz iterations.

    Args:
        params: Matrices, or dicts of parameter groups.
        lr: The learning rate.
        weight_decay: The factor of the decoupled weight decay.
        momentum: The momentum factor.
        nesterov: Whether to use Nesterov momentum.
        ns_coefficients: The coefficients of the Newton-Schulz polynomial.
        eps: The smallest norm to divide by.
        ns_steps: The number of Newton-Schulz iterations.
        adjust_lr_fn: The factor of the learning rate for an `(A, B)` matrix: `"original"` (the default) for
            `sqrt(max(1, A / B))`, `"match_rms_adamw"` for `0.2 * sqrt(max(A, B))`, which fits AdamW's learning rates.

    Raises:
        ValueError: A parameter is not a matrix.

    Example:
        >>> layer = gt.nn.Linear(4, 3, bias=False)
        >>> optimizer = gt.optim.Muon(layer.parameters(), lr=0.1)
        >>> layer(gt.ones(2, 4)).sum().backward()
        >>> optimizer.step()
    """

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str | None = None

    _nonnegative = ()

    def _set(self, params: Any, **options: Any) -> None:
        for name, label in {"lr": "Learning rate", "momentum": "momentum", "weight_decay": "weight decay"}.items():
            if not options[name] >= 0.0:
                raise ValueError(f"{label} should be >= 0 but is: {options[name]}")
        if options["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {options['adjust_lr_fn']} is not supported")
        super()._set(params, **options)
        for p in (p for group in self.param_groups for p in group["params"]):
            if p.ndim != 2:
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[p], group["momentum"]
        if not state:
            state["momentum_buffer"] = gt.zeros_like(grad)
        mean = state["momentum_buffer"] = gt.lerp(state["momentum_buffer"], grad, 1 - momentum)
        step = gt.lerp(grad, mean, momentum) if group["nesterov"] else mean
        rows, columns = p.shape
        match = group["adjust_lr_fn"] == "match_rms_adamw"
        factor = 0.2 * math.sqrt(max(rows, columns)) if match else math.sqrt(max(1, rows / columns))
        step = _orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(step.to(p.dtype), alpha=-group["lr"] * factor)


def _orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """The nearest semi-orthogonal matrix, approximately: Newton-Schulz iterations in bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix).bfloat16()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = gt.addmm(x, gt.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
