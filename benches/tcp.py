"""Uploads and downloads by TCP with TLS, beside the same without, to one daemon on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gt
from benches.harness import Row, Target

TOKEN = "bench-token-0123456789"
# A client, which makes a transfer for each line that it reads, and answers with the seconds.
CLIENT = """
import sys, time
import numpy as np
import gt
source = np.ones(100_000_000 // 4, np.float32)
there = gt.from_numpy(source)
for line in sys.stdin:
    start = time.perf_counter()
    if line == "up\\n":
        # Fetching an element waits until the daemon has the whole array.
        assert gt.from_numpy(source)[-1].item() == 1.0
    else:
        assert there.numpy()[-1] == 1.0
    print(time.perf_counter() - start, flush=True)
"""


def _client(address: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "GT_CONNECT": address, "GT_TOKEN": TOKEN}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", CLIENT], env=environment, stdin=pipe, stdout=pipe, text=True)


def _seconds(client: subprocess.Popen[str], what: str) -> float:
    assert client.stdin
    assert client.stdout
    client.stdin.write(f"{what}\n")
    client.stdin.flush()
    return float(client.stdout.readline())


def rows() -> Iterator[Row]:
    """Yields the rows of an upload and a download."""
    gtd = Path(gt._gt.find_gtd())
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/gtd.sock"
        command = [gtd, "--announce", "--socket", socket, "--state", folder, "--listen", "0"]
        environment = {**os.environ, "GT_TOKEN": TOKEN}
        daemon = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert daemon.stdout
        while "token" not in daemon.stdout.readline():
            pass
        status = subprocess.run(
            [gtd.with_name("gtctl"), "status", "--json", "--socket", socket], check=True, capture_output=True, text=True
        )
        tcp = json.loads(status.stdout)["tcp"]
        clients = [_client(address) for address in (f"tls://{tcp['address']}#{tcp['fingerprint']}", tcp["address"])]
        tls, plain = clients
        for what in ("up", "down"):
            yield Row(
                f"100 MB {what} by TCP with TLS; bare: without TLS",
                {"GT": lambda what=what: _seconds(tls, what), "bare": lambda what=what: _seconds(plain, what)},
                (Target(0.4, "bare", speed=True),),
            )
        for process in (*clients, daemon):
            process.kill()
            process.communicate()
