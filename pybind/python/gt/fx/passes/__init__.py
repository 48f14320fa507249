"""`torch.fx.passes`: what is computed about graphs."""

from gt import _absent

__getattr__ = _absent.getter(__name__)
