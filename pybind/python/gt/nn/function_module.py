"""`FunctionModule`, the base of modules that are declared by their options and their function."""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations
from typing import Any, ClassVar

from gt._declare import compiled, constructor, dataclass_transform
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.module import Module


@dataclass_transform()
class FunctionModule(Module):
    """The base of modules that keep options as attributes and pass them to a function of `gt.nn.functional`.

    A subclass names the function, and declares its options as annotated attributes in the order of its constructor:

        class LeakyReLU(FunctionModule, function="leaky_relu"):
            negative_slope: float = 0.01
            inplace: bool = False

    The constructor, `forward` and `extra_repr` follow. A class without `function` declares nothing.
    """

    # The parameters of `forward`, and the options that `repr` shows: all, if it is None.
    _inputs: ClassVar[tuple[str, ...]] = ("input",)
    _shown: ClassVar[tuple[str, ...] | None] = None
    _options: ClassVar[tuple[str, ...]] = ()
    # Options that the function does not take.
    _kept: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(
        cls,
        *,
        function: str | Callable[..., Any] | None = None,
        by_name: bool = False,
        also: tuple[str, ...] = (),
    ) -> None:
        """Completes a declared class.

        Args:
            function: The function, or the name of a declared one; empty for a base class, which only declares options.
            by_name: Whether the constructor takes its options by name alone.
            also: More attributes that the function takes under their names, as `training`.
        """
        super().__init_subclass__()
        if function is None:
            return
        own = vars(cls)
        declared = {name: kind for name, kind in get_annotations(cls).items() if not kind.startswith("ClassVar")}
        if declared and "__init__" not in own:
            defaults = {name: own[name] for name in declared if name in own}
            names = ("*", *declared) if by_name else tuple(declared)
            cls.__init__ = constructor(cls, names, defaults, declared)  # type: ignore[method-assign]
        cls._options = tuple(declared) or cls._options
        for name in declared:
            if name in own:
                delattr(cls, name)
        if function and "forward" not in own:
            inputs = ", ".join(cls._inputs)
            options = [name for name in (*cls._options, *also) if name not in cls._kept]
            passed = "".join(f", {name}=self.{name}" for name in options)
            source = f"(self, {inputs}): return function({inputs}{passed})"
            body = getattr(functional, function) if isinstance(function, str) else function
            cls.forward = compiled(cls, "forward", source, function=body)  # type: ignore[method-assign]
            cls.forward.__annotations__ = dict.fromkeys((*cls._inputs, "return"), Tensor)

    def _set(self, **options: Any) -> None:
        """Sets the options; a subclass overrides it to check or complete them."""
        Module.__init__(self)
        self.__dict__.update(options)

    def extra_repr(self) -> str:
        shown = [name for name in (self._options if self._shown is None else self._shown) if name != "inplace"]
        parts = [f"{name}={getattr(self, name)}" for name in shown]
        return ", ".join(parts + ["inplace=True"] * bool(self.__dict__.get("inplace")))
