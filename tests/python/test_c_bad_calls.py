"""`libgt` with arguments that no correct program passes: each is an error with its code and a sentence, and no crash.

Each call is made in a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from c_library import Argument, Attrs, Handle, Ints, Operand, Session, Tensor, check, install, library
from support import ROOT, gtd, output_of

# The library is built first if necessary.
pytestmark = pytest.mark.timeout(1200)
MILLION = 10**6
FLOAT32 = 9
COUNT_MAX = 65536


def numbers(*values: int) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


# Tensors whose handles are arguments.
KEPT: list[Tensor] = []
ONE = numbers(1)
NINE = numbers(*[1] * 9)
# Sizes whose product overflows.
LARGE = numbers(2**40, 2**40)


def address(array: Any) -> int | None:
    return ctypes.cast(array, ctypes.c_void_p).value


def size(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)


def out() -> Any:
    return ctypes.byref(Handle(1))


def tensor(session: Session) -> Tensor:
    made = Handle()
    check(library().gt_ones(session.handle, numbers(4), size(1), FLOAT32, ctypes.byref(made)))
    KEPT.append(Tensor(made))
    return KEPT[-1]


def from_data(session: Session, shape: Any, ndim: int, *, bytes_: int = 4, dtype: int = FLOAT32) -> int:
    data = (ctypes.c_float * 4)()
    return library().gt_tensor_from_data(session.handle, dtype, shape, size(ndim), data, size(bytes_), out())


def filled(name: str, session: Session, shape: Any, ndim: int, dtype: int = FLOAT32) -> int:
    return getattr(library(), name)(session.handle, shape, size(ndim), dtype, out())


def buffer(session: Session, shape: Any, ndim: int) -> int:
    return library().gt_buffer_new(session.handle, FLOAT32, shape, size(ndim), out())


def op(session: Session, name: bytes, count: int = 1, **lists: tuple[Any, int]) -> int:
    lib, attrs = library(), Attrs()
    for key, (array, length) in lists.items():
        setattr(attrs, key, Ints(ctypes.cast(array, ctypes.POINTER(ctypes.c_int64)), length))
    creates = name == b"full"
    operand = Operand(2, None, 1.0, 0) if creates else Operand(1, tensor(session)._as_parameter_, 0.0, 0)
    code = lib.gt_op_by_name(name)
    return lib.gt_op(session.handle, code, (Operand * 1)(operand), size(count), ctypes.byref(attrs), out())


def call(session: Session, name: bytes, *arguments: Argument, count: int | None = None, capacity: int = 1) -> int:
    array, room, written = (Argument * max(1, len(arguments)))(*arguments), (Handle * 1)(), ctypes.c_size_t(7)
    given = size(len(arguments) if count is None else count)
    status = library().gt_call(session.handle, name, array, given, room, size(capacity), ctypes.byref(written))
    assert written.value == 0
    return status


def operand(session: Session) -> Argument:
    return Argument(kind=2, data=tensor(session)._as_parameter_.value)


def listed(kind: int, array: Any, count: int) -> Argument:
    return Argument(kind=kind, data=address(array), len=count)


def gradients(session: Session, count: int, *handles: Any) -> int:
    lib, total = library(), tensor(session).requires_grad()
    inputs, found = (Handle * 1)(*(handles or (total._as_parameter_,))), (Handle * 1)(1)
    status = lib.gt_gradients(session.op("sum", total), None, inputs, size(count), ctypes.c_uint32(0), found)
    assert count > COUNT_MAX or not found[0]
    return status


def freed(session: Session) -> Handle:
    made = Handle()
    check(library().gt_ones(session.handle, None, size(0), 0, ctypes.byref(made)))
    library().gt_tensor_free(made)
    return made


def closed(session: Session) -> Handle:
    handle = session.handle
    session.close()
    return handle


def foreign() -> Handle:
    """Returns the address of memory that is no handle."""
    return Handle(address(MEMORY))


MEMORY = (ctypes.c_uint64 * 1000)()


def read(handle: Any) -> int:
    return library().gt_tensor_read(handle, (ctypes.c_float * 4)(), size(16))


def released(session: Session) -> Handle:
    made = Handle()
    check(library().gt_buffer_new(session.handle, FLOAT32, ONE, size(1), ctypes.byref(made)))
    library().gt_buffer_release(made)
    return made


def opened(text: bytes) -> int:
    return library().gt_session_open(text, b"c", out())


def without_status(*calls: Callable[[], Any]) -> int:
    """Makes calls that return no status."""
    for made in calls:
        made()
    return 0


TOO_MANY = "at most 8 dimensions, but 1000000 were asked for"
ENTRIES = "cannot have 1000000 entries: 65536 are allowed"
NO_TENSOR = "is no handle of a tensor: it was freed, or GT did not return it"
NO_SESSION = "session is no handle of a session: it was freed"
NO_BUFFER = "buffer is no handle of a buffer: it was freed"
TOO_LARGE = "a tensor has at most 281474976710656 elements, but shape"

# The call, its status and a part of its message.
CASES: dict[str, tuple[Callable[[Session], int], str, str]] = {
    "data of a million axes": (lambda s: from_data(s, ONE, MILLION), "VALUE", TOO_MANY),
    "data of nine axes": (lambda s: from_data(s, NINE, 9), "VALUE", "at most 8 dimensions, but 9"),
    "data of -1 axes": (lambda s: from_data(s, ONE, 2**64 - 1), "VALUE", "at most 8 dimensions"),
    "data of a negative size": (lambda s: from_data(s, numbers(-1), 1), "VALUE", "negative dimension -1"),
    "data of too many elements": (lambda s: from_data(s, LARGE, 2), "VALUE", TOO_LARGE),
    "data of an unknown dtype": (lambda s: from_data(s, ONE, 1, dtype=99), "ARGUMENT", "99 is no dtype"),
    "data of no dtype": (lambda s: from_data(s, ONE, 1, dtype=0), "ARGUMENT", "a dtype is needed"),
    "data of a wrong size": (lambda s: from_data(s, ONE, 1, bytes_=2**62), "ARGUMENT", "data has 4611686018427387904"),
    "buffer of a million axes": (lambda s: buffer(s, ONE, MILLION), "VALUE", TOO_MANY),
    "buffer of a negative size": (lambda s: buffer(s, numbers(-1), 1), "VALUE", "negative dimension -1"),
    "buffer of too many elements": (lambda s: buffer(s, LARGE, 2), "VALUE", TOO_LARGE),
    "buffer beyond the arena": (lambda s: buffer(s, numbers(2**44), 1), "OUT_OF_MEMORY", ""),
    **{
        f"{name} of {what}": (lambda s, name=name, shape=shape, n=n, d=d: filled(name, s, shape, n, d), status, text)
        for name in ("gt_zeros", "gt_ones")
        for what, shape, n, d, status, text in (
            ("a million axes", ONE, MILLION, 0, "VALUE", TOO_MANY),
            ("no shape", None, 3, 0, "ARGUMENT", "shape is NULL"),
            ("a negative size", numbers(3, -1), 2, 0, "VALUE", "negative dimension -1"),
            ("too many elements", LARGE, 2, 0, "VALUE", TOO_LARGE),
            ("an unknown dtype", ONE, 1, -5, "ARGUMENT", "-5 is no dtype"),
        )
    },
    "full of a million axes": (lambda s: op(s, b"full", shape=(ONE, MILLION)), "VALUE", "attrs.shape has 1000000"),
    "full of a negative size": (lambda s: op(s, b"full", shape=(numbers(-1), 1)), "VALUE", "negative dimension -1"),
    "full of too many elements": (lambda s: op(s, b"full", shape=(LARGE, 2)), "VALUE", TOO_LARGE),
    **{
        f"{name.decode()} with a million of {key}": (
            lambda s, name=name, key=key: op(s, name, **{key: (ONE, MILLION)}),
            "VALUE",
            f"attrs.{key} has 1000000 entries",
        )
        for name, key in (
            (b"sum", "axes"),
            (b"reshape", "shape"),
            (b"expand", "shape"),
            (b"permute", "axes"),
            (b"slice", "start"),
            (b"slice", "stop"),
            (b"slice", "step"),
            (b"max_pool", "kernel"),
            (b"max_pool", "stride"),
            (b"max_pool", "padding"),
            (b"max_pool", "padding_end"),
            (b"max_pool", "dilation"),
        )
    },
    "a million operands": (lambda s: op(s, b"cat", MILLION), "ARGUMENT", "1000000 operands are more than"),
    "30 operands of one": (lambda s: op(s, b"exp", 30), "TYPE", "exp: takes 1 operands, but 30 were given"),
    "a million arguments": (
        lambda s: call(s, b"logsumexp", count=MILLION),
        "ARGUMENT",
        "takes 3 arguments, but 1000000",
    ),
    "room for a million": (lambda s: call(s, b"logsumexp", capacity=MILLION), "ARGUMENT", f"results {ENTRIES}"),
    "a function without a name": (lambda s: call(s, None), "ARGUMENT", "name is NULL"),  # type: ignore[arg-type]
    "a million integers": (
        lambda s: call(s, b"logsumexp", operand(s), listed(7, ONE, MILLION)),
        "ARGUMENT",
        f"integers {ENTRIES}",
    ),
    "a million numbers": (
        lambda s: call(s, b"logsumexp", operand(s), listed(8, ONE, MILLION)),
        "ARGUMENT",
        f"numbers {ENTRIES}",
    ),
    "a million tensors": (lambda s: call(s, b"cat", listed(3, ONE, MILLION)), "ARGUMENT", f"tensors {ENTRIES}"),
    "a million lists": (
        lambda s: call(s, b"tensordot", operand(s), operand(s), listed(9, ONE, MILLION)),
        "ARGUMENT",
        f"lists {ENTRIES}",
    ),
    "a list of a million": (
        lambda s: call(s, b"tensordot", operand(s), operand(s), listed(9, (Ints * 1)(Ints(ONE, MILLION)), 1)),
        "ARGUMENT",
        f"a list {ENTRIES}",
    ),
    "an argument of no dtype": (
        lambda s: call(s, b"zeros", listed(7, ONE, 1), Argument(kind=11, integer=2**33 + 9)),
        "ARGUMENT",
        "8589934601 is no dtype",
    ),
    "an argument of no kind": (
        lambda s: call(s, b"logsumexp", operand(s), Argument(kind=77)),
        "ARGUMENT",
        "argument 1 has kind 77",
    ),
    "a million gradients": (lambda s: gradients(s, MILLION), "ARGUMENT", ENTRIES),
    "2⁶⁰ gradients": (lambda s: gradients(s, 2**60), "ARGUMENT", "entries: 65536 are allowed"),
    "a gradient of a freed input": (lambda s: gradients(s, 1, freed(s)), "ARGUMENT", f"an input {NO_TENSOR}"),
    "a gradient of no input": (lambda s: gradients(s, 1, None), "ARGUMENT", "an input is NULL"),
    "a freed tensor": (lambda s: read(freed(s)), "ARGUMENT", f"tensor {NO_TENSOR}"),
    "a tensor freed twice": (
        lambda s: without_status(lambda: library().gt_tensor_free(freed(s))),
        "OK",
        f"tensor {NO_TENSOR}",
    ),
    "a foreign tensor": (lambda _: read(foreign()), "ARGUMENT", f"tensor {NO_TENSOR}"),
    "a foreign tensor freed": (
        lambda _: without_status(lambda: library().gt_tensor_free(foreign())),
        "OK",
        f"tensor {NO_TENSOR}",
    ),
    "an odd address": (lambda _: read(Handle(0x1001)), "ARGUMENT", f"tensor {NO_TENSOR}"),
    "a session as a tensor": (lambda s: read(s.handle), "ARGUMENT", f"tensor {NO_TENSOR}"),
    "a tensor as a session": (
        lambda s: library().gt_session_synchronize(tensor(s)),
        "ARGUMENT",
        "session is no handle of a session",
    ),
    "a freed operand": (
        lambda s: library().gt_op(
            None,
            library().gt_op_by_name(b"exp"),
            (Operand * 1)(Operand(1, freed(s), 0.0, 0)),
            size(1),
            None,
            out(),
        ),
        "ARGUMENT",
        f"operand 0 {NO_TENSOR}",
    ),
    "a freed argument": (
        lambda s: call(s, b"logsumexp", Argument(kind=2, data=freed(s).value)),
        "ARGUMENT",
        f"argument 0 {NO_TENSOR}",
    ),
    "a closed session": (lambda s: library().gt_session_synchronize(closed(s)), "ARGUMENT", NO_SESSION),
    "a session closed twice": (
        lambda s: without_status(lambda: library().gt_session_close(closed(s))),
        "OK",
        NO_SESSION,
    ),
    "a buffer released twice": (
        lambda s: without_status(lambda: library().gt_buffer_release(released(s))),
        "OK",
        NO_BUFFER,
    ),
    "a tensor of a released buffer": (
        lambda s: library().gt_tensor_from_buffer(ctypes.byref(released(s)), out()),
        "ARGUMENT",
        NO_BUFFER,
    ),
    "the address of another program": (lambda _: opened(b"junk://x"), "VALUE", "`junk://x` is no address of a daemon"),
    "an address of 500 bytes": (lambda _: opened(b"unix:/" + b"x" * 500), "VALUE", "is no address of a daemon"),
    "a port beyond 65535": (lambda _: opened(b"localhost:65536"), "VALUE", "is no address of a daemon"),
    "an address that is no text": (lambda _: opened(b"\xff"), "ARGUMENT", "address is not UTF-8"),
    "flags that mean nothing": (
        lambda s: library().gt_tensor_backward(tensor(s), None, ctypes.c_uint32(8)),
        "ARGUMENT",
        "flags 0x8 has bits that mean nothing",
    ),
}


def make_calls() -> None:
    """Makes each call in a child, and prints how the child ended, the status and the thread's message."""
    parent = Session()
    for name, (made, _, _) in CASES.items():
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            # A call that never returns is a crash, too.
            signal.alarm(30)
            status = made(Session())
            said = f"{library().gt_status_name(status).decode()} {library().gt_last_error().decode()}"
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        sys.stdout.write(json.dumps([name, os.waitpid(child, 0)[1], said]) + "\n")
    parent.close()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, str]]:
    folders = os.pathsep.join([str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH", "")])
    program = "import test_c_bad_calls\ntest_c_bad_calls.make_calls()"
    install()
    said = output_of(program, GT_DAEMON=str(gtd()), PYTHONPATH=folders)
    return {name: (ended, text) for name, ended, text in map(json.loads, said.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_call_is_an_error_and_not_a_crash(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    _, status, text = CASES[name]
    ended, said = outcomes[name]
    assert ended == 0, f"the process ended with wait status {ended}"
    assert said.startswith("GT_OK " if status == "OK" else f"GT_ERROR_{status} ")
    assert text in said
