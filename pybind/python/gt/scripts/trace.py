"""Captures what a daemon does: `python -m gt.scripts.trace -s 2 --dir traces`, the same as `gtctl trace`."""

from __future__ import annotations

from gt.scripts import _gtctl

if __name__ == "__main__":
    _gtctl.become("trace")
