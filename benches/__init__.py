"""Benchmarks: GT beside NumPy, PyTorch and the bare machine, measured in the same run.

`make bench` runs all of them and prints one table. Each group is a file with a function `rows`, which `harness`
measures. To add a group, add a file and its name in `__main__`. Nothing here is a test: a slow machine fails no build.
"""
