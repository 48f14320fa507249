"""Runs a module as a program, and records the device on which GT computed in it.

python -m gpu_kit.on_device MODULE [ARGUMENT…]
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# The folder into which each process writes what it computed on.
FOLDER_VARIABLE = "GPU_KIT_DEVICES"


def computed_on() -> dict[str, Any]:
    """Computes something with GT, and returns which device did.

    Raises:
        RuntimeError: GT computes on no CUDA device here.
    """
    import gt

    if not gt.cuda.is_available():
        raise RuntimeError("GT computes on no CUDA device here")
    peak_bytes = gt.cuda.max_memory_allocated()
    total = gt.ones(1000, device="cuda").sum().item()
    if total != 1000:
        raise RuntimeError(f"the sum of 1,000 ones is {total}")
    return {
        "name": gt.cuda.get_device_name(),
        "capability": list(gt.cuda.get_device_capability()),
        "peak_bytes": peak_bytes,
    }


def record() -> None:
    """Writes the device of this process into the folder that the runner names."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        path = Path(folder, f"device-{os.getpid()}.json")
        path.write_text(json.dumps(computed_on()))


def main() -> None:
    """Runs the module that the first argument names."""
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    record()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
