"""Limited-memory BFGS, a quasi-Newton method."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gt import _core as gt
from gt._autograd import enable_grad, no_grad
from gt._gt import Tensor
from gt.optim.line_search import Point, strong_wolfe
from gt.optim.optimizer import Optimizer, check_not_negative


class LBFGS(Optimizer):
    """Limited-memory BFGS (Liu and Nocedal 1989): a quasi-Newton method with a Hessian estimated from recent gradients.

    `step` needs a closure that clears the gradients, computes the loss, calls `backward()` and returns the loss.

    Args:
        params: Tensors; there is one parameter group.
        lr: The learning rate: the step length without a line search.
        max_iter: The iterations of one call of `step`.
        max_eval: The evaluations of the closure in one call of `step`; `max_iter * 5 / 4` if not given.
        tolerance_grad: The largest gradient element at which the optimization has converged.
        tolerance_change: The change of the loss or of the parameters at which it has converged.
        history_size: The number of gradient differences kept.
        line_search_fn: `"strong_wolfe"` or `None`.
        maximize: Whether to maximize the loss.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([4.0]))
        >>> optimizer = gt.optim.LBFGS([w], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((w - 1) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> _ = optimizer.step(closure)
        >>> w.detach()
        tensor([1.])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        check_not_negative(**{"learning rate": lr})
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
            "maximize": maximize,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _gradient(self) -> Tensor:
        params = self.param_groups[0]["params"]
        found = gt.cat([(gt.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in params])
        return -found if self.param_groups[0]["maximize"] else found

    def _value(self, loss: Any) -> float:
        """The objective to minimize: the loss, negated if `maximize`."""
        return -float(loss) if self.param_groups[0]["maximize"] else float(loss)

    def _move(self, direction: Tensor, t: float) -> None:
        start = 0
        for p in self.param_groups[0]["params"]:
            p.addcmul_(direction[start : start + p.numel()].reshape(p.shape), t)
            start += p.numel()

    def _search(self, start: Point, state: dict[str, Any], evaluated: Callable[[], Any]) -> tuple[Point, int]:
        """Runs the line search along the direction and moves the parameters to its result."""
        params, direction = self.param_groups[0]["params"], state["d"]
        before = [p.clone() for p in params]

        def go(t: float) -> None:
            for p, old in zip(params, before, strict=True):
                p.copy_(old)
            self._move(direction, t)

        def at(t: float) -> Point:
            go(t)
            loss = self._value(evaluated())
            gradient = self._gradient()
            return Point(t, loss, gradient, gradient.dot(direction).item())

        size = direction.abs().max().item()
        point, looked = strong_wolfe(at, start, state["t"], self.param_groups[0]["tolerance_change"], size)
        go(point.t)
        return point, looked

    @staticmethod
    def _direction(gradient: Tensor, state: dict[str, Any]) -> Tensor:
        """The quasi-Newton direction, by the two-loop recursion (Nocedal and Wright 2006, algorithm 7.4)."""
        steps, changes, shares = state["old_stps"], state["old_dirs"], state["ro"]
        direction, weights = -gradient, []
        for s, y, ro in zip(reversed(steps), reversed(changes), reversed(shares), strict=True):
            weights.append(s.dot(direction) * ro)
            direction = gt.addcmul(direction, y, -weights[-1])
        direction = direction * state["H_diag"]
        for s, y, ro, weight in zip(steps, changes, shares, reversed(weights), strict=True):
            direction = gt.addcmul(direction, s, weight - y.dot(direction) * ro)
        return direction

    def _run_step(self, closure: Callable[[], Any] | None) -> Any:
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        group = self.param_groups[0]
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluated() -> Any:
            with enable_grad():
                return closure()

        with no_grad():
            first = evaluated()
            loss, calls = self._value(first), 1
            state["func_evals"] += 1
            gradient = self._gradient()
            if gradient.abs().max().item() <= group["tolerance_grad"]:
                return first
            for n in range(1, group["max_iter"] + 1):
                state["n_iter"] += 1
                if state["n_iter"] == 1:
                    state.update(d=-gradient, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
                else:
                    y, s = gradient - state["prev_flat_grad"], state["d"] * state["t"]
                    ys = y.dot(s).item()
                    if ys > 1e-10:
                        if len(state["old_dirs"]) == group["history_size"]:
                            for kept in ("old_dirs", "old_stps", "ro"):
                                state[kept].pop(0)
                        state["old_dirs"].append(y)
                        state["old_stps"].append(s)
                        state["ro"].append(1.0 / ys)
                        state["H_diag"] = ys / y.dot(y).item()
                    state["d"] = self._direction(gradient, state)
                state["prev_flat_grad"], before = gradient, loss
                first_step = state["n_iter"] == 1
                state["t"] = min(1.0, 1.0 / gradient.abs().sum().item()) * group["lr"] if first_step else group["lr"]
                slope = gradient.dot(state["d"]).item()
                if slope > -group["tolerance_change"]:
                    break
                if group["line_search_fn"] == "strong_wolfe":
                    point, looked = self._search(Point(0.0, loss, gradient, slope), state, evaluated)
                    state["t"], loss, gradient = point.t, point.value, point.gradient
                else:
                    self._move(state["d"], state["t"])
                    looked = int(n < group["max_iter"])
                    if looked:
                        loss = self._value(evaluated())
                        gradient = self._gradient()
                calls += looked
                state["func_evals"] += looked
                done = (
                    calls >= group["max_eval"]
                    or gradient.abs().max().item() <= group["tolerance_grad"]
                    or (state["d"] * state["t"]).abs().max().item() <= group["tolerance_change"]
                    or abs(loss - before) < group["tolerance_change"]
                )
                if done:
                    break
        return first
