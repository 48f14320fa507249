"""Signals, which name parts of a program for a placement configuration; and window functions, `gt.signal.windows`."""

from gt.signal import windows
from gt.signal._contexts import context, current, enter, exit, tensor

__all__ = ["context", "current", "enter", "exit", "tensor", "windows"]
