"""Runs a guest in wasmtime: with WASI-NN and the rest of WASI, within limits of memory and time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gt.llm.model import GPT2
from gt.wasi_nn.graphs import Function
from gt.wasi_nn.host import HELD_BYTES_MAX, WasiNN

MODULE_BYTES_MAX = 16 << 20
# The tables and functions in tables of a guest.
TABLES_MAX, TABLE_ELEMENTS_MAX = 16, 1 << 20
# WASI's number of "not supported".
WASI_NOT_SUPPORTED = 58


class GuestError(RuntimeError):
    """A guest that cannot be run, or was ended; the message says why."""


@dataclass(frozen=True)
class Limits:
    """The memory and time that a guest may use.

    Args:
        memory_bytes: The most bytes of its memory. A guest that begins with more is refused; one that asks for more
            later gets none.
        seconds: The longest time that it may run. A `compute` that has begun is finished before the guest ends.
        held_bytes: The memory that the host keeps for it at most: see `WasiNN`.
    """

    memory_bytes: int = 64 << 20
    seconds: float = 60.0
    held_bytes: int = HELD_BYTES_MAX


def run(
    guest: bytes,
    graphs: Mapping[str, GPT2 | Function],
    arguments: Sequence[str] = (),
    folder: str | Path | None = None,
    limits: Limits | None = None,
    stdout: str | Path | None = None,
) -> int:
    """Runs a guest's `_start`, and returns its exit status.

    The guest can write to standard output and to standard error, read the folder, and compute the graphs. It has no
    standard input, environment, network, threads or sleep.

    Args:
        guest: A WebAssembly module, binary or as text.
        graphs: The graphs by the names that the guest loads them by, as for `WasiNN`.
        arguments: The guest's arguments, of which the first is its own name.
        folder: A folder of which the guest may read the files, as `.`.
        limits: What the guest may use.
        stdout: A file for its standard output.

    Raises:
        GuestError: It is no guest that can be run, it failed, or it exceeded a limit.
        ImportError: wasmtime is not installed.
    """
    try:
        import wasmtime
    except ImportError:
        raise ImportError("guests run in wasmtime, which is not installed: pip install 'gt-tensor[wasm]'") from None
    limits = limits or Limits()
    if len(guest) > MODULE_BYTES_MAX:
        raise GuestError(f"the guest has {len(guest):,} bytes, but {MODULE_BYTES_MAX:,} at most are compiled")
    configuration = wasmtime.Config()
    configuration.epoch_interruption = True
    # Their memory would escape the limit, and their waiting the time.
    configuration.wasm_threads = False
    configuration.wasm_gc = False
    engine = wasmtime.Engine(configuration)
    store = wasmtime.Store(engine)
    store.set_limits(limits.memory_bytes, TABLE_ELEMENTS_MAX, instances=1, tables=TABLES_MAX, memories=1)
    store.set_epoch_deadline(1)
    wasi = wasmtime.WasiConfig()
    wasi.argv = list(arguments)
    wasi.inherit_stderr()
    if stdout is None:
        sys.stdout.flush()
        wasi.inherit_stdout()
    else:
        wasi.stdout_file = str(stdout)
    if folder is not None:
        wasi.preopen_dir(str(folder), ".", fs_mutable=False)
    store.set_wasi(wasi)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    # A guest that sleeps in the host could not be interrupted.
    linker.allow_shadowing = True
    four = wasmtime.FuncType([wasmtime.ValType.i32()] * 4, [wasmtime.ValType.i32()])
    linker.define_func("wasi_snapshot_preview1", "poll_oneoff", four, lambda *_: WASI_NOT_SUPPORTED)
    WasiNN(graphs, limits.held_bytes).define(linker)

    timer = threading.Timer(limits.seconds, engine.increment_epoch)
    timer.daemon = True
    try:
        module = wasmtime.Module(engine, guest)
        timer.start()
        start = linker.instantiate(store, module).exports(store).get("_start")
        if not isinstance(start, wasmtime.Func):
            raise GuestError("the guest exports no function `_start`: compile it as a program, not as a library")
        start(store)
    except wasmtime.ExitTrap as ended:
        return ended.code
    except wasmtime.Trap as trap:
        if trap.trap_code == wasmtime.TrapCode.INTERRUPT:
            raise GuestError(f"the guest was ended: it ran for more than {limits.seconds:g} s") from None
        raise GuestError(f"the guest failed: {trap.message}") from None
    except wasmtime.WasmtimeError as error:
        raise GuestError(f"the guest cannot be run: {error}") from None
    finally:
        timer.cancel()
    return 0
