"""Says why a session is slow: `python -m gt.scripts.explain SESSION -s 5`, the same as `gtctl explain`."""

from __future__ import annotations

from gt.scripts import _gtctl

if __name__ == "__main__":
    _gtctl.become("explain")
