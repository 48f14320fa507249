"""How far to go along a direction: `strong_wolfe`, after Nocedal and Wright's "Numerical Optimization", chapter 3.5."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from gt._gt import Tensor

# How much of the fall that the slope promises is enough, and how much of the slope may remain.
FALL_SHARE_MIN = 1e-4
SLOPE_SHARE_MAX = 0.9
STEPS_MAX = 25


class Point(NamedTuple):
    """A place along the direction: how far, the value there, the gradient, and the slope along the direction."""

    t: float
    value: float
    gradient: Tensor
    slope: float


def _lowest(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic with these values and slopes is lowest, between bounds."""
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
    """A point where the value has fallen enough and the slope is small, and how many were looked at.

    Args:
        at: Evaluates a place.
        start: The place 0.
        t: Where to look first.
        change_min: The smallest change that is one.
        size: The direction's largest element.
    """

    def too_high(point: Point) -> bool:
        return point.value > start.value + FALL_SHARE_MIN * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -SLOPE_SHARE_MAX * start.slope

    # Out, until a place is found beyond which there is no need to look.
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
        far = _lowest(before, point, point.t + 0.01 * (point.t - before.t), point.t * 10)
        before, point, steps = point, at(far), steps + 1
    # In, between both.
    low, high = (low, high) if low.value <= high.value else (high, low)
    stuck = False
    while steps - 1 < STEPS_MAX and abs(high.t - low.t) * size >= change_min:
        first, last = sorted((low.t, high.t))
        place = _lowest(low, high, first, last)
        margin = 0.1 * (last - first)
        if min(last - place, place - first) < margin:
            # Close to an end twice, or at it: a step away from there.
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
