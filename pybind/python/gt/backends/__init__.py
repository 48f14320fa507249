"""What stands for `torch.backends`: which libraries there are (none of PyTorch's), and switches for them.

Programs set `backends.cudnn.benchmark`, `backends.cuda.matmul.allow_tf32` and their like. These allow a faster way on
devices of one maker, and never demand it: they are kept and have no effect on the daemon's devices.
"""

from gt import _absent
from gt.backends import cuda, cudnn, mkldnn, mps

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]

__getattr__ = _absent.getter(__name__)
