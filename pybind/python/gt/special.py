"""Special functions under the names of `torch.special`.

Most are declared in the crate `functions` and the op table; `_bessel.py` composes Bessel functions.
"""

from __future__ import annotations

from gt import _absent, _bessel
from gt._bessel import *  # noqa: F403
from gt._functions import special as _declared
from gt._functions.special import *  # noqa: F403

__all__ = [*_bessel.__all__, *_declared.__all__]

__getattr__ = _absent.getter(__name__)
