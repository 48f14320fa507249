"""`make fuzz-parity`: random programs in GT beside PyTorch.

`generate` writes programs with PyTorch as its guide, `outcome` runs a program in one framework and compares two
outcomes, `condition` tells how far rounding determines a program's results, `shrink` deletes what a failing program
does not need, and `__main__` is the command line. `corpus.jsonl` has programs with PyTorch's outcomes, which a test
runs where PyTorch is not installed.
"""
