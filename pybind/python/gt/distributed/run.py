"""`python -m torch.distributed.run [options] script.py [args]`, which `torchrun` is short for: runs the script once.

A program on GT is one process that uses all devices, however many processes the options ask for. The script finds
torchrun's variables: it is rank 0 of 1. To run it on several machines, start `python -m gt.launch` on each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

# Options with an argument that say how processes are started, watched and logged, of which there is one here.
_WITHOUT_EFFECT = (
    "rdzv-backend rdzv-endpoint rdzv-conf monitor-interval start-method event-log-handler log-dir local-addr "
    "logs-specs redirects tee log-line-prefix-template local-ranks-filter duplicate-stdout-filters "
    "duplicate-stderr-filters numa-binding signals-to-handle shutdown-timeout"
).split()
_SHORT = {"redirects": ["-r"], "tee": ["-t"]}


def _names(option: str) -> list[str]:
    """The ways to write an option."""
    return list(dict.fromkeys([*_SHORT.get(option, []), f"--{option}", f"--{option.replace('-', '_')}"]))


def _parser(module: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python -m torch.distributed.{module}",
        description="Runs a script once: its one process uses all devices of GT. The script is rank 0 of 1.",
        epilog="On several machines: start `python -m gt.launch script.py` on each, by torchrun, srun or mpirun.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(*_names("nnodes"), default="1", help="1, or a range from 1 on")
    add(
        *_names("nproc-per-node"),
        default="1",
        help="the number of processes that PyTorch would start; here there is one",
    )
    add(*_names("node-rank"), type=int, default=0, help="0")
    add(*_names("max-restarts"), type=int, default=0, help="has no effect: a script that fails is not started again")
    add(*_names("master-addr"), default="127.0.0.1", help="the variable MASTER_ADDR [%(default)s]")
    add(*_names("master-port"), type=int, default=29500, help="the variable MASTER_PORT [%(default)s]")
    add(*_names("rdzv-id"), default="none", help="the variable TORCHELASTIC_RUN_ID [%(default)s]")
    add(*_names("role"), default="default", help="the variable ROLE_NAME [%(default)s]")
    add("--standalone", action="store_true", help="has no effect: nobody else is met")
    add(*_names("virtual-local-rank"), action="store_true", help="has no effect")
    for option in _WITHOUT_EFFECT:
        add(*_names(option), help="has no effect")
    if module == "launch":
        add(*_names("use-env"), action="store_true", help="do not add --local-rank=0 to the script's arguments")
    add("-m", "--module", action="store_true", help="the script is a module's name")
    add(*_names("no-python"), action="store_true", help="the script is a program")
    add(*_names("run-path"), action="store_true", help="has no effect: scripts run that way")
    add("training_script", metavar="script", help="a path, or with -m a module's name")
    add("training_script_args", metavar="args", nargs=argparse.REMAINDER, help="the script's arguments")
    return parser


def main(args: Sequence[str] | None = None, module: str = "run") -> NoReturn:
    """Replaces this process by the script's.

    Args:
        args: The command line without the program's name; if not given, `sys.argv[1:]`.
        module: The module of `torch.distributed` that was called: `run` or `launch`.

    Raises:
        SystemExit: The options are wrong, or ask for further machines.
    """
    parser = _parser(module)
    options = parser.parse_args(args)
    least = options.nnodes.partition(":")[0]
    if least != "1" or options.node_rank != 0:
        parser.error(
            f"this would be node {options.node_rank} of {options.nnodes}, but a program on GT is one process that uses "
            "all machines: start `python -m gt.launch script.py` on each by PyTorch's torchrun, srun or mpirun"
        )
    if options.no_python and options.module:
        parser.error("--no-python and -m exclude each other")
    if options.nproc_per_node != "1":
        sys.stderr.write(
            f"{parser.prog}: --nproc-per-node {options.nproc_per_node}: the script runs once, and its one process uses "
            "all devices\n"
        )
    os.environ |= {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT"), "0"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), "1"),
        "ROLE_NAME": options.role,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": str(options.master_port),
        "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
        "TORCHELASTIC_RUN_ID": options.rdzv_id,
    }
    command = [options.training_script, *options.training_script_args]
    if module == "launch" and not options.use_env:
        command.append("--local-rank=0")
    if not options.no_python:
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [sys.executable, *flags, "-m", "gt.torch", *(["-m"] if options.module else []), *command]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        parser.exit(1, f"{parser.prog}: cannot start {command[0]}: {error.strerror}\n")


if __name__ == "__main__":
    main()
