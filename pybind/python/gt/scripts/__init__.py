"""Instruments to run with `python -m`: `gt.scripts.top` shows what a daemon does, `gt.scripts.trace` captures it."""
