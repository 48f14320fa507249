"""Context managers that turn the recording of gradients on and off; the module's name is PyTorch's."""

from gt import _absent
from gt._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]

__getattr__ = _absent.getter(__name__)
