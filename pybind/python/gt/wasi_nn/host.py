"""The functions of the module `wasi_ephemeral_nn`, as wasmtime's `crates/wasi-nn/witx/wasi-nn.witx` declares them.

A guest is trusted in nothing: every pointer, length, handle and number is checked before it is used, and everything
that goes wrong is an `Errno` for the guest and a line in the log of the host.
"""

from __future__ import annotations

import enum
import io
import logging
import math
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gt.llm.checkpoint import VERSIONS, read_open_model
from gt.llm.files import MODEL, FileError, check_header
from gt.llm.model import GPT2
from gt.wasi_nn.graphs import Function, InputError, execution_bytes, new_execution

if TYPE_CHECKING:
    import wasmtime

MODULE = "wasi_ephemeral_nn"
# The handles that a guest may have; nothing in the interface closes one.
GRAPHS_MAX = 16
CONTEXTS_MAX = 16
# The inputs of a context, and the dimensions of an input.
INPUTS_MAX = 16
DIMENSIONS_MAX = 8
# The memory that the host keeps for a guest: graphs that it loaded, keys and values of its contexts, inputs, outputs.
HELD_BYTES_MAX = 1 << 30
# The sizes of a model that a guest gives as bytes: a few bytes can tell of many layers, and of a long context.
GUEST_LAYERS_MAX, GUEST_CONTEXT_MAX = 256, 8192

# An offset in the guest's memory, and a length: the ABI's `list`.
LIST = struct.Struct("<II")
# The record `tensor`: dimensions (a list), type, data (a list).
TENSOR = struct.Struct("<IIBxxxII")
U32 = struct.Struct("<I")

# The dtypes by their numbers of `tensor_type`.
TENSOR_TYPES = [np.dtype(name) for name in ("<f2", "<f4", "<f8", "u1", "<i4", "<i8")]
# The number of `graph_encoding` that llm.c's files go by, the number of encodings, and the number of execution targets.
AUTODETECT, ENCODINGS, TARGETS = 5, 6, 3

log = logging.getLogger("gt.wasi_nn")


class Errno(enum.IntEnum):
    """The numbers of `nn_errno`. The host returns all but `BUSY` and `UNSUPPORTED_OPERATION`."""

    SUCCESS = 0
    INVALID_ARGUMENT = 1
    INVALID_ENCODING = 2
    MISSING_MEMORY = 3
    BUSY = 4
    RUNTIME_ERROR = 5
    UNSUPPORTED_OPERATION = 6
    TOO_LARGE = 7
    NOT_FOUND = 8


class CallError(Exception):
    """A call that fails: the guest gets the number, the log the reason."""

    def __init__(self, errno: Errno, reason: str) -> None:
        super().__init__(reason)
        self.errno = errno


class GuestMemory:
    """The exported memory of the guest that calls; offsets and sizes are numbers that the guest chose."""

    def __init__(self, caller: wasmtime.Caller) -> None:
        from wasmtime import Memory

        memory = caller.get("memory")
        if not isinstance(memory, Memory):
            raise CallError(Errno.MISSING_MEMORY, "the guest exports no memory of the name `memory`")
        self._caller, self._memory = caller, memory

    def check(self, offset: int, size: int) -> None:
        """Raises an error unless the bytes are in the memory."""
        length = self._memory.data_len(self._caller)
        if offset + size > length:
            raise CallError(
                Errno.INVALID_ARGUMENT,
                f"{size:,} bytes at {offset:,} are not in the guest's memory, which has {length:,}",
            )

    def read(self, offset: int, size: int) -> bytes:
        """Returns a copy of the bytes, which the guest cannot change any more."""
        self.check(offset, size)
        return bytes(self._memory.read(self._caller, offset, offset + size))

    def write(self, offset: int, data: bytes) -> None:
        """Writes the bytes."""
        self.check(offset, len(data))
        if data:
            self._memory.write(self._caller, data, offset)


class Context:
    """An execution context: a function, the inputs set so far, and the outputs of a `compute` that succeeded."""

    def __init__(self, graph: GPT2 | Function) -> None:
        self.function, self.own_bytes = new_execution(graph), execution_bytes(graph)
        self.inputs: dict[int, np.ndarray] = {}
        self.outputs: list[np.ndarray] | None = None

    @property
    def held_bytes(self) -> int:
        """The memory that the host keeps for it."""
        return self.own_bytes + sum(array.nbytes for array in [*self.inputs.values(), *(self.outputs or [])])


class WasiNN:
    """The functions of WASI-NN for one guest, with its handles.

    Args:
        graphs: The graphs that the guest loads by name: models, or functions of tensors that return one or several.
            Guests that are given the same graphs share their weights.
        held_bytes_max: The memory that the host keeps for the guest at most: graphs that it gave as bytes, keys and
            values of its contexts, inputs and outputs.

    Example:
        >>> import gt.wasi_nn
        >>> nn = gt.wasi_nn.WasiNN({"double": lambda x: 2 * x})
        >>> sorted(nn.graphs)
        ['double']
    """

    def __init__(self, graphs: Mapping[str, GPT2 | Function], held_bytes_max: int = HELD_BYTES_MAX) -> None:
        self.graphs, self.held_bytes_max = graphs, held_bytes_max
        self._loaded: list[GPT2 | Function] = []
        self._contexts: list[Context] = []
        # The size of the graphs that the guest gave as bytes.
        self._loaded_bytes = 0

    def define(self, linker: wasmtime.Linker) -> None:
        """Defines the functions in a linker, for one guest."""
        from wasmtime import FuncType, ValType

        functions: list[tuple[Callable[..., None], int]] = [
            (self.load, 5),
            (self.load_by_name, 3),
            (self.init_execution_context, 2),
            (self.set_input, 3),
            (self.compute, 1),
            (self.get_output, 5),
        ]
        for function, count in functions:
            kind = FuncType([ValType.i32()] * count, [ValType.i32()])
            linker.define_func(MODULE, function.__name__, kind, _entry(function), access_caller=True)

    def load(self, memory: GuestMemory, parts: int, count: int, encoding: int, target: int, result: int) -> None:
        """Makes a graph of the bytes of a model file of llm.c, and writes its handle."""
        if encoding >= ENCODINGS or target >= TARGETS:
            raise CallError(Errno.INVALID_ARGUMENT, f"encoding {encoding} or target {target} is not in the interface")
        if encoding != AUTODETECT:
            raise CallError(
                Errno.INVALID_ENCODING, f"encoding {encoding}: model files of llm.c are loaded, by autodetect"
            )
        if count != 1:
            raise CallError(Errno.INVALID_ARGUMENT, f"a model file is one part, not {count:,}")
        memory.check(result, U32.size)
        offset, size = LIST.unpack(memory.read(parts, LIST.size))
        memory.check(offset, size)
        self._check_held(size)
        data, name = memory.read(offset, size), "the guest's graph"
        try:
            header = check_header(data, name, MODEL, VERSIONS)
            if header[2] > GUEST_CONTEXT_MAX or header[4] > GUEST_LAYERS_MAX:
                raise CallError(
                    Errno.TOO_LARGE,
                    f"{name} has {header[4]:,} layers and a context of {header[2]:,} tokens, but a guest may load "
                    f"{GUEST_LAYERS_MAX:,} and {GUEST_CONTEXT_MAX:,}",
                )
            graph = read_open_model(io.BytesIO(data), size, name)
        except FileError as error:
            raise CallError(Errno.INVALID_ENCODING, str(error)) from None
        self._new_graph(memory, graph, result)
        self._loaded_bytes += size

    def load_by_name(self, memory: GuestMemory, name: int, size: int, result: int) -> None:
        """Finds a graph that the host registered, and writes its handle."""
        memory.check(result, U32.size)
        given = memory.read(name, size)
        graph = self.graphs.get(given.decode("utf-8", "replace"))
        if graph is None:
            raise CallError(
                Errno.NOT_FOUND, f"there is no graph {given[:80]!r}; there are {', '.join(self.graphs) or 'none'}"
            )
        self._new_graph(memory, graph, result)

    def init_execution_context(self, memory: GuestMemory, graph: int, result: int) -> None:
        """Makes a context in which a graph is computed, and writes its handle."""
        memory.check(result, U32.size)
        if graph >= len(self._loaded):
            raise CallError(Errno.INVALID_ARGUMENT, f"{graph} is no handle of a graph")
        if len(self._contexts) == CONTEXTS_MAX:
            raise CallError(Errno.TOO_LARGE, f"a guest has {CONTEXTS_MAX} contexts at most")
        self._check_held(execution_bytes(self._loaded[graph]))
        self._contexts.append(Context(self._loaded[graph]))
        memory.write(result, U32.pack(len(self._contexts) - 1))

    def set_input(self, memory: GuestMemory, context: int, index: int, tensor: int) -> None:
        """Copies an input out of the guest's memory."""
        found = self._context(context)
        if index >= INPUTS_MAX:
            raise CallError(Errno.INVALID_ARGUMENT, f"input {index}: a graph has {INPUTS_MAX} inputs at most")
        dimensions, rank, kind, data, size = TENSOR.unpack(memory.read(tensor, TENSOR.size))
        if rank > DIMENSIONS_MAX or kind >= len(TENSOR_TYPES):
            raise CallError(
                Errno.INVALID_ARGUMENT, f"a tensor of type {kind} with {rank:,} dimensions is not supported"
            )
        shape = struct.unpack(f"<{rank}I", memory.read(dimensions, 4 * rank))
        dtype = TENSOR_TYPES[kind]
        if math.prod(shape) * dtype.itemsize != size:
            raise CallError(Errno.INVALID_ARGUMENT, f"{size:,} bytes are no tensor of shape {shape} and dtype {dtype}")
        self._check_held(size - (found.inputs[index].nbytes if index in found.inputs else 0))
        # NumPy wants a buffer also for an array of no elements.
        found.inputs[index] = np.ndarray(shape, dtype, memory.read(data, size) or bytes(dtype.itemsize))

    def compute(self, _: GuestMemory, context: int) -> None:
        """Computes the outputs, and waits for them."""
        found = self._context(context)
        found.outputs = None
        if set(found.inputs) != set(range(len(found.inputs))):
            raise CallError(
                Errno.INVALID_ARGUMENT, f"inputs {sorted(found.inputs)} are set, but not all before the last"
            )
        try:
            outputs = found.function(*(found.inputs[index] for index in sorted(found.inputs)))
        except InputError as error:
            raise CallError(Errno.INVALID_ARGUMENT, str(error)) from None
        for array in outputs:
            if array.dtype not in TENSOR_TYPES:
                raise CallError(Errno.RUNTIME_ERROR, f"the graph made {array.dtype}, for which WASI-NN has no type")
        self._check_held(sum(array.nbytes for array in outputs))
        found.outputs = outputs

    def get_output(self, memory: GuestMemory, context: int, index: int, buffer: int, room: int, result: int) -> None:
        """Copies an output to the guest's buffer, and writes its size in bytes."""
        found = self._context(context)
        memory.check(result, U32.size)
        memory.check(buffer, room)
        if found.outputs is None:
            raise CallError(Errno.RUNTIME_ERROR, "there are no outputs: `compute` was not called, or failed")
        if index >= len(found.outputs):
            raise CallError(Errno.INVALID_ARGUMENT, f"output {index}: the graph has {len(found.outputs)}")
        data = found.outputs[index].tobytes()
        if len(data) > room:
            raise CallError(Errno.TOO_LARGE, f"output {index} has {len(data):,} bytes, but the buffer has {room:,}")
        memory.write(buffer, data)
        memory.write(result, U32.pack(len(data)))

    def _context(self, handle: int) -> Context:
        if handle >= len(self._contexts):
            raise CallError(Errno.INVALID_ARGUMENT, f"{handle} is no handle of a context")
        return self._contexts[handle]

    def _new_graph(self, memory: GuestMemory, graph: GPT2 | Function, result: int) -> None:
        if len(self._loaded) == GRAPHS_MAX:
            raise CallError(Errno.TOO_LARGE, f"a guest has {GRAPHS_MAX} graphs at most")
        self._loaded.append(graph)
        memory.write(result, U32.pack(len(self._loaded) - 1))

    def _check_held(self, more: int) -> None:
        """Raises an error if so many more bytes are too many."""
        held = self._loaded_bytes + sum(context.held_bytes for context in self._contexts)
        if held + more > self.held_bytes_max:
            raise CallError(
                Errno.TOO_LARGE,
                f"the host keeps {self.held_bytes_max:,} bytes for a guest, but {held + more:,} are needed",
            )


def _entry(function: Callable[..., None]) -> Callable[..., int]:
    """Returns the function as wasmtime calls it, with an error number in place of an exception."""

    def call(caller: wasmtime.Caller, *arguments: int) -> int:
        try:
            # wasmtime gives 32-bit numbers with their sign; all numbers of the interface are without.
            function(GuestMemory(caller), *(number & 0xFFFF_FFFF for number in arguments))
        except CallError as error:
            log.warning("%s: %s: %s", function.__name__, error.errno.name, error)
            return error.errno
        except Exception:
            log.exception("%s failed", function.__name__)
            return Errno.RUNTIME_ERROR
        return Errno.SUCCESS

    return call
