"""What stands for `torch.backends`: which libraries there are (none of PyTorch's), and switches for them.

`backends.cuda.matmul.allow_tf32` and `backends.cudnn.allow_tf32` say whether CUDA devices may round the factors of
products of float32. The others, such as `backends.cudnn.benchmark`, allow faster ways that GT does not have and never
demand them: they are kept without effect.
"""

from gt import _absent
from gt.backends import cuda, cudnn, mkldnn, mps

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]

__getattr__ = _absent.getter(__name__)
