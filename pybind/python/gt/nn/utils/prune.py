"""Pruning: masks that keep elements of parameters at 0, as in `l1_unstructured(module, "weight", amount=0.3)`.

A pruned parameter is kept as `weight_orig`, with the buffer `weight_mask`; `weight` is their product, recomputed before
each call of the module. `remove` makes it a parameter again.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, numbers.Integral) and amount > 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: float, size: int) -> int:
    """The number of elements for an amount: a fraction of `size`, or a number."""
    if not isinstance(amount, numbers.Integral):
        return round(amount * size)
    if amount > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return int(amount)


class BasePruningMethod(ABC):
    """The base of pruning methods.

    A subclass implements `compute_mask` and sets `PRUNING_TYPE`, the scope of its masks.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Any, inputs: Any) -> None:  # noqa: ARG002 (a hook's)
        """Recomputes the pruned parameter, as a hook before its module's `forward`."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for a tensor.

        Args:
            t: The importance scores, usually the parameter itself.
            default_mask: The mask so far; its zeros stay.

        Returns:
            A tensor of ones, and zeros for pruned elements, of the shape of `t`.
        """

    def apply_mask(self, module: Any) -> Tensor:
        """The parameter multiplied by its mask."""
        mask, original = (getattr(module, self._tensor_name + end) for end in ("_mask", "_orig"))
        return mask.to(original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prunes a parameter of a module, in addition to earlier prunings.

        Args:
            module: The module.
            name: The parameter's name.
            *args: The method's arguments.
            importance_scores: The scores that decide; the parameter itself if not given.
            **kwargs: The method's keyword arguments.

        Returns:
            The pruning method, registered as a hook of the module.
        """
        hooks = module._forward_pre_hooks
        older = {k: h for k, h in hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name}
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {scores.shape} vs "
                f"{original.shape}"
            )
        for key, hook in older.items():
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container._tensor_name = name
            container.add_pruning_method(method)
            method = container
            del hooks[key]
        mask = getattr(module, name + "_mask") if older else gt.ones_like(original)
        if not older:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
        mask = method.compute_mask(scores.detach(), mask)
        if older:
            setattr(module, name + "_mask", mask)
        else:
            module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A tensor multiplied by the mask that the method computes for it."""
        mask = gt.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    def remove(self, module: Any) -> None:
        """Makes the pruned value a plain parameter again."""
        name = self._tensor_name
        left = self.apply_mask(module).detach()
        original = module._parameters.pop(name + "_orig")
        original.data = left
        del module._buffers[name + "_mask"]
        delattr(module, name)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Pruning methods applied in sequence, each to the elements that the earlier ones left."""

    def __init__(self, *methods: BasePruningMethod) -> None:
        self._pruning_methods = list(methods)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds a method at the end."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        self._pruning_methods.append(method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method: Any = self._pruning_methods[-1]
        if method.PRUNING_TYPE == "unstructured":
            left: Any = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.ndim
            others = [axis for axis in range(t.ndim) if axis != dim]
            left = (*[slice(None)] * dim, default_mask.sum(others) != 0)
        else:
            left = (slice(None),) * t.ndim
        mask = default_mask.clone()
        mask[left] = method.compute_mask(t[left], default_mask[left]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing: its masks are all ones."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        return default_mask


class _UnstructuredByScore(BasePruningMethod):
    """Prunes a fraction, or a number, of the elements: those with the smallest scores."""

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            least = gt.topk(self._scores(t).reshape(-1), count, largest=False).indices
            mask = mask.reshape(-1).index_fill(0, least, 0).reshape(mask.shape)
        return mask


class RandomUnstructured(_UnstructuredByScore):
    """Prunes random elements.

    Args:
        amount: The fraction of elements, or their number.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return gt.rand(tuple(t.shape))


class L1Unstructured(_UnstructuredByScore):
    """Prunes the elements of smallest magnitude.

    Args:
        amount: The fraction of elements, or their number.
    """

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _StructuredByScore(BasePruningMethod):
    """Prunes a fraction, or a number, of the slices along an axis: those with the smallest scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _check_amount(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Tensor, others: list[int]) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.ndim} dims"
            )
        dim = self.dim % t.ndim
        others = [axis for axis in range(t.ndim) if axis != dim]
        count = _count(self.amount, t.shape[dim])
        if not count:
            return default_mask
        least = gt.topk(self._scores(t, others), count, largest=False).indices
        return default_mask.index_fill(dim, least, 0)


class RandomStructured(_StructuredByScore):
    """Prunes random slices along an axis.

    Args:
        amount: The fraction of slices, or their number.
        dim: The axis.
    """

    def _scores(self, t: Tensor, others: list[int]) -> Tensor:
        return gt.rand(next(size for axis, size in enumerate(t.shape) if axis not in others))


class LnStructured(_StructuredByScore):
    """Prunes the slices along an axis whose norm is smallest.

    Args:
        amount: The fraction of slices, or their number.
        n: The order of the norm.
        dim: The axis.
    """

    def __init__(self, amount: float, n: float | str, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor, others: list[int]) -> Tensor:
        return gt.norm(t, self.n, others)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask.

    Args:
        mask: Ones, and zeros for pruned elements.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Applies a mask of ones to a parameter: nothing is pruned."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prunes random elements of a parameter.

    Args:
        module: The module.
        name: The parameter's name.
        amount: The fraction of elements, or their number.

    Returns:
        `module`.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prunes the elements of a parameter of smallest magnitude.

    Args:
        module: The module.
        name: The parameter's name.
        amount: The fraction of elements, or their number.
        importance_scores: The scores that decide; the parameter itself if not given.

    Returns:
        `module`.

    Example:
        >>> layer = gt.nn.utils.prune.l1_unstructured(gt.nn.Linear(4, 2), "weight", amount=3)
        >>> int((layer.weight == 0).sum())
        3
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prunes random slices of a parameter along an axis."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: float | str, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prunes the slices of a parameter along an axis whose norm is smallest.

    Args:
        module: The module.
        name: The parameter's name.
        amount: The fraction of slices, or their number.
        n: The order of the norm.
        dim: The axis.
        importance_scores: The scores that decide; the parameter itself if not given.

    Returns:
        `module`.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Any, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Any, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters together, as one vector.

    Args:
        parameters: Pairs of a module and the name of its parameter.
        pruning_method: The method's class.
        importance_scores: The scores that decide, by such pairs; the parameters themselves if not given.
        **kwargs: The method's arguments, such as `amount`.
    """
    pairs = list(parameters)
    given = importance_scores or {}
    scores = gt.cat([given.get(pair, getattr(*pair)).detach().reshape(-1) for pair in pairs])
    masks = [getattr(module, name + "_mask", gt.ones_like(getattr(module, name))) for module, name in pairs]
    container = PruningContainer(pruning_method(**kwargs))  # type: ignore[call-arg]
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {pruning_method.PRUNING_TYPE}"
        )
    whole = container.compute_mask(scores, gt.cat([mask.reshape(-1) for mask in masks]))
    parts = whole.split([mask.numel() for mask in masks])
    for (module, name), mask, part in zip(pairs, masks, parts, strict=True):
        custom_from_mask(module, name, part.reshape(mask.shape))


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prunes a parameter by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def is_pruned(module: Any) -> bool:
    """Whether a parameter of a module, or of its submodules, is pruned."""
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._forward_pre_hooks.values())


def remove(module: Any, name: str) -> Any:
    """Makes a pruned parameter a plain one, with zeros where it was pruned."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
