"""Gradients as functions, under PyTorch's path."""

from gt import _absent
from gt._autograd import enable_grad, no_grad, set_grad_enabled
from gt._gt import grad

__all__ = ["enable_grad", "grad", "no_grad", "set_grad_enabled"]

__getattr__ = _absent.getter(__name__)
