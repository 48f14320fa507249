"""`libgt` for the tests: installed below the target folder, and called through `ctypes`."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support import ROOT, environment, gtd

# Each of the processes that run tests side by side has a folder of its own.
PREFIX = (
    Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    / "libgt"
    / f"installed-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
)
NUMPY = ["?", "u1", "i1", "i2", "i4", "i8", "f2", None, "f4", "f8", "u2", "u4", "u8", "c8", "c16"]
Handle = ctypes.c_void_p


@functools.cache
def install() -> Path:
    """Installs the library as `make install-libgt` does; returns the folder."""
    done = subprocess.run(
        ["make", "install-libgt", f"PREFIX={PREFIX}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return PREFIX


def for_programs(**changes: str) -> dict[str, str]:
    """Returns environment variables with which a C program finds the library, and `gtd` for a private daemon."""
    return environment(GT_DAEMON=str(gtd()), LD_LIBRARY_PATH=str(install() / "lib"), **changes)


def header() -> str:
    return (install() / "include" / "gt.h").read_text()


def functions() -> dict[str, tuple[str, list[str]]]:
    """Parses the header: the result and argument types of each exported function."""
    declared = re.findall(r"^((?:const )?\w+ \*?)(gt_\w+)\(([^;{]*?)\);", header(), re.MULTILINE)
    return {
        name: (result.strip(), [p for p in re.split(r",\s*", args) if p != "void"]) for result, name, args in declared
    }


class Operand(ctypes.Structure):
    """The C struct `gt_operand`."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("tensor", Handle),
        ("number", ctypes.c_double),
        ("integer", ctypes.c_int64),
    ]


class Ints(ctypes.Structure):
    """The C struct `gt_ints`."""

    _fields_ = [("data", ctypes.POINTER(ctypes.c_int64)), ("len", ctypes.c_size_t)]


class Argument(ctypes.Structure):
    """The C struct `gt_argument`."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("number", ctypes.c_double),
        ("integer", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
    ]


class Attrs(ctypes.Structure):
    """The C struct `gt_attrs`."""

    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("reduction", ctypes.c_int32),
        ("axis", ctypes.c_int64),
        *[(name, Ints) for name in "shape axes start stop step kernel stride padding padding_end dilation".split()],
        ("groups", ctypes.c_int64),
        ("ignore_index", ctypes.c_int64),
        ("label_smoothing", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("keepdim", ctypes.c_uint8),
        ("causal", ctypes.c_uint8),
        ("ignores", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 61),
    ]


class Failed(Exception):  # noqa: N818 (it is what a call did)
    """A call that returned a status other than `GT_OK`."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library and declares its functions' types."""
    lib = ctypes.CDLL(str(install() / "lib" / "libgt.so"))
    results = {
        "void": None,
        "bool": ctypes.c_bool,
        "size_t": ctypes.c_size_t,
        "int64_t": ctypes.c_int64,
        "const char *": ctypes.c_char_p,
        "void *": ctypes.c_void_p,
    }
    for name, (result, _) in functions().items():
        getattr(lib, name).restype = results.get(result, ctypes.c_int32)
    return lib


def check(status: int) -> None:
    """Raises an exception with the error of a call, unless its status is `GT_OK`."""
    lib = library()
    if status != 0:
        raise Failed(lib.gt_status_name(status).decode(), lib.gt_last_error().decode())


def ints(values: Sequence[int]) -> Ints:
    return Ints((ctypes.c_int64 * len(values))(*values), len(values))


class Tensor:
    """A tensor handle, freed with its Python object."""

    def __init__(self, handle: Handle) -> None:
        self._as_parameter_ = handle

    def __del__(self) -> None:
        library().gt_tensor_free(self)

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = (ctypes.c_int64 * 8)()
        return tuple(sizes[: library().gt_tensor_shape(self, sizes)])

    @property
    def dtype(self) -> str:
        return library().gt_dtype_name(library().gt_tensor_dtype(self)).decode()

    def numpy(self) -> np.ndarray:
        """Copies the elements; those of bfloat16 as bits."""
        code = NUMPY[library().gt_tensor_dtype(self) - 1] or "u2"
        array = np.empty(self.shape, code)
        check(library().gt_tensor_read(self, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)))
        return array

    def item(self) -> float:
        number = ctypes.c_double()
        check(library().gt_tensor_item(self, ctypes.byref(number)))
        return number.value

    def requires_grad(self) -> Tensor:
        check(library().gt_tensor_set_requires_grad(self, True))
        return self

    def backward(self, gradient: Tensor | None = None, flags: int = 0) -> None:
        check(library().gt_tensor_backward(self, gradient, ctypes.c_uint32(flags)))

    @property
    def grad(self) -> Tensor | None:
        handle = Handle()
        check(library().gt_tensor_grad(self, ctypes.byref(handle)))
        return Tensor(handle) if handle else None


class Session:
    """A session, closed by `close` or with its Python object."""

    def __init__(self, address: str | None = None, name: str = "c library") -> None:
        self.handle = Handle()
        told = address and address.encode()
        check(library().gt_session_open(told, name.encode(), ctypes.byref(self.handle)))

    def close(self) -> None:
        library().gt_session_close(self.handle)
        self.handle = Handle()

    def tensor(self, array: Any, dtype: str | None = None) -> Tensor:
        """Makes a tensor from an array; `bfloat16` takes bits."""
        array = np.asarray(array, order="C")
        number = NUMPY.index(None if dtype == "bfloat16" else array.dtype.str.lstrip("<|").replace("b1", "?")) + 1
        shape, handle = (ctypes.c_int64 * array.ndim)(*array.shape), Handle()
        data, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        ndim = ctypes.c_size_t(array.ndim)
        check(library().gt_tensor_from_data(self.handle, number, shape, ndim, data, size, ctypes.byref(handle)))
        return Tensor(handle)

    def op(self, name: str, *operands: Any, **given: Any) -> Tensor:
        """Calls any op of the table by its row."""
        lib = library()
        attrs = Attrs()
        for key, value in given.items():
            setattr(attrs, key, ints(value) if isinstance(value, list) else value)
        array = (Operand * len(operands))(*map(_operand, operands))
        handle, opcode = Handle(), lib.gt_op_by_name(name.encode())
        count = ctypes.c_size_t(len(operands))
        check(lib.gt_op(self.handle, opcode, array, count, ctypes.byref(attrs), ctypes.byref(handle)))
        return Tensor(handle)

    def call(self, name: str, *arguments: Any, capacity: int = 16) -> list[Tensor]:
        """Calls any function by its name: tensors, lists of tensors, numbers, lists of integers, texts, `None`."""
        kept: list[Any] = []
        array = (Argument * len(arguments))(*(_argument(value, kept) for value in arguments))
        handles, written = (Handle * capacity)(), ctypes.c_size_t()
        count, room = ctypes.c_size_t(len(arguments)), ctypes.c_size_t(capacity)
        check(library().gt_call(self.handle, name.encode(), array, count, handles, room, ctypes.byref(written)))
        return [Tensor(Handle(handle)) for handle in handles[: written.value]]

    def number(self, name: str, *arguments: Any) -> float:
        """Calls a function whose result is a number."""
        kept: list[Any] = []
        array = (Argument * len(arguments))(*(_argument(value, kept) for value in arguments))
        result = ctypes.c_double()
        count = ctypes.c_size_t(len(arguments))
        check(library().gt_call_number(self.handle, name.encode(), array, count, ctypes.byref(result)))
        return result.value


def _argument(value: Any, kept: list[Any]) -> Argument:
    """Makes an argument of `gt_call`; `kept` holds the memory that it points to."""
    if value is None:
        return Argument(kind=1)
    if value is ...:
        return Argument(kind=0)
    if isinstance(value, Tensor):
        return Argument(kind=2, data=value._as_parameter_.value)
    if isinstance(value, bool):
        return Argument(kind=6, integer=value)
    if isinstance(value, int):
        return Argument(kind=5, integer=value)
    if isinstance(value, float):
        return Argument(kind=4, number=value)
    if isinstance(value, str):
        kept.append(ctypes.create_string_buffer(value.encode()))
        return Argument(kind=10, data=ctypes.addressof(kept[-1]))
    if value and isinstance(value[0], Tensor):
        kept.append((Handle * len(value))(*(item._as_parameter_.value for item in value)))
        return Argument(kind=3, data=ctypes.addressof(kept[-1]), len=len(value))
    kept.append((ctypes.c_int64 * len(value))(*value))
    return Argument(kind=7, data=ctypes.addressof(kept[-1]), len=len(value))


def _operand(value: Any) -> Operand:
    if value is None:
        return Operand(0, None, 0.0, 0)
    if isinstance(value, Tensor):
        return Operand(1, value._as_parameter_, 0.0, 0)
    if isinstance(value, bool):
        return Operand(4, None, 0.0, value)
    return Operand(3, None, 0.0, value) if isinstance(value, int) else Operand(2, None, value, 0)
