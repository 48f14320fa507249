"""Other users of the machine: access to the socket, and commands for a session's owner and administrators only.

The users are real processes with user ids that the machine does not have, so these tests need root. `tests/service`
tests that members of the group `gt-admin` are administrators, since it can create that group.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import environment, eventually, gtd, line_of, sockets, started

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

DAEMON, ANA, BEN = 61001, 61002, 61003
# The id of the group whose members may connect.
GROUP = 61010
TOKEN = "test-token-0123456789"


class Service:
    """A daemon with its own user and a socket for a group, as the systemd units run it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "run/gtd.sock"
        self.port = 0

    def asks(self, uid: int, *arguments: object, groups: tuple[int, ...] = (GROUP,)) -> tuple[int, str, str]:
        """Runs `gtctl` as a user; returns its exit status and output."""
        words = [str(self.folder / "gtctl"), "--socket", str(self.socket), *(str(word) for word in arguments)]
        done = subprocess.run(
            words,
            env=environment(),
            user=uid,
            group=uid,
            extra_groups=groups,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def may(self, uid: int, *arguments: object) -> str:
        status, out, err = self.asks(uid, *arguments)
        assert (status, err) == (0, "")
        return out

    def may_not(self, uid: int, *arguments: object, groups: tuple[int, ...] = (GROUP,)) -> str:
        """Asserts that a command is denied to a user with exit status 4, with the same error for people and as JSON."""
        status, out, err = self.asks(uid, *arguments, groups=groups)
        assert (status, out) == (4, ""), err
        status, document, _ = self.asks(uid, "--json", *arguments, groups=groups)
        error = json.loads(document)["error"]
        assert (status, error["exit"], error["code"]) == (4, 4, "not_permitted")
        assert err == f"gtctl: {error['text']}\n{error['next']}\n"
        return err

    @contextlib.contextmanager
    def client(self, uid: int, address: str = "", groups: tuple[int, ...] = (GROUP,)) -> Iterator[subprocess.Popen]:
        """Runs a user's program with a session and a tensor."""
        # The user may not be able to read this Python, so the process imports what it needs before it becomes the user.
        program = f"""
import os, sys, numpy, gt
gt.tensor
os.setgroups({list(groups)}); os.setgid({uid}); os.setuid({uid})
x = gt.ones(3)
print(x.sum().item(), flush=True)
sys.stdin.readline()
try: print(x.sum().item())
except gt.DisconnectedError as error: print(error)
"""
        with started(program, GT_CONNECT=address or f"unix:{self.socket}", GT_TOKEN=TOKEN) as process:
            yield process

    def only_session(self) -> dict:
        (session,) = json.loads(self.may(0, "sessions", "--json"))
        return session


@pytest.fixture
def service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory(prefix="gt-users-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for program in ("gtd", "gtctl"):
            shutil.copy(gtd().with_name(program), folder)
        (folder / "gtd.yaml").write_text("limits: {sessions: 9}\n")
        run = folder / "run"
        run.mkdir(mode=0o755)
        os.chown(run, DAEMON, DAEMON)
        service = Service(folder)
        command = [
            folder / "gtd",
            "--socket",
            service.socket,
            "--config",
            folder / "gtd.yaml",
            "--listen",
            "0",
            "--announce",
        ]
        env = environment(GT_TOKEN=TOKEN)
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=env, user=DAEMON, group=DAEMON, extra_groups=[], stdout=pipe, stderr=pipe, text=True
        )
        try:
            eventually(lambda: str(service.socket) in sockets(), "the daemon's socket")
            said = "".join(line_of(process) + "\n" for _ in range(3))
            service.port = int(re.search(r"localhost:(\d+)", said)[1])
            os.chown(service.socket, DAEMON, GROUP)
            service.socket.chmod(0o660)
            yield service
        finally:
            process.kill()
            process.communicate()


def test_the_socket_is_for_its_group(service: Service) -> None:
    assert service.may(ANA, "sessions") == "no sessions\n"
    said = service.may_not(ANA, "sessions", groups=())
    assert said.startswith(
        f"gtctl: you may not connect to the daemon at {service.socket}: its socket is for members of"
    )
    assert "usermod -aG" in said
    with service.client(ANA, groups=()) as client:
        _, err = client.communicate("\n", timeout=60)
    why = f"gt.DisconnectedError: cannot connect to the daemon at {service.socket}: permission denied"
    assert why in err
    assert "usermod -aG" in err


@pytest.mark.parametrize("by", ["socket", "TCP"])
def test_a_session_is_ended_by_its_owner_or_an_administrator(service: Service, by: str) -> None:
    for who in (ANA, DAEMON, 0):
        with service.client(ANA, f"localhost:{service.port}" if by == "TCP" else "") as client:
            assert line_of(client) == "3.0"
            session = service.only_session()
            assert (session["uid"], session["pid"]) == (ANA, client.pid)
            said = service.may_not(BEN, "kill", session["id"])
            assert said.splitlines() == [
                f"gtctl: session {session['id']} is user {ANA}'s: only that user and administrators may end it",
                "Ask an administrator, or try again with sudo.",
            ]
            assert service.only_session()["id"] == session["id"]
            service.may(who, "kill", session["id"])
            told, _ = client.communicate("\n", timeout=60)
            assert f"was ended by user {who} (gtctl kill)" in told
        eventually(lambda: service.may(0, "sessions") == "no sessions\n", "the end of the session")


def test_a_worker_of_another_user_that_is_stopped_is_ended(service: Service) -> None:
    """Checks a worker that the daemon may not send signals to."""
    command = [service.folder / "gtd", "worker", f"--connect=unix:{service.socket}", "--threads=1"]
    worker = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert line_of(worker).startswith("joined the daemon")
        with service.client(ANA) as client:
            assert line_of(client) == "3.0"
            worker.send_signal(signal.SIGSTOP)
            # Every worker learns of the session's end.
            client.communicate("\n", timeout=60)
            assert worker.wait(timeout=60) == -signal.SIGKILL
    finally:
        worker.kill()
        worker.communicate()


def test_users_lower_their_own_limits_and_no_others(service: Service) -> None:
    before = service.may(0, "limits", "--json")
    for words in (["--user", BEN, "--weight", 9], ["--user", ANA, "--sessions", 1], ["--weight", 2], ["--memory", 0]):
        assert "only administrators may" in service.may_not(BEN, "limits", "set", *words)
    assert service.may(0, "limits", "--json") == before
    service.may(BEN, "limits", "set", "--user", BEN, "--sessions", 2)
    assert "you may lower your own" in service.may_not(BEN, "limits", "set", "--user", BEN, "--sessions", 3)
    for administrator, sessions in ((0, 3), (DAEMON, 4)):
        service.may(administrator, "limits", "set", "--user", BEN, "--sessions", sessions)
        (user,) = json.loads(service.may(BEN, "limits", "--json"))["users"]
        assert user["allowed"]["sessions"] == sessions


def test_members_of_a_group_have_its_limits(service: Service) -> None:
    groups = f"groups: {{{GROUP}: {{sessions: 5, tensors: 1000}}}}\nusers: {{{BEN}: {{sessions: 7}}}}\n"
    (service.folder / "gtd.yaml").write_text(f"limits: {{sessions: 9}}\n{groups}")
    assert "changed: groups, users" in service.may(0, "reload")
    with service.client(ANA) as ana, service.client(BEN) as ben:
        for client in (ana, ben):
            assert line_of(client) == "3.0"
        limits = json.loads(service.may(0, "limits", "--json"))
        users = {user["uid"]: user["allowed"] for user in limits["users"]}
        assert (users[ANA]["sessions"], users[ANA]["tensors"]) == (5, 1000)
        assert (users[BEN]["sessions"], users[BEN]["tensors"]) == (7, 1000)
        assert limits["default"]["sessions"] == 9


def test_only_administrators_drain_and_reload(service: Service) -> None:
    assert "only administrators may have the configuration read again" in service.may_not(BEN, "reload")
    for undo in ([], ["--undo"]):
        assert "only administrators may drain the daemon" in service.may_not(BEN, "drain", *undo)
    with service.client(ANA) as client:
        assert line_of(client) == "3.0"
        for administrator in (0, DAEMON):
            service.may(administrator, "reload")
            assert json.loads(service.may(administrator, "drain", "--json")) == {"draining": True, "sessions": 1}
            assert service.may(administrator, "drain", "--undo") == "sessions may begin again\n"
        told, _ = client.communicate("\n", timeout=60)
        assert told.strip() == "3.0"
