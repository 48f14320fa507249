"""`skip_init`: modules whose parameters are loaded later."""

from __future__ import annotations

import inspect
from typing import Any

from gt.nn.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Makes a module whose parameters will be overwritten, such as by a state dict.

    PyTorch leaves the parameters uninitialized to save time; here they are initialized as usual.
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    return module_cls(*args, **kwargs)
