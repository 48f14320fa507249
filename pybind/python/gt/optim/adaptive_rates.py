"""Adaptive learning-rate methods: Adagrad, RMSprop, Adadelta and Adafactor."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, descent_gradient, pair

__all__ = ["Adadelta", "Adafactor", "Adagrad", "RMSprop"]


class Adagrad(Optimizer, declared=True):
    """Adagrad (Duchi et al. 2011): `p -= lr * grad / (sqrt(s) + eps)`, where `s` is the sum of the squared gradients.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The learning rate.
        lr_decay: The decay of the learning rate, which is `lr / (1 + t * lr_decay)` in step `t`, counted from 0.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        initial_accumulator_value: The initial value of `s`.
        eps: Added to the denominator.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.
        fused: Ignored: it affects speed in PyTorch alone.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.Adagrad([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    fused: bool | None = None
    _nonnegative = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def _begin(self, p: Tensor, group: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The state of a parameter, and the learning rate of its next step, which it counts."""
        state = self.state[p]
        if not state:
            state.update(step=0, sum=gt.full_like(p, group["initial_accumulator_value"]))
        lr = group["lr"] / (1 + state["step"] * group["lr_decay"])
        state["step"] += 1
        return state, lr

    def _update_by_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state, lr = self._begin(p, group)
        grad = grad.coalesce()
        where, values = tuple(grad.indices()), grad.values()
        if group["maximize"]:
            values = -values
        total = state["sum"][where] + values * values
        state["sum"][where] = total
        p[where] += gt._scaled_step(values, total, group["eps"]) * -lr

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state, lr = self._begin(p, group)
        state["sum"] = gt.addcmul(state["sum"], grad, grad)
        p.addcmul_(gt._scaled_step(grad, state["sum"], group["eps"]), -lr)


class RMSprop(Optimizer, declared=True):
    """RMSprop (Tieleman and Hinton 2012): `v = alpha * v + (1 - alpha) * grad^2`, `p -= lr * grad / (sqrt(v) + eps)`.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The learning rate.
        alpha: The decay rate of the mean square `v`.
        eps: Added to the denominator.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        momentum: The momentum factor. If it is not 0, the step is `p -= lr * b` with the buffer
            `b = momentum * b + grad / (sqrt(v) + eps)`.
        centered: Whether the square of the gradient's running mean is subtracted from `v`, which turns `v` into an
            estimate of the gradient's variance.
        capturable: Ignored.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.RMSprop([w], lr=0.01)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    capturable: bool = False
    foreach: bool | None = None
    maximize: bool = False
    differentiable: bool = False
    _nonnegative = ("lr", "eps", "momentum", "weight_decay", "alpha")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state, alpha = self.state[p], group["alpha"]
        if not state:
            state.update(step=0, square_avg=gt.zeros_like(p))
            if group["momentum"]:
                state["momentum_buffer"] = gt.zeros_like(p)
            if group["centered"]:
                state["grad_avg"] = gt.zeros_like(p)
        state["step"] += 1
        square = state["square_avg"] = gt._mean_square_step(state["square_avg"], grad, 1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"] = gt.lerp(state["grad_avg"], grad, 1 - alpha)
            square = square - mean * mean
        direction = gt._scaled_step(grad, square, group["eps"])
        if group["momentum"]:
            direction = state["momentum_buffer"] = gt.addcmul(direction, state["momentum_buffer"], group["momentum"])
        p.addcmul_(direction, -group["lr"])


class Adadelta(Optimizer, declared=True):
    """Adadelta (Zeiler 2012): `p -= lr * delta` with `delta = sqrt(u + eps) / sqrt(v + eps) * grad`.

    `v = rho * v + (1 - rho) * grad^2` is the running mean of the squared gradients, and
    `u = rho * u + (1 - rho) * delta^2`, updated after the step, that of the squared updates.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The factor of the update.
        rho: The decay rate of both running means.
        eps: Added under the roots; it sets the size of the first steps.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        foreach: Ignored: it affects speed in PyTorch alone.
        capturable: Ignored.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.Adadelta([w])
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9968])
    """

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    foreach: bool | None = None
    _: KW_ONLY
    capturable: bool = False
    maximize: bool = False
    differentiable: bool = False
    _nonnegative = ("lr", "eps", "weight_decay")

    def _set(self, params: Any, **options: Any) -> None:
        if not 0.0 <= options["rho"] <= 1.0:
            raise ValueError(f"Invalid rho value: {options['rho']}")
        super()._set(params, **options)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state, rho, eps = self.state[p], group["rho"], group["eps"]
        if not state:
            state.update(step=0, square_avg=gt.zeros_like(p), acc_delta=gt.zeros_like(p))
        state["step"] += 1
        state["square_avg"] = gt._mean_square_step(state["square_avg"], grad, 1 - rho)
        delta = (state["acc_delta"] + eps).sqrt() / (state["square_avg"] + eps).sqrt() * grad
        state["acc_delta"] = gt._mean_square_step(state["acc_delta"], delta, 1 - rho)
        p.addcmul_(delta, -group["lr"])


class Adafactor(Optimizer, declared=True):
    """Adafactor (Shazeer and Stern 2018): a matrix's second moment is estimated by its row and column means.

    Its state is of the size of a row and a column; steps are relative to the root mean square of the parameter.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The upper bound of the relative step size `min(lr, 1 / sqrt(t))`.
        beta2_decay: The exponent of the second moment's update: a weight of `t^beta2_decay` at step `t`.
        eps: The lower bounds of the second moment's root, by default the dtype's machine epsilon, and of the
            parameter's root mean square.
        d: The clipping threshold: the largest root mean square of an update before scaling.
        weight_decay: The factor of the decoupled weight decay.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.

    Example:
        >>> w = gt.nn.Parameter(gt.ones(2, 3))
        >>> optimizer = gt.optim.Adafactor([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([[0.9000, 0.9000, 0.9000],
                [0.9000, 0.9000, 0.9000]])
    """

    lr: float = 1e-2
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False

    _nonnegative = ()

    def _set(self, params: Any, **options: Any) -> None:
        (smallest, smallest_size), d = pair("eps", options["eps"]), options["d"]
        for label, value, is_valid in (
            ("Learning rate should be >= 0", options["lr"], options["lr"] >= 0.0),
            ("beta2_decay should be <= 0", options["beta2_decay"], options["beta2_decay"] <= 0.0),
            ("epsilon1 should be >= 0", smallest, smallest is None or smallest >= 0.0),
            ("epsilon2 should be >= 0", smallest_size, smallest_size >= 0.0),
            ("Clipping threshold d should be >= 1", d, d >= 1.0),
            ("weight_decay should be >= 0", options["weight_decay"], options["weight_decay"] >= 0.0),
        ):
            if not is_valid:
                raise ValueError(f"{label} but is: {value}")
        super()._set(params, **options)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["maximize"]:
            grad = -grad
        state = self.state[p]
        if not state:
            state["step"] = 0
            if grad.ndim > 1:
                state["row_var"] = gt.zeros_like(grad[..., :1])
                state["col_var"] = gt.zeros_like(grad[..., :1, :])
            else:
                state["variance"] = gt.zeros_like(grad)
        state["step"] += 1
        share = state["step"] ** group["beta2_decay"]
        smallest, smallest_size = group["eps"]
        smallest = gt.finfo(p.dtype).eps if smallest is None else smallest
        size = (p.norm(2) / math.sqrt(p.numel())).clamp(min=smallest_size)
        if group["weight_decay"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        square = grad * grad
        if grad.ndim > 1:
            row = state["row_var"] = gt.lerp(state["row_var"], square.mean(-1, keepdim=True), share)
            column = state["col_var"] = gt.lerp(state["col_var"], square.mean(-2, keepdim=True), share)
            variance = row @ column / row.mean(-2, keepdim=True).clamp(min=smallest)
        else:
            variance = state["variance"] = gt.lerp(state["variance"], square, share)
        update = grad * variance.clamp(min=smallest * smallest).rsqrt()
        excess = (update.norm(2) / (math.sqrt(update.numel()) * group["d"])).clamp(min=1.0)
        rate = min(group["lr"], 1 / math.sqrt(state["step"]))
        p.addcmul_(update, size / excess, value=-rate)
