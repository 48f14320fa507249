"""Adam and its variants: AdamW, Adamax, NAdam and RAdam.

All keep running means of the gradient and, except for Adamax, of its square: `_WithMoments`.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, descent_gradient, pair

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

__getattr__ = _absent.getter(__name__)


class _WithMoments(Optimizer):
    """The base of optimizers with running means of the gradient and its square (first and second moments)."""

    _nonnegative = ("lr", "eps", "weight_decay")

    def _set(self, params: Any, **options: Any) -> None:
        for i, beta in enumerate(pair("betas", options["betas"])):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super()._set(params, **options)

    def _apply_weight_decay(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient with weight decay applied; decoupled weight decay shrinks the parameter instead."""
        if group["weight_decay"] and group.get("decoupled_weight_decay"):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            return -grad if group["maximize"] else grad
        return descent_gradient(p, grad, group)

    def _update_moments(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state, after updating its moments and step count."""
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=gt.zeros_like(p), exp_avg_sq=gt.zeros_like(p))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"] = gt.lerp(state["exp_avg"], grad, 1 - beta1)
        state["exp_avg_sq"] = gt._mean_square_step(state["exp_avg_sq"], grad, 1 - beta2)
        return state


class Adam(_WithMoments, declared=True):
    """Adam (Kingma and Ba 2015): `p -= lr * m_hat / (sqrt(v_hat) + eps)`.

    The moments are `m = beta1 * m + (1 - beta1) * grad` and `v = beta2 * v + (1 - beta2) * grad^2`, with the bias
    corrections `m_hat = m / (1 - beta1^t)` and `v_hat = v / (1 - beta2^t)` at step `t`.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The learning rate.
        betas: The decay rates of both moments.
        eps: Added to the denominator.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        amsgrad: Whether to use the largest second moment so far (Reddi et al. 2018).
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        capturable: Ignored.
        differentiable: Not supported.
        fused: Ignored: it affects speed in PyTorch alone.
        decoupled_weight_decay: Whether weight decay is that of `AdamW`.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.Adam([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False
    fused: bool | None = None
    decoupled_weight_decay: bool = False
    _instead = ", please consider SparseAdam instead"

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self._update_moments(p, self._apply_weight_decay(p, grad, group), group)
        beta1, beta2 = group["betas"]
        square = state["exp_avg_sq"]
        if group["amsgrad"]:
            most = state.get("max_exp_avg_sq")
            square = state["max_exp_avg_sq"] = square if most is None else gt.maximum(most, square)
        # The bias corrections are moved out of the quotient (Kingma and Ba 2015, end of section 2), so that the update
        # is two instructions.
        bias1 = 1 - beta1 ** state["step"]
        root2 = math.sqrt(1 - beta2 ** state["step"])
        p.addcmul_(gt._scaled_step(state["exp_avg"], square, group["eps"] * root2), -group["lr"] * root2 / bias1)


class AdamW(Adam, declared=True):
    """Adam with decoupled weight decay: `p *= 1 - lr * weight_decay` before the step (Loshchilov and Hutter 2019).

    The step is that of `Adam`, `p -= lr * m_hat / (sqrt(v_hat) + eps)`, where `m_hat` and `v_hat` are the running means
    of the gradient and of its square. Unlike an L2 penalty, the decay does not enter these means.

    Args:
        params: The tensors to optimize, such as `model.parameters()`; or dicts, each a parameter group with options of
            its own: `[{"params": weights, "weight_decay": 0.1}, {"params": biases}]`.
        lr: The learning rate.
        betas: The decay rates of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: The factor of the weight decay.
        amsgrad: Whether to use the largest second moment so far (Reddi et al. 2018).
        maximize: Whether to ascend the gradient.
        foreach: Ignored: it affects speed in PyTorch alone.
        capturable: Ignored.
        differentiable: Not supported.
        fused: Ignored: it affects speed in PyTorch alone.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.AdamW([w], lr=0.1, weight_decay=0.5)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.8500])
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    amsgrad: bool = False
    _: KW_ONLY
    maximize: bool = False
    foreach: bool | None = None
    capturable: bool = False
    differentiable: bool = False
    fused: bool | None = None

    def _set(self, params: Any, **options: Any) -> None:
        super()._set(params, **options, decoupled_weight_decay=True)


class Adamax(_WithMoments, declared=True):
    """Adam with the infinity norm: `p -= lr / (1 - beta1^t) * m / u`, `u = max(beta2 * u, |grad| + eps)`.

    See Kingma and Ba 2015, section 7. The arguments are those of `Adam`.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.Adamax([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    foreach: bool | None = None
    _: KW_ONLY
    maximize: bool = False
    differentiable: bool = False
    capturable: bool = False

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=gt.zeros_like(p), exp_inf=gt.zeros_like(p))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"] = gt.lerp(state["exp_avg"], grad, 1 - beta1)
        state["exp_inf"] = gt.maximum(state["exp_inf"] * beta2, grad.abs() + group["eps"])
        p.addcmul_(state["exp_avg"] / state["exp_inf"], -group["lr"] / (1 - beta1 ** state["step"]))


class NAdam(_WithMoments, declared=True):
    """Adam with Nesterov momentum (Dozat 2016).

    The arguments are those of `Adam`, and `momentum_decay`, the rate at which the momentum grows to `beta1`.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.NAdam([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.8944])
    """

    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False
    _nonnegative = ("lr", "eps", "weight_decay", "momentum_decay")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = self._apply_weight_decay(p, grad, group)
        state = self._update_moments(p, grad, group)
        beta1, beta2 = group["betas"]
        step, decay = state["step"], group["momentum_decay"]
        now, later = (beta1 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1))
        product = state["mu_product"] = state.get("mu_product", 1.0) * now
        root = state["exp_avg_sq"].sqrt() * (1 / math.sqrt(1 - beta2**step)) + group["eps"]
        p.addcmul_(grad / root, -group["lr"] * (1 - now) / (1 - product))
        p.addcmul_(state["exp_avg"] / root, -group["lr"] * later / (1 - product * later))


class RAdam(_WithMoments, declared=True):
    """Rectified Adam (Liu et al. 2020): plain momentum while the variance of the second moment is too large.

    The arguments are those of `Adam`.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.RAdam([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.7000])
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False
    _: KW_ONLY
    foreach: bool | None = None
    maximize: bool = False
    capturable: bool = False
    differentiable: bool = False

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = self._apply_weight_decay(p, grad, group)
        state = self._update_moments(p, grad, group)
        beta1, beta2 = group["betas"]
        step = state["step"]
        bias1, bias2 = 1 - beta1**step, 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / bias2
        direction, factor = state["exp_avg"], group["lr"] / bias1
        if length > 5.0:
            share = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            direction = gt._scaled_step(direction, state["exp_avg_sq"], group["eps"])
            factor *= math.sqrt(share) * math.sqrt(bias2)
        p.addcmul_(direction, -factor)
