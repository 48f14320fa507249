"""Adaptive learning-rate methods: Adagrad, RMSprop and Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt._rows import ROWS
from gt.optim.optimizer import Optimizer, check_not_negative, descent_gradient, ignored_options


class Adagrad(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative(
            **{
                "learning rate": lr,
                "lr_decay value": lr_decay,
                "weight_decay value": weight_decay,
                "initial_accumulator_value value": initial_accumulator_value,
                "epsilon value": eps,
            }
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            **ignored_options(foreach=foreach, fused=fused, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "sum": gt.full_like(p, group["initial_accumulator_value"])}
        state = self.state[p]
        lr = group["lr"] / (1 + state["step"] * group["lr_decay"])
        state["step"] += 1
        state["sum"] = gt.addcmul(state["sum"], grad, grad)
        p.addcmul_(ROWS["scaled_step"](grad, state["sum"], group["eps"]), -lr)


class RMSprop(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(
            **{
                "learning rate": lr,
                "epsilon value": eps,
                "momentum value": momentum,
                "weight_decay value": weight_decay,
                "alpha value": alpha,
            }
        )
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
            **ignored_options(foreach=foreach, capturable=capturable, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "square_avg": gt.zeros_like(p)}
            if group["momentum"]:
                self.state[p]["momentum_buffer"] = gt.zeros_like(p)
            if group["centered"]:
                self.state[p]["grad_avg"] = gt.zeros_like(p)
        state, alpha = self.state[p], group["alpha"]
        state["step"] += 1
        square = state["square_avg"] = ROWS["mean_square_step"](state["square_avg"], grad, 1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"] = gt.lerp(state["grad_avg"], grad, 1 - alpha)
            square = square - mean * mean
        direction = ROWS["scaled_step"](grad, square, group["eps"])
        if group["momentum"]:
            direction = state["momentum_buffer"] = gt.addcmul(direction, state["momentum_buffer"], group["momentum"])
        p.addcmul_(direction, -group["lr"])


class Adadelta(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(**{"learning rate": lr, "epsilon value": eps, "weight_decay value": weight_decay})
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        defaults |= ignored_options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "square_avg": gt.zeros_like(p), "acc_delta": gt.zeros_like(p)}
        state, rho, eps = self.state[p], group["rho"], group["eps"]
        state["step"] += 1
        state["square_avg"] = ROWS["mean_square_step"](state["square_avg"], grad, 1 - rho)
        delta = (state["acc_delta"] + eps).sqrt() / (state["square_avg"] + eps).sqrt() * grad
        state["acc_delta"] = ROWS["mean_square_step"](state["acc_delta"], delta, 1 - rho)
        p.addcmul_(delta, -group["lr"])
