"""The identity of a TCP client: the user of its connection, never another one, and no administrator by accident.

The users are real processes with user ids that the machine does not have, so these tests need root.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import TOKEN, environment, eventually, greeting, line_of, message
from support import gtd as path_of_gtd

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")

DAEMON, ANA, BEN = 61101, 61102, 61103
# The id of the group of administrators, which only the daemon of these tests sees.
ADMINISTRATORS = 61110
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
# The addresses of the daemon's machine and of the other one, in a network for documentation.
HERE, THERE = "198.51.100.1", "198.51.100.2"
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
def daemon(listen: str = "0", *options: str) -> Iterator[Daemon]:
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
        command += ["--socket", folder / "run/gtd.sock", "--listen", listen, "--announce", "--threads", "1"]
        command += ["--state", folder / "state", *options]
        env = environment(GT_TOKEN=TOKEN, GROUPS=str(ADMINISTRATORS), GROUPS_FILE=str(groups))
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            said = process.stdout.readline() + process.stdout.readline() + process.stdout.readline()
            port = re.search(r':(\d+)(#sha256:\w+)?"\)', said)
            assert port, (folder / "log").read_text()
            (folder / "run/gtd.sock").chmod(0o777)
            (folder / "state").chmod(0o700)
            yield Daemon(folder, int(port[1]))
        finally:
            process.kill()
            process.communicate()


def as_user(uid: int, work: object, *, namespace: str | None = None) -> list[object]:
    """Calls a function in a child process of another user, and returns the list that it returns.

    `namespace` names the network namespace of the child.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if namespace:
                with open(f"/run/netns/{namespace}") as file:
                    assert LIBC.setns(file.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
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


@pytest.fixture
def other_machine() -> Iterator[str]:
    """A network namespace, which is another machine to the daemon; yields its name."""
    name = f"gt-test-{os.getpid()}"
    inside = f"gtv{os.getpid()}"
    ip = ["ip", "-netns", name]
    try:
        for command in (
            ["ip", "netns", "add", name],
            ["ip", "link", "add", inside, "type", "veth", "peer", "name", "gt0", "netns", name],
            ["ip", "addr", "add", f"{HERE}/30", "dev", inside],
            ["ip", "link", "set", inside, "up"],
            [*ip, "addr", "add", f"{THERE}/30", "dev", "gt0"],
            [*ip, "link", "set", "gt0", "up"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"no network namespace: {' '.join(command)}: {done.stderr}")
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def new_token(daemon: Daemon, *words: object, uid: int = 0) -> tuple[int, str]:
    """Creates a token; returns its number and text."""
    token = json.loads(daemon.ctl("token", "create", *words, "--json", uid=uid))
    return token["id"], token["text"]


def conversation(port: int, token: str, *requests: dict, host: str = "127.0.0.1") -> list[dict]:
    """Begins a session, sends requests one after the other, and returns the answers."""
    with connected(port, host) as connection:
        connection.sendall(greeting(token=token))
        told = answers(connection, 1)
        for request in requests if told and told[0]["answer"] == "welcome" else ():
            connection.sendall(message(request))
            told += answers(connection, 1)
        return told


def test_a_client_from_another_machine_is_its_tokens_user(other_machine: str) -> None:
    def elsewhere(token: str, *requests: dict) -> list[dict]:
        return as_user(BEN, lambda: conversation(gtd.port, token, *requests, host=HERE), namespace=other_machine)

    with daemon(f"{HERE}:0", "--listen-plain", "on") as gtd, session_of(gtd, BEN) as victim:
        (refused,) = elsewhere(TOKEN)
        assert refused["code"] == "not_permitted"
        assert refused["text"].startswith("the daemon's own token is for programs on its machine; from elsewhere, use")
        _, of_ana = new_token(gtd, "--user", ANA)
        kill = {"message": "kill", "session": victim}
        (welcome, killed, status) = elsewhere(of_ana, kill, {"message": "status"})
        assert (welcome["answer"], killed["code"]) == ("welcome", "not_permitted")
        (own,) = [session for session in status["sessions"] if session["id"] == welcome["session"]["session_id"]]
        assert own["uid"] == ANA
        assert own["from"].startswith(f"{THERE}:")
        # A user has one quota, wherever the sessions come from.
        gtd.ctl("limits", "set", "--user", ANA, "--sessions", 1)
        with session_of(gtd, ANA):
            (refused,) = elsewhere(of_ana)
            assert (refused["code"], refused["limit"]) == ("too_many_sessions", 1)
        _, of_admin = new_token(gtd, "--user", ANA, "--admin")
        create = {"message": "token_create", "lifetime_s": 60}
        (_, refused, killed) = elsewhere(of_admin, create, kill)
        assert (refused["code"], killed["message"]) == ("not_permitted", "killed")
        assert "not by TCP" in refused["text"]


def error_of(address: str, token: str) -> str:
    """Returns the error with which a program does not connect; `none` if it computes."""
    program = """
import gt
try:
    gt.connect()
    assert (gt.ones(3) + 1).sum().item() == 6
    print("none")
except Exception as error: print(error)
"""
    env = environment(GT_CONNECT=address, GT_TOKEN=token)
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_travels_to_another_machine_in_clear(other_machine: str) -> None:
    def elsewhere(address: str) -> str:
        return as_user(0, lambda: [error_of(address, token)], namespace=other_machine)[0]

    with daemon(f"{HERE}:0") as gtd:
        _, token = new_token(gtd, "--user", ANA)
        at = f"{HERE}:{gtd.port}"
        tls = f"tls://{at}#{json.loads(gtd.ctl('status', '--json'))['tcp']['fingerprint']}"
        assert f"other machines connect to {tls}" in gtd.ctl("status")
        # The client sends no token where anybody may read it, unless the address says so; the daemon takes none.
        assert elsewhere(at).startswith(f"the daemon at {at} is on another machine, and the token would travel there")
        plain = elsewhere(f"tcp://{at}")
        assert plain.startswith(f"the daemon at {at}: this daemon takes connections of other machines with TLS alone")
        (refused,) = as_user(BEN, lambda: conversation(gtd.port, token, host=HERE), namespace=other_machine)
        assert refused["code"] == "not_permitted"
        assert "have it revoked, with gtctl token revoke" in refused["text"]
        assert gtd.began() == []
        assert elsewhere(tls) == "none"
        assert gtd.began() == [ANA]
        # A connection within the machine does not travel, whatever its address.
        assert error_of(at, token) == "none"
    with daemon(f"{HERE}:0", "--listen-plain", "on") as gtd:
        _, token = new_token(gtd, "--user", ANA)
        at = f"{HERE}:{gtd.port}"
        assert elsewhere(f"tcp://{at}") == "none"
        assert "is on another machine" in elsewhere(at)


def test_a_token_on_this_machine_is_for_its_own_user() -> None:
    with daemon() as gtd:
        number, text = new_token(gtd, uid=ANA)
        for uid, answer in ((ANA, "welcome"), (BEN, "refused"), (0, "welcome")):
            (told,) = as_user(uid, lambda: conversation(gtd.port, text))
            assert told["answer"] == answer
            if uid == BEN:
                why = f"token {number} is user {ANA}'s, and the connection comes from user {BEN}"
                assert told["text"].startswith(why)
        assert gtd.began() == [ANA, ANA]


def test_users_have_tokens_of_their_own_and_administrators_any() -> None:
    with daemon() as gtd:
        number, text = new_token(gtd, uid=ANA)
        stored = gtd.folder / "state/tokens.json"
        assert stored.stat().st_mode & 0o777 == 0o600
        assert text.rpartition("-")[2] not in stored.read_text()
        for words in (["--user", BEN], ["--admin"]):
            assert "only administrators may create" in gtd.ctl("token", "create", *words, uid=ANA, status=4)
        of_ben, _ = new_token(gtd, "--user", BEN, "--expires", "1h", "--admin")
        for uid, expected in ((0, [number, of_ben]), (ANA, [number]), (BEN, [of_ben])):
            assert [token["id"] for token in json.loads(gtd.ctl("token", "list", "--json", uid=uid))] == expected
        assert f"you have no token {of_ben}" in gtd.ctl("token", "revoke", of_ben, uid=ANA, status=1)
        said = gtd.ctl("token", "revoke", of_ben, uid=BEN)
        assert said == f"token {of_ben} of {BEN} was revoked; it had no sessions\n"
        for words in (["--expires", "0d"], ["--expires", "11000d"], ["--expires", "soon"], ["--user", "nobody-knows"]):
            gtd.ctl("token", "create", *words, status=1 if words[1][0] in "01" else 2)


def test_a_revoked_token_ends_its_sessions() -> None:
    with daemon() as gtd:
        number, text = new_token(gtd, uid=ANA)

        def until_revoked() -> list[object]:
            with connected(gtd.port) as connection:
                connection.sendall(greeting(token=text))
                told = answers(connection, 1)
                gtd_revokes.send(b".")
                return [*told, *answers(connection, 2)]

        gtd_revokes, ready = sockets.socketpair()
        ready.settimeout(60)
        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(as_user, ANA, until_revoked)
            assert ready.recv(1) == b"."
            assert json.loads(gtd.ctl("token", "revoke", number, "--json"))["sessions"] == 1
            welcome, ended = client.result(timeout=60)
        assert (welcome["answer"], ended["code"]) == ("welcome", "killed")
        assert ended["text"].startswith(f"token {number} was revoked")
        (refused,) = as_user(ANA, lambda: conversation(gtd.port, text))
        assert refused["text"].startswith("wrong token")


def test_a_token_expires() -> None:
    with daemon() as gtd:
        number, text = new_token(gtd, "--expires", "2s", uid=ANA)
        (told,) = as_user(ANA, lambda: conversation(gtd.port, text))
        assert told["answer"] == "welcome"
        eventually(
            lambda: (
                as_user(ANA, lambda: conversation(gtd.port, text))[0]
                .get("text", "")
                .startswith(f"token {number} has expired")
            ),
            "the end of the token",
        )


def guesses(port: int, count: int) -> list[object]:
    """Tries wrong tokens on several connections at once, and returns the texts of the refusals."""

    def guess(number: int) -> str:
        return conversation(port, f"{number:064x}")[0]["text"]

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(guess, range(count)))


def test_a_user_who_guesses_tokens_is_refused_and_no_other() -> None:
    with daemon() as gtd:
        told = as_user(BEN, lambda: guesses(gtd.port, 200))
        assert sum(text.startswith("wrong token") for text in told) == 8
        assert sum(text.startswith(f"too many wrong tokens came from user {BEN}: try again in") for text in told) == 192
        _, of_ben = new_token(gtd, uid=BEN)
        for token in (TOKEN, of_ben):
            (refused,) = as_user(BEN, functools.partial(conversation, gtd.port, token))
            assert refused["text"].startswith("too many wrong tokens"), "even with the right one"
        (told,) = as_user(ANA, lambda: conversation(gtd.port, TOKEN))
        assert told["answer"] == "welcome"
        lines = [line for line in gtd.log.read_text().splitlines() if "token" in line and f"user {BEN}" in line]
        assert len([line for line in lines if "created" not in line]) == 2, lines


def test_a_name_has_no_characters_that_cannot_be_seen() -> None:
    with daemon() as gtd:
        for character in "\u202e\u200b\u2066\u00ad\ufeff\U000e0041\x1b":
            hello = {"protocol_version": 1, "client_version": "0", "role": "client", "name": f"a{character}b"}
            with connected(gtd.port) as connection:
                connection.sendall(greeting(hello=hello))
                (told,) = answers(connection, 1)
                assert "others that cannot be seen" in told["text"]
        hello["name"] = "ana-Ünïcode-训练 7"
        with connected(gtd.port) as connection:
            connection.sendall(greeting(hello=hello))
            assert answers(connection, 1)[0]["answer"] == "welcome"
            (session,) = gtd.sessions()
            assert (session["name"], session["user"]) == (hello["name"], "root")
