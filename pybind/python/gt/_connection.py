"""The connection to a daemon, and the name of the session.

Calling these functions is optional: the first operation begins a session by itself, see docs/connecting.md.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from types import TracebackType

from gt import _gt

__all__ = ["connect", "disconnect", "session"]

# The token of the last `connect` that was given one, for the instruments, which connect as well.
token_given: str | None = None


def connect(
    address: str | None = None, *, token: str | None = None, devices: Iterable[int] | str | None = None
) -> None:
    """Begins this process's session with the daemon at an address.

    Calling it is optional: the first operation connects by itself. It has to come before the first operation, and does
    nothing if the session has already begun with that daemon. If the daemon dies, the tensors are lost, and the next
    operation connects to the same address again; `disconnect` forgets the address.

    Args:
        address: `"unix:/run/gt/gtd.sock"` (or just the path), `"localhost:12345"` for TCP, or `"private"` for a daemon
            of this process's own. If not given, the daemon that the environment variables `GT_CONNECT` or `GT_SOCKET`
            name; without them, the machine's; without one, a private daemon.
        token: The token for TCP; if not given, `GT_TOKEN`, or the token in the file that the daemon wrote.
        devices: The numbers of the daemon's devices that this session may use, in the order of `gtctl status`, as
            `[0, 1]` or `"0-3"`; if not given, those in the environment variable `GT_VISIBLE_DEVICES`, else all that
            the user may use. The session's workers are these, numbered from 0.

    Raises:
        ValueError: The address or the devices cannot be parsed.
        DisconnectedError: There is no daemon at the address, or it refuses this user, or these devices.
        RuntimeError: The session has begun with another daemon or other devices. Call `disconnect` first.

    Example:
        >>> import subprocess, sys
        >>> program = 'import gt; gt.connect("private"); print(gt.ones(3).sum().item())'
        >>> subprocess.check_output([sys.executable, "-c", program], text=True).strip()
        '3.0'
    """
    if devices is not None and not isinstance(devices, str):
        devices = f"[{','.join(str(operator.index(device)) for device in devices)}]"
    _gt.connect(address, token, devices)
    if token is not None:
        global token_given
        token_given = token


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
