"""The training curve of a GPT beside PyTorch's, which `make parity` compares as well."""

from __future__ import annotations

import sys

from tests.parity import curve


def main() -> int:
    """Returns 1 if the curves differ."""
    agrees, words = curve.follows()
    print(words)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
