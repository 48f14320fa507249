"""Learning rates by step, and the detector of outliers: the rules of llm.c's training."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

# The number of values that an outlier is compared with.
WINDOW = 128
# The part of the training after which the schedule `wsd` decays.
WSD_STABLE = 0.8


def _cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


def _linear(done: float) -> float:
    return 1 - done


def _constant(done: float) -> float:
    del done
    return 1.0


def _wsd(done: float) -> float:
    return 1.0 if done < WSD_STABLE else 1 - math.sqrt((done - WSD_STABLE) / (1 - WSD_STABLE))


# How much of the way from the final to the highest rate is left, by the part of the training that is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": _cosine,
    "linear": _linear,
    "constant": _constant,
    "wsd": _wsd,
}


def learning_rate(schedule: str, step: int, steps: int, highest: float, warmup: int, final_fraction: float) -> float:
    """Returns the learning rate of a step.

    Args:
        schedule: `"cosine"`, `"linear"`, `"constant"` or `"wsd"` (warm-up, stable, decay).
        step: The step, from 0.
        steps: The number of steps.
        highest: The learning rate after the warm-up.
        warmup: The steps in which the rate rises linearly.
        final_fraction: The last rate, as a part of the highest.

    Raises:
        ValueError: An unknown schedule.

    Example:
        >>> [gt.llm.learning_rate("linear", step, 4, 1.0, 0, 0.0) for step in range(4)]
        [1.0, 0.75, 0.5, 0.25]
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"there is no schedule {schedule!r}: {', '.join(SCHEDULES)} are known")
    if step < warmup:
        return highest * (step + 1) / warmup
    # `wsd` counts from the first step, the others from the end of the warm-up.
    begin = 0 if schedule == "wsd" else warmup
    done = (step - begin) / max(1, steps - begin)
    lowest = highest if schedule == "constant" else highest * final_fraction
    return lowest + SCHEDULES[schedule](done) * (highest - lowest)


class OutlierDetector:
    """How many standard deviations a value is above the mean of the last 128.

    Example:
        >>> detector = gt.llm.OutlierDetector()
        >>> [detector.update(value) for value in (1.0, 2.0)]
        [nan, nan]
    """

    def __init__(self) -> None:
        self.values: deque[float] = deque(maxlen=WINDOW)

    def update(self, value: float) -> float:
        """Adds a value; returns its z-score, NaN until there are 128 values or if the value is not finite."""
        if not math.isfinite(value):
            return math.nan
        full = len(self.values) == WINDOW
        self.values.append(value)
        if not full:
            return math.nan
        mean = sum(self.values) / WINDOW
        deviation = math.sqrt(sum((v - mean) ** 2 for v in self.values) / WINDOW)
        return (value - mean) / deviation if deviation else 0.0
