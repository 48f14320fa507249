"""Shows what a daemon does at present: `python -m gt.scripts.top`, the same as `gtctl top`."""

from __future__ import annotations

from gt.scripts import _gtctl

if __name__ == "__main__":
    _gtctl.become("top")
