"""Older import paths of this package: `gt.client.nn` and `gt.client.tensor`. New programs import `gt` and `gt.nn`."""

from gt.client import nn, tensor

__all__ = ["nn", "tensor"]
