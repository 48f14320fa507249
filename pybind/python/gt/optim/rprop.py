"""Resilient backpropagation, `Rprop`: sign-based updates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, check_not_negative, ignored_options


class Rprop(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(**{"learning rate": lr})
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        defaults |= ignored_options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        super().__init__(params, defaults)

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
