"""Adds a worker to a running daemon: `python -m gt.worker --host localhost -p 12345`.

The process becomes `gtd worker`, prints the worker's name, and computes until Ctrl-C or the end of the daemon. Without
an address it joins the daemon that `import gt` would find. With `--join`, and the line that `gtctl invite` prints on
another machine, it becomes `gtd node`, which runs workers of this machine for the daemon there.

With `--backend torch` the worker computes with the PyTorch of this Python, on any device that PyTorch has: `--device
cpu`, `cuda:0`, `hip:0` (AMD), `xpu:0` (Intel) or `mps` (Apple).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from gt import _gt

__all__ = ["main"]

# The kinds of devices that PyTorch has; AMD's are called `cuda` in PyTorch.
TORCH_DEVICES = ("cpu", "cuda", "hip", "mps", "xpu")


def torch_device(device: str) -> str:
    """Returns the name of a device of PyTorch as `gtd` knows it, such as `torch-cuda:0`.

    Raises:
        ValueError: The device is none of PyTorch's, or this Python has no PyTorch and GT_TORCH_PYTHON names no other.
    """
    kind, _, number = device.partition(":")
    is_number = number.isdecimal() or not (number or device.endswith(":"))
    if kind not in TORCH_DEVICES or not is_number or (kind in ("cpu", "mps") and ":" in device):
        raise ValueError(
            f"--device {device}: PyTorch computes on cpu, mps, or one of cuda, hip and xpu with the device's number, "
            "as in cuda:0"
        )
    if "GT_TORCH_PYTHON" not in os.environ and importlib.util.find_spec("torch") is None:
        raise ValueError(
            f"--backend torch: {sys.executable} has no PyTorch: install it there, as pip install 'gt-tensor[torch]' "
            "does"
        )
    return f"torch-{device}"


def main(arguments: list[str] | None = None) -> None:
    """Replaces this process by `gtd worker` or `gtd node`; returns only if it cannot be found."""
    parser = argparse.ArgumentParser(
        prog="python -m gt.worker",
        description="Runs one more worker of a GT daemon on this machine, or with --join workers for another, until "
        "Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--join",
        default=os.environ.get("GT_JOIN"),
        help="the line that gtctl invite prints on the daemon's machine, if that is another [default: $GT_JOIN]",
    )
    parser.add_argument("--workers", help="with --join: the workers, as in cpu:4 [default: one on each GPU, or cpu:1]")
    parser.add_argument(
        "--state", help="with --join: the folder of this machine's certificate [default: ~/.config/gt/node]"
    )
    parser.add_argument("--connect", help="the daemon, as in unix:/run/gt/gtd.sock [default: as gt.connect finds it]")
    parser.add_argument("--host", help="where the daemon listens by TCP, which is this machine [default: localhost]")
    parser.add_argument("-p", "--port", type=int, help="the port at which the daemon listens by TCP")
    parser.add_argument(
        "--backend",
        choices=("gt", "torch"),
        default="gt",
        help="what computes: GT's kernels, or PyTorch's by the PyTorch of this Python [default: gt]",
    )
    parser.add_argument(
        "--device",
        help="what it computes on: cpu, or cuda:0 with the device's number; with --backend torch also hip:0, xpu:0 and "
        "mps [default: cpu]",
    )
    parser.add_argument("--threads", help="threads that compute, on the processor [default: one a core]")
    parser.add_argument("--memory", help="bytes that its tensors may take, as in 8G [default: 3/4 of the machine's]")
    parser.add_argument("--name", help="what it is called, as in gtctl status [default: cpu:N, or the device]")
    options = parser.parse_args(arguments)
    elsewhere = [options.connect, options.host, options.port, options.device]
    if options.join is not None and any(value is not None for value in elsewhere):
        parser.error("--join says where the daemon is and runs --workers: leave --connect, --host, -p and --device out")
    if options.join is None and (options.workers is not None or options.state is not None):
        parser.error("--workers and --state are for a daemon on another machine: --join says which")
    if options.connect is not None and (options.host is not None or options.port is not None):
        parser.error("--connect says where the daemon is: leave --host and --port out")
    if options.host is not None and options.port is None:
        parser.error("--host needs the port: -p PORT")
    connect = options.connect
    if options.port is not None:
        host = options.host or "localhost"
        connect = f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"
    given = {
        "--workers": options.workers,
        "--state": options.state,
        "--connect": connect,
        "--device": options.device,
        "--threads": options.threads,
        "--memory": options.memory,
        "--name": options.name,
    }
    if options.backend == "torch":
        if options.join is not None:
            parser.error(
                "--backend is for a worker of a daemon on this machine: with --join write --workers torch-cpu:1"
            )
        try:
            given["--device"] = torch_device(options.device or "cpu")
        except ValueError as error:
            parser.exit(1, f"{parser.prog}: {error}\n")
        os.environ.setdefault("GT_TORCH_PYTHON", sys.executable)
    program = "worker" if options.join is None else "node"
    if options.join is None:
        # NCCL connects the devices of one machine by its loopback interface, as between the daemon's own workers.
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    else:
        # Other users can read a command line.
        os.environ["GT_JOIN"] = options.join
    command = ["gtd", program, *(f"{name}={value}" for name, value in given.items() if value is not None)]
    try:
        path = _gt.find_gtd()
        sys.stdout.flush()
        os.execv(path, command)
    except (_gt.DisconnectedError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
