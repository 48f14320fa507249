"""`torch.autograd.profiler`: the older place of `record_function`."""

from gt import _absent
from gt.profiler import record_function

__all__ = ["record_function"]

__getattr__ = _absent.getter(__name__)
