"""The connection to a daemon, and the name of the session.

Calling these functions is optional: the first operation begins a session by itself, see docs/connecting.md.
"""

from __future__ import annotations

from types import TracebackType

from gt import _gt

__all__ = ["connect", "disconnect", "session"]


def connect(address: str | None = None, *, token: str | None = None) -> None:
    """Begins this process's session with the daemon at an address.

    It does nothing if the session has begun with that daemon. After the daemon has died, the next operation connects to
    the same address again; `disconnect` forgets it.

    Args:
        address: `"unix:/run/gt/gtd.sock"` (or just the path), `"localhost:12345"`, or `"private"` for a daemon of this
            process's own. Without it, the daemon is that of the first operation: the one that `GT_CONNECT` or
            `GT_SOCKET`
            names, the machine's, or a private one.
        token: The token for TCP; by default `GT_TOKEN`, or that of the file which the daemon wrote.

    Raises:
        ValueError: The address cannot be parsed.
        DisconnectedError: There is no daemon, or it refuses this user.
        RuntimeError: The session has begun with another daemon.
    """
    _gt.connect(address, token)


def disconnect() -> None:
    """Ends this process's session once all issued instructions are done. Its tensors are lost.

    The next operation begins another session, with the daemon that the environment names.
    """
    _gt.disconnect()


class session:  # noqa: N801 (it reads as a function)
    """Names this process's session, as `gtctl status` shows it.

    `gt.session("ana-finetune")` sets the name, whether the session has begun or not. As a context manager,
    `with gt.session("ana-eval"):`, it restores the former name at its end. Sessions and tensors are not affected.

    Args:
        name: The name: at most 64 bytes, without control characters.

    Raises:
        ValueError: The name is not valid.

    Example:
        >>> with gt.session("evaluation"):
        ...     total = gt.ones(3).sum().item()
        >>> total
        3.0
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
