"""Parametrizations of weights: weight normalization, spectral normalization and orthogonality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gt import _core as gt
from gt import linalg
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn import functional
from gt.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gt.nn.module import Module
from gt.nn.utils.parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


def lengths(weight: Tensor, dim: int | None) -> Tensor:
    """The norms of the slices of a weight along an axis; of the whole weight for `None` and -1."""
    if dim in (None, -1):
        return gt.norm(weight)
    rest = tuple(axis for axis in range(weight.ndim) if axis != dim % weight.ndim)  # type: ignore[operator]
    return gt.norm(weight, 2, rest, keepdim=True)


def matrix_of(weight: Tensor, dim: int) -> Tensor:
    """A weight as a matrix whose rows are its slices along an axis."""
    return weight.movedim(dim, 0).flatten(1)


def spectral_axis(module: Module) -> int:
    """The axis of the outputs in a layer's weight."""
    transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    return 1 if isinstance(module, transposed) else 0


def check_rounds(rounds: int) -> None:
    """Raises a ValueError for a number of power iterations that is not positive."""
    if rounds <= 0:
        raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={rounds}")


# Weight normalization -----------------------------------------------------------------------------------------------


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / lengths(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return lengths(weight, self.dim), weight


class _OlderNames:
    """A state dict hook that renames `weight_g` and `weight_v` of the older `nn.utils.weight_norm`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        old = [f"{prefix}{self.name}_g", f"{prefix}{self.name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{self.name}.original{i}"] = state_dict.pop(key)


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Weight normalization (Salimans and Kingma 2016): `weight = g * v / ||v||`, with `g` and `v` trained.

    The magnitude `g` is `parametrizations.weight.original0` and the direction `v` is `original1`. State dicts of the
    older `nn.utils.weight_norm` can be loaded.

    Args:
        module: The layer.
        name: The name of its weight.
        dim: The axis along which each slice has a norm of its own; `None` for one norm of the whole weight.

    Returns:
        The layer.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_OlderNames(name))
    return module


# Spectral normalization ---------------------------------------------------------------------------------------------


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, rounds: int, dim: int, eps: float) -> None:
        super().__init__()
        check_rounds(rounds)
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        self.n_power_iterations = rounds
        if weight.ndim > 1:
            matrix = matrix_of(weight.detach(), self.dim)
            for end, size in zip("uv", matrix.shape, strict=True):
                start = gt.randn(size, dtype=weight.dtype)
                self.register_buffer(f"_{end}", functional.normalize(start, dim=0, eps=eps))
            self._improve(matrix, 15)

    @no_grad()
    def _improve(self, matrix: Tensor, rounds: int) -> None:
        """Power iteration: brings both vectors nearer to the first singular vectors."""
        for _ in range(rounds):
            self._u.copy_(functional.normalize(matrix @ self._v, dim=0, eps=self.eps))
            self._v.copy_(functional.normalize(matrix.T @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return functional.normalize(weight, dim=0, eps=self.eps)
        matrix = matrix_of(weight, self.dim)
        if self.training:
            self._improve(matrix.detach(), self.n_power_iterations)
        # Copies: the next call changes both in place, and the gradient of this one needs their present values.
        return weight / (self._u.clone() @ (matrix @ self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Spectral normalization (Miyato et al. 2018): divides a weight by its largest singular value.

    The singular value is estimated by power iteration, which goes on each time the weight is read in training mode.

    Args:
        module: The layer.
        name: The name of its weight.
        n_power_iterations: The iterations for each reading.
        eps: The smallest norm to divide by.
        dim: The axis of the outputs in the weight; 1 for transposed convolutions, else 0, if not given.

    Returns:
        The layer.
    """
    weight = _weight(module, name)
    dim = spectral_axis(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def _weight(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# Orthogonal weights -------------------------------------------------------------------------------------------------


def _as_tall(x: Tensor) -> tuple[Tensor, bool]:
    """A matrix with at least as many rows as columns, and whether it is the transpose of `x`."""
    wide = x.shape[-2] < x.shape[-1]
    return (x.mT, True) if wide else (x, False)


def _orthonormalize(x: Tensor) -> Tensor:
    """The Q of a QR decomposition with a positive diagonal of R: orthonormal columns stay as they are."""
    q, r = linalg.qr(x)
    return q * r.diagonal(0, -2, -1).sign().unsqueeze(-2)


class _Orthogonal(Module):
    base: Tensor | None

    def __init__(self, shape: Sequence[int], kind: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape = shape
        self.orthogonal_map = kind
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        x, wide = _as_tall(x)
        rows, columns = x.shape[-2:]
        if self.orthogonal_map == "householder":
            a = x.tril(-1)
            q = linalg.householder_product(a, 2 / (1 + (a * a).sum(-2)))
            # The diagonal holds the signs, which are not trained.
            q = q * x.detach().diagonal(0, -2, -1).trunc().unsqueeze(-2)
        else:
            a = x.tril()
            if rows != columns:
                a = gt.cat([a, gt.zeros(*x.shape[:-1], rows - columns, dtype=x.dtype)], -1)
            a = a - a.mT
            if self.orthogonal_map == "matrix_exp":
                q = linalg.matrix_exp(a)
            else:
                one = gt.eye(rows, dtype=x.dtype)
                q = linalg.solve(one - a / 2, one + a / 2)
            q = q[..., :columns]
        if self.use_trivialization and self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    @no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}."
            )
        tall, wide = _as_tall(q)
        rows, columns = tall.shape[-2:]
        if self.use_trivialization:
            if rows != columns:
                tall = gt.cat([tall, gt.randn(*tall.shape[:-1], rows - columns, dtype=q.dtype)], -1)
            self.base = _orthonormalize(tall)
            return (-gt.eye(*q.shape[-2:], dtype=q.dtype)).expand(q.shape).clone()
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        vectors, scales = gt.geqrf(tall)
        signs = vectors.diagonal(0, -2, -1).sign()
        # LAPACK writes an identity as tau = 0; here a zero vector has tau = 2, a reflection, so the sign flips.
        signs = gt.where(scales == 0, -signs, signs)
        vectors = vectors.tril(-1) + gt.eye(rows, columns, dtype=q.dtype) * signs.unsqueeze(-2)
        return vectors.mT if wide else vectors


def orthogonal(
    module: M, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> M:
    """Keeps a weight orthogonal: orthonormal columns, or rows if there are more columns than rows.

    Args:
        module: The layer.
        name: The name of its weight, a matrix or a batch of them.
        orthogonal_map: The map to orthogonal matrices: `"matrix_exp"`, `"cayley"` or `"householder"`; if not given, the
            first for square matrices and the last for others.
        use_trivialization: Whether the map is relative to the weight at the time of the call: dynamic trivialization
            (Lezcano-Casado 2019).

    Returns:
        The layer.
    """
    weight = _weight(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    computed = _Orthogonal(weight.shape, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, computed, unsafe=True)
