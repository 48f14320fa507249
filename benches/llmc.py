"""llm.c's own program for the CPU, compiled from the checkout that `GT_LLMC` names: without one it is not measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

CHECKOUT = os.environ.get("GT_LLMC", "")
# The flags of llm.c's Makefile, where the compiler has OpenMP.
FLAGS = "-Ofast -march=native -fopenmp -DOMP -Wno-unused-result -Wno-ignored-pragmas -Wno-unknown-attributes".split()


def compiled(folder: Path) -> Path | None:
    """Returns the program, compiled into a folder; None if there is no checkout, which standard error then says."""
    if not CHECKOUT:
        print("llm.c is not measured: GT_LLMC names no checkout of it", file=sys.stderr)
        return None
    if not (Path(CHECKOUT) / "train_gpt2.c").is_file():
        raise FileNotFoundError(f"GT_LLMC={CHECKOUT} is no checkout of llm.c: it has no train_gpt2.c")
    source, program = Path(__file__).with_name("llmc_step.c"), folder / "llmc_step"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *FLAGS, f"-I{CHECKOUT}", source, "-lm", "-o", program], check=True)
    return program


class Program:
    """The running program, which makes a step when it is asked to.

    Args:
        program: The compiled program.
        model: The model's file.
        text: The tokens, int64, shape `(batch, length + 1)`.
    """

    def __init__(self, program: Path, model: Path, text: np.ndarray) -> None:
        """Starts the program."""
        tokens = program.with_name("tokens.bin")
        text.astype("<i4").tofile(tokens)
        command = [program, model, tokens, str(text.shape[0]), str(text.shape[1] - 1)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def step(self) -> tuple[float, float]:
        """Makes a step; returns the loss before it, and its seconds."""
        self.process.stdin.write("\n")
        for line in self.process.stdout:
            if found := re.fullmatch(r"step (\S+) (\S+)\n", line):
                return float(found[1]), float(found[2])
        raise RuntimeError(f"llm.c's program ended with status {self.process.wait()}")

    def peak_bytes(self) -> int:
        """Returns the most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def close(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()
