"""Weight and spectral normalization by hooks on a module: the older form of `parametrizations`."""

from __future__ import annotations

from typing import Any, TypeVar

from gt import _core as gt
from gt._autograd import no_grad
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.nn.utils.parametrizations import check_rounds, lengths, matrix_of, spectral_axis

M = TypeVar("M", bound=Module)


class _Computed:
    """A hook that computes a weight from other parameters before each call of its module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, module: Module) -> Tensor:
        """The weight, computed from its parameters."""
        raise NotImplementedError

    def __call__(self, module: Module, _inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))

    def attach(self, module: Module) -> None:
        """Replaces the weight by its parameters and registers the hook."""
        kind = type(self)
        if any(isinstance(hook, kind) and hook.name == self.name for hook in module._forward_pre_hooks.values()):
            raise RuntimeError(f"Cannot register two {kind.word} hooks on the same parameter {self.name}")
        self.split(module)
        setattr(module, self.name, self.compute(module))
        module.register_forward_pre_hook(self)

    word = ""

    def split(self, module: Module) -> None:
        """Makes the parameters from which the weight is computed."""
        raise NotImplementedError

    @classmethod
    def detach(cls, module: Module, name: str) -> None:
        """Removes the hook; the weight is a parameter again, with its present value."""
        for key, hook in module._forward_pre_hooks.items():
            if isinstance(hook, cls) and hook.name == name:
                weight = hook.compute(module).detach()
                hook.join(module)
                delattr(module, name)
                module.register_parameter(name, Parameter(weight.clone()))
                del module._forward_pre_hooks[key]
                return
        raise ValueError(f"{cls.word} of '{name}' not found in {module}")

    def join(self, module: Module) -> None:
        """Deletes those parameters."""
        raise NotImplementedError


class WeightNorm(_Computed):
    """The hook of `weight_norm`."""

    word = "weight_norm"

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self.dim = dim

    def split(self, module: Module) -> None:
        weight = getattr(module, self.name)
        delattr(module, self.name)
        module.register_parameter(f"{self.name}_g", Parameter(lengths(weight.detach(), self.dim)))
        module.register_parameter(f"{self.name}_v", Parameter(weight.detach()))

    def compute(self, module: Module) -> Tensor:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return v * (g / lengths(v, self.dim))

    def join(self, module: Module) -> None:
        delattr(module, f"{self.name}_g")
        delattr(module, f"{self.name}_v")


class SpectralNorm(_Computed):
    """The hook of `spectral_norm`."""

    word = "spectral_norm"

    def __init__(self, name: str, rounds: int, eps: float, dim: int) -> None:
        super().__init__(name)
        check_rounds(rounds)
        self.rounds, self.eps, self.dim = rounds, eps, dim

    def split(self, module: Module) -> None:
        weight = getattr(module, self.name)
        delattr(module, self.name)
        module.register_parameter(f"{self.name}_orig", Parameter(weight.detach()))
        rows, columns = matrix_of(weight, self.dim).shape
        for end, size in (("u", rows), ("v", columns)):
            start = functional.normalize(gt.randn(size, dtype=weight.dtype), dim=0, eps=self.eps)
            module.register_buffer(f"{self.name}_{end}", start)

    def compute(self, module: Module) -> Tensor:
        weight = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = matrix_of(weight, self.dim)
        if module.training:
            with no_grad():
                for _ in range(self.rounds):
                    v.copy_(functional.normalize(matrix.T @ u, dim=0, eps=self.eps))
                    u.copy_(functional.normalize(matrix @ v, dim=0, eps=self.eps))
        # Copies: the next call changes both in place, and the gradient of this one needs their present values.
        return weight / (u.clone() @ (matrix @ v.clone()))

    def join(self, module: Module) -> None:
        for end in ("orig", "u", "v"):
            delattr(module, f"{self.name}_{end}")


@deprecated("`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.")
def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Weight normalization (Salimans and Kingma 2016): `weight = weight_g * weight_v / ||weight_v||`.

    `gt.nn.utils.parametrizations.weight_norm` is the newer form.

    Args:
        module: The layer.
        name: The name of its weight.
        dim: The axis along which each slice has a norm of its own; `None` for one norm of the whole weight.

    Returns:
        The layer.
    """
    WeightNorm(name, dim).attach(module)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the normalized weight a plain parameter again."""
    WeightNorm.detach(module, name)
    return module


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Spectral normalization (Miyato et al. 2018): divides a weight by its largest singular value.

    `gt.nn.utils.parametrizations.spectral_norm` is the newer form, and describes the arguments.
    """
    dim = spectral_axis(module) if dim is None else dim
    SpectralNorm(name, n_power_iterations, eps, dim).attach(module)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the normalized weight a plain parameter again."""
    SpectralNorm.detach(module, name)
    return module
