"""Special functions under the names of `torch.special`: they are declared in the crate `functions` and the op table."""

from __future__ import annotations

from gt._absent import getter as _getter
from gt._functions import special as _declared
from gt._functions.special import *  # noqa: F403

__all__ = [*_declared.__all__]
__getattr__ = _getter(__name__)
