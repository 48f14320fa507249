"""Instruments to run with `python -m`: `gt.scripts.top`, `gt.scripts.trace` and `gt.scripts.visualize`."""
