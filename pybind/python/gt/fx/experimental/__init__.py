"""`torch.fx.experimental`: optimizations of graphs."""

from gt import _absent

__getattr__ = _absent.getter(__name__)
