"""Adafactor: Adam's second moment in factored form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, ignored_options


class Adafactor(Optimizer):
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

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        chosen = {name: value for name, value in ignored_options(foreach=foreach).items() if name == "foreach"}
        super().__init__(params, {**defaults, **chosen, "maximize": maximize})

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
