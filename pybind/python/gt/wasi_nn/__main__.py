"""Runs a guest of WebAssembly that computes with WASI-NN.

python -m gt.wasi_nn --graph gpt2=gpt2_124M.bin --folder . gpt2.wasm gpt2 gpt2_tokenizer.bin 'Once upon a time'
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from gt.llm.checkpoint import load
from gt.llm.files import FileError
from gt.wasi_nn.sandbox import GuestError, Limits, run


def _named(text: str) -> tuple[str, str]:
    name, separator, file = text.partition("=")
    if not (name and separator and file):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, file


def main() -> int:
    """Runs the program; returns the guest's exit status, or 1 with a message."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.wasi_nn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--graph",
        type=_named,
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a model of llm.c, or *.safetensors of Hugging Face, that the guest loads by this name",
    )
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="a folder whose files the guest may read, as `.`")
    parser.add_argument("--memory-mib", type=int, default=64, metavar="N", help="the most memory of the guest [64]")
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="the longest that the guest runs [60]")
    parser.add_argument("guest", type=Path, metavar="guest.wasm", help="the program, .wasm or .wat")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the guest's own arguments")
    given = parser.parse_args()
    logging.basicConfig(format="gt.wasi_nn: %(message)s")
    try:
        graphs = {name: load(file).eval() for name, file in given.graph}
        limits = Limits(memory_bytes=given.memory_mib << 20, seconds=given.seconds)
        return run(given.guest.read_bytes(), graphs, [given.guest.name, *given.arguments], given.folder, limits)
    except (FileError, GuestError, ImportError, OSError) as error:
        print(f"gt.wasi_nn: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
