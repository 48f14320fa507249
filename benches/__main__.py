"""`python -m benches`: measures all groups, prints one table, and with `--json` writes every sample to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benches import (
    cnn,
    collectives,
    functions,
    fused,
    fusion,
    gpt,
    gpu,
    harness,
    hot_paths,
    hot_spots,
    idle,
    issue,
    kernels,
    limited_links,
    llm,
    memory,
    nodes,
    observation,
    round_trip,
    sharing,
    startup,
    tcp,
    torch_worker,
    training,
    transfer,
    users,
    workers,
    written_parts,
)

GROUPS = {
    "issue": issue.rows,
    "functions": functions.rows,
    "hot_spots": hot_spots.rows,
    "hot_paths": hot_paths.rows,
    "round_trip": round_trip.rows,
    "kernels": kernels.rows,
    "fused": fused.rows,
    "fusion": fusion.rows,
    "written_parts": written_parts.rows,
    "training": training.rows,
    "gpt": gpt.rows,
    "llm": llm.rows,
    "cnn": cnn.rows,
    "gpu": gpu.rows,
    "collectives": collectives.rows,
    "workers": workers.rows,
    "torch_worker": torch_worker.rows,
    "nodes": nodes.rows,
    "limited_links": limited_links.rows,
    "memory": memory.rows,
    "observation": observation.rows,
    "transfer": transfer.rows,
    "tcp": tcp.rows,
    "startup": startup.rows,
    "idle": idle.rows,
    "sharing": sharing.rows,
    "users": users.share_rows,
    "freed": users.freed_rows,
}
# The table is wide. Without a terminal rich would wrap it at 80 columns.
COLUMNS = 150


def main() -> int:
    """Returns 1 if nothing or a row could not be measured, or with `--strict` if it missed a target."""
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a third of the rounds")
    parser.add_argument("--only", default="", metavar="NAME", help=f"one group of {', '.join(GROUPS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a target is missed")
    arguments = parser.parse_args()

    def keep(rows: list[harness.Row]) -> None:
        if arguments.json:
            harness.save(rows, arguments.json)

    rows = harness.run(GROUPS.items(), arguments.quick, arguments.only, keep)
    if not rows:
        print(f"nothing was measured: no group has {arguments.only} in its name, or this machine lacks what it needs")
        return 1
    console = Console()
    console = console if console.is_terminal else Console(width=COLUMNS)
    console.print(harness.table(rows))
    for row in rows:
        if row.failure:
            print(f"{row.what}: {row.failure}")
    if harness.LOAD_AT_START > harness.LOAD_MAX:
        print(f"the machine was busy (load {harness.LOAD_AT_START:.1f}): measure again when it is quiet")
    keep(rows)
    missed = [row for row in rows if row.failure or any(t.met(row.medians) is False for t in row.targets)]
    print(f"{len(rows) - len(missed)} of {len(rows)} rows meet their targets")
    return 1 if any(row.failure for row in rows) or (arguments.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
