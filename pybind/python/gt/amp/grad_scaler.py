"""`GradScaler`: loss scaling for float16 training (Micikevicius et al. 2018)."""

from __future__ import annotations

import warnings
from typing import Any

from gt import _absent, _gt
from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.optim import Optimizer

__getattr__ = _absent.getter(__name__)


class GradScaler:
    """Scales losses so that small gradients do not underflow in float16, and skips steps with infinite gradients.

    The scale grows after a number of steps without infinities or NaN, and shrinks after a step with one.

    Args:
        device: The type of device; for one that does not exist, the scaler warns and has no effect.
        init_scale: The initial scale.
        growth_factor: The factor of the scale after `growth_interval` good steps.
        backoff_factor: The factor of the scale after a skipped step.
        growth_interval: The number of consecutive good steps.
        enabled: Whether the scaler has an effect.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and device != "cpu" and not (device == "cuda" and _gt.cuda_devices()):
            warnings.warn(
                f"torch.{device}.amp.GradScaler is enabled, but {device.upper()} is not available.  Disabling.",
                stacklevel=2,
            )
            enabled = False
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._steps = 0
        # Whether a gradient was not finite, for each optimizer whose gradients were unscaled since the last update.
        self._found: dict[int, bool] = {}

    def is_enabled(self) -> bool:
        """Whether the scaler has an effect."""
        return self._enabled

    def get_scale(self) -> float:
        """The present scale."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """Multiplies a loss, or several, by the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        return type(outputs)(self.scale(output) for output in outputs)

    @no_grad()
    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides an optimizer's gradients by the scale, so that they can be clipped.

        Raises:
            RuntimeError: They have been divided since the last `update`.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._found:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(1.0 / self._scale)
        gradients = [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]
        finite = [gradient.isfinite().all() for gradient in gradients]
        self._found[id(optimizer)] = bool(finite) and not bool(gt.stack(finite).all())

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Takes the optimizer's step, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        return None if self._found[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Adjusts the scale for the next step, or sets it to `new_scale`."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._found:
            raise AssertionError("No inf checks were recorded prior to update.")
        elif any(self._found.values()):
            self._scale *= self._backoff_factor
            self._steps = 0
        else:
            self._steps += 1
            if self._steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._steps = 0
        self._found = {}

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the factor by which the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of good steps after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the number of good steps after which the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale, its options and the count of good steps, for `load_state_dict`."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty: it was saved from a disabled GradScaler.")
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._steps = state_dict["_growth_tracker"]
