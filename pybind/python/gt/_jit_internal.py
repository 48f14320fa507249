"""The decorators of PyTorch's `torch._jit_internal` that libraries use: functions are not scripted."""

from __future__ import annotations

from gt import _absent
from gt.jit import Final, _overload, export, ignore, is_scripting, unused

__all__ = ["Final", "export", "ignore", "is_scripting", "unused"]

__getattr__ = _absent.getter(__name__)

_copy_to_script_wrapper = _overload
