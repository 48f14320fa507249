"""Line search for the strong Wolfe conditions (Nocedal and Wright 2006, "Numerical Optimization", section 3.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gt._gt import Tensor

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
