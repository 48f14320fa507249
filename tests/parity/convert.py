"""Conversion of arguments from PyTorch to GT, and of results to NumPy."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import torch

import gt


class LeftOutError(Exception):
    """An argument of a kind that the parity run leaves out: complex numbers, sparse layouts, other devices."""


DTYPES = {
    torch.bool: gt.bool,
    torch.uint8: gt.uint8,
    torch.int8: gt.int8,
    torch.int16: gt.int16,
    torch.int32: gt.int32,
    torch.int64: gt.int64,
    torch.float16: gt.float16,
    torch.bfloat16: gt.bfloat16,
    torch.float32: gt.float32,
    torch.float64: gt.float64,
}
NAMES = {theirs: str(theirs).removeprefix("torch.") for theirs in DTYPES}
NUMPY_RANK_MAX = 64
_PLAIN = (bool, int, float, str, type(None), type(...), np.ndarray, np.generic, range, enum.Enum)


def to_array(t: torch.Tensor) -> np.ndarray:
    """Returns the elements; bfloat16 as float32, since NumPy has no bfloat16."""
    t = t.detach().resolve_conj().resolve_neg()
    return (t.float() if t.dtype == torch.bfloat16 else t).numpy(force=True)


def of_gt(t: gt.Tensor) -> np.ndarray:
    """Returns the elements of a GT tensor, as `to_array` does."""
    t = t.detach()
    return (t.float() if t.dtype == gt.bfloat16 else t).numpy()


def tensor_to_gt(t: torch.Tensor) -> gt.Tensor:
    """Returns a GT tensor with the same elements, and with permuted axes if PyTorch's tensor has them."""
    if t.dtype not in DTYPES or t.layout != torch.strided or t.device.type != "cpu" or t.is_quantized:
        raise LeftOutError(f"{t.dtype}, {t.layout}, {t.device}")
    if t.ndim > NUMPY_RANK_MAX:
        raise LeftOutError(f"{t.ndim} dimensions")
    order = sorted(range(t.ndim), key=lambda axis: -t.stride(axis))
    permuted = t.detach().permute(order)
    if permuted.is_contiguous() and order != list(range(t.ndim)):
        back = [order.index(axis) for axis in range(t.ndim)]
        made = gt.from_numpy(np.ascontiguousarray(to_array(permuted)))
    else:
        back = None
        made = gt.from_numpy(np.array(to_array(t), order="C", copy=True))
    made = made.to(DTYPES[t.dtype]) if t.dtype == torch.bfloat16 else made
    if back:
        made = made.permute(back)
    return made.detach().requires_grad_() if t.requires_grad else made


class ToGt:
    """Converts arguments; an object that appears twice is converted once."""

    def __init__(self) -> None:
        self.made: dict[int, gt.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.made:
                self.made[id(value)] = tensor_to_gt(value)
            return self.made[id(value)]
        if isinstance(value, torch.dtype):
            if value not in DTYPES:
                raise LeftOutError(str(value))
            return DTYPES[value]
        if isinstance(value, torch.Size):
            return gt.Size(value)
        if isinstance(value, (list, tuple)):
            parts = [self(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, dict):
            return {key: self(part) for key, part in value.items()}
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if isinstance(value, torch.device):
            if value.type != "cpu":
                raise LeftOutError(str(value))
            return str(value)
        if isinstance(value, (torch.layout, torch.memory_format)):
            name = str(value).removeprefix("torch.")
            if value.__class__ is torch.layout and value != torch.strided:
                raise LeftOutError(str(value))
            if not hasattr(gt, name):
                raise NotImplementedError(f"gt.{name} is not there")
            return getattr(gt, name)
        if isinstance(value, _PLAIN):
            return value
        if value in (float, int, bool):
            return value
        raise LeftOutError(f"an argument of {type(value)}")


def fresh(value: Any, made: dict[int, torch.Tensor] | None = None) -> Any:
    """Copies arguments: new leaf tensors with the same strides."""
    made = {} if made is None else made
    if isinstance(value, torch.Tensor):
        if id(value) not in made:
            if value.layout == torch.strided and value.device.type == "cpu":
                copy = value.detach().clone(memory_format=torch.preserve_format)
                made[id(value)] = copy.requires_grad_(value.requires_grad)
            else:
                made[id(value)] = value
        return made[id(value)]
    if type(value) in (list, tuple):
        return type(value)(fresh(part, made) for part in value)
    if type(value) is dict:
        return {key: fresh(part, made) for key, part in value.items()}
    return value


def tensors_in(value: Any) -> list[Any]:
    """Returns the tensors of either framework among arguments or results, each once."""
    if isinstance(value, (torch.Tensor, gt.Tensor)):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    found: list[Any] = []
    if isinstance(value, (list, tuple)):
        for part in value:
            found += [t for t in tensors_in(part) if all(t is not known for known in found)]
    return found


def described(value: Any) -> str:
    """Describes arguments in a few words."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return f"{NAMES.get(value.dtype, value.dtype)}{list(value.shape)}={value.flatten()[0].item()}"
        return f"{NAMES.get(value.dtype, value.dtype)}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(described, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={described(part)}" for key, part in value.items())
    return repr(value)
