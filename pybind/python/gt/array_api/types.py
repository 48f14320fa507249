"""Functions of dtypes, and the inspection of the namespace."""

from __future__ import annotations

from typing import Any, NamedTuple

from gt import _core as gt
from gt._dtypes import finfo as _finfo
from gt._dtypes import iinfo as _iinfo
from gt._gt import Tensor, dtype

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
# The 16-bit floats are not among the standard's dtypes, but `isdtype` knows their kind.
_MORE = {"real floating": ("float16", "bfloat16"), "numeric": ("float16", "bfloat16")}


def astype(x: Tensor, dtype: dtype, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The tensor converted to a dtype; the tensor itself if nothing changes and `copy` is false."""
    return x.to(device=device, dtype=dtype, copy=copy)


def isdtype(dtype: dtype, kind: dtype | str | tuple[Any, ...]) -> bool:
    """Whether a dtype is of a kind: a dtype, one of the standard's names, or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return dtype is kind
    if kind not in KINDS:
        raise ValueError(f"Unrecognized data type kind: {kind!r}")
    return dtype.name in KINDS[kind] + _MORE.get(kind, ())


def can_cast(from_: dtype | Tensor, to: dtype, /) -> bool:
    """Whether promotion converts one dtype to another."""
    from_ = from_.dtype if isinstance(from_, Tensor) else from_
    return gt.promote_types(from_, to) is to


def result_type(*arrays_and_dtypes: Any) -> dtype:
    """The dtype of the result of an operation on all arguments; Python numbers change its kind, never its size."""
    # Dtypes promote as tensors with axes do, and Python numbers after them.
    dtypes = [
        x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes if not isinstance(x, int | float | complex)
    ]
    if not dtypes:
        raise ValueError("result_type: at least one of the arguments must be an array or a dtype")
    found = dtypes[0]
    for one in dtypes[1:]:
        found = gt.promote_types(found, one)
    example = gt.empty(1, dtype=found)
    for number in arrays_and_dtypes:
        if isinstance(number, int | float | complex):
            example = gt.empty(1, dtype=gt.result_type(example, number))
    return example.dtype


class FloatLimits(NamedTuple):
    """The numerical limits of a floating-point dtype; those of a complex dtype are its parts'."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class IntegerLimits(NamedTuple):
    """The smallest and the largest number of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: dtype


def finfo(type: dtype | Tensor, /) -> FloatLimits:
    """The numerical limits of a floating-point dtype, whose `dtype` is a dtype, where PyTorch's is its name."""
    limits = _finfo(type.dtype if isinstance(type, Tensor) else type)
    return FloatLimits(
        limits.bits, limits.eps, limits.max, limits.min, limits.smallest_normal, getattr(gt, limits.dtype)
    )


def iinfo(type: dtype | Tensor, /) -> IntegerLimits:
    """The limits of an integer dtype, whose `dtype` is a dtype, where PyTorch's is its name."""
    limits = _iinfo(type.dtype if isinstance(type, Tensor) else type)
    return IntegerLimits(limits.bits, limits.max, limits.min, getattr(gt, limits.dtype))


class __array_namespace_info__:  # noqa: N801 (the standard's name)
    """The capabilities, devices and dtypes of this namespace."""

    def capabilities(self) -> dict[str, Any]:
        """The optional features of the standard that are supported, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> Any:
        """The device of new tensors."""
        return gt.get_default_device()

    def devices(self) -> list[Any]:
        """The devices on which tensors may be made."""
        return [gt.device("cpu")]

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:  # noqa: ARG002 (all devices are alike)
        """The dtypes of tensors that are made without one."""
        real = gt.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": gt.int64,
            "indexing": gt.int64,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, dtype]:  # noqa: ARG002
        """The supported dtypes of the standard, of one kind or several."""
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        for one in kinds:
            if one not in KINDS:
                raise ValueError(f"Unrecognized data type kind: {one!r}")
        return {name: getattr(gt, name) for one in kinds for name in KINDS[one]}
