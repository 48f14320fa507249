"""Notices of administrators to running programs, and planned stops, which are no crashes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import TOKEN, Server, daemon, environment, eventually, gtd, line_of, server, started

# A client that computes after each line of input, and prints a sum or an error.
CLIENT = """
import itertools, sys, warnings, gt
seen = []
warnings.showwarning = lambda message, category, *rest: seen.append((category.__name__, str(message)))
x = gt.ones(3)
for line in itertools.chain([""], sys.stdin):
    try: print(x.sum().item(), *seen, sep="|", flush=True)
    except gt.DisconnectedError as error: print(error, *seen, sep="|", flush=True)
    seen.clear()
"""


def gtctl(socket: Path | str, *arguments: object) -> str:
    words = [str(gtd().with_name("gtctl")), "--socket", str(socket), *(str(argument) for argument in arguments)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Program:
    """A running client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.first = line_of(process)

    def computes(self) -> str:
        """Lets it compute once; returns what it printed."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return line_of(self.process)


@contextmanager
def program(**env: str) -> Iterator[Program]:
    with started(CLIENT, **env) as process:
        yield Program(process)


ANNOUNCED = "the GT daemon takes no new sessions in 10 min, from "


@pytest.mark.parametrize("by", ["socket", "TCP"])
def test_running_and_new_programs_are_warned_of_a_drain_once(tmp_path: Path, by: str) -> None:
    with server(tmp_path) as running:
        tcp = {"GT_CONNECT": running.address, "GT_TOKEN": TOKEN}
        env = tcp if by == "TCP" else {"GT_SOCKET": running.socket}
        with program(**env) as old:
            assert old.first == "3.0"
            said = gtctl(running.socket, "drain", "--in", "10m", "--message", "new disks")
            assert said.startswith("in 10 min 0 s no session begins any more")
            warned = old.computes() if by == "socket" else eventually_warned(old)
            assert warned.startswith(f"3.0|('UserWarning', '{ANNOUNCED}")
            assert warned.endswith(" UTC on, and ends after the last one: new disks')")
            assert old.computes() == "3.0"
            with program(**env) as new:
                assert new.first == warned
                assert new.computes() == "3.0"
            status = json.loads(gtctl(running.socket, "status", "--json"))
            assert (status["draining"], status["notice"]["message"]) == (False, "new disks")
            assert f"\nnotice: {ANNOUNCED}" in gtctl(running.socket, "status")
            gtctl(running.socket, "drain", "--undo", "--message", "no disks came")
            withdrawn = "the GT daemon goes on taking sessions; what was announced is withdrawn: no disks came"
            warned = old.computes() if by == "socket" else eventually_warned(old)
            assert warned == f"3.0|('UserWarning', '{withdrawn}')"
            assert "notice" not in gtctl(running.socket, "status")
            with program(**env) as new:
                assert new.first == "3.0"


def eventually_warned(client: Program) -> str:
    """Computes until there is a warning: by TCP the notice comes after the command that gave it."""
    said: list[str] = []

    def warned() -> bool:
        said.append(client.computes())
        return "Warning" in said[-1]

    eventually(warned, "a warning")
    return said[-1]


def test_the_daemon_drains_at_the_time_and_ends_with_the_last_session(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket) as process:
        with program(GT_SOCKET=str(socket)) as client:
            gtctl(socket, "drain", "--in", "1s", "--message", "new disks")
            eventually(lambda: json.loads(gtctl(socket, "status", "--json"))["draining"], "the drain")
            assert client.computes().startswith("3.0|('UserWarning', 'the GT daemon takes no new sessions ")
            with started("import gt; gt.ones(3).sum().item()", GT_SOCKET=str(socket)) as late:
                _, err = late.communicate(timeout=60)
            assert "takes no more sessions and ends when the last has gone: new disks; wait, or ask" in err
            assert process.poll() is None
        assert process.wait(timeout=60) == 0
    with daemon(socket) as process:
        gtctl(socket, "drain", "--in", "1s")
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("by", ["socket", "TCP"])
def test_a_planned_stop_says_that_it_is_one(tmp_path: Path, by: str) -> None:
    def error_after(end: Any) -> str:
        with server(tmp_path) as running:
            tcp = {"GT_CONNECT": running.address, "GT_TOKEN": TOKEN}
            with program(**(tcp if by == "TCP" else {"GT_SOCKET": running.socket})) as client:
                end(running)
                return client.computes()

    def stop(running: Server) -> None:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(timeout=60)

    def announce_and_stop(running: Server) -> None:
        gtctl(running.socket, "drain", "--in", "1h", "--message", "new disks")
        stop(running)

    def crash(running: Server) -> None:
        running.process.kill()
        running.process.wait(timeout=60)

    said = error_after(stop)
    assert "was stopped by its administrator (signal 15); its tensors are lost" in said
    assert "was stopped by its administrator (signal 15): new disks; its tensors are lost" in error_after(
        announce_and_stop
    )
    said = error_after(crash)
    assert "closed the session or is gone" in said
    assert "stopped" not in said


def test_a_warning_can_be_an_error(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    text = CLIENT.replace("seen = []", "seen = []; warnings.simplefilter('error')").replace(
        "gt.DisconnectedError", "UserWarning"
    )
    with daemon(socket), started(text, GT_SOCKET=str(socket)) as process:
        client = Program(process)
        gtctl(socket, "drain", "--in", "2h")
        assert client.computes().startswith("the GT daemon takes no new sessions in 120 min, from ")
        assert client.computes() == "3.0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--in", "soon"], "`soon` is no duration"),
        (["--in", "31d"], "at most 2592000 s ahead are possible"),
        (["--message", "x" * 257], "has 257 bytes; 256 are allowed"),
        (["--message", "a\nb"], "use one line of text"),
        (["--in", "1m", "--undo"], "cannot be used with"),
    ],
)
def test_a_notice_that_makes_no_sense_is_refused(tmp_path: Path, arguments: list[str], text: str) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket):
        words = [str(gtd().with_name("gtctl")), "--socket", str(socket), "drain", *arguments]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 2)
        assert text in done.stderr
        assert json.loads(gtctl(socket, "status", "--json"))["notice"] is None
