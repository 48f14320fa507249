"""Methods of classes that are declared: they are compiled when the class is created, so that no call is indirect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """For type checkers, the decorator of classes whose annotations are the parameters of their constructor."""
        return lambda owner: owner


def compiled(owner: type, name: str, source: str, **scope: Any) -> Any:
    """A method of a class.

    Args:
        owner: The class.
        name: The method's name.
        source: Its parameters and its body, as `"(self, x): return x"`.
        scope: The names that the body uses besides.
    """
    exec(compile(f"def {name}{source}", f"<{owner.__qualname__}.{name}>", "exec"), scope)
    method = scope[name]
    method.__module__, method.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    return method


def constructor(owner: type, names: Sequence[str], defaults: Mapping[str, Any], annotations: Mapping[str, Any]) -> Any:
    """An `__init__` that passes all its arguments by name to the method `_set`.

    Args:
        owner: The class.
        names: The parameters, in order; `"*"` stands before those that are given by name alone.
        defaults: The default values of those that have one.
        annotations: The annotations of the parameters.
    """
    given = "".join(f", {name}=defaults[{name!r}]" if name in defaults else f", {name}" for name in names)
    passed = ", ".join(f"{name}={name}" for name in names if name != "*")
    made = compiled(owner, "__init__", f"(self{given}): self._set({passed})", defaults=defaults)
    made.__annotations__ = {**annotations, "return": None}
    made.is_derived = True
    return made
