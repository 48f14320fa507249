"""Muon: momentum orthogonalized by Newton-Schulz iterations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer


class Muon(Optimizer):
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
