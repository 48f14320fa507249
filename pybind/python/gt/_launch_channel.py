"""Messages between rank 0 of a job and the other ranks, by TCP, that only a holder of the job's secret can write.

Each side begins with a line that has a random number. A message is a line of JSON with an HMAC (SHA-256), whose key
follows from the secret and both numbers, so that nobody can forge, repeat or reorder them, and a process without the
secret learns nothing. The messages themselves can be read on the way; `seal` hides what must not be, the secret of an
invitation, under a one-time pad of the same length. Tensors do not travel here: nodes use TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from gt._launch_job import LaunchError

SECRET_CHARACTERS_MIN = 32
"""The fewest characters of a secret: 128 bits as hexadecimal digits."""

_GREETING = "GT-LAUNCH 1"
_LINE_BYTES_MAX = 64 << 10
_BYTES_AT_ONCE = 64 << 10
_SEND_DEADLINE_S = 10.0


class ChannelError(Exception):
    """The other side has gone, or does not know the secret."""


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), hashlib.sha256).digest()


class Channel:
    """One side of a connection.

    Args:
        connection: The connected socket.
        secret: The job's secret.
        leads: Whether this side is rank 0.
    """

    def __init__(self, connection: socket.socket, secret: str, *, leads: bool) -> None:
        self.socket = connection
        self._secret = secret.encode()
        self._own, self._other = (b"rank 0", b"rank") if leads else (b"rank", b"rank 0")
        self._nonce = secrets.token_hex(16)
        self._key: bytes | None = None
        self._pad_key = b""
        self._received = b""
        self._counts = {self._own: 0, self._other: 0}
        connection.settimeout(_SEND_DEADLINE_S)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._write(f"{_GREETING} {self._nonce}\n".encode())

    def fileno(self) -> int:
        """The descriptor, for `wait_for`."""
        return self.socket.fileno()

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()

    def _write(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise ChannelError(f"the connection broke: {error}") from error

    @property
    def is_greeted(self) -> bool:
        """Whether the other side's number has come, without which nothing can be sent."""
        return self._key is not None

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message.

        Raises:
            ChannelError: If the connection has broken.
        """
        text = json.dumps(message).encode()
        self._write(text + b" " + self._tag(self._own, text).hex().encode() + b"\n")

    def _tag(self, side: bytes, text: bytes) -> bytes:
        assert self._key is not None
        number = self._counts[side]
        self._counts[side] += 1
        return _mac(self._key, side, number.to_bytes(8, "big"), text)

    def seal(self, digits: str) -> str:
        """Hides, or shows again, a secret of 64 hexadecimal digits; once per connection."""
        pad = _mac(self._pad_key, b"pad")
        value = bytes.fromhex(digits)
        if len(value) != len(pad):
            raise ChannelError(f"a secret of {len(digits)} digits")
        return bytes(one ^ other for one, other in zip(value, pad, strict=True)).hex()

    def receive(self) -> list[dict[str, Any]]:
        """Reads what has come, and returns the complete messages.

        Raises:
            ChannelError: If the other side has gone or does not know the secret.
        """
        try:
            data = self.socket.recv(_BYTES_AT_ONCE)
        except OSError as error:
            raise ChannelError(f"the connection broke: {error}") from error
        if not data:
            raise ChannelError("the other side has closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > _LINE_BYTES_MAX:
            raise ChannelError("a line that is too long")
        messages = []
        for line in lines:
            if self._key is None:
                self._greet(line)
            else:
                messages.append(self._message(line))
        return messages

    def _greet(self, line: bytes) -> None:
        greeting, _, nonce = line.decode("latin-1").rpartition(" ")
        if greeting != _GREETING or len(nonce) != len(self._nonce):
            raise ChannelError("the other side is no rank of a job of gt.launch of this version")
        numbers = [self._nonce, nonce] if self._own == b"rank 0" else [nonce, self._nonce]
        both = [number.encode("latin-1") for number in numbers]
        self._key, self._pad_key = (_mac(self._secret, purpose, *both) for purpose in (b"messages", b"pad"))

    def _message(self, line: bytes) -> dict[str, Any]:
        text, _, tag = line.rpartition(b" ")
        if not hmac.compare_digest(tag, self._tag(self._other, text).hex().encode()):
            raise ChannelError("the other side does not know the job's secret")
        message = json.loads(text)
        if not isinstance(message, dict):
            raise ChannelError("a message that is no object")
        return message


def listen(port: int) -> socket.socket:
    """Listens at `port` of all addresses; 0 takes any.

    Raises:
        LaunchError: If the port is in use.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, backlog=1024, dualstack_ipv6=family == socket.AF_INET6, reuse_port=False
        )
    except OSError as error:
        raise LaunchError(
            f"rank 0 cannot listen at port {port} for the other ranks: {error.strerror}; choose another with "
            "GT_LAUNCH_PORT on all ranks"
        ) from error


def secret_of(env: Mapping[str, str]) -> str | None:
    """Returns the secret in the environment; none if there is none.

    Raises:
        LaunchError: If it is too short to be safe.
    """
    secret = env.get("GT_LAUNCH_SECRET") or None
    if secret is not None and len(secret) < SECRET_CHARACTERS_MIN:
        raise LaunchError(
            f"GT_LAUNCH_SECRET has {len(secret)} characters, and has to have {SECRET_CHARACTERS_MIN} that nobody can "
            "guess: make one with openssl rand -hex 32"
        )
    return secret


# The file in a shared folder ---------------------------------------------------------------------------------------


def default_folder(env: Mapping[str, str]) -> str:
    """Returns the folder in which rank 0 leaves a file for the others.

    Raises:
        LaunchError: If nothing names one.
    """
    if folder := env.get("GT_LAUNCH_FOLDER"):
        return folder
    config = env.get("XDG_CONFIG_HOME") or (env.get("HOME") and os.path.join(env["HOME"], ".config"))
    if not config:
        raise LaunchError(
            "there is no folder in which the ranks can meet: set HOME, GT_LAUNCH_FOLDER or GT_LAUNCH_SECRET"
        )
    return os.path.join(config, "gt", "launch")


def publish(path: str, document: dict[str, Any]) -> None:
    """Writes a file that only its user can read, whole or not at all.

    Raises:
        LaunchError: If it cannot be written.
    """
    next_path = f"{path}.{secrets.token_hex(4)}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(next_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(next_path, path)
    except OSError as error:
        raise LaunchError(
            f"rank 0 cannot write {path}, by which the other ranks find it: {error.strerror}; name a folder that all "
            "machines of the job share with GT_LAUNCH_FOLDER"
        ) from error


def published(path: str) -> dict[str, Any] | None:
    """Returns what rank 0 has published; none if it has not yet.

    Raises:
        LaunchError: If others could have written or can read the file.
    """
    try:
        # A network file system may remember for a while that there is no such file, unless the folder is read.
        os.listdir(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LaunchError(f"{path}, by which this rank finds rank 0, cannot be read: {error.strerror}") from error
    with open(descriptor, encoding="utf-8") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise LaunchError(
                f"{path} belongs to user {about.st_uid} with mode {about.st_mode & 0o777:03o}, and has to be yours "
                "alone (mode 600): others could read or write it; remove it, or choose another GT_LAUNCH_FOLDER"
            )
        try:
            document = json.load(file)
        except ValueError:
            # Rank 0 replaces the file whole; this one is of somebody else, or of a disk that was full.
            return None
    return document if isinstance(document, dict) else None
