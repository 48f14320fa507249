"""`torch.mps`: there is no such device."""

from gt import _absent
from gt._other_devices import *  # noqa: F403

__getattr__ = _absent.getter(__name__)
