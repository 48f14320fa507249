"""`gtctl`: the output of each command for people and as JSON, and its errors."""

from __future__ import annotations

import json
import os
import re
import socket as sockets
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, daemon, environment, eventually, gtd, line_of, started

GTCTL = gtd().with_name("gtctl")
# A client that holds 4,000 bytes, prints a line, and continues after a line of input.
CLIENT = """
import sys, gt
x = gt.zeros(1000)
x.sum().item()
print("ready", flush=True)
sys.stdin.readline()
try: print(x.sum().item())
except gt.DisconnectedError as error: print(error)
"""


def gtctl(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [str(GTCTL), *(str(argument) for argument in arguments)]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=False)


class Asked:
    """A daemon to run `gtctl` against."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    def says(self, *arguments: object) -> str:
        done = gtctl("--socket", self.socket, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def tells(self, *arguments: object) -> Any:
        return json.loads(self.says("--json", *arguments))

    def refuses(self, *arguments: object) -> tuple[int, str]:
        """Runs a command that fails, with the same error for people and as JSON."""
        done = gtctl("--socket", self.socket, *arguments)
        again = gtctl("--socket", self.socket, "--json", *arguments)
        error = json.loads(again.stdout)["error"]
        assert done.stderr == f"gtctl: {error['text']}\n{error['next']}\n"
        assert error["text"]
        assert error["next"]
        assert (done.returncode, error["exit"], done.stdout) == (again.returncode, done.returncode, "")
        return done.returncode, done.stderr


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Asked]:
    """Runs a daemon with a configuration."""
    (tmp_path / "gtd.yaml").write_text("limits: {sessions: 9}\n")
    with daemon(tmp_path / "gtd.sock", "--config", str(tmp_path / "gtd.yaml")):
        yield Asked(tmp_path / "gtd.sock")


@pytest.fixture
def session(server: Asked) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Runs a program with a session; yields both."""
    with started(CLIENT, GT_SOCKET=str(server.socket)) as client:
        assert line_of(client) == "ready"
        (found,) = server.tells("sessions")
        yield found["id"], client


def test_status_shows_the_daemon_its_workers_and_who_computes(server: Asked, session: tuple[int, Any]) -> None:
    number, client = session
    text = server.says("status")
    assert text.splitlines()[0].startswith("gtd ")
    assert re.search(r"^WORKER +PID +THREADS +MEMORY +LIMIT +STATE$", text, flags=re.MULTILINE)
    heading = r"^SESSION +USER +PID +NAME +TENSORS +MEMORY +ARENA +QUEUE +SHARE +SINCE$"
    assert re.search(heading, text, flags=re.MULTILINE)
    assert re.search(rf"^ *{number} +\w+ +{client.pid} ", text, flags=re.MULTILINE)
    document = server.tells("status")
    assert [(found["id"], found["pid"]) for found in document["sessions"]] == [(number, client.pid)]
    assert document["workers"][0]["name"] == "cpu:0"


def test_a_daemon_that_takes_no_nodes_says_how_it_would(server: Asked) -> None:
    status, said = server.refuses("invite")
    assert status == 7
    assert said == (
        "gtctl: this daemon takes no nodes: start it with gtd --nodes HOST:PORT, or set nodes: in its configuration\n"
        "Change the daemon's configuration as that says, and try again.\n"
    )


def test_sessions_and_one_of_them(server: Asked, session: tuple[int, Any]) -> None:
    number, client = session
    assert server.says("sessions").splitlines()[0].split()[0] == "SESSION"
    text = server.says("session", number)
    assert text.startswith(f"session {number}")
    assert f"process {client.pid}" in text.splitlines()[0]
    detail = server.tells("session", number)
    assert (detail["session"]["uid"], detail["user"]["uid"]) == (os.getuid(), os.getuid())
    assert detail["session"]["tensors"] >= 1
    code, said = server.refuses("session", 999)
    assert code == 6
    assert "there is no session 999" in said


def test_no_sessions(server: Asked) -> None:
    assert server.says("sessions") == "no sessions\n"
    assert server.tells("sessions") == []


def test_a_killed_session_s_program_is_told(server: Asked, session: tuple[int, Any]) -> None:
    number, client = session
    assert server.says("kill", number).startswith(f"session {number} of ")
    assert server.refuses("kill", number)[0] == 6
    said, _ = client.communicate("go on\n", timeout=60)
    assert "gtctl kill" in said


def test_limits_are_shown_set_and_set_back(server: Asked) -> None:
    assert server.says("limits").splitlines()[0].split()[:2] == ["USER", "SESSIONS"]
    assert server.tells("limits")["default"]["sessions"] == 9
    me = os.getuid()
    server.says("limits", "set", "--user", me, "--memory", "8G", "--weight", 2)
    allowed = {user["uid"]: user["allowed"] for user in server.tells("limits")["users"]}
    assert (allowed[me]["memory_bytes"], allowed[me]["weight"], allowed[me]["sessions"]) == (8 << 30, 2.0, 9)
    server.says("limits", "set", "--user", me, "--memory", "default", "--weight", "default")
    assert server.tells("limits")["users"] == []
    assert server.tells("limits", "set", "--sessions", 3)["default"]["sessions"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["limits", "set", "--user", "nobody-of-this-name", "--weight", "1"], 2, "the system knows no user"),
        (["config", "check", "/nowhere/gtd.yaml"], 7, "/nowhere/gtd.yaml: No such file"),
        (["config", "check", "/"], 7, "Name a configuration file that you may read"),
    ],
)
def test_invalid_arguments_are_refused(server: Asked, arguments: list[str], code: int, words: str) -> None:
    status, said = server.refuses(*arguments)
    assert status == code
    assert words in said


@pytest.mark.parametrize(
    "line", ["limits set", "limits set --memory lots", "kill", "kill one", "statsu", "completions tcsh", ""]
)
def test_a_wrong_command_line_ends_with_2(line: str) -> None:
    assert gtctl(*line.split()).returncode == 2
    done = gtctl("--json", *line.split())
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["exit"]) == ("usage", 2)
    assert error["text"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("session abc", "`abc` is no number of a session: `gtctl sessions` lists them"),
        ("limits set --weight 0", "`0` is no weight: write a number from 0.01 to 100, or `default`"),
        ("limits set --weight nan", "`nan` is no weight"),
        ("limits set --memory 8Q", "`8Q` is no number of bytes: write 512M or 8G"),
    ],
)
def test_a_wrong_value_is_told_with_what_would_do(line: str, why: str) -> None:
    for done in (gtctl(*line.split()), gtctl("--json", *line.split())):
        assert done.returncode == 2
        assert why in done.stdout + done.stderr


@pytest.mark.usefixtures("session")
def test_a_draining_daemon_says_so_and_can_go_on(server: Asked) -> None:
    assert server.tells("drain") == {"draining": True, "sessions": 1}
    assert "draining" in server.says("status")
    assert server.says("drain", "--undo") == "sessions may begin again\n"
    assert server.tells("status")["draining"] is False


def test_a_reload_says_what_changed_or_what_is_wrong(server: Asked) -> None:
    file = server.socket.with_name("gtd.yaml")
    file.write_text("limits: {sessions: 4}\nthreads: 1\n")
    assert server.tells("reload") == {"file": str(file), "changed": ["limits"], "restart": ["threads"]}
    assert "threads will change only when the daemon is started again" in server.says("reload")
    file.write_text("limits:\n  sesions: 4\n")
    code, said = server.refuses("reload")
    assert code == 7
    assert f"{file}:2: limits.sesions: there is no such key; did you mean `sessions`?" in said
    assert server.tells("limits")["default"]["sessions"] == 4


def test_a_configuration_is_checked_without_a_daemon(tmp_path: Path) -> None:
    file = tmp_path / "gtd.yaml"
    file.write_text("workers: cpu:2\n")
    assert gtctl("config", "check", file).returncode == 0
    file.write_text("workers: tpu:2\n")
    done = gtctl("config", "check", file)
    assert done.returncode == 7
    assert done.stderr.startswith(f"gtctl: {file}:1: workers: `tpu` is no kind of worker")


def test_the_keys_of_the_configuration_are_the_same_everywhere() -> None:
    assert gtctl("config", "keys").stdout.startswith("KEY ")
    keys = json.loads(gtctl("config", "keys", "--json").stdout)
    page = (ROOT / "docs" / "administration.md").read_text().split("## The configuration")[1].split("\n## ")[0]
    lines = [line.replace("`", "").strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line] for line in lines]
    reload = {False: "yes", True: "no"}
    file = [[key["key"], key["default"], reload[key["needs_start"]]] for key in keys["file"]]
    assert [[name, *rest] for name, _, *rest in rows if len(rest) == 2] == file
    assert [[name, *rest] for name, _, *rest in rows if len(rest) == 1] == [
        [key["key"], key["default"]] for key in keys["limits"]
    ]
    shipped = (ROOT / "systemd" / "gtd.yaml").read_text()
    for key in keys["file"] + keys["limits"]:
        assert re.search(rf"^ *#?{key['key']}:", shipped, flags=re.MULTILINE), key


@pytest.mark.parametrize("command", ["status", "sessions", "session 1", "kill 1", "limits", "usage", "drain", "reload"])
def test_without_a_daemon_every_command_says_so(tmp_path: Path, command: str) -> None:
    code, said = Asked(tmp_path / "gtd.sock").refuses(*command.split())
    assert code == 3
    assert said.startswith(f"gtctl: no daemon listens at {tmp_path}/gtd.sock\nStart it")


def test_a_daemon_of_another_version_is_named(tmp_path: Path) -> None:
    listener = sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "gtd.sock"))
    listener.listen()

    def answer() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            connection.send(json.dumps({"message": "welcome", "protocol_version": 9999}).encode())
            connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    code, said = Asked(tmp_path / "gtd.sock").refuses("status")
    thread.join()
    listener.close()
    assert code == 5
    assert "the daemon speaks protocol 9999" in said


def test_the_doctor_looks_at_everything(server: Asked) -> None:
    done = gtctl("--socket", server.socket, "--json", "doctor")
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert {"gtd", "socket", "daemon", "pinned memory", "descriptors", "kernel", "memory", "/dev/shm"} <= set(findings)
    for what in ("gtd", "socket", "daemon", "kernel"):
        assert findings[what]["state"] == "good", findings[what]
    assert all(finding.get("next") for finding in findings.values() if finding["state"] != "good")
    assert done.returncode == (1 if any(finding["state"] == "bad" for finding in findings.values()) else 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["gtd", "gtctl"])
def test_shells_complete_it(shell: str, program: str) -> None:
    done = subprocess.run([gtd().with_name(program), "completions", shell], capture_output=True, text=True, check=True)
    assert program in done.stdout
    assert ("--workers" if program == "gtd" else "doctor") in done.stdout.replace("-l workers", "--workers")


def test_the_manual_has_a_page_for_each_command(tmp_path: Path) -> None:
    assert gtctl("manual", tmp_path).returncode == 0
    pages = {page.name for page in tmp_path.iterdir()}
    assert {"gtctl.1", "gtctl-status.1", "gtctl-limits-set.1", "gtctl-config-check.1"} <= pages
    assert "Exit status" in (tmp_path / "gtctl.1").read_text()


def test_the_daemon_s_messages_have_levels(tmp_path: Path) -> None:
    socket = tmp_path / "gtd.sock"
    with daemon(socket, "--log", "info") as server:
        with started(CLIENT, GT_SOCKET=str(socket)) as client:
            assert line_of(client) == "ready"
            pid = client.pid
        eventually(lambda: Asked(socket).tells("sessions") == [], "the end of the session")
        server.terminate()
        assert server.stderr is not None
        said = server.stderr.read()
    assert re.search(rf"session \d+.* of user {os.getuid()}, process {pid}, began", said), said
    assert re.search(rf"session \d+ of user {os.getuid()} ended: ", said), said
