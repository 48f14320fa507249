"""Signals: names for parts of a program, whose results a configuration can place on workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import NamedTuple

from gt import _gt, _sharding
from gt._gt import Tensor


class _Entered(NamedTuple):
    name: str
    thread: int
    # The signal state of the thread inside the context, and before it.
    under: int
    before: int


# A task inherits the signals of the task that made it.
_variable: ContextVar[tuple[_Entered, ...]] = ContextVar("gt.signal", default=())
_unknown: set[str] = set()


def _entered() -> tuple[_Entered, ...]:
    """The signals that the present task has entered, the last one last."""
    entered = _variable.get()
    # A thread may inherit the context variables of another, but begins with no signal.
    return entered if entered and entered[-1].thread == get_ident() else ()


def _under() -> int:
    """The signal state of the present task."""
    entered = _entered()
    under = entered[-1].under if entered else _gt.SIGNAL_NONE
    if not _switches_tasks():
        # The event loop has ended, so the thread's own state serves again.
        _gt.set_signal(under)
    return under


_gt.set_signal_lookup(_under)


def _switches_tasks() -> bool:
    """Whether this thread runs an event loop, which may switch tasks in the middle of a context."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _enter(name: str, backward: str | None, call: str) -> None:
    _sharding.check_name(name, call)
    if backward is not None:
        _sharding.check_name(backward, f"{call}: backward")
        _sharding.check_backward(name, backward, f"{call}({name!r}, backward={backward!r})")
    if _sharding.get_config(name) is None and name not in _unknown:
        _unknown.add(name)
        _gt.tell_unknown_signal(name)
    under = _gt.under_signal(_sharding.number(name), None if backward is None else _sharding.number(backward))
    before = _gt.set_signal(_gt.SIGNAL_ASK if _switches_tasks() else under)
    _variable.set((*_entered(), _Entered(name, get_ident(), under, before)))


def _leave(outer: tuple[_Entered, ...], before: int) -> None:
    _variable.set(outer)
    _gt.set_signal(_gt.SIGNAL_ASK if _switches_tasks() else before)


@contextmanager
def context(name: str, *, backward: str | None = None) -> Iterator[None]:
    """Runs a block, or as a decorator a function, under the signal `name`.

    A signal is a name for a part of a program. A configuration (`gt.load_config`, `gt.register_config`) says on which
    workers, and with which layout, the results of the operations under a signal are placed. This changes speed, never
    values, and a signal without a configuration changes nothing. In nested contexts, the innermost signal is the one
    that counts. Each thread and each asyncio task has signals of its own.

    Args:
        name: The signal.
        backward: The signal under which the gradients of these operations are computed, instead of the configured one.

    Raises:
        ValueError: The signals that `backward` leads to come back to `name`, in a cycle.
        RuntimeError: A signal that was entered inside has not been exited.

    Example:
        >>> with gt.signal.context("encoder"):
        ...     gt.signal.current()
        'encoder'
        >>> @gt.signal.context("head")
        ... def classify(x):
        ...     return x.softmax(dim=-1), gt.signal.current()
        >>> classify(gt.zeros(2))
        (tensor([0.5000, 0.5000]), 'head')
    """
    outer = _entered()
    _enter(name, backward, "gt.signal.context")
    inner = _entered()
    before = inner[-1].before
    try:
        yield
    except BaseException:
        _leave(outer, before)
        raise
    left = _entered()
    _leave(outer, before)
    if left != inner:
        open_name = left[-1].name if len(left) > len(inner) else name
        what = f"{open_name!r} was entered inside and not exited" if len(left) > len(inner) else "it was exited inside"
        raise RuntimeError(f"gt.signal.context({name!r}): {what}: pair each gt.signal.enter with a gt.signal.exit")


def enter(name: str, *, backward: str | None = None) -> None:
    """Enters the signal `name` until `exit(name)`; see `context`.

    Example:
        >>> gt.signal.enter("decoder")
        >>> gt.signal.current()
        'decoder'
        >>> gt.signal.exit("decoder")
    """
    _enter(name, backward, "gt.signal.enter")


def exit(name: str) -> None:
    """Exits the signal `name`: the one entered before it applies again.

    Raises:
        RuntimeError: `name` is not the signal that was entered last.
    """
    entered = _entered()
    if not entered:
        raise RuntimeError(f"gt.signal.exit({name!r}): no signal was entered; call gt.signal.enter({name!r}) before")
    last = entered[-1]
    if last.name != name:
        raise RuntimeError(f"gt.signal.exit({name!r}): the signal entered last is {last.name!r}: exit that one first")
    _leave(entered[:-1], last.before)


def current() -> str | None:
    """The signal of this thread or task; None outside all of them."""
    return _sharding.name_of(_gt.current_signal() & 0xFFFF_FFFF)


def tensor(x: Tensor, name: str) -> Tensor:
    """A copy of `x` placed as the signal `name` requests; gradients flow through it to `x`.

    Raises:
        IndexError: The signal shards along an axis that `x` does not have.

    Example:
        >>> gt.signal.tensor(gt.ones(2), "weights")
        tensor([1., 1.])
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"gt.signal.tensor: a Tensor is expected, not {type(x).__name__}; make one with gt.tensor")
    _sharding.check_axis(_sharding.check_name(name, "gt.signal.tensor"), x.dim())
    with context(name):
        return _gt.copy_of(x)
