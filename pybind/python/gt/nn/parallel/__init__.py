"""Wrappers that divide a batch in PyTorch: one process addresses all devices here, so they call the wrapped module."""

from gt import _absent
from gt.nn.parallel.data_parallel import DataParallel, data_parallel
from gt.nn.parallel.distributed import DistributedDataParallel
from gt.nn.parallel.scatter_gather import gather, parallel_apply, replicate, scatter

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]

__getattr__ = _absent.getter(__name__)
