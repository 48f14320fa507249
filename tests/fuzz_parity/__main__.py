"""The command line of `make fuzz-parity`."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch

import gt
from gt import _gt
from tests.fuzz_parity import condition, generate, outcome
from tests.fuzz_parity.shrink import as_program, shrunk

CORPUS = Path(__file__).with_name("corpus.jsonl")
FAILURES_MAX = 20


def difference(lines: list[str], well_conditioned: bool = False) -> str | None:
    """The first difference between the frameworks in a program; None where PyTorch raises before the last line, or an
    error about memory. Results may differ as far as rounding determines them, unless they are to be `well_conditioned`.
    """
    expected = outcome.run(lines, torch)
    if expected.get("line", len(lines) - 1) != len(lines) - 1 or generate.is_about_memory(expected.get("text", "")):
        return None
    found = outcome.run(lines, gt)
    text = outcome.difference(expected, found)
    if text is None or well_conditioned:
        return text
    return outcome.difference(expected, found, condition.spread(lines))


def corpus(seeds: Iterable[int], count: int) -> str:
    """The first programs on which the frameworks agree, with PyTorch's outcomes, a line of JSON each."""
    programs = ((seed, generate.program(seed)) for seed in seeds)
    agreeing = ((seed, lines) for seed, lines in programs if difference(lines, True) is None)
    entries = (
        {"seed": seed, "lines": lines, "outcome": outcome.run(lines, torch)}
        for seed, lines in itertools.islice(agreeing, count)
    )
    return "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)


def main() -> int:
    """Runs programs for a time; returns 1 if one differs."""
    parser = argparse.ArgumentParser(prog="make fuzz-parity", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, metavar="N", help="how long; 60 if not given")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first program's seed")
    parser.add_argument("--only", type=int, metavar="SEED", help="run and print the program of this seed alone")
    parser.add_argument("--small", action="store_true", help="no numbers at or beyond the ends of dtypes")
    parser.add_argument("--failures", type=int, default=FAILURES_MAX, metavar="N", help="stop after so many failures")
    parser.add_argument("--write-corpus", type=int, metavar="N", help="write N programs to the corpus")
    arguments = parser.parse_args()

    # As in a program that `python -m gt.torch` runs.
    _gt.set_leaf_updates(False)
    if arguments.write_corpus:
        CORPUS.write_text(corpus(itertools.count(arguments.seed), arguments.write_corpus))
        return 0
    if arguments.only is not None:
        lines = generate.program(arguments.only, shares_arrays=not gt.cuda.is_available())
        print(as_program(lines), "\n#", difference(lines) or "no difference")
        return 0
    scalars = generate.SMALL if arguments.small else generate.SCALARS
    deadline = time.monotonic() + 60 * arguments.minutes
    seed, failures, known = arguments.seed, 0, set()
    while time.monotonic() < deadline and failures < arguments.failures:
        lines = generate.program(seed, scalars, shares_arrays=not gt.cuda.is_available())
        if difference(lines):
            lines = shrunk(lines, lambda smaller: difference(smaller) is not None)
            text = difference(lines)
            failures += as_program(lines) not in known
            known.add(as_program(lines))
            print(f"# seed {seed}: {text}\n{as_program(lines)}\n", flush=True)
        seed += 1
    print(f"{seed - arguments.seed} programs from seed {arguments.seed}, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
