"""Window functions for signal processing, computed in float64.

With `sym` a window is symmetric; without, it is periodic: the first `M` numbers of the symmetric window of `M + 1`.
"""

from __future__ import annotations

from gt._functions.signal_windows import *  # noqa: F403
from gt._functions.signal_windows import __all__ as __all__
