"""Whether operations are recorded, under PyTorch's path."""

from gt import _absent
from gt._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]

__getattr__ = _absent.getter(__name__)
