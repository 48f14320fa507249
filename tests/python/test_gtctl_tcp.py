"""`gtctl` for a daemon that is reached by TCP: the same answers, the rights of the token's user, and lost events."""

from __future__ import annotations

import json
import os
import signal
import socket as sockets
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import TOKEN, Server, environment, greeting, gtd, line_of, message, server, started

GTCTL = gtd().with_name("gtctl")
ADDITIONS = 300
WORKLOAD = f"""
import sys, gt
a = gt.ones(64, 64)
a.sum().item()
print("ready", flush=True)
sys.stdin.readline()
for i in range({ADDITIONS}): a = a + 1
print(a.sum().item() > 0, flush=True)
sys.stdin.readline()
"""


def by_tcp(remote: Server, *words: str, program: tuple[str, ...] = ()) -> list[str]:
    return [*(program or (str(GTCTL),)), *words, "--host", "localhost", "--port", str(remote.port)]


def ask(words: list[str], token: str = TOKEN) -> Any:
    env = environment(GT_TOKEN=token, GT_DAEMON=str(gtd()))
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def told(words: list[str], token: str = TOKEN) -> tuple[int, str]:
    env = environment(GT_TOKEN=token)
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def capture(words: list[str], token: str = TOKEN) -> subprocess.Popen[str]:
    """Starts a capture, from its beginning on."""
    env = environment(GT_TOKEN=token, GT_DAEMON=str(gtd()))
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "captures for" in process.stderr.readline()
    return process


def finished(process: subprocess.Popen[str]) -> Any:
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return json.loads(out)


def go_on(client: subprocess.Popen[str]) -> str:
    assert client.stdin is not None
    client.stdin.write("go on\n")
    client.stdin.flush()
    return line_of(client)


def events_of(folder: Path) -> Counter[tuple[str, str]]:
    lines = (folder / "tape.log").read_text().splitlines()
    columns = [[column.strip() for column in line.split(" | ")] for line in lines if not line.startswith("...")]
    about = [(line[2], line[6].partition("  # ")[0]) for line in columns]
    return Counter((event, dict(pair.split("=") for pair in fields.split())["op"]) for event, fields in about)


def test_a_trace_by_tcp_accounts_for_every_instruction(tmp_path: Path) -> None:
    with server(tmp_path, "--workers", "cpu:1") as remote, started(WORKLOAD, GT_SOCKET=remote.socket) as client:
        assert line_of(client) == "ready"
        here = capture(
            [str(GTCTL), "--socket", remote.socket, "--json", "trace", "-s", "120", "-o", str(tmp_path / "here")]
        )
        program = (sys.executable, "-m", "gt.scripts.trace")
        there = capture(by_tcp(remote, "--json", "-s", "120", "-o", str(tmp_path / "there"), program=program))
        assert go_on(client) == "True"
        documents = [finished(process) for process in (here, there)]
    assert [document["lost"] for document in documents] == [0, 0]
    own, copied = events_of(tmp_path / "here"), events_of(tmp_path / "there")
    assert copied["RECV", "add"] == ADDITIONS
    # The program may go on before the daemon has written that it was answered.
    assert {key: n for key, n in copied.items() if key[0] != "SEND"} == {
        key: n for key, n in own.items() if key[0] != "SEND"
    }


def test_top_and_the_others_go_by_tcp(tmp_path: Path) -> None:
    with server(tmp_path, "--workers", "cpu:1") as remote, started(WORKLOAD, GT_SOCKET=remote.socket) as client:
        assert line_of(client) == "ready"
        program = (sys.executable, "-m", "gt.scripts.top")
        top = ask(by_tcp(remote, "--json", "-d", "0.2", program=program))
        (session,) = top["sessions"]
        assert (session["pid"], top["no_tape"]) == (client.pid, None)
        assert {row["operation"] for row in top["operations"]} >= {"sum", "fetch"}
        assert top["workers"][0]["idle"] is not None
        status = ask([str(GTCTL), "--json", "status", "--connect", remote.address])
        assert [found["pid"] for found in status["sessions"]] == [client.pid]
        explained = ask(by_tcp(remote, "--json", "explain", str(session["id"]), "-s", "0.2"))
        assert [found["kind"] for found in explained["findings"]] == ["idle"]
        assert ask(by_tcp(remote, "--json", "kill", str(session["id"])))["id"] == session["id"]


def test_a_stopped_reader_delays_nobody_and_counts_what_it_lost(tmp_path: Path) -> None:
    program = (
        "import sys, gt\nx = gt.ones(1)\nprint(x.item(), flush=True)\nsys.stdin.readline()\n"
        "for _ in range(100_000): x = x + 1\nprint(x.item(), flush=True)\nsys.stdin.readline()"
    )
    with server(tmp_path, "--workers", "cpu:1") as remote, started(program, GT_SOCKET=remote.socket) as client:
        assert line_of(client) == "1.0"
        process = capture(by_tcp(remote, "--json", "trace", "-s", "120", "-o", str(tmp_path / "traces")))
        process.send_signal(signal.SIGSTOP)
        assert go_on(client) == "100001.0"
        process.send_signal(signal.SIGCONT)
        # The last events arrive behind all that was on its way.
        document = finished(process)
    events, lost, expected = 0, 0, None
    for line in (tmp_path / "traces" / "tape.log").read_text().splitlines():
        if line.endswith(" events lost"):
            gap = int(line.split()[1])
            lost += gap
            expected = None if expected is None else expected + gap
            continue
        number = int(line.split("#")[1].split()[0])
        assert expected in (None, number), line
        expected = number + 1
        events += 1
    assert (document["events"], document["lost"]) == (events, lost)
    assert lost > 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make tokens of another user")
def test_the_rights_are_those_of_the_tokens_user(tmp_path: Path) -> None:
    nobody = "65534"
    with server(tmp_path, "--workers", "cpu:1") as remote:
        create = [str(GTCTL), "--socket", remote.socket, "--json", "token", "create", "--user", nobody]
        token, powerful = (ask([*create, *more])["text"] for more in ((), ("--admin",)))
        with started(WORKLOAD, GT_CONNECT=remote.address, GT_TOKEN=token) as client:
            assert line_of(client) == "ready"
            top = ask(by_tcp(remote, "--json", "top", "-d", "0.1"), token)
            assert "only the daemon's user and root may read it, and by TCP who has a token" in top["no_tape"]
            assert ask(by_tcp(remote, "--json", "top", "-d", "0.1"), powerful)["no_tape"] is None
            (session,) = top["sessions"]
            code, said = told(by_tcp(remote, "trace", "-s", "0.1", "-o", str(tmp_path)), token)
            assert (code, "the tape shows every session" in said) == (4, True)
            # The user's own session may be traced.
            words = by_tcp(remote, "--json", "trace", "--session", str(session["id"]), "-s", "120", "-o", str(tmp_path))
            process = capture(words, token)
            assert go_on(client) == "True"
            assert finished(process)["lost"] == 0
            assert events_of(tmp_path)["RECV", "add"] == ADDITIONS
        with started(WORKLOAD, GT_SOCKET=remote.socket) as client:
            assert line_of(client) == "ready"
            (other,) = (found["id"] for found in remote.sessions() if found["pid"] == client.pid)
            code, said = told(by_tcp(remote, "explain", str(other), "-s", "0.1"), token)
            assert code == 4
            assert f"session {other} is user 0's" in said


def test_what_cannot_be_reached_is_said(tmp_path: Path) -> None:
    with server(tmp_path, "--workers", "cpu:1") as remote:
        code, said = told(by_tcp(remote, "status"), "a-wrong-token-0123456789")
        assert (code, "token" in said) == (4, True)
        for words, why in (
            (["--host", "localhost", "status"], "--host takes the port as well"),
            (["--socket", remote.socket, "--port", "1", "status"], "several daemons are named"),
            (["--connect", "box", "status"], "`box` is no address of a daemon"),
            (["--port", str(remote.port), "doctor"], "does not go by TCP"),
            (["--port", str(remote.port), "post-mortem"], "does not go by TCP"),
        ):
            code, said = told([str(GTCTL), *words])
            assert (code, why in said) == (2, True), said
        port = remote.port
    code, said = told([str(GTCTL), "--port", str(port), "top", "--once"])
    assert (code, "nobody listens there" in said) == (3, True)


@pytest.mark.parametrize(
    "frame", [b"\x01\0\0\0\x40\0\0\0" + bytes(64), b"\x04\0\0\0\x38\0\0\0" + bytes(56), b"junkjunk"]
)
def test_invalid_frames_end_their_connection_only(tmp_path: Path, frame: bytes) -> None:
    hello = {"protocol_version": 1, "client_version": "0", "role": "control"}
    with server(tmp_path, "--workers", "cpu:1") as remote:
        with sockets.create_connection(("localhost", remote.port)) as peer:
            peer.settimeout(30)
            peer.sendall(greeting(hello=hello) + message({"message": "tape_attach"}) + frame)
            while peer.recv(1 << 16):
                pass
        assert ask(by_tcp(remote, "--json", "status"))["sessions"] == []
