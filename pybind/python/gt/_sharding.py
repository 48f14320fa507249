"""The configuration of signals: the placement of results on several workers.

Start at `load_config`, which reads a file, and `register_config`, which takes the same from Python. Every error names
the position of the wrong value.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from gt import _gt

__all__ = [
    "ShardConfig",
    "SignalConfig",
    "clear_config",
    "get_config",
    "gpu_workers",
    "load_config",
    "register_config",
]

RANK_MAX = 8
FILE_BYTES_MAX = 1 << 20
CONFIG_ENV = "GT_CONFIG"


class _ConfigError(ValueError):
    """An invalid value in a configuration, and the key under which it was written."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}" if key else text)
        self.key, self.text = key, text


@dataclass(frozen=True)
class ShardConfig:
    """The placement of tensors on workers.

    Attributes:
        axis: The axis along which tensors are sharded; negative ones count from the end. Tensors without it are left
            alone.
        workers: The indices of the workers; None means all, or with a mesh as many as it has, from 0.
        replicated: Whether each worker has a copy instead of a shard; `axis` then has no effect.
        mesh: The rows and columns in which the workers stand, as `(2, 4)`: tensors are laid out over both, as in
            PyTorch's `DeviceMesh`.
        axes: For the rows and for the columns of a mesh: the axis along which tensors are sharded, or `"replicated"`,
            or None for what the daemon chooses. The second divides what the first left to a row. A tensor that lacks
            the axis, or that it would not divide evenly, is left alone.

    Raises:
        ValueError: The axis, a worker or the mesh is invalid.

    Example:
        >>> gt.ShardConfig(axis=0, workers=[0, 1]).axis
        0
        >>> gt.ShardConfig(mesh=(2, 2), axes=(0, "replicated")).workers
        (0, 1, 2, 3)
    """

    axis: int | None = None
    workers: Sequence[int] | None = None
    replicated: bool = False
    mesh: tuple[int, int] | None = None
    axes: tuple[int | str | None, int | str | None] | None = None

    def __post_init__(self) -> None:
        if self.axis is not None:
            _check_axis("axis", self.axis)
        if not isinstance(self.replicated, bool):
            raise _ConfigError("replicated", f"{self.replicated!r} is neither true nor false")
        if self.workers is not None:
            object.__setattr__(self, "workers", _workers(self.workers))
        if self.mesh is not None or self.axes is not None:
            self._check_mesh()
        elif self.axis is None and not self.replicated and (self.workers is None or len(self.workers) > 1):
            raise _ConfigError(
                "", "say along which axis tensors are cut (axis: 0), or that each worker has a copy (replicated: true)"
            )

    def _check_mesh(self) -> None:
        if self.axis is not None or self.replicated:
            key = "replicated" if self.axis is None else "axis"
            raise _ConfigError(key, "with a mesh, axes has an axis or 'replicated' for each of its dimensions")
        mesh = _pair("mesh", self.mesh, "the numbers of rows and columns, as [2, 4]")
        if not all(_is_int(size) and size >= 1 for size in mesh) or mesh[0] * mesh[1] > _gt.WORKERS_MAX:
            limit = f"two numbers from 1, of at most {_gt.WORKERS_MAX} workers together, are expected"
            raise _ConfigError("mesh", f"{list(mesh)} is no mesh: {limit}")
        axes = _pair("axes", self.axes, "an axis, 'replicated' or null for the rows and for the columns, as [0, null]")
        for axis in axes:
            if axis is not None and axis != "replicated":
                _check_axis("axes", axis)
        workers = tuple(range(mesh[0] * mesh[1])) if self.workers is None else self.workers
        if len(workers) != mesh[0] * mesh[1]:
            raise _ConfigError(
                "mesh", f"{mesh[0]} × {mesh[1]} are {mesh[0] * mesh[1]} workers, and {len(workers)} are named"
            )
        for name, value in (("mesh", mesh), ("axes", axes), ("workers", workers)):
            object.__setattr__(self, name, value)


def _check_axis(key: str, axis: object) -> None:
    if not (isinstance(axis, int) and _is_int(axis) and -RANK_MAX <= axis < RANK_MAX):
        most = f"a tensor has at most {RANK_MAX} dimensions: write a number from {-RANK_MAX} to {RANK_MAX - 1}"
        most += ", 'replicated' or null" if key == "axes" else ""
        raise _ConfigError(key, f"{axis!r} is no axis: {most}")


def _pair(key: str, value: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _ConfigError(key, f"{what}, is expected, not {value!r}")
    return tuple(value)


@dataclass(frozen=True)
class SignalConfig:
    """The configuration of a signal.

    Attributes:
        shard: The placement of the results of operations under the signal; None requests nothing.
        backward: The signal under which the gradients of these operations are computed.
        compile: Whether the daemon plans operations under the signal where they repeat: True, False, or None for what
            `GT_AUTO_COMPILE` says.
        backward_signal: Another name of `backward`.

    Raises:
        ValueError: A value is invalid.
    """

    shard: ShardConfig | None = None
    backward: str | None = None
    compile: bool | None = None
    backward_signal: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.backward is None:
            object.__setattr__(self, "backward", self.backward_signal)
        elif self.backward_signal not in (None, self.backward):
            text = f"this is another name of backward, which is {self.backward!r}: leave one of them out"
            raise _ConfigError("backward_signal", text)
        object.__setattr__(self, "backward_signal", self.backward)
        if self.shard is not None and not isinstance(self.shard, ShardConfig):
            raise _ConfigError("shard", f"a gt.ShardConfig is expected, not {self.shard!r}")
        if self.backward is not None and not (isinstance(self.backward, str) and self.backward):
            raise _ConfigError("backward", f"the name of a signal is expected, not {self.backward!r}")
        if not isinstance(self.compile, bool | None):
            raise _ConfigError("compile", f"{self.compile!r} is neither true nor false")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _workers(workers: object) -> tuple[int, ...]:
    if not isinstance(workers, Iterable) or isinstance(workers, str):
        raise _ConfigError("workers", f"a list of numbers is expected, not {workers!r}; null means all")
    found = tuple(workers)
    for worker in found:
        if not _is_int(worker) or not 0 <= worker < _gt.WORKERS_MAX:
            raise _ConfigError(
                "workers", f"{worker!r} is no worker: they are numbered from 0 to {_gt.WORKERS_MAX - 1} at most"
            )
    if not found:
        raise _ConfigError("workers", "the list is empty: name some, or write null for all")
    if twice := [worker for worker in found if found.count(worker) > 1]:
        raise _ConfigError("workers", f"worker {twice[0]} is named twice")
    return found


# Configurations ---------------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    config: SignalConfig
    # The position of a key, as error messages name it.
    written: Callable[[str], str]


_entries: dict[str, _Entry] = {}
_numbers: dict[str, int] = {}
_next_number = count(1)


def number(name: str) -> int:
    """The number by which the daemon knows a signal."""
    found = _numbers.get(name) or _numbers.setdefault(name, next(_next_number))
    if found > _gt.SIGNALS_MAX:
        raise RuntimeError(f"a program may name {_gt.SIGNALS_MAX:,} signals; use the same names again")
    return found


def name_of(number: int) -> str | None:
    """The signal with this number; None for 0, which stands for no signal."""
    return next((name for name, known in _numbers.items() if known == number), None)


def get_config(name: str) -> SignalConfig | None:
    """The configuration of a signal; None if there is none."""
    entry = _entries.get(name)
    return None if entry is None else entry.config


def clear_config() -> None:
    """Removes the configurations of all signals."""
    _entries.clear()
    _gt.forget_signals()


def register_config(name: str, config: SignalConfig) -> None:
    """Sets the configuration of the signal `name`, and replaces an earlier one.

    Raises:
        TypeError: `config` is no `SignalConfig`.
        ValueError: `backward` leads back to the signal, or a worker does not exist.

    Example:
        >>> gt.register_config("encoder", gt.SignalConfig(shard=gt.ShardConfig(axis=0)))
        >>> gt.get_config("encoder").shard.axis
        0
        >>> gt.clear_config()
    """
    if not isinstance(config, SignalConfig):
        raise TypeError(f"register_config({name!r}): a gt.SignalConfig is expected, not {type(config).__name__}")
    call = f"register_config({check_name(name, 'register_config')!r})"
    _register({name: _Entry(config, lambda key: f"{call}: {key}")})


def check_name(name: object, call: str) -> str:
    """Checks that `name` is valid for a signal, and returns it."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"{call}: a signal's name is a string of at least one letter, not {name!r}")
    return name


def _register(new: dict[str, _Entry]) -> None:
    merged = {**_entries, **new}
    for name, entry in new.items():
        check_backward(name, entry.config.backward, entry.written("backward"), merged)
    _gt.define_signals([_definition(name, entry) for name, entry in new.items()])
    _entries.update(new)


def check_backward(name: str, backward: str | None, written: str, entries: dict[str, _Entry] | None = None) -> None:
    """Raises if the backward signals lead back to `name`."""
    entries = _entries if entries is None else entries
    path = [name]
    while backward is not None:
        path.append(backward)
        if backward == name:
            way = " → ".join(path)
            raise ValueError(f"{written}: {way} leads back to where it began: name a signal of its own for gradients")
        if path.count(backward) > 1:
            return  # A cycle elsewhere is reported where it is written.
        entry = entries.get(backward)
        backward = None if entry is None else entry.config.backward


_ANY, _REPLICATED = ("any", 0), ("replicated", 0)


def _layout(axis: int | str | None) -> tuple[str, int]:
    if isinstance(axis, int):
        return "sharded", axis
    return _ANY if axis is None else _REPLICATED


def _definition(
    name: str, entry: _Entry
) -> tuple[int, int, Sequence[tuple[str, int]], Sequence[int], int | None, bool | None, str]:
    shard, backward = entry.config.shard, entry.config.backward
    rows, layouts, workers = 0, [_ANY, _ANY], ()
    if shard is not None:
        workers = shard.workers or ()
        if shard.mesh is not None and shard.axes is not None:
            rows, layouts = shard.mesh[0], [_layout(axis) for axis in shard.axes]
        else:
            layouts[0] = _REPLICATED if shard.replicated or shard.axis is None else _layout(shard.axis)
    after = None if backward is None else number(backward)
    return number(name), rows, layouts, workers, after, entry.config.compile, entry.written("shard.workers")


def check_axis(name: str, rank: int) -> None:
    """Raises if the signal `name` shards along an axis that a tensor of `rank` axes does not have."""
    entry = _entries.get(name)
    shard = None if entry is None else entry.config.shard
    if entry is None or shard is None or shard.replicated:
        return
    key, axes = ("axis", [shard.axis]) if shard.axes is None else ("axes", shard.axes)
    for axis in axes:
        if isinstance(axis, int) and not -rank <= axis < rank:
            other = "replicated: true, or no shard" if shard.axes is None else "'replicated' or null"
            fits = f"an axis from {-rank} to {rank - 1}" if rank else other
            raise IndexError(
                f"{entry.written(f'shard.{key}')}: there is no axis {axis} in the tensor of {rank} dimensions that "
                f"gt.signal.tensor was given for {name!r}: write {fits}"
            )


# Files ----------------------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    line: int
    column: int
    kind: str
    holds: Any


_KINDS = {"null": "nothing", "list": "a list", "map": "a mapping"}


def _said(node: _Node) -> str:
    return _KINDS.get(node.kind, repr(node.holds))


class _File:
    """A configuration file, parsed with the positions of its nodes."""

    def __init__(self, path: str | os.PathLike[str], call: str) -> None:
        self.name = os.fspath(path)
        try:
            size = Path(path).stat().st_size
            if size > FILE_BYTES_MAX:
                raise ValueError(f"{call}: {self.name} has {size:,} bytes; {FILE_BYTES_MAX:,} are allowed")
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise FileNotFoundError(f"{call}: there is no file {self.name!r} (from {os.getcwd()})") from None
        except OSError as error:
            raise type(error)(f"{call}: {self.name!r} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name}: this is no text in UTF-8: {error.reason} at byte {error.start}") from None
        try:
            self.root = _Node(*_gt.read_yaml(text))
        except ValueError as error:
            line, column, why = error.args
            raise ValueError(f"{self.name}:{line}:{column}: this is no YAML: {why}") from None

    def at(self, node: _Node) -> str:
        return f"{self.name}:{node.line}:{node.column}"

    def pairs(self, node: _Node, what: str, known: Sequence[str] | None = None) -> dict[str, tuple[_Node, _Node]]:
        """The keys of a mapping, each with its position and its value."""
        if node.kind != "map":
            raise ValueError(
                f"{self.at(node)}: {what} is a mapping of {_listed(known or ['signals'])}, not {_said(node)}"
            )
        found = {}
        for key, value in ((_Node(*key), _Node(*value)) for key, value in node.holds):
            if key.kind != "str" or not key.holds:
                raise ValueError(f"{self.at(key)}: {what}: a key is a name, not {_said(key)}; put it in quotes")
            if known is not None and key.holds not in known:
                raise ValueError(f"{self.at(key)}: {what}: unknown key {key.holds!r}{_did_you_mean(key.holds, known)}")
            found[key.holds] = key, value
        return found

    def entries(self) -> dict[str, _Entry]:
        """The configuration of each signal in the file."""
        return {name: self.entry(name, value) for name, (_, value) in self.pairs(self.root, "a configuration").items()}

    def entry(self, name: str, node: _Node) -> _Entry:
        signal = self.pairs(node, name, _keys(SignalConfig))
        places = {"": node, **{key: value for key, (_, value) in signal.items()}}
        values = {key: self.plain(value, f"{name}.{key}") for key, (_, value) in signal.items() if key != "shard"}
        if "shard" in signal and signal["shard"][1].kind != "null":
            shard = self.pairs(signal["shard"][1], f"{name}.shard", _keys(ShardConfig))
            places |= {f"shard.{key}": value for key, (_, value) in shard.items()}
            plain = {key: self.plain(value, f"{name}.shard.{key}") for key, (_, value) in shard.items()}

        def written(key: str) -> str:
            found = places.get(key) or places.get(key.partition(".")[0]) or node
            return f"{self.at(found)}: {name}" + (f".{key}" if key else "")

        prefix = "shard"
        try:
            if len(places) > 1 and "shard" in places and places["shard"].kind != "null":
                values["shard"] = ShardConfig(**plain)
            prefix = ""
            return _Entry(SignalConfig(**values), written)
        except _ConfigError as wrong:
            key = ".".join(part for part in (prefix, wrong.key) if part)
            raise ValueError(f"{written(key)}: {wrong.text}") from None

    def plain(self, node: _Node, what: str) -> Any:
        """A number, a string, a bool, None, or a list of these."""
        if node.kind == "map":
            raise ValueError(f"{self.at(node)}: {what} is no mapping")
        return [self.plain(_Node(*item), what) for item in node.holds] if node.kind == "list" else node.holds


def _keys(config: type) -> list[str]:
    return [field.name for field in fields(config)]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return (f": did you mean {close[0]!r}?" if close else "") + f" (known are {_listed(known)})"


def load_config(path: str | os.PathLike[str]) -> None:
    """Loads the configurations of signals from a YAML file.

    They are added to the present ones, and replace those of the same signals. The file that `GT_CONFIG` names is loaded
    when `gt` is imported.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A value is invalid; the message names the line. Nothing of the file is then in effect.
    """
    _register(_File(path, "load_config").entries())


def load_named_config() -> None:
    """Loads the file that `GT_CONFIG` names, if it names one."""
    if path := os.environ.get(CONFIG_ENV):
        _register(_File(path, CONFIG_ENV).entries())


def gpu_workers(count: int) -> None:
    """Begins the session with a number of workers, each of which holds tensors and computes.

    Call it before the first operation. A private daemon is started with this number of workers: on GPUs if the machine
    has that many, otherwise on the processor's cores. A daemon that already runs must have at least as many.

    Args:
        count: The number of workers.

    Raises:
        RuntimeError: The session has begun already, or the daemon has fewer workers.
        ValueError: The number is not possible.
    """
    if not _is_int(count) or not 1 <= count <= _gt.WORKERS_MAX:
        raise ValueError(f"gpu_workers({count!r}): from 1 to {_gt.WORKERS_MAX} workers are possible")
    _gt.start_workers(count)
