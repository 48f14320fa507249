"""Adds a worker to a running daemon: `python -m gt.worker --host localhost -p 12345`.

The process becomes `gtd worker`, prints the worker's name, and computes until Ctrl-C or the end of the daemon. Without
an address it joins the daemon that `import gt` would find.
"""

from __future__ import annotations

import argparse
import os
import sys

from gt import _gt

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Replaces this process by `gtd worker`; returns only if it cannot be found."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.worker",
        description="Runs one more worker of a GT daemon on this machine, until Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument("--connect", help="the daemon, as in unix:/run/gt/gtd.sock [default: as gt.connect finds it]")
    parser.add_argument("--host", help="where the daemon listens by TCP, which is this machine [default: localhost]")
    parser.add_argument("-p", "--port", type=int, help="the port at which the daemon listens by TCP")
    parser.add_argument("--device", help="what it computes on: cpu, or cuda:0 with the device's number [default: cpu]")
    parser.add_argument("--threads", help="threads that compute, on the processor [default: one a core]")
    parser.add_argument("--memory", help="bytes that its tensors may take, as in 8G [default: 3/4 of the machine's]")
    parser.add_argument("--name", help="what it is called, as in gtctl status [default: cpu:N, or the device]")
    options = parser.parse_args(arguments)
    if options.connect is not None and (options.host is not None or options.port is not None):
        parser.error("--connect says where the daemon is: leave --host and --port out")
    if options.host is not None and options.port is None:
        parser.error("--host needs the port: -p PORT")
    connect = options.connect
    if options.port is not None:
        host = options.host or "localhost"
        connect = f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"
    given = {
        "--connect": connect,
        "--device": options.device,
        "--threads": options.threads,
        "--memory": options.memory,
        "--name": options.name,
    }
    command = ["gtd", "worker", *(f"{name}={value}" for name, value in given.items() if value is not None)]
    try:
        program = _gt.find_gtd()
        sys.stdout.flush()
        os.execv(program, command)
    except (_gt.DisconnectedError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
