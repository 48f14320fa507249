"""Limited-memory BFGS, a quasi-Newton method, and its line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

from gt import _core as gt
from gt._autograd import enable_grad, no_grad
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer

__all__ = ["LBFGS"]


class LBFGS(Optimizer, declared=True):
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

    lr: float = 1.0
    max_iter: int = 20
    max_eval: int | None = None
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100
    line_search_fn: str | None = None
    _: KW_ONLY
    maximize: bool = False

    def _set(self, params: Any, **options: Any) -> None:
        if options["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        if options["max_eval"] is None:
            options["max_eval"] = options["max_iter"] * 5 // 4
        super()._set(params, **options)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _gradient(self) -> Tensor:
        params = self.param_groups[0]["params"]
        grads = [gt.zeros_like(p) if p.grad is None else p.grad for p in params]
        found = gt.cat([(grad.to_dense() if grad.is_sparse else grad).reshape(-1) for grad in grads])
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


# Line search for the strong Wolfe conditions (Nocedal and Wright 2006, "Numerical Optimization", section 3.5) ---------

# The constants c1 (sufficient decrease) and c2 (curvature) of the Wolfe conditions.
DECREASE_MIN = 1e-4
CURVATURE_MAX = 0.9
STEPS_MAX = 25


class Point(NamedTuple):
    """A point on the search line: step length, objective value, gradient, and directional derivative."""

    t: float
    value: float
    gradient: Tensor
    slope: float


def _cubic_minimum(a: Point, b: Point, low: float, high: float) -> float:
    """The minimum between bounds of the cubic with the values and slopes of two points."""
    left, right = (a, b) if a.t <= b.t else (b, a)
    if left.t == right.t:
        return (low + high) / 2
    mean = left.slope + right.slope - 3 * (left.value - right.value) / (left.t - right.t)
    square = mean * mean - left.slope * right.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    below = right.slope - left.slope + 2 * root
    if below == 0:
        return (low + high) / 2
    place = right.t - (right.t - left.t) * ((right.slope + root - mean) / below)
    return min(max(place, low), high)


def strong_wolfe(
    at: Callable[[float], Point], start: Point, t: float, change_min: float, size: float
) -> tuple[Point, int]:
    """A step length that satisfies the strong Wolfe conditions, and the number of evaluations.

    Args:
        at: Evaluates the objective at a step length.
        start: The point at step length 0.
        t: The first step length to try.
        change_min: The smallest change of a parameter at which the search goes on.
        size: The largest absolute element of the direction.
    """

    def too_high(point: Point) -> bool:
        return point.value > start.value + DECREASE_MIN * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE_MAX * start.slope

    # Bracketing: extend the step until an interval contains an acceptable point.
    before, point, steps = start, at(t), 1
    while True:
        tried = steps - 1
        if tried == STEPS_MAX:
            low, high = start, point
            break
        if too_high(point) or (tried > 1 and point.value >= before.value):
            low, high = before, point
            break
        if flat(point):
            return point, steps
        if point.slope >= 0:
            low, high = before, point
            break
        far = _cubic_minimum(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point, steps = point, at(far), steps + 1
    # Zoom: shrink the interval by cubic interpolation.
    low, high = (low, high) if low.value <= high.value else (high, low)
    stuck = False
    while steps - 1 < STEPS_MAX and abs(high.t - low.t) * size >= change_min:
        first, last = sorted((low.t, high.t))
        place = _cubic_minimum(low, high, first, last)
        margin = 0.1 * (last - first)
        if min(last - place, place - first) < margin:
            # A trial point at an end, or close to one twice in a row, is moved inwards by the margin.
            if stuck or place >= last or place <= first:
                place = last - margin if abs(place - last) < abs(place - first) else first + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point, steps = at(place), steps + 1
        if too_high(point) or point.value >= low.value:
            high = point
            low, high = (low, high) if low.value <= high.value else (high, low)
            continue
        if flat(point):
            return point, steps
        if point.slope * (high.t - low.t) >= 0:
            high = low
        low = point
    return low, steps
