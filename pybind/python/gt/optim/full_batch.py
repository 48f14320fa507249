"""For gradients of all samples at once: Rprop, ASGD and LBFGS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gt import _core as gt
from gt._autograd import enable_grad, no_grad
from gt._gt import Tensor
from gt.optim.line_search import Point, strong_wolfe
from gt.optim.optimizer import Optimizer, check_not_negative, hints, prepared


class Rprop(Optimizer):
    """Steps of a size of each element's own, larger while its gradient keeps its sign (Riedmiller and Braun 1993)."""

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
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The size of the first steps.
            etas: What a size is multiplied by where the sign changed, and where it did not.
            step_sizes: The smallest size and the largest.
            capturable: Changes nothing; neither does `foreach`.
            foreach: See `capturable`.
            maximize: Step up the gradient, not down.
            differentiable: Not there.
        """
        check_not_negative(**{"learning rate": lr})
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        defaults |= hints(foreach=foreach, capturable=capturable, differentiable=differentiable)
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
        # Where the sign has changed nothing moves this time, nor is there a sign to compare with next time.
        grad = gt.where(agrees < 0, 0.0, grad).to(p.dtype)
        p.addcmul_(grad.sign(), state["step_size"] * -1)
        state["prev"] = grad


class ASGD(Optimizer):
    """Gradient descent whose parameters' mean, kept as `ax`, is the answer (Polyak and Juditsky 1992)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate at the start.
            lambd: How much of the parameter is taken away at a step.
            alpha: Step `n` has the learning rate `lr / (1 + lambd * lr * n) ** alpha`.
            t0: The step from which on the mean is taken.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            foreach: Changes nothing; neither does `capturable`.
            maximize: Step up the gradient, not down.
            differentiable: Not there.
            capturable: See `foreach`.
        """
        check_not_negative(**{"learning rate": lr, "weight_decay value": weight_decay})
        defaults = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        defaults |= {"maximize": maximize}
        defaults |= hints(foreach=foreach, capturable=capturable, differentiable=differentiable)
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = prepared(p, grad, group)
        state = self.state[p]
        if not state:
            state.update(step=0, eta=group["lr"], mu=1.0, ax=gt.zeros_like(p))
        state["step"] += 1
        p.mul_(1 - group["lambd"] * state["eta"])
        p.addcmul_(grad, -state["eta"])
        state["ax"] = p.clone() if state["mu"] == 1 else gt.addcmul(state["ax"], p - state["ax"], state["mu"])
        state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])


class LBFGS(Optimizer):
    """Newton's method with a Hessian guessed from the last gradients (Liu and Nocedal 1989).

    `step` takes a closure that clears the gradients, computes the loss, calls `backward()` and returns the loss.
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
        """Takes the parameters, in one group.

        Args:
            params: Tensors.
            lr: How much of a step is taken.
            max_iter: Steps in one call of `step`.
            max_eval: Calls of the closure in one call of `step`; 5/4 of `max_iter` if not given.
            tolerance_grad: The largest element of a gradient that is none.
            tolerance_change: The smallest change that is one.
            history_size: How many of the last gradients are kept.
            line_search_fn: How far to go: to where the loss has fallen enough with `"strong_wolfe"`, else `lr`.
            maximize: Make what the closure returns large, not small.
        """
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
        """What is to become small."""
        return -float(loss) if self.param_groups[0]["maximize"] else float(loss)

    def _move(self, direction: Tensor, t: float) -> None:
        start = 0
        for p in self.param_groups[0]["params"]:
            p.addcmul_(direction[start : start + p.numel()].reshape(p.shape), t)
            start += p.numel()

    def _search(self, start: Point, state: dict[str, Any], evaluated: Callable[[], Any]) -> tuple[Point, int]:
        """Goes along the direction to where the search ends."""
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
        """Minus the gradient, times the inverse of the Hessian guessed: two loops over what is kept."""
        steps, changes, shares = state["old_stps"], state["old_dirs"], state["ro"]
        direction, weights = -gradient, []
        for s, y, ro in zip(reversed(steps), reversed(changes), reversed(shares), strict=True):
            weights.append(s.dot(direction) * ro)
            direction = gt.addcmul(direction, y, -weights[-1])
        direction = direction * state["H_diag"]
        for s, y, ro, weight in zip(steps, changes, shares, reversed(weights), strict=True):
            direction = gt.addcmul(direction, s, weight - y.dot(direction) * ro)
        return direction

    def _stepped(self, closure: Callable[[], Any] | None) -> Any:
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
