"""WASI-NN for guests in WebAssembly: programs in a sandbox of wasmtime compute with GT.

`run` runs a guest within limits; `WasiNN` adds the functions to a `wasmtime.Linker` of your own. `python -m gt.wasi_nn`
is the command. It needs the package `wasmtime`: `pip install 'gt-tensor[wasm]'`.
"""

from __future__ import annotations

from gt.wasi_nn.graphs import Function, InputError, NextToken
from gt.wasi_nn.host import Errno, WasiNN
from gt.wasi_nn.sandbox import GuestError, Limits, run

__all__ = ["Errno", "Function", "GuestError", "InputError", "Limits", "NextToken", "WasiNN", "run"]
