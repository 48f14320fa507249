"""The few functions of PyTorch's own extension module that libraries call; everything else there is a stand-in."""  # noqa: N999

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from gt import _absent, _gt, overrides
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)


def _log_api_usage_once(*args: Any) -> None:
    """Does nothing: nobody counts who uses what."""


def _get_tracing_state() -> None:
    """None: no program is traced."""


def _jit_clear_class_registry() -> None:
    """Does nothing: nothing is compiled."""


def _is_tracing(*args: Any) -> bool:  # noqa: ARG001
    """False: no program is traced."""
    return False


# A class that names it as its `__torch_function__` overrides nothing.
_disabled_torch_function_impl = overrides.disabled
DisableTorchFunctionSubclass = overrides.DisableTorchFunctionSubclass


class _nn:  # noqa: N801 (PyTorch's name)
    """Functions of PyTorch's modules."""

    @staticmethod
    def _parse_to(
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
        memory_format: Any = None,
    ) -> tuple[Any, Any, bool, Any]:
        """The device, the dtype, whether not to block, and the memory format among the arguments of `Module.to`."""
        del copy
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, _gt.dtype):
                dtype = arg
            elif isinstance(arg, bool):
                non_blocking = arg
            elif arg is not None:
                device = arg
        return None if device is None else _gt.device(device), dtype, non_blocking, memory_format


_TensorMeta = type(Tensor)


class _Keys(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_Keys):
    """The names of PyTorch's dispatch keys, as `DispatchKey.AutocastCPU`; nothing is dispatched by them."""


class DispatchKeySet(frozenset[str]):
    """A set of dispatch keys."""

    def __new__(cls, *keys: Any) -> DispatchKeySet:
        return super().__new__(cls, keys)


class _ExcludeDispatchKeyGuard(AbstractContextManager[None]):
    """A block without some dispatch keys: it changes nothing."""

    def __init__(self, keys: Any) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        pass


_AutoDispatchBelowAutograd = _ExcludeDispatchKeyGuard
