"""Runs `gtctl`, which lies beside the daemon's program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gt import _gt


def become(command: str) -> None:
    """Replaces this process by `gtctl COMMAND` with the arguments of this program."""
    arguments = sys.argv[1:]
    sys.stdout.flush()
    try:
        gtctl = Path(_gt.find_gtd()).with_name("gtctl")
        os.execv(gtctl, ["gtctl", command, *arguments])
    except (_gt.DisconnectedError, OSError) as error:
        sys.exit(f"python -m gt.scripts.{command}: gtctl cannot be run: {error}")
