"""Runs `gtctl` in place of a Python program."""

from __future__ import annotations

import os
import sys

from gt import _gt, _instruments


def become(command: str) -> None:
    """Replaces this process by `gtctl COMMAND` with the arguments of this program."""
    arguments = sys.argv[1:]
    sys.stdout.flush()
    try:
        os.execv(_instruments.gtctl(), ["gtctl", command, *arguments])
    except (_gt.DisconnectedError, OSError) as error:
        sys.exit(f"python -m gt.scripts.{command}: gtctl cannot be run: {error}")
