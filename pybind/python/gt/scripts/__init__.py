"""Instruments to run with `python -m`: `gt.scripts.top`, `explain`, `trace` and `visualize`."""
