"""`gt.wasi_nn`: guests of real wasmtime that compute with GT, and guests that try to do what they may not.

The guests are small modules as text, and `examples/wasm/gpt2.c`, compiled where `ziglang` is installed.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT

import gt
import gt.llm
from gt.llm import Config, Tokenizer

wasmtime = pytest.importorskip("wasmtime", reason="guests run in wasmtime: pip install wasmtime")

from gt.wasi_nn import Errno, GuestError, InputError, Limits, NextToken, WasiNN, run  # noqa: E402
from gt.wasi_nn.host import CONTEXTS_MAX, GRAPHS_MAX, INPUTS_MAX  # noqa: E402

FILES = Path(__file__).parent / "files"
TINY = Config(context=32, vocabulary=256, layers=2, heads=2, channels=16)
LETTERS = Tokenizer([bytes([byte]) for byte in range(256)], end_of_text=10)
PARAMETERS = {
    "load": 5,
    "load_by_name": 3,
    "init_execution_context": 2,
    "set_input": 3,
    "compute": 1,
    "get_output": 5,
}
TYPES = {"float16": 0, "float32": 1, "float64": 2, "uint8": 3, "int32": 4, "int64": 5}
AUTODETECT, CPU, NOWHERE = 5, 0, 0xFFFF_FFF0
MEMORY_BYTES = 2 << 16


def forwarding(memory: str) -> str:
    """A module that exports each function of WASI-NN as a function of its own, and two pages of memory."""
    parts = []
    for name, count in PARAMETERS.items():
        parameters = "(param" + " i32" * count + ") (result i32)"
        given = " ".join(f"(local.get {i})" for i in range(count))
        parts.append(f'(import "wasi_ephemeral_nn" "{name}" (func ${name} {parameters}))')
        parts.append(f'(func (export "{name}") {parameters} (call ${name} {given}))')
    # Imports come first in a module.
    return f"(module {' '.join(sorted(parts, key=lambda part: part[1] != 'i'))} (memory {memory} 2 2))"


class Guest:
    """A guest of which each call is made by the test."""

    def __init__(self, graphs: dict[str, Any], memory: str = '(export "memory")', **limits: int) -> None:
        engine = wasmtime.Engine()
        linker = wasmtime.Linker(engine)
        WasiNN(graphs, **limits).define(linker)
        self.store = wasmtime.Store(engine)
        exports = linker.instantiate(self.store, wasmtime.Module(engine, forwarding(memory))).exports(self.store)
        self.exports, self.memory = exports, exports.get("memory")

    def call(self, name: str, *numbers: int) -> int:
        signed = [number - (1 << 32) if number >= 1 << 31 else number for number in numbers]
        return self.exports[name](self.store, *signed)

    def write(self, data: bytes, at: int) -> int:
        self.memory.write(self.store, data, at)
        return at

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.memory.read(self.store, at, at + size))

    def number(self, at: int) -> int:
        return struct.unpack("<I", self.read(at, 4))[0]

    def handle(self, name: str, *numbers: int) -> int:
        """Calls a function that writes a handle, which succeeds."""
        assert self.call(name, *numbers, 0) == Errno.SUCCESS
        return self.number(0)

    def context(self, name: str) -> int:
        graph = self.handle("load_by_name", self.write(name.encode(), 16), len(name))
        return self.handle("init_execution_context", graph)

    def set_input(self, context: int, index: int, array: np.ndarray) -> int:
        data = self.write(array.tobytes(), 4096)
        shape = self.write(struct.pack(f"<{array.ndim}I", *array.shape), 128)
        record = struct.pack("<IIBxxxII", shape, array.ndim, TYPES[array.dtype.name], data, array.nbytes)
        return self.call("set_input", context, index, self.write(record, 64))

    def output(self, context: int, index: int = 0) -> bytes:
        assert self.call("get_output", context, index, 4096, MEMORY_BYTES - 4096, 0) == Errno.SUCCESS
        return self.read(4096, self.number(0))

    def computed(self, context: int, *arrays: np.ndarray) -> bytes:
        for index, array in enumerate(arrays):
            assert self.set_input(context, index, array) == Errno.SUCCESS
        assert self.call("compute", context) == Errno.SUCCESS
        return self.output(context)


@pytest.fixture(scope="module")
def model() -> gt.llm.GPT2:
    model = gt.llm.GPT2(TINY).initialise().eval()
    # Some tokens are more likely than others, as for a trained model, so that rounding decides between few.
    with gt.no_grad():
        model.wte.weight.mul_(12)
    return model


@pytest.fixture
def guest(model: gt.llm.GPT2) -> Guest:
    return Guest({"gpt2": model, "same": lambda x: x, "both": lambda x, y: (x + y, x * y), "fails": fails})


def fails(x: gt.Tensor) -> gt.Tensor:
    if x.numel() == 1:
        raise InputError("one number is too few")
    raise ValueError("this graph cannot be computed")


# Tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_of_every_type_go_in_and_out(guest: Guest, dtype: str) -> None:
    array = np.array([[0, 1, 2], [3, 100, 255]], dtype)
    context = guest.context("same")
    assert guest.computed(context, array) == array.tobytes()
    seen = []
    other = Guest({"look": lambda x: seen.append(x) or x})
    other.computed(other.context("look"), array)
    assert seen[0].dtype is getattr(gt, dtype)
    np.testing.assert_array_equal(seen[0].numpy(), array)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (1,) * 8])
def test_shapes_of_no_and_of_many_dimensions(shape: tuple[int, ...]) -> None:
    seen = []
    guest = Guest({"look": lambda x: seen.append(tuple(x.shape)) or x})
    assert guest.computed(guest.context("look"), np.ones(shape, "float32")) == np.ones(shape, "float32").tobytes()
    assert seen == [shape]


def test_a_graph_has_several_inputs_and_outputs(guest: Guest) -> None:
    context = guest.context("both")
    x, y = np.array([1, 2], "int32"), np.array([3, 4], "int32")
    assert guest.computed(context, x, y) == (x + y).tobytes()
    assert guest.output(context, 1) == (x * y).tobytes()
    # An input stays until it is set again.
    assert guest.set_input(context, 1, x) == Errno.SUCCESS
    assert guest.call("compute", context) == Errno.SUCCESS
    assert guest.output(context) == (x + x).tobytes()


def test_outputs_of_other_dtypes_are_converted_or_an_error() -> None:
    graphs = {"bool": lambda x: x > 1, "bfloat16": lambda x: x.bfloat16(), "complex": lambda x: x + 1j}
    guest = Guest(graphs)
    array = np.array([1, 2.5], "float32")
    assert guest.computed(guest.context("bool"), array) == b"\x00\x01"
    assert guest.computed(guest.context("bfloat16"), array) == array.tobytes()
    context = guest.context("complex")
    guest.set_input(context, 0, array)
    assert guest.call("compute", context) == Errno.RUNTIME_ERROR


# Errors -----------------------------------------------------------------------------------------------------------


def test_unknown_names_and_handles(guest: Guest) -> None:
    assert guest.call("load_by_name", guest.write(b"gpt3", 16), 4, 0) == Errno.NOT_FOUND
    assert guest.call("load_by_name", guest.write(b"\xff\x00", 16), 2, 0) == Errno.NOT_FOUND
    assert guest.call("load_by_name", 16, 0, 0) == Errno.NOT_FOUND
    for handle in (0, 1, 0xFFFF_FFFF):
        assert guest.call("init_execution_context", handle, 0) == Errno.INVALID_ARGUMENT
        assert guest.set_input(handle, 0, np.ones(1, "uint8")) == Errno.INVALID_ARGUMENT
        assert guest.call("compute", handle) == Errno.INVALID_ARGUMENT
        assert guest.call("get_output", handle, 0, 0, 0, 0) == Errno.INVALID_ARGUMENT


@pytest.mark.parametrize("at", [MEMORY_BYTES - 3, MEMORY_BYTES, NOWHERE, 0xFFFF_FFFF])
def test_pointers_beyond_the_memory(guest: Guest, at: int) -> None:
    name = guest.write(b"same", 16)
    graph, context = guest.handle("load_by_name", name, 4), guest.context("same")
    for numbers in ((at, 4, 0), (name, at, 0), (name, 4, at)):
        assert guest.call("load_by_name", *numbers) == Errno.INVALID_ARGUMENT
    for numbers in ((at, 1, AUTODETECT, CPU, 0), (64, 1, AUTODETECT, CPU, at)):
        assert guest.call("load", *numbers) == Errno.INVALID_ARGUMENT
    for part in ((at, 4), (8, at)):
        parts = guest.write(struct.pack("<II", *part), 64)
        assert guest.call("load", parts, 1, AUTODETECT, CPU, 0) == Errno.INVALID_ARGUMENT
    assert guest.call("init_execution_context", graph, at) == Errno.INVALID_ARGUMENT
    assert guest.call("set_input", context, 0, at) == Errno.INVALID_ARGUMENT
    guest.write(struct.pack("<I", 4), 128)
    for record in ((at, 1, 3, 256, 4), (128, 1, 3, at, 4)):
        guest.write(struct.pack("<IIBxxxII", *record), 64)
        assert guest.call("set_input", context, 0, 64) == Errno.INVALID_ARGUMENT
    guest.computed(context, np.ones(4, "uint8"))
    for numbers in ((0, at, 4, 0), (0, 8, at, 0), (0, 8, 4, at)):
        assert guest.call("get_output", context, *numbers) == Errno.INVALID_ARGUMENT


def test_a_failed_call_makes_no_handle(guest: Guest) -> None:
    name = guest.write(b"same", 16)
    assert guest.call("load_by_name", name, 4, NOWHERE) == Errno.INVALID_ARGUMENT
    assert guest.handle("load_by_name", name, 4) == 0
    assert guest.call("init_execution_context", 0, NOWHERE) == Errno.INVALID_ARGUMENT
    assert guest.handle("init_execution_context", 0) == 0


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        ((2, 3), 1, 23),
        ((2, 3), 1, 25),
        ((2, 3), 6, 24),
        ((2, 3), 255, 24),
        ((1,) * 9, 3, 1),
        # The product of the dimensions is 2 ** 32, which is 0 in 32 bits.
        ((1 << 16, 1 << 16), 3, 0),
        ((0xFFFF_FFFF, 0xFFFF_FFFF), 5, 8),
    ],
)
def test_tensors_that_do_not_add_up(guest: Guest, shape: tuple[int, ...], kind: int, size: int) -> None:
    context = guest.context("same")
    dimensions = guest.write(struct.pack(f"<{len(shape)}I", *shape), 128)
    guest.write(struct.pack("<IIBxxxII", dimensions, len(shape), kind, 256, size), 64)
    assert guest.call("set_input", context, 0, 64) == Errno.INVALID_ARGUMENT


def test_inputs_and_outputs_that_are_not_there(guest: Guest, caplog: pytest.LogCaptureFixture) -> None:
    context = guest.context("both")
    one = np.ones(2, "float32")
    assert guest.call("get_output", context, 0, 4096, 64, 0) == Errno.RUNTIME_ERROR
    assert guest.set_input(context, 1, one) == Errno.SUCCESS
    # The first input is missing; then the graph, a function of two, gets none.
    assert guest.call("compute", context) == Errno.INVALID_ARGUMENT
    assert guest.call("compute", guest.context("both")) == Errno.RUNTIME_ERROR
    assert "missing 2 required positional arguments" in caplog.text
    for index in (INPUTS_MAX, 0xFFFF_FFFF):
        assert guest.set_input(context, index, one) == Errno.INVALID_ARGUMENT
    guest.computed(context, one, one)
    for index in (2, 0xFFFF_FFFF):
        assert guest.call("get_output", context, index, 4096, 64, 0) == Errno.INVALID_ARGUMENT
    assert guest.call("get_output", context, 0, 4096, 7, 0) == Errno.TOO_LARGE
    assert guest.call("get_output", context, 0, 4096, 8, 0) == Errno.SUCCESS


def test_a_graph_that_fails_is_an_error_of_the_guest_and_a_line_of_the_host(
    guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    context = guest.context("fails")
    guest.set_input(context, 0, np.ones(2, "float32"))
    assert guest.call("compute", context) == Errno.RUNTIME_ERROR
    assert "this graph cannot be computed" in caplog.text
    guest.set_input(context, 0, np.ones(1, "float32"))
    assert guest.call("compute", context) == Errno.INVALID_ARGUMENT
    assert "compute: INVALID_ARGUMENT: one number is too few" in caplog.text


def test_outputs_are_those_of_the_last_compute(guest: Guest) -> None:
    context = guest.context("both")
    guest.computed(context, np.ones(2, "float32"), np.ones(2, "float32"))
    guest.set_input(context, 1, np.ones(3, "float32"))
    assert guest.call("compute", context) == Errno.RUNTIME_ERROR
    assert guest.call("get_output", context, 0, 4096, 64, 0) == Errno.RUNTIME_ERROR


def test_ctrl_c_in_a_graph_ends_the_host() -> None:
    def interrupted(_: gt.Tensor) -> gt.Tensor:
        raise KeyboardInterrupt

    guest = Guest({"interrupted": interrupted})
    context = guest.context("interrupted")
    guest.set_input(context, 0, np.ones(1, "uint8"))
    with pytest.raises(KeyboardInterrupt):
        guest.call("compute", context)


@pytest.mark.parametrize("memory", ["", '(export "other")'])
def test_a_guest_without_an_exported_memory(memory: str) -> None:
    guest = Guest({}, memory)
    for name, count in PARAMETERS.items():
        assert guest.call(name, *(0,) * count) == Errno.MISSING_MEMORY


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_numbers_and_any_bytes_are_a_number_for_the_guest(data: st.DataObject, model: gt.llm.GPT2) -> None:
    guest = Guest({"gpt2": model, "": lambda *x: x[0]})
    guest.computed(guest.context("gpt2"), np.arange(3, dtype="int32"))
    guest.computed(guest.context(""), np.arange(3, dtype="int32"))
    places = st.sampled_from([0, 1, 4, 16, 20, 64, 128, MEMORY_BYTES - 4, MEMORY_BYTES, 1 << 31, 0xFFFF_FFFF])
    numbers = st.one_of(places, st.integers(0, 0xFFFF_FFFF))
    for _ in range(10):
        words = data.draw(st.lists(numbers, min_size=64, max_size=64))
        guest.write(struct.pack("<64I", *words), 0)
        name = data.draw(st.sampled_from(sorted(PARAMETERS)))
        assert guest.call(name, *(data.draw(numbers) for _ in range(PARAMETERS[name]))) in set(Errno)


# Graphs as bytes, and limits --------------------------------------------------------------------------------------


def loaded(guest: Guest, data: bytes, encoding: int = AUTODETECT, target: int = CPU, count: int = 1) -> int:
    part = struct.pack("<II", guest.write(data, 1024), len(data))
    return guest.call("load", guest.write(part, 64), count, encoding, target, 0)


@pytest.fixture
def small(tmp_path: Path) -> bytes:
    """The file of a model that fits the guest's memory."""
    gt.llm.write_model(tmp_path / "small.bin", gt.llm.GPT2(Config(8, 20, 1, 2, 8)).initialise())
    return (tmp_path / "small.bin").read_bytes()


def test_a_model_is_loaded_from_bytes(guest: Guest, small: bytes, tmp_path: Path) -> None:
    for target in range(3):
        assert loaded(guest, small, target=target) == Errno.SUCCESS
    context = guest.handle("init_execution_context", 2)
    logits = guest.computed(context, np.array([3, 1, 4], "int64"))
    wanted, _ = gt.llm.read_model(tmp_path / "small.bin")(gt.tensor([[3, 1, 4]]))
    np.testing.assert_allclose(np.frombuffer(logits, "f4"), wanted[0, -1].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_bytes_that_are_no_model(guest: Guest, small: bytes) -> None:
    for data in (b"", b"GGUF", bytes(4096), small[:-1], small + b"\0", small[:100]):
        assert loaded(guest, data) == Errno.INVALID_ENCODING
    for encoding in range(5):
        assert loaded(guest, small, encoding) == Errno.INVALID_ENCODING
    assert loaded(guest, small, encoding=6) == Errno.INVALID_ARGUMENT
    assert loaded(guest, small, target=3) == Errno.INVALID_ARGUMENT
    for count in (0, 2, 0xFFFF_FFFF):
        assert loaded(guest, small, count=count) == Errno.INVALID_ARGUMENT
    for place, number in ((4, 257), (2, 8193)):
        header = np.frombuffer(small[:1024], "<i4").copy()
        header[place] = number
        assert loaded(guest, header.tobytes()) == Errno.TOO_LARGE
    # Every number of the header in turn is another one.
    for place in range(8):
        for number in (-1, 0, 1 << 30):
            header = np.frombuffer(small[:1024], "<i4").copy()
            if header[place] != number:
                header[place] = number
                assert loaded(guest, header.tobytes() + small[1024:]) in (Errno.INVALID_ENCODING, Errno.TOO_LARGE)


def test_the_host_keeps_only_so_much_for_a_guest(model: gt.llm.GPT2, small: bytes) -> None:
    guest = Guest({"same": lambda x: x, "gpt2": model}, held_bytes_max=len(small) + 100)
    assert loaded(guest, small) == Errno.SUCCESS
    assert loaded(guest, small) == Errno.TOO_LARGE
    # The keys and values of a context count as well.
    graph = guest.handle("load_by_name", guest.write(b"gpt2", 16), 4)
    assert guest.call("init_execution_context", graph, 0) == Errno.TOO_LARGE
    context = guest.context("same")
    assert guest.set_input(context, 0, np.ones(101, "uint8")) == Errno.TOO_LARGE
    # An input that replaces another one takes its room; the output needs as much once more.
    for _ in range(3):
        assert guest.set_input(context, 0, np.ones(50, "uint8")) == Errno.SUCCESS
    assert guest.call("compute", context) == Errno.SUCCESS
    assert guest.set_input(context, 1, np.ones(1, "uint8")) == Errno.TOO_LARGE


def test_a_guest_has_only_so_many_handles(guest: Guest) -> None:
    name = guest.write(b"same", 16)
    for graph in range(GRAPHS_MAX):
        assert guest.handle("load_by_name", name, 4) == graph
    assert guest.call("load_by_name", name, 4, 0) == Errno.TOO_LARGE
    for context in range(CONTEXTS_MAX):
        assert guest.handle("init_execution_context", 0) == context
    assert guest.call("init_execution_context", 0, 0) == Errno.TOO_LARGE


def numbers(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<f4")


# GPT-2 ------------------------------------------------------------------------------------------------------------


def test_a_sequence_gives_the_logits_of_the_token_after_it(model: gt.llm.GPT2) -> None:
    execution = NextToken(model)
    # It grows, changes in the middle, shrinks, stays, and begins again.
    for tokens in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9, 4, 5, 6], [1, 2], [1, 2], [7], list(range(32))):
        logits, room = execution(np.array([tokens], "int32"))
        with gt.no_grad():
            wanted, _ = model(gt.tensor([tokens]))
        np.testing.assert_allclose(logits, wanted[0, -1].numpy(), rtol=1e-5, atol=1e-5)
        assert room.tolist() == [32 - len(tokens)]


def test_contexts_do_not_see_each_other(guest: Guest) -> None:
    one, other = guest.context("gpt2"), guest.context("gpt2")
    a, b = np.array([1, 2, 3], "int32"), np.array([4, 5, 6], "int32")
    first, second = numbers(guest.computed(one, a)), numbers(guest.computed(other, b))
    assert np.abs(first - second).max() > 1e-3
    # The last token alone is computed of a sequence that was seen: sums are rounded otherwise.
    np.testing.assert_allclose(numbers(guest.computed(one, a)), first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(numbers(guest.computed(other, b)), second, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0, "int32"),
        np.zeros(33, "int32"),
        np.array([-1], "int32"),
        np.array([256], "int64"),
        np.zeros(3, "float32"),
        np.zeros((2, 3), "int32"),
        np.zeros((), "int32"),
    ],
    ids=str,
)
def test_inputs_that_are_no_sequence_of_the_model(guest: Guest, array: np.ndarray) -> None:
    context = guest.context("gpt2")
    good = numbers(guest.computed(context, np.array([1, 2], "int32")))
    assert guest.set_input(context, 0, array) == Errno.SUCCESS
    assert guest.call("compute", context) == Errno.INVALID_ARGUMENT
    np.testing.assert_allclose(numbers(guest.computed(context, np.array([1, 2], "int32"))), good, rtol=1e-5, atol=1e-5)


# Programs ---------------------------------------------------------------------------------------------------------


def test_a_guest_s_text_is_the_model_s(model: gt.llm.GPT2, tmp_path: Path) -> None:
    wat = (FILES / "wasm" / "greedy.wat").read_bytes()
    assert run(wat, {"gpt2": model}, stdout=tmp_path / "text") == 0
    assert (tmp_path / "text").read_bytes() == bytes(gt.llm.generate(model, b"the", 12, temperature=0))
    assert run(wat, {}, stdout=tmp_path / "text") == Errno.NOT_FOUND


def program(body: str, memory: str = "1", more: str = "") -> bytes:
    exit_ = '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
    return f'(module {exit_} {more} (memory (export "memory") {memory}) (func (export "_start") {body}))'.encode()


FOREVER = "(loop $again (br $again))"
POLL = '(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))'


def test_a_guest_s_exit_status() -> None:
    assert run(program(""), {}) == 0
    assert run(program("(call $exit (i32.const 7))"), {}) == 7


def test_a_guest_that_loops_is_ended() -> None:
    limits = Limits(seconds=0.2)
    for guest in (program(FOREVER), f'(module (func $f {FOREVER}) (start $f) (func (export "_start")))'.encode()):
        with pytest.raises(GuestError, match=r"it ran for more than 0\.2 s"):
            run(guest, {}, limits=limits)


def test_a_guest_that_computes_in_a_loop_is_ended(model: gt.llm.GPT2) -> None:
    wat = (FILES / "wasm" / "greedy.wat").read_text().replace("(i32.const 14)", "(i32.const 0)")
    # The loop ends never, and the sequence stays as long as it is.
    wat = wat.replace("(br_if $next (i32.lt_u (local.get $length) (i32.const 0)))", "(br $next)")
    wat = wat.replace("(i32.store (i32.const 64) (i32.add (local.get $length) (i32.const 1)))", "")
    with pytest.raises(GuestError, match="it ran for more than"):
        run(wat.encode(), {"gpt2": model}, limits=Limits(seconds=0.5), stdout="/dev/null")


def test_a_guest_cannot_sleep() -> None:
    assert (
        run(program("(call $exit (call $poll (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))", more=POLL), {})
        == 58
    )


def test_a_guest_that_wants_too_much_memory_gets_none() -> None:
    limits = Limits(memory_bytes=1 << 20)
    with pytest.raises(GuestError, match="memory"):
        run(program("", memory="17"), {}, limits=limits)
    grows = "(call $exit (i32.eq (memory.grow (i32.const {})) (i32.const -1)))"
    assert run(program(grows.format(15)), {}, limits=limits) == 0
    assert run(program(grows.format(16)), {}, limits=limits) == 1
    assert run(program(grows.format(65535)), {}, limits=limits) == 1


def test_guests_that_cannot_be_run() -> None:
    shared = b'(module (memory (export "memory") 1 1 shared) (func (export "_start")))'
    several = b'(module (memory 1) (memory 1) (func (export "_start")))'
    for guest, why in (
        (b"\0asm", "cannot be run"),
        (b"no module", "cannot be run"),
        (b"(module)", "exports no function `_start`"),
        (b'(module (memory (export "_start") 1))', "exports no function `_start`"),
        (b'(module (import "env" "f" (func)) (func (export "_start")))', "unknown import: `env::f`"),
        (program("(unreachable)"), "the guest failed"),
        (program("(drop (i32.load (i32.const 65536)))"), "the guest failed"),
        (program("(call $f)", more="")[:-1] + b"(func $f (call $f)))", "the guest failed"),
        (shared, "threads"),
        (several, "memories|memory"),
        (bytes((16 << 20) + 1), "at most are compiled"),
    ):
        with pytest.raises(GuestError, match=why):
            run(guest, {})


def test_without_wasmtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(ImportError, match=r"pip install 'gt-tensor\[wasm\]'"):
        run(program(""), {})


# The example in C, and the command --------------------------------------------------------------------------------


@functools.cache
def zig() -> list[str]:
    """The command of zig: that of these tests' packages, or the one that `make dist` installed."""
    for python in (sys.executable, str(ROOT / ".venv-dist" / "bin" / "python")):
        command = [python, "-m", "ziglang"]
        if (
            shutil.which(python)
            and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
        ):
            return command
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: gt.llm.GPT2) -> Path:
    """A folder with a model, its tokenizer, and the compiled example."""
    if not zig():
        pytest.skip("the example in C is compiled by zig: pip install ziglang")
    folder = tmp_path_factory.mktemp("wasm")
    gt.llm.save(folder / "model.bin", model)
    gt.llm.write_tokenizer(folder / "letters.bin", LETTERS)
    source = ROOT / "examples" / "wasm" / "gpt2.c"
    flags = ["-target", "wasm32-wasi", "-O2", "-s", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*zig(), "cc", *flags, source, "-o", folder / "gpt2.wasm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "gpt2.wasm").stat().st_size < 300_000
    return folder


def command(module: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(words, cwd=folder, capture_output=True, timeout=120, check=False)


@pytest.fixture
def in_sandbox(folder: Path, model: gt.llm.GPT2, tmp_path: Path) -> Callable[..., bytes]:
    """Runs the compiled example, and returns its text."""

    def text(prompt: str, *options: object) -> bytes:
        arguments = ["gpt2", "gpt2", "letters.bin", prompt, *map(str, options)]
        guest = (folder / "gpt2.wasm").read_bytes()
        assert run(guest, {"gpt2": model}, arguments, folder, stdout=tmp_path / "text") == 0
        return (tmp_path / "text").read_bytes()

    return text


def sampled(model: gt.llm.GPT2, prompt: str, count: int, seed: int, *how: Any) -> bytes:
    gt.manual_seed(seed)
    return prompt.encode() + bytes(gt.llm.generate(model, LETTERS.encode(prompt) or [10], count, *how)) + b"\n"


@pytest.mark.parametrize("seed", [0, 7, 2**53])
@pytest.mark.parametrize(
    ("options", "how"),
    [
        ((), (1.0,)),
        (("-t", 0), (0.0,)),
        (("-t", 0.7), (0.7,)),
        (("-k", 1), (1.0, 1)),
        (("-k", 20), (1.0, 20)),
        (("-k", 1000), (1.0, 1000)),
        (("-p", 0.5), (1.0, None, 0.5)),
        (("-k", 50, "-p", 0.9, "-t", 1.5), (1.5, 50, 0.9)),
    ],
    ids=str,
)
def test_a_seed_gives_the_same_text_as_outside_the_sandbox(
    in_sandbox: Callable[..., bytes], model: gt.llm.GPT2, options: Sequence[object], how: Sequence[Any], seed: int
) -> None:
    text = in_sandbox("the cat", "-n", 15, "-s", seed, *options)
    assert text == sampled(model, "the cat", 15, seed, *how)
    greedy = how[0] == 0 or how[1:] == (1,)
    assert (text == sampled(model, "the cat", 15, seed + 1, *how)) == greedy


def test_text_without_a_prompt_and_up_to_the_end_of_the_context(
    in_sandbox: Callable[..., bytes], model: gt.llm.GPT2
) -> None:
    assert in_sandbox("", "-n", 5, "-s", 1) == sampled(model, "", 5, 1)
    assert in_sandbox("the cat", "-n", 500, "-s", 1) == sampled(model, "the cat", 500, 1)


def test_the_command_prints_what_gt_llm_sample_does(folder: Path) -> None:
    how = ("--folder", ".", "gpt2.wasm", "gpt2", "letters.bin")
    inside = command("gt.wasi_nn", "--graph", "gpt2=model.bin", *how, "Once", "-n", 9, "-s", 3, "-k", 40, folder=folder)
    options = ("--prompt", "Once", "-g", 9, "--seed", 3, "--top-k", 40)
    outside = command("gt.llm.sample", "-e", "model.bin", "-p", "letters.bin", *options, folder=folder)
    assert inside.stdout == outside.stdout != b""
    assert inside.returncode == outside.returncode == 0


def test_the_command_says_what_is_wrong(folder: Path) -> None:
    def errors(*arguments: object) -> str:
        done = command("gt.wasi_nn", *arguments, folder=folder)
        assert done.returncode == 1, done.stderr
        return done.stderr.decode()

    graph, run_ = ("--graph", "gpt2=model.bin"), ("gpt2.wasm", "gpt2", "letters.bin")
    assert "gpt3: not found" in errors(*graph, "--folder", ".", "gpt2.wasm", "gpt3", "letters.bin", "a")
    assert "letters.bin: the file cannot be opened" in errors(*graph, *run_, "a")
    assert "model.bin: it holds no tokenizer" in errors(*graph, "--folder", ".", "gpt2.wasm", "gpt2", "model.bin", "a")
    long = errors(*graph, "--folder", ".", *run_, 33 * "a")
    assert "compute: invalid argument" in long
    assert "1 to 32 fit the model's context" in long
    assert "does not hold a model" in errors("--graph", "gpt2=letters.bin", *run_, "a")
    assert "No such file" in errors(*graph, "nothing.wasm")
    (folder / "forever.wat").write_bytes(program(FOREVER))
    assert "it ran for more than 0.2 s" in errors("--seconds", 0.2, "forever.wat")
