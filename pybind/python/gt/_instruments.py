"""Captures the events of this process's session by `gtctl trace`, which reads the daemon's tape.

Start at `Capture`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gt import _gt

# A capture that nobody ends, seconds: the longest that `gtctl trace` takes.
CAPTURE_S_MAX = 3600
# The exit status of `gtctl` when the user has no right to what was asked.
NOT_PERMITTED = 4


def gtctl() -> Path:
    """The program `gtctl`, which lies beside the daemon's program."""
    return Path(_gt.find_gtd()).with_name("gtctl")


def socket() -> str:
    """The socket of this session's daemon.

    Raises:
        RuntimeError: The daemon is on another machine.
    """
    info = _gt.session_info()
    address = info["address"]
    if address.startswith("unix:"):
        return address.removeprefix("unix:")
    if address == "private":
        words = Path(f"/proc/{info['daemon_pid']}/cmdline").read_text().split("\0")
        return words[words.index("--name") + 1]
    raise RuntimeError(
        f"the daemon at {address} is reached by TCP, and its tape can be read on its own machine alone: "
        "run gtctl trace there"
    )


class Capture:
    """The events of this session from the creation of this object to `finish`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gt-capture-")
        session = str(_gt.session_info()["session_id"])
        words = ["--json", "--socket", socket(), "trace", "--session", session, "-s", str(CAPTURE_S_MAX)]
        words += ["-o", self._folder.name, "--format", "perfetto"]
        self._process = subprocess.Popen(
            [gtctl(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        if "captures for" not in self._process.stderr.readline():
            self.finish()

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ends the capture; returns what `gtctl trace` says of it, and the document of trace events.

        Raises:
            PermissionError: This user may not read the daemon's tape.
            RuntimeError: The capture failed for another reason.
        """
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            out, errors = self._process.communicate()
            if self._process.returncode != 0:
                said = json.loads(out)["error"]["text"] if out else errors.strip()
                kind = PermissionError if self._process.returncode == NOT_PERMITTED else RuntimeError
                raise kind(f"the daemon's tape cannot be captured: {said}")
            with (Path(self._folder.name) / "trace.json").open() as file:
                return json.loads(out), json.load(file)
        finally:
            self._folder.cleanup()
