"""For matrices: Adafactor, which keeps little of their gradients, and Muon, whose steps are orthogonal matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, hints


class Adafactor(Optimizer):
    """Adam's mean square of a matrix by its rows' and columns' alone; steps relative to the size of the parameter.

    Shazeer and Stern 2018.
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
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The largest share of the parameter's size that a step is; step `n` is at most `1 / sqrt(n)`.
            beta2_decay: Step `n` takes up a share of `n ** beta2_decay` of the squares.
            eps: The smallest root of a mean square, by default the dtype's `eps`, and the smallest size of a parameter.
            d: The largest root mean square of a step, before its size is chosen.
            weight_decay: Shrink the parameter by `lr * weight_decay`.
            foreach: Changes nothing.
            maximize: Step up the gradient, not down.
        """
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
        chosen = {name: value for name, value in hints(foreach=foreach).items() if name == "foreach"}
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


class Muon(Optimizer):
    """Steps of which each singular value is about 1: a matrix's mean gradient made orthogonal (Jordan 2024)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        """Takes the parameters, which are matrices, and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate.
            weight_decay: Shrink the parameter by `lr * weight_decay`.
            momentum: How much of the mean gradient is kept at a step.
            nesterov: Step by the gradient and the mean together.
            ns_coefficients: Of the polynomial that takes singular values towards 1.
            eps: The smallest norm to divide by.
            ns_steps: How often the polynomial is applied.
            adjust_lr_fn: How the rate follows from a matrix's shape: "original", the default, for taller ones more;
                "match_rms_adamw", so that rates of AdamW fit.
        """
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        defaults |= {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
                    )

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[p], group["momentum"]
        mean = state.get("momentum_buffer", gt.zeros_like(grad))
        mean = state["momentum_buffer"] = gt.lerp(mean, grad, 1 - momentum)
        step = gt.lerp(grad, mean, momentum) if group["nesterov"] else mean
        rows, columns = p.shape
        match = group["adjust_lr_fn"] == "match_rms_adamw"
        factor = 0.2 * math.sqrt(max(rows, columns)) if match else math.sqrt(max(1, rows / columns))
        step = _orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(step.to(p.dtype), alpha=-group["lr"] * factor)


def _orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """A matrix with its singular values near 1, by Newton and Schulz's iteration in bfloat16."""
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
