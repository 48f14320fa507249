"""`Module.state_dict` and `Module.load_state_dict`, with PyTorch's keys and messages."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn.parameter import Parameter

# The key in a state dict for the result of `get_extra_state`.
EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """The result of `load_state_dict`: expected keys that were missing, and keys that no module expects."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class Stateful:
    """The part of `Module` that saves and loads state."""

    def get_extra_state(self) -> Any:
        """State other than tensors to save in `state_dict`.

        A subclass implements it together with `set_extra_state`.
        """
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:  # noqa: ARG002
        """Restores the state that `get_extra_state` returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _state(self) -> Iterator[tuple[str, Tensor]]:
        """Iterates over this module's own parameters and persistent buffers, without those of submodules."""
        for name, tensor in (*self._parameters.items(), *self._buffers.items()):
            if tensor is not None and name not in self._non_persistent_buffers_set:
                yield name, tensor

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not Stateful.get_extra_state

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, tensor in self._state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if self._has_extra_state():
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name; a shared one is there under each of its names.

        The tensors share their memory with the module, as in PyTorch: `clone()` a tensor that later training must not
        change.

        Args:
            *args: `destination`, `prefix` and `keep_vars` by position (deprecated).
            destination: A dict to add the entries to; a new one if not given.
            prefix: Put before each name.
            keep_vars: Whether the tensors stay attached to the autograd graph.

        Example:
            >>> {name: tuple(t.shape) for name, t in gt.nn.Linear(3, 2).state_dict().items()}
            {'weight': (2, 3), 'bias': (2,)}
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead: destination, prefix and keep_vars",
                FutureWarning,
                stacklevel=2,
            )
            words = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **words})
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local = {"version": getattr(self, "_version", 1)}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            answer = hook(self, destination, prefix, local)
            if answer is not None:
                destination = answer
        return destination

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Checks this module's own entries and queues them.

        `load_state_dict` copies them once the whole state dict fits.
        """
        for hook, with_module in self._load_state_dict_pre_hooks.values():
            first = (self,) if with_module else ()
            hook(*first, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for name, own in self._state():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            value = state_dict[key]
            if isinstance(value, np.ndarray):
                value = gt.tensor(value)
            if not isinstance(value, Tensor):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected gt.Tensor or Tensor-like object from '
                    f"checkpoint but received {type(value)}"
                )
            elif value.shape != own.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
                    f"current model is {own.shape}."
                )
            else:
                local_metadata["take_over"].append((self, name, own, value))
        if self._has_extra_state():
            if prefix + EXTRA_STATE in state_dict:
                self.set_extra_state(state_dict[prefix + EXTRA_STATE])
            else:
                missing_keys.append(prefix + EXTRA_STATE)
        elif strict and prefix + EXTRA_STATE in state_dict:
            unexpected_keys.append(prefix + EXTRA_STATE)
        if strict:
            known = {name for name, _ in self._state()} | set(self._modules) | {EXTRA_STATE}
            for key in state_dict:
                rest = key.removeprefix(prefix)
                if key.startswith(prefix):
                    first, dot, _ = rest.partition(".")
                    if (first not in self._modules) if dot else (first not in known):
                        unexpected_keys.append(key)

    @no_grad()
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies the tensors of a state dict into the parameters and buffers, converted to their dtypes.

        Args:
            state_dict: What `state_dict` returned, or a mapping from the same names to tensors or NumPy arrays.
            strict: Whether the names must be exactly those of this module.
            assign: Whether the tensors themselves become the parameters and buffers, with their dtypes.

        Returns:
            `missing_keys` and `unexpected_keys`, as a named tuple.

        Raises:
            RuntimeError: A shape does not match, or, if `strict`, the names differ. Nothing is loaded then.

        Example:
            >>> a, b = gt.nn.Linear(3, 2), gt.nn.Linear(3, 2)
            >>> b.load_state_dict(a.state_dict())
            <All keys matched successfully>
            >>> bool((a.weight == b.weight).all())
            True
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", {})
        state_dict = OrderedDict(state_dict)  # hooks may change it
        take_over: list[tuple[Any, str, Tensor, Tensor]] = []

        def visit(module: Any, prefix: str) -> None:
            local = {**metadata.get(prefix[:-1], {}), "assign_to_params_buffers": assign, "take_over": take_over}
            module._load_from_state_dict(state_dict, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    visit(child, f"{prefix}{name}.")
            keys = _IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                        "values; if incompatible_keys need to be modified, it should be done inplace."
                    )

        visit(self, "")
        if strict and unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if strict and missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError("\n\t".join([f"Error(s) in loading state_dict for {type(self).__name__}:", *errors]))
        for module, name, own, value in take_over:
            if not assign:
                own.copy_(value)
            elif name in module._parameters:
                module._parameters[name] = Parameter(value, requires_grad=own.requires_grad)
            else:
                module._buffers[name] = value
        return _IncompatibleKeys(missing, unexpected)


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
