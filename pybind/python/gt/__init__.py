"""GT: tensors from the daemon that owns the machine's devices."""

from gt._gt import __version__

__all__ = ["__version__"]
