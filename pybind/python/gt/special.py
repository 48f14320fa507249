"""Special functions under the names of `torch.special`: they are declared in the crate `functions` and the op table."""

from __future__ import annotations

from gt import _absent
from gt._functions.special import *  # noqa: F403
from gt._functions.special import __all__ as __all__

__getattr__ = _absent.getter(__name__)
