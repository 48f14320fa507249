"""The training curve of a GPT beside PyTorch's, which `make parity` compares as well."""

from __future__ import annotations

import sys

import gt
from gpu_kit.results import EMULATED_DEVICE
from tests.parity import curve

# The kernels of an emulated device run on one processor.
STEPS_REHEARSED = 2


def main() -> int:
    """Returns 1 if the curves differ."""
    if gt.cuda.get_device_name() == EMULATED_DEVICE:
        curve.STEPS = STEPS_REHEARSED
    agrees, words = curve.follows()
    print(words)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
