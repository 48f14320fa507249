"""Signal processing: `gt.signal.windows`."""

from gt.signal import windows

__all__ = ["windows"]
