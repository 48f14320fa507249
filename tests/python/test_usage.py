"""`gtctl usage`: records of ended sessions, which outlive the daemon and its crashes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import daemon, environment, eventually, gtd, line_of, started

GTCTL = gtd().with_name("gtctl")
# A client that uploads 8,000 bytes, fetches 8,000 bytes, fails once and ends after a line of input.
CLIENT = """
import sys, numpy, gt
gt.session("work")
x = gt.tensor(numpy.ones(1000))
(x + 1).numpy()
try: gt.ones(5)[gt.tensor([7])].numpy()
except IndexError: pass
print("ready", flush=True)
sys.stdin.readline()
"""


def gtctl(socket: Path, *arguments: object, uid: int | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(GTCTL), "--socket", str(socket), *(str(argument) for argument in arguments)]
    who: Any = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False, **who)


def usage(socket: Path, *arguments: object) -> Any:
    done = gtctl(socket, "--json", "usage", *arguments)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def recorded(socket: Path, count: int) -> list[dict[str, Any]]:
    """Waits until `count` sessions are recorded."""
    return eventually(
        lambda: records if len(records := usage(socket, "--sessions")) == count else None, f"{count} records"
    )


def run(socket: Path, text: str = "") -> int:
    """Runs the client to its end; returns its process id."""
    with started(CLIENT, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "ready"
        client.communicate(text + "\n", timeout=60)
        return client.pid


def test_an_ended_session_has_a_record(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--state", str(tmp_path)):
        assert gtctl(socket, "usage").stdout == "no session has ended in that time\n"
        pid = run(socket)
        (record,) = recorded(socket, 1)
        assert (record["name"], record["uid"], record["pid"]) == ("work", os.getuid(), pid)
        assert record["end"] in ("it said goodbye", "it hung up", "its process has ended")
        assert record["errors"] == 1
        assert record["instructions"] > 5
        assert record["memory_bytes_peak"] >= 16_000
        assert 16_000 <= record["bytes_moved"] < 17_000
        assert record["device_s"] > 0
        assert 0 < record["ended"] - record["started"] < 600
        (total,) = usage(socket)
        assert (total["uid"], total["sessions"], total["bytes_moved"]) == (os.getuid(), 1, record["bytes_moved"])
        assert usage(socket, "--user", os.getuid(), "--since", "1h") == [total]
        assert usage(socket, "--user", 61_002) == []
        assert usage(socket, "--since", "2026-01-01") == [total]
        assert usage(socket, "--since", "9999-12-31") == []
        text = gtctl(socket, "usage", "--sessions").stdout.splitlines()
        assert text[0].split() == "STARTED USER PID NAME TIME DEVICE TIME PEAK INSTRUCTIONS MOVED ERRORS END".split()
        assert text[1].endswith(record["end"])
        (row,) = csv.DictReader(io.StringIO(gtctl(socket, "usage", "--sessions", "--csv").stdout))
        assert (int(row["pid"]), int(row["bytes_moved"]), row["name"]) == (pid, record["bytes_moved"], "work")
        (row,) = csv.DictReader(io.StringIO(gtctl(socket, "usage", "--csv").stdout))
        assert (int(row["uid"]), int(row["sessions"])) == (os.getuid(), 1)


def test_records_outlive_a_daemon_that_ends_and_one_that_crashes(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--state", str(tmp_path)) as process, started(CLIENT, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    with daemon(socket, "--state", str(tmp_path)) as process:
        assert [record["end"] for record in recorded(socket, 1)] == ["the daemon is ending"]
        assert not (tmp_path / "open_sessions.json").exists()
        with started(CLIENT, GT_SOCKET=str(socket)) as client:
            assert line_of(client) == "ready"
            written = lambda: (tmp_path / "open_sessions.json").exists()  # noqa: E731
            eventually(written, "the records of open sessions")
            # The first write may have been before the work was done.
            eventually(lambda: json.loads((tmp_path / "open_sessions.json").read_text())[0]["errors"], "the next write")
            process.kill()
            process.wait()
    for _ in range(2):
        with daemon(socket, "--state", str(tmp_path)):
            records = recorded(socket, 2)
            assert [record["end"] for record in records] == ["the daemon is ending", "the daemon crashed"]
            assert records[1]["bytes_moved"] >= 16_000
            assert usage(socket)[0]["sessions"] == 2


def test_records_are_bounded_and_can_be_off(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    text = "session_records: 2K\n"
    (tmp_path / "gtd.yaml").write_text(text)
    program = "import gt\nfor _ in range(20):\n    gt.ones(1).sum().item()\n    gt.disconnect()\n"
    with daemon(socket, "--state", str(tmp_path), "--config", str(tmp_path / "gtd.yaml")):
        with started(program, GT_SOCKET=str(socket)) as client:
            assert client.communicate(timeout=60) == ("", "")
        files = lambda: sorted(tmp_path.glob("sessions.*.jsonl"))  # noqa: E731
        eventually(lambda: len(files()) == 4, "as many files as may be")
        assert sum(file.stat().st_size for file in files()) <= 2048
        assert 0 < len(usage(socket, "--sessions")) < 20
    with daemon(socket, "--state", str(tmp_path), "--session-records", "0"):
        done = gtctl(socket, "usage")
        assert done.returncode == 1
        assert done.stderr.startswith("gtctl: this daemon keeps no records of sessions: start it with --state FOLDER")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_users_read_their_own_records_and_administrators_all(tmp_path: Path) -> None:
    ana, ben = 61_002, 61_003
    # The users may not be able to enter the folder of the test.
    socket = Path(f"@gtd-usage-{os.getpid()}")
    program = "import os, gt\ngt.tensor\nos.setgroups([]); os.setgid(UID); os.setuid(UID)\ngt.ones(3).sum().item()\n"
    with daemon(socket, "--state", str(tmp_path)):
        for uid in (ana, ana, ben):
            with started(program.replace("UID", str(uid)), GT_SOCKET=str(socket)) as client:
                assert client.communicate(timeout=60) == ("", "")
        recorded(socket, 3)
        assert [(total["uid"], total["sessions"]) for total in usage(socket)] == [(ana, 2), (ben, 1)]
        assert [total["uid"] for total in usage(socket, "--user", ben)] == [ben]
        for uid, sessions in ((ana, 2), (ben, 1), (61_004, 0)):
            for arguments in ([], ["--user", uid]):
                own = json.loads(gtctl(socket, "--json", "usage", *arguments, uid=uid).stdout)
                assert [(total["uid"], total["sessions"]) for total in own] == ([(uid, sessions)] if sessions else [])
        done = gtctl(socket, "usage", "--user", ana, uid=ben)
        assert done.returncode == 4
        assert "only administrators may read other users' records" in done.stderr
