"""`gtctl top`: through a pseudo-terminal, once, and as JSON whose totals are those of the tape."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import DEADLINE_S, daemon, environment, eventually, gtd, line_of, started

GTCTL = gtd().with_name("gtctl")
WORKLOAD = """
import sys, gt
gt.session(name="a-known-name")
a = gt.ones(64, 64)
for i in range(100): a = (a @ a) * 1e-2 + 1
print(a.sum().item() > 0, flush=True)
sys.stdin.readline()
"""
HEAVY = """
import sys, gt
x = gt.ones(4000, 4000)
y = x @ x
print("issued", flush=True)
for _ in range(50): y = y @ x
sys.stdin.readline()
"""


class Terminal:
    """The screen of a program on a pseudo-terminal: enough of one for what `gtctl top` writes."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, columns: int, rows: int) -> None:
        self.process, self.master = process, master
        self.pending = ""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def lines(self) -> list[str]:
        return ["".join(row) for row in self.cells]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def shows(self, condition: Callable[[list[str]], Any], what: str) -> Any:
        """Reads until the condition holds for the lines of the screen; returns its value."""
        end = time.monotonic() + DEADLINE_S
        while not (value := condition(self.lines())):
            ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
            assert ready, what + "\n" + "\n".join(self.lines())
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:  # The program has ended.
                data = b""
            assert data, what + "\n" + "\n".join(self.lines())
            self.write(data.decode(errors="ignore"))
        return value

    def write(self, text: str) -> None:
        text = self.pending + text
        self.pending = ""
        while text:
            if text[0] != "\x1b":
                self.put(text[0])
                text = text[1:]
                continue
            found = re.match(r"\x1b\[[?]?([\d;]*)([A-Za-z])", text)
            if not found:
                self.pending = text
                return
            numbers = [int(number or 1) for number in found[1].split(";")]
            if found[2] == "H":
                self.row, self.column = numbers[0] - 1, (numbers[1:] or [1])[0] - 1
            elif found[2] == "J":
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            text = text[found.end() :]

    def put(self, letter: str) -> None:
        if letter in "\r\n":
            return
        if self.row < self.rows and self.column < self.columns:
            self.cells[self.row][self.column] = letter
        self.column += 1


@contextmanager
def top(socket: Path | str, columns: int, rows: int = 24, *options: str, **env: str) -> Iterator[Terminal]:
    """Runs `gtctl top` on a pseudo-terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [GTCTL, "--socket", str(socket), "top", "-d", "0.1", *options],
        env=environment(TERM="xterm-256color", **env),
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    try:
        yield Terminal(process, master, columns, rows)
    finally:
        process.kill()
        process.communicate()
        os.close(master)


def ended(terminal: Terminal) -> int:
    """Waits for the end of the program, which may still write; returns its exit status."""
    while True:
        try:
            if not os.read(terminal.master, 1 << 16):
                break
        except OSError:
            break
    return terminal.process.wait(DEADLINE_S)


def row_of(lines: list[str], word: str) -> str | None:
    return next((line for line in lines if word in line), None)


@pytest.fixture
def heavy(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A daemon whose worker is busy with matrix products; its socket, and the program."""
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--workers", "cpu:1"), started(HEAVY, GT_SOCKET=str(socket)) as client:
        assert line_of(client) == "issued"
        yield socket, client


@pytest.mark.parametrize("columns", [80, 200])
def test_the_screen_shows_workers_and_sessions(heavy: Any, columns: int) -> None:
    socket, client = heavy
    with top(socket, columns) as terminal:
        row = terminal.shows(lambda lines: row_of(lines, f" {client.pid} "), "the session")
        heading = row_of(terminal.lines(), "SESSION")
        assert heading.split() == ["SESSION", "USER", "PID", "NAME", "SHARE", "RATE", "MEMORY", "QUEUE", "RUNS"]
        assert (
            "matmul"
            in terminal.shows(
                lambda lines: re.search(r"matmul .*", row_of(lines, f" {client.pid} ") or ""), "what runs"
            ).group()
        )
        worker = terminal.shows(lambda lines: "█" in (row_of(lines, "cpu:0") or "") and row_of(lines, "cpu:0"), "a bar")
        assert re.search(r"█+·* +\d+ %  queue \d+", worker), worker
        assert "matmul" in row_of(terminal.lines(), "■ ")
        assert len(row.rstrip()) <= columns
        if columns == 200:
            assert re.search(r"peak +\d+\.\d MiB +matmul of \d+ for ", worker), worker
        if columns == 80:
            terminal.press("q")
        else:
            terminal.process.terminate()
        assert ended(terminal) == 0


def test_keys_sort_filter_freeze_and_show_details(heavy: Any) -> None:
    socket, client = heavy
    here = f" {client.pid} "
    with started(WORKLOAD, GT_SOCKET=str(socket)) as other, top(socket, 100) as terminal:
        there = f" {other.pid} "
        terminal.shows(lambda lines: row_of(lines, here) and row_of(lines, there), "both sessions")
        terminal.press("s")
        terminal.shows(lambda lines: "by rate" in lines[0], "another order")
        terminal.press("/known")
        terminal.shows(lambda lines: "filter: known_" in lines[-1] and not row_of(lines, here), "the filter")
        terminal.press("\r")
        terminal.shows(lambda lines: 'only "known"' in lines[0], "the filter in the heading")
        terminal.press("f")
        terminal.shows(lambda lines: "FROZEN" in lines[0], "a frozen screen")
        terminal.press("f")
        terminal.shows(lambda lines: "FROZEN" not in lines[0], "a screen that goes on")
        terminal.press("\r")
        terminal.shows(lambda lines: row_of(lines, "instructions, ") and row_of(lines, "a-known-name"), "details")
        terminal.press("\x1b")
        terminal.shows(lambda lines: row_of(lines, "SESSION"), "the list again")
        # It follows the size of the terminal.
        terminal.resize(200, 30)
        terminal.shows(lambda lines: lines[-1].startswith("q quit") and row_of(lines, there), "the new size")
        assert len(row_of(terminal.lines(), "SESSION").rstrip()) > 100


def test_a_session_is_killed_after_a_question(heavy: Any) -> None:
    socket, _ = heavy
    with started(WORKLOAD, GT_SOCKET=str(socket)), top(socket, 100) as terminal:
        terminal.shows(lambda lines: row_of(lines, "a-known-name"), "the session")
        terminal.press("/known\r")
        terminal.shows(lambda lines: 'only "known"' in lines[0], "the filter")
        terminal.press("k")
        question = terminal.shows(lambda lines: re.search(r"End session (\d+) of \w+, process \d+\?", lines[-1]), "it")
        terminal.press("n")
        terminal.shows(lambda lines: lines[-1].startswith("q quit") and row_of(lines, "a-known-name"), "no kill")
        terminal.press("k")
        terminal.shows(lambda lines: "End session" in lines[-1], "the question again")
        terminal.press("y")
        terminal.shows(lambda lines: f"session {question[1]} was ended" in lines[-1], "the kill")
        terminal.shows(lambda lines: not row_of(lines, "a-known-name"), "the session's end")


def test_without_colours_the_bar_has_letters(heavy: Any) -> None:
    socket, _ = heavy
    with top(socket, 80, NO_COLOR="1") as terminal:
        terminal.shows(lambda lines: re.match(r"cpu:0 m+", row_of(lines, "cpu:0") or ""), "letters")
        assert "m matmul  a attention  e elementwise" in "\n".join(terminal.lines())


def test_a_daemon_that_ends_while_it_is_watched(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as server, top(socket, 80) as terminal:
        terminal.shows(lambda lines: row_of(lines, "SESSION"), "the screen")
        server.send_signal(signal.SIGKILL)
        assert ended(terminal) == 3
        said = terminal.process.stderr.read().decode()
    assert said.startswith(f"gtctl: the daemon at {socket} ended while it was watched\n")


def once(socket: Path | str, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GTCTL, "--socket", str(socket), "top", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **how,
    )


def test_totals_are_those_of_the_tape(tmp_path: Path) -> None:
    socket, log = tmp_path / "gtd.sock", tmp_path / "ops.log"
    with (
        daemon(socket, "--workers", "cpu:2", "--instruction-log", str(log)),
        started(WORKLOAD, GT_SOCKET=str(socket)) as client,
    ):
        assert line_of(client) == "True"
        document = json.loads(once(socket, "--json", "-d", "0.1").stdout)
        # The same picture from Python, as text.
        done = subprocess.run(
            [sys.executable, "-m", "gt.scripts.top", "--socket", str(socket), "--once", "-d", "0.1"],
            env=environment(GT_DAEMON=str(gtd())),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    counts: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        if found := re.search(r"\| WORKER_(?:RECV|RUN) +\| WORKER worker_(\d+) .*\| (\d+)B \| op=(\w+)", line):
            key = (f"cpu:{found[1]}", found[3])
            counts[key] += 1
            moved[key] += int(found[2])
            times[key] += sum(map(int, re.findall(r" (?:took|estimate)=(\d+)", line)))
    totals = {(total["worker"], total["operation"]): total for total in document["operations"]}
    assert document["lost"] == 0
    assert {key: total["count"] for key, total in totals.items()} == counts
    assert {key: total["time_ns"] for key, total in totals.items()} == {key: times[key] for key in counts}
    assert {key: total["bytes"] for key, total in totals.items()} == moved
    assert sum(count for (_, op), count in counts.items() if op == "matmul") == 100
    (session,) = document["sessions"]
    assert (session["name"], session["pid"], session["running"]) == ("a-known-name", client.pid, None)
    for worker in document["workers"]:
        assert worker["queue"] == 0
        assert abs(sum(worker["busy"].values()) + worker["idle"] - 1) < 1e-6
        assert worker["memory_bytes_peak"] >= worker["memory_bytes"]
    assert re.search(r"^matmul +matmul +cpu:\d +\d+ ", done.stdout, flags=re.MULTILINE)
    assert re.search(rf"^ +{session['id']} +\w+ +{client.pid} +a-known-name ", done.stdout, flags=re.MULTILINE)


def test_what_runs_is_told_with_its_time(heavy: Any) -> None:
    socket, client = heavy

    def multiplies() -> dict[str, Any] | None:
        document = json.loads(once(socket, "--json", "-d", "0.3").stdout)
        worker = document["workers"][0]
        running = worker["running"] and worker["running"]["operation"]
        return document if running == "matmul" and worker["busy"].get("matmul", 0) > 0.5 else None

    # The factor is filled first.
    document = eventually(multiplies, "a worker that is busy with products")
    (worker,), (session,) = document["workers"], document["sessions"]
    assert (session["pid"], session["running"]) == (client.pid, worker["running"])
    assert worker["running"]["for_s"] > 0


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    done = once(tmp_path / "gtd.sock", "--once")
    assert (done.returncode, "no daemon listens at" in done.stderr) == (3, True)
    with daemon(tmp_path / "gtd.sock"):
        done = once(tmp_path / "gtd.sock", stdin=subprocess.DEVNULL)
        assert done.returncode == 1
        assert done.stderr.startswith("gtctl: gtctl top needs a terminal, and its input or output is none\n")
        for wrong in (("-d", "0"), ("-d", "often"), ("--sort", "size")):
            assert once(tmp_path / "gtd.sock", *wrong).returncode == 2


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to run gtctl as another user")
def test_another_user_sees_the_sessions_alone() -> None:
    socket = f"@gt-test-top-{os.getpid()}"
    with daemon(socket), started(WORKLOAD, GT_SOCKET=socket) as client:
        assert line_of(client) == "True"
        document = json.loads(once(socket, "--json", "-d", "0.1", user=65534, group=65534).stdout)
    assert document["no_tape"] == "the tape shows every session: only the daemon's user and root may read it"
    assert [session["name"] for session in document["sessions"]] == ["a-known-name"]
    assert [(worker["busy"], worker["idle"]) for worker in document["workers"]] == [({}, None)]
