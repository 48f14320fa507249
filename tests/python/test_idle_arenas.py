"""Arenas that a program no longer uses: they go back to the daemon while the program lives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support import daemon, environment, eventually, gtd, line_of, started

MIB = 1 << 20

# Fetches two tensors, keeps the array of the first, and waits.
IDLE = f"""
import sys, gt
kept = gt.full(({16 * MIB},), 2.0).numpy()
dropped = gt.ones({16 * MIB}).numpy()
print(float(kept[0] + dropped[-1]), flush=True)
del dropped
sys.stdin.readline()
print(float(kept[0]), gt.ones({24 * MIB}).numpy()[-1], flush=True)
del kept
sys.stdin.readline()
"""

# Fetches 128 MiB as soon as there is room for it.
OTHER = f"""
import time, gt
x = gt.ones({32 * MIB})
while True:
    try:
        print(x.numpy()[-1], flush=True)
        break
    except gt.OutOfMemoryError as error:
        print(error, flush=True)
        time.sleep(0.2)
"""


def test_an_idle_program_gives_its_arenas_back(tmp_path: Path) -> None:
    socket, file = tmp_path / "gtd.sock", tmp_path / "gtd.yaml"
    file.write_text("limits: {arena: 210M}\n")

    def arenas() -> int:
        words = [gtd().with_name("gtctl"), "--socket", socket, "limits", "--json"]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=True)
        return sum(user["arena_bytes"] for user in json.loads(done.stdout)["users"])

    with daemon(socket, "--config", str(file)), started(IDLE, GT_CONNECT=f"unix:{socket}") as idle:
        assert line_of(idle) == "3.0"
        assert arenas() >= 128 * MIB
        with started(OTHER, GT_CONNECT=f"unix:{socket}") as other:
            # Nobody asks the idle program for anything: it does not touch GT.
            first = line_of(other)
            assert first == "1.0" or "the session's arena is full" in first
            eventually(lambda: first == "1.0" or line_of(other) == "1.0", "room for the other program")
        eventually(lambda: 64 * MIB <= arenas() <= 66 * MIB, "the end of the other program")
        # The array that the idle program keeps is as it was, and it may fetch again.
        idle.stdin.write("\n")
        idle.stdin.flush()
        assert line_of(idle) == "2.0 1.0"
        # A small arena may stay.
        eventually(lambda: arenas() <= 2 * MIB, "the return of all that is idle")
