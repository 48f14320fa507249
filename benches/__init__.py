"""Benchmarks: GT beside NumPy, PyTorch and the bare machine, measured in the same run.

`make bench` runs them all and prints one table. A group of rows is one file with a function `rows`; `harness` does the
measuring; adding a group is a file and a name in `__main__`. Nothing here is a test: a slow machine fails no build.
"""
