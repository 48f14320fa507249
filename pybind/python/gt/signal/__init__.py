"""Names for parts of a program, for a configuration to refer to; and signal processing: `gt.signal.windows`."""

from gt.signal import windows
from gt.signal._contexts import context, current, enter, exit, tensor

__all__ = ["context", "current", "enter", "exit", "tensor", "windows"]
