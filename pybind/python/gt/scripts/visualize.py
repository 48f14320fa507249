"""Draws an instruction log: `python -m gt.scripts.visualize FILE --output timeline.png`, as `gtctl visualize`."""

from __future__ import annotations

from gt.scripts import _gtctl

if __name__ == "__main__":
    _gtctl.become("visualize")
