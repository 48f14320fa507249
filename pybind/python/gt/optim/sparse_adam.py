"""`SparseAdam`: Adam on the elements that a sparse gradient names."""

from __future__ import annotations

import math
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, pair

__all__ = ["SparseAdam"]

__getattr__ = _absent.getter(__name__)


class SparseAdam(Optimizer, declared=True):
    """Adam (Kingma and Ba 2015) on the elements that a sparse gradient names; all others, and their moments, stay.

    Gradients are tensors in COO layout, as of `Embedding(..., sparse=True)`, or as the program assigns them to `.grad`.

    Args:
        params: The dense tensors to optimize, or dicts that each describe a parameter group.
        lr: The learning rate.
        betas: The decay rates of the running means of the gradient and of its square.
        eps: Added to the denominator.
        maximize: Whether to ascend the gradient.

    Raises:
        ValueError: An option is out of its range, or a parameter is sparse or complex.
        RuntimeError: `step` found a dense gradient.

    Example:
        >>> table = gt.nn.Parameter(gt.ones(3, 2))
        >>> optimizer = gt.optim.SparseAdam([table], lr=0.1)
        >>> table.grad = gt.sparse_coo_tensor([[1]], [[3.0, -3.0]], (3, 2))
        >>> optimizer.step()
        >>> table.detach()
        tensor([[1.0000, 1.0000],
                [0.9000, 1.1000],
                [1.0000, 1.0000]])
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    maximize: bool = False
    _nonnegative = ("lr", "eps")
    _saved_as_tensors = frozenset()

    def _set(self, params: Any, **options: Any) -> None:
        for name, label in (("lr", "learning rate"), ("eps", "epsilon value")):
            if options[name] == 0.0:
                raise ValueError(f"Invalid {label}: {options[name]}")
        for i, beta in enumerate(pair("betas", options["betas"])):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super()._set(params, **options)
        places = [(p, [i, j]) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        if sparse := [place for p, place in places if p.is_sparse]:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        if complex_ := [place for p, place in places if p.is_complex()]:
            raise ValueError(f"Complex params at indices {complex_}: SparseAdam does not support complex parameters")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:  # noqa: ARG002 (it refuses)
        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")

    def _update_by_sparse(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=gt.zeros_like(p), exp_avg_sq=gt.zeros_like(p))
        state["step"] += 1
        grad = grad.coalesce()
        where, values = tuple(grad.indices()), grad.values()
        if values.numel() == 0:
            return
        if group["maximize"]:
            values = -values
        beta1, beta2 = group["betas"]
        mean = gt.lerp(state["exp_avg"][where], values, 1 - beta1)
        square = gt.lerp(state["exp_avg_sq"][where], values * values, 1 - beta2)
        state["exp_avg"][where], state["exp_avg_sq"][where] = mean, square
        size = group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        p[where] += -size * mean / (square.sqrt() + group["eps"])
