"""Window functions for signal processing, computed in float64.

With `sym` a window is symmetric; without, it is periodic: the first `M` numbers of the symmetric window of `M + 1`.
"""

from __future__ import annotations

from gt import _functions

globals().update(_functions.MODULES["signal.windows"])

__all__ = list(_functions.MODULES["signal.windows"])
