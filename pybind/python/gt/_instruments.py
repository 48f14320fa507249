"""Runs `gtctl`, which reads the daemon's tape, for this process's session.

Start at `Capture`, which captures the session's events, and `Measurement`, which explains why the session is slow.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gt import _connection, _gt

# A capture that nobody ends, seconds: the longest that `gtctl` takes.
CAPTURE_S_MAX = 3600
# The exit status of `gtctl` when the user has no right to what was asked.
NOT_PERMITTED = 4


def gtctl() -> Path:
    """The program `gtctl`, which lies beside the daemon's program."""
    return Path(_gt.find_gtd()).with_name("gtctl")


def daemon_arguments() -> list[str]:
    """The arguments of `gtctl` that name this session's daemon."""
    info = _gt.session_info()
    address = info["address"]
    if address.startswith("unix:"):
        return ["--socket", address.removeprefix("unix:")]
    if address == "private":
        words = Path(f"/proc/{info['daemon_pid']}/cmdline").read_text().split("\0")
        return ["--socket", words[words.index("--name") + 1]]
    return ["--connect", address]


def _start(*words: str, stdin: int) -> subprocess.Popen[str]:
    """Starts `gtctl --json` for this session's daemon, and waits until it captures or has ended."""
    # A token that the program was given is not in the environment, and the arguments of a process are public.
    token = {} if _connection.token_given is None else {"GT_TOKEN": _connection.token_given}
    process = subprocess.Popen(
        [gtctl(), "--json", *daemon_arguments(), *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **token},
    )
    assert process.stderr is not None
    if "captures for" not in process.stderr.readline():
        _finished(process)
    return process


def _finished(process: subprocess.Popen[str], says: str | None = None) -> dict[str, Any]:
    """The document that `gtctl` prints at its end.

    Raises:
        PermissionError: This user may not see what the session does.
        RuntimeError: The capture failed for another reason.
    """
    out, errors = process.communicate(says)
    if process.returncode != 0:
        said = json.loads(out)["error"]["text"] if out else errors.strip()
        kind = PermissionError if process.returncode == NOT_PERMITTED else RuntimeError
        raise kind(f"the daemon's tape cannot be captured: {said}")
    return json.loads(out)


class Capture:
    """The events of this session from the creation of this object to `finish`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gt-capture-")
        session = str(_gt.session_info()["session_id"])
        words = ["trace", "--session", session, "-s", str(CAPTURE_S_MAX), "-o", self._folder.name]
        self._process = _start(*words, "--format", "perfetto", stdin=subprocess.DEVNULL)

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ends the capture; returns what `gtctl trace` says of it, and the document of trace events.

        Raises:
            PermissionError: This user may not see what the session does.
            RuntimeError: The capture failed for another reason.
        """
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            summary = _finished(self._process)
            with (Path(self._folder.name) / "trace.json").open() as file:
                return summary, json.load(file)
        finally:
            self._folder.cleanup()


class Measurement:
    """A measurement of this session from the creation of this object to `finish`, explained by `gtctl explain`."""

    def __init__(self, seconds: float | None = None) -> None:
        words = ["explain", str(_gt.session_info()["session_id"]), "--beside-program"]
        self._process = _start(*words, "-s", str(seconds or CAPTURE_S_MAX), stdin=subprocess.PIPE)

    def finish(self, begin_ns: int, end_ns: int) -> dict[str, Any]:
        """Ends the measurement of a block, whose times are on CLOCK_MONOTONIC; returns what `gtctl explain` says.

        Raises:
            RuntimeError: The measurement failed.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"begin_ns": begin_ns, "end_ns": end_ns}) + "\n")
            process.stdin.flush()
            asked = json.loads(process.stdout.readline() or "{}")
        except BrokenPipeError:
            asked = {}
        if "tensors" not in asked:
            return _finished(process)
        lines = _gt.lines_of(asked["tensors"])
        named = {tensor: f"{file}:{number} in {function}" for tensor, (file, number, function) in lines.items()}
        return _finished(process, json.dumps({"lines": named}) + "\n")
