"""Functions and methods that are a few lines of other operations, under PyTorch's names; their gradients follow.

A module has one of PyTorch's groups of functions; `catalogue` lists them all.
"""
