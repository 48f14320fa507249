"""Starts a daemon in the foreground: `python -m gt.server -p 12345`.

The process becomes `gtd`, prints how to connect, and ends with Ctrl-C. Other arguments are passed to `gtd`:
`python -m gt.server -p 12345 --workers cpu:2`.
"""

from __future__ import annotations

import argparse
import os
import sys

from gt import _gt

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Replaces this process by `gtd`; returns only if it cannot be found."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.server",
        description="Runs a GT daemon in the foreground. Further options are gtd's, see gtd --help.",
        allow_abbrev=False,
    )
    parser.add_argument("-p", "--port", type=_port, help="listen by TCP, too, at this port of localhost; 0 takes any")
    parser.add_argument("--socket", help="the Unix socket [default: $GT_SOCKET, or an abstract name of the port's]")
    options, rest = parser.parse_known_args(arguments)
    socket = options.socket or os.environ.get("GT_SOCKET") or f"@gt-server-{options.port or os.getpid()}"
    command = ["gtd", "--announce", "--socket", socket]
    if options.port is not None:
        command += ["--listen", str(options.port)]
    try:
        program = _gt.find_gtd()
        sys.stdout.flush()
        os.execv(program, [*command, *rest])
    except (_gt.DisconnectedError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535 are")
    return int(text)


if __name__ == "__main__":
    main()
