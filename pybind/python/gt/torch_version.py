"""Version strings that compare by their numbers, under PyTorch's path: `torch.__version__ >= (2, 1)`, or `>= "2.1"`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from gt import _absent

__getattr__ = _absent.getter(__name__)

__all__ = ["TorchVersion"]

_FORM = re.compile(r"v?(?P<release>\d+(?:\.\d+)*)(?P<stage>[.-]?(?:a|b|rc|dev|post)[^+]*)?(?:\+(?P<local>.+))?", re.I)
_Key = tuple[tuple[int, ...], int, str]


def _key(version: object) -> _Key | None:
    """The sort key of a version: its numbers, whether it is a pre- or post-release, and its local part."""
    if not isinstance(version, str) and isinstance(version, Iterable):
        version = ".".join(str(part) for part in version)
    found = _FORM.fullmatch(str(version).strip())
    if found is None:
        return None
    numbers = [int(part) for part in found["release"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = found["stage"] or ""
    return tuple(numbers), (1 if "post" in stage else -1) if stage else 0, found["local"] or ""


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def method(self: TorchVersion, other: Any) -> bool:
        own, theirs = _key(str(self)), _key(other)
        # Strings that are no versions compare as text.
        return compare(own, theirs) if own and theirs else compare(str(self), str(other))

    return method


class TorchVersion(str):
    """A version string that compares with strings, tuples and versions of `packaging`."""

    __slots__ = ()
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __hash__ = str.__hash__
