"""Wrappers that divide a batch in PyTorch: one process addresses all devices here, so they call the wrapped module."""

from gt import _absent
from gt.nn.parallel.data_parallel import DataParallel, data_parallel
from gt.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]

__getattr__ = _absent.getter(__name__)
