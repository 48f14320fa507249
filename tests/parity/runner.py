"""The operations of a run, checked by several processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch.testing._internal.common_methods_invocations import op_db

import gt
from tests.parity import names
from tests.parity.checks import Result, check

# Operations that no program calls: internals of PyTorch's compiler and GPU kernels, and unsupported kinds of tensors.
LEFT_OUT = ("jiterator_", "torch.ops.", "torch._", "to_sparse", "sparse.")

# The number of operations that a process takes at a time.
NAMES_AT_ONCE = 8


def run(only: list[str]) -> list[Result]:
    """Checks the named operations."""
    results: dict[str, Result] = {}
    for op in op_db:
        if op.name.startswith(LEFT_OUT) or op.name not in only:
            continue
        result = results.setdefault(op.name, Result(op.name))
        result.claimed = names.claims(op.name)
        if not result.claimed:
            continue
        try:
            check(op, result)
        except gt.DisconnectedError:
            raise
        except Exception as error:
            result.fail("driver", f"{type(error).__name__}: {error}")
    return list(results.values())


def prepare() -> None:
    """Prepares a process: PyTorch on one thread, and no warnings."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def run_by(
    jobs: int, only: list[str], checked_so_far: Callable[[list[Result]], object] = lambda _: None
) -> list[Result]:
    """Runs the checks of the named operations, or of all, in several processes.

    `checked_so_far` is called after each few of them, so that a run that is ended early leaves what it found.
    """
    wanted = list(dict.fromkeys(op.name for op in op_db if not only or op.name in only))
    parts = [wanted[i : i + NAMES_AT_ONCE] for i in range(0, len(wanted), NAMES_AT_ONCE)]
    checked: list[Result] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=prepare) as processes:
        for results in processes.map(run, parts):
            checked += results
            checked_so_far(checked)
    return checked
