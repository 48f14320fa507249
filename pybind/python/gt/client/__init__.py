"""The same package under other import paths: `gt.client.nn` and `gt.client.tensor`.

Programs that name them run unchanged; new ones say `gt` and `gt.nn`.
"""

from gt.client import nn, tensor

__all__ = ["nn", "tensor"]
