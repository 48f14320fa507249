"""`torch.backends` for GT: which libraries are available, and switches for them.

`backends.cuda.matmul.allow_tf32` and `backends.cudnn.allow_tf32` set whether CUDA devices may use TF32 in products of
float32. The other switches, such as `backends.cudnn.benchmark`, are stored and have no effect.
"""

from gt import _absent
from gt.backends import cpu, cuda, cudnn, mkldnn, mps

__all__ = ["cpu", "cuda", "cudnn", "mkldnn", "mps"]

__getattr__ = _absent.getter(__name__)
