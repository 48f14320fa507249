"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, descent_gradient, ignored_options


class SGD(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        for name, value in {
            "learning rate": lr,
            "momentum value": momentum,
            "weight_decay value": weight_decay,
        }.items():
            if value < 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            **ignored_options(foreach=foreach, fused=fused, differentiable=differentiable),
        }
        super().__init__(params, defaults)

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
