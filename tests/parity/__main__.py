"""The command line of `make parity`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.parity import checks, curve, encoder, report, runner


def main() -> int:
    """Runs the checks and writes the report; returns 1 if an operation that GT has differs from PyTorch's."""
    parser = argparse.ArgumentParser(prog="make parity", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this operation; may be repeated")
    parser.add_argument("--verbose", action="store_true", help="each difference, and what is not supported")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results, for another program")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the results as a page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="by so many processes")
    arguments = parser.parse_args()

    runner.prepare()
    start = time.monotonic()

    def keep(results: list[checks.Result]) -> None:
        if arguments.json:
            report.write_json(results, arguments.json)

    results = runner.run_by(arguments.jobs, arguments.only, keep)
    for result in sorted(results, key=lambda result: (result.status, result.name)):
        if result.claimed or arguments.only:
            print(report.line(result))
        if arguments.verbose:
            for text in report.details(result):
                print(f"    {text}")
    good = not any(result.failures for result in results)
    if not arguments.only:
        print("absent:", " ".join(report.absent(results)))
        programs = [curve.follows()]
        if encoder.is_here():
            programs.append(encoder.agrees())
        else:
            print(f"The pretrained encoder was not compared: there is no {encoder.WEIGHTS} here.")
        words = "\n\n".join(words for _, words in programs)
        print(words)
        good = good and all(agrees for agrees, _ in programs)
        if arguments.page:
            report.write_page(results, words, arguments.page)
    print(f"{report.summary(results)} {time.monotonic() - start:.0f} s.")
    keep(results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
