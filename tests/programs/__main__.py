"""The command line of `make test-programs`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.programs import page, runner


def main() -> int:
    """Runs the programs; returns 1 if one of them fails in GT or gives other results."""
    parser = argparse.ArgumentParser(prog="make test-programs", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="programs with this in their name")
    parser.add_argument("--quick", action="store_true", help="the few that `make test` runs")
    parser.add_argument("--untimed", action="store_true", help="compare results alone")
    parser.add_argument("--verbose", action="store_true", help="what programs print, and the largest differences")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes, for another program")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the table as a page")
    arguments = parser.parse_args()

    outcomes = []
    with runner.Pair(sys.stderr if arguments.verbose else runner.QUIET) as pair:
        for program in runner.chosen(arguments.only, arguments.quick):
            outcome = runner.run(program, not arguments.untimed, pair)
            outcomes.append(outcome)
            print(runner.line(outcome), flush=True)
            if arguments.verbose:
                for name, difference in sorted(outcome.differences.items(), key=lambda item: -item[1])[:8]:
                    print(f"    {difference:.1e} {name}")
            # After each program, so that a run that is interrupted leaves what it has found.
            if arguments.json:
                runner.save(outcomes, arguments.json)
            if arguments.page:
                arguments.page.parent.mkdir(parents=True, exist_ok=True)
                page.write(outcomes, arguments.page)
    print(runner.summary(outcomes))
    return 1 if any(outcome.status in ("differs", "fails") for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
