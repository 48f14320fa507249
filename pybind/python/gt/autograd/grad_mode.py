"""Context managers that turn gradient recording on and off, under PyTorch's path."""

from gt import _absent
from gt._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]

__getattr__ = _absent.getter(__name__)
