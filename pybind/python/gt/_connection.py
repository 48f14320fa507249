"""Which daemon a program's session is with, and what it is called.

Nothing here need be called: the first operation begins a session by itself, see docs/connecting.md.
"""

from __future__ import annotations

from types import TracebackType

from gt import _gt

__all__ = ["connect", "disconnect", "session"]


def connect(address: str | None = None, *, token: str | None = None) -> None:
    """Begins this process's session, with the daemon at `address`.

    Where the session has begun already, with that daemon, this does nothing. After the daemon has died, the next
    operation connects to the same address again; after `disconnect` the choice is forgotten.

    Args:
        address: `"unix:/run/gt/gtd.sock"` (or just the path), `"localhost:12345"`, or `"private"` for a daemon of this
            process's own. None connects to the daemon that the first operation would: the one that `GT_CONNECT` or
            `GT_SOCKET` names, the machine's, or a private one.
        token: What lets one in by TCP; None takes `GT_TOKEN`, or the file that the daemon wrote.

    Raises:
        ValueError: An address that cannot be read.
        DisconnectedError: There is no daemon, or it lets this user not in.
        RuntimeError: The session has begun, with another daemon.
    """
    _gt.connect(address, token)


def disconnect() -> None:
    """Ends this process's session, once everything that was issued is done. Its tensors are gone.

    The next operation begins another session, with the daemon that the environment names.
    """
    _gt.disconnect()


class session:  # noqa: N801 (it reads as a function)
    """Names this process's session, for those who look at `gtctl status`.

    `gt.session("ana-finetune")` names it from now on, whether it has begun or not. In a `with` statement the name is
    what it was before when the block ends: `with gt.session("ana-eval"):`. No session begins or ends by this, and
    tensors stay.

    Args:
        name: At most 64 bytes, without control characters.

    Raises:
        ValueError: A name that cannot be.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"session(): argument 'name' must be str, not {type(name).__name__}")
        self.name = name
        self._before = _gt.set_session_name(name)

    def __enter__(self) -> session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _gt.set_session_name(self._before)

    def __repr__(self) -> str:
        return f"gt.session({self.name!r})"
