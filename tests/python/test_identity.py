"""The identity of a TCP client: the user of its connection, never another one, and no administrator by accident.

The users are real processes with user ids that the machine does not have, so these tests need root.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket as sockets
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TOKEN, environment, greeting, line_of, message
from support import gtd as path_of_gtd

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

DAEMON, ANA, BEN = 61101, 61102, 61103
# The id of the group of administrators, which only the daemon of these tests sees.
ADMINISTRATORS = 61110
# The daemon runs with a group file of its own in a mount namespace of its own.
AS_DAEMON = 'mount --bind "$GROUPS_FILE" /etc/group && exec setpriv --reuid "$0" --regid "$0" --groups "$GROUPS" "$@"'


class Daemon:
    """A daemon of a user of its own, who is a member of the group of administrators."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.socket = folder / "run/gtd.sock"
        self.log = folder / "log"

    def ctl(self, *words: object, uid: int = 0, status: int = 0) -> str:
        """Runs `gtctl` as a user, and returns what it prints."""
        command = [self.folder / "gtctl", "--socket", self.socket, *(str(word) for word in words)]
        done = subprocess.run(
            command,
            env=environment(),
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    def sessions(self) -> list[dict]:
        """The sessions of all users."""
        return json.loads(self.ctl("sessions", "--json"))

    def began(self) -> list[int]:
        """The users of all sessions that have begun since the start, as the log names them."""
        return [
            int(uid) for uid in re.findall(r"session \d+.* of user (\d+), process \d+, began", self.log.read_text())
        ]


@contextlib.contextmanager
def daemon(*options: str) -> Iterator[Daemon]:
    """Starts a daemon that listens by TCP."""
    with tempfile.TemporaryDirectory(prefix="gt-identity-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for program in ("gtd", "gtctl"):
            shutil.copy(path_of_gtd().with_name(program), folder)
        for private in ("run", "state"):
            (folder / private).mkdir(mode=0o755)
            os.chown(folder / private, DAEMON, DAEMON)
        groups = folder / "group"
        groups.write_text(f"{Path('/etc/group').read_text()}gt-admin:x:{ADMINISTRATORS}:\n")
        command = ["unshare", "--mount", "sh", "-c", AS_DAEMON, str(DAEMON), folder / "gtd", "--log", "info"]
        command += ["--socket", folder / "run/gtd.sock", "--listen", "0", "--announce", "--threads", "1", *options]
        env = environment(GT_TOKEN=TOKEN, GROUPS=str(ADMINISTRATORS), GROUPS_FILE=str(groups))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            said = process.stdout.readline() + process.stdout.readline() + process.stdout.readline()
            port = re.search(r"localhost:(\d+)", said)
            assert port, (folder / "log").read_text()
            (folder / "run/gtd.sock").chmod(0o777)
            yield Daemon(folder, int(port[1]))
        finally:
            process.kill()
            process.communicate()


def as_user(uid: int, work: object) -> list[object]:
    """Calls a function in a child process of another user, and returns the list that it returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.write(write, json.dumps(work()).encode())
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as answer:
        told = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(told)


def connected(port: int, host: str = "127.0.0.1") -> sockets.socket:
    connection = sockets.socket()
    connection.settimeout(60)
    connection.connect((host, port))
    connection.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
    return connection


def answers(connection: sockets.socket, count: int) -> list[dict]:
    """Receives messages of the daemon; fewer if it closes the connection."""
    found, unread = [], b""
    while len(found) < count:
        unread = unread.removeprefix(b"GT-TCP\r\n")
        if len(unread) >= 8 and len(unread) >= 8 + (length := int.from_bytes(unread[4:8], "little")):
            found.append(json.loads(unread[8 : 8 + length]))
            unread = unread[8 + length :]
            continue
        more = connection.recv(1 << 16)
        if not more:
            break
        unread += more
    return found


@contextlib.contextmanager
def session_of(daemon: Daemon, uid: int) -> Iterator[int]:
    """Keeps a session of a user open on the Unix socket, and yields its number."""
    program = f"""
import os, sys, gt
gt.tensor
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
print(gt.ones(3).sum().item(), flush=True)
sys.stdin.readline()
"""
    pipe = subprocess.PIPE
    env = environment(GT_CONNECT=f"unix:{daemon.socket}")
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        assert line_of(process) == "3.0"
        (session,) = [session["id"] for session in daemon.sessions() if session["uid"] == uid]
        yield session
    finally:
        process.kill()
        process.communicate()


def early_closers(port: int, victim: int) -> list[object]:
    """Begins sessions that ask for what only administrators may, and closes them in several ways at once."""
    commands = [{"message": "kill", "session": victim}, {"message": "drain", "on": True}]
    said = greeting() + b"".join(message(command) for command in commands)
    for number in range(400):
        # The daemon may have closed its end already.
        with connected(port) as connection, contextlib.suppress(OSError):
            how = number % 4
            if how == 3:
                connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(said)
            if how == 1:
                connection.shutdown(sockets.SHUT_WR)
            elif how == 2:
                connection.shutdown(sockets.SHUT_RDWR)
    return []


def test_a_client_that_closes_early_is_nobody_else() -> None:
    """A socket that its process has closed belongs to root in the kernel's table of sockets."""
    with daemon() as gtd, session_of(gtd, BEN) as victim:
        as_user(ANA, lambda: early_closers(gtd.port, victim))
        # A session that begins now comes after all others.
        with session_of(gtd, DAEMON):
            assert set(gtd.began()) <= {ANA, BEN, DAEMON}
        assert [session["id"] for session in gtd.sessions() if session["uid"] == BEN] == [victim]


def test_a_client_has_no_groups_of_the_daemons_by_tcp() -> None:
    """The daemon is a member of the group of administrators, its TCP clients are not."""
    asked = [
        {"message": "set_limits", "uid": BEN, "change": {"sessions": {"to": 1}}},
        {"message": "drain", "on": True},
        {"message": "reload"},
    ]

    def ask(victim: int) -> list[dict]:
        with connected(gtd.port) as connection:
            connection.sendall(greeting())
            told = answers(connection, 1)
            for request in [{"message": "kill", "session": victim}, *asked]:
                connection.sendall(message(request))
                told += answers(connection, 1)
            return told

    with daemon() as gtd, session_of(gtd, BEN) as victim:
        for uid in (ANA, 0, DAEMON):
            welcome, *refused = as_user(uid, lambda: ask(victim))
            assert welcome["answer"] == "welcome"
            assert [answer.get("code") for answer in refused] == ["not_permitted"] * 4, refused
        assert [session["id"] for session in gtd.sessions() if session["uid"] == BEN] == [victim]
