"""The command line of `make parity`."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

import gt
from tests.parity import curve, encoder, names, report
from tests.parity.checks import Result, check

# Not what a program calls: internals of PyTorch's compiler and GPU kernels, and kinds of tensors that GT leaves out.
LEFT_OUT = ("jiterator_", "torch.ops.", "torch._", "to_sparse", "sparse.")


def run(only: list[str]) -> list[Result]:
    """Checks every operation, or those named."""
    results: dict[str, Result] = {}
    for op in op_db:
        if op.name.startswith(LEFT_OUT) or (only and op.name not in only):
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


def main() -> int:
    """Runs, prints, writes; the exit status tells whether an operation that GT has differs from PyTorch's."""
    parser = argparse.ArgumentParser(prog="make parity", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this operation; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="each difference, and what is not supported")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results, for another program")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the results into a page, between its marks")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.monotonic()
    results = run(arguments.only)
    for result in sorted(results, key=lambda result: (result.status, result.name)):
        if result.claimed or arguments.only:
            print(report.line(result))
        if arguments.verbose:
            for text in report.details(result):
                print(f"    {text}")
    good = not any(result.failures for result in results)
    if not arguments.only:
        print("absent:", " ".join(report.absent(results)))
        programs = [curve.follows(), encoder.agrees()]
        words = "\n\n".join(words for _, words in programs)
        print(words)
        good = good and all(agrees for agrees, _ in programs)
        if arguments.page:
            report.write_page(results, words, arguments.page)
    print(f"{report.summary(results)} {time.monotonic() - start:.0f} s.")
    if arguments.json:
        report.write_json(results, arguments.json)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
