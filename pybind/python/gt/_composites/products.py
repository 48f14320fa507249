"""Products of vectors and matrices under BLAS's names, and contractions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _autocast, _gt
from gt._composites.common import axes_of, axis_of, check_rank
from gt._gt import Tensor


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The outer product of two vectors: `output[i][j] = input[i] * vec2[j]`.

    Example:
        >>> gt.outer(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0, 5.0]))
        tensor([[ 3.,  4.,  5.],
                [ 6.,  8., 10.]])
    """
    check_rank("outer", input=(input, 1), vec2=(vec2, 1))
    return input.unsqueeze(1) * vec2


@_autocast.untouched
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The dot product of two vectors.

    Example:
        >>> gt.dot(gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]))
        tensor(11.)
    """
    check_rank("dot", input=(input, 1), tensor=(tensor, 1))
    return input @ tensor


@_autocast.untouched
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector.

    Example:
        >>> gt.mv(gt.tensor([[1.0, 2.0], [3.0, 4.0]]), gt.tensor([1.0, 1.0]))
        tensor([3., 7.])
    """
    check_rank("mv", input=(input, 2), vec=(vec, 1))
    return input @ vec


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices; `matmul` takes vectors and batches too.

    Shape:
        `(n, k) @ (k, m)` is `(n, m)`.

    Example:
        >>> gt.mm(gt.tensor([[1.0, 2.0]]), gt.tensor([[3.0], [4.0]]))
        tensor([[11.]])
    """
    check_rank("mm", input=(input, 2), mat2=(mat2, 2))
    return input @ mat2


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices.

    Shape:
        `(b, n, k) @ (b, k, m)` is `(b, n, m)`.

    Raises:
        RuntimeError: The tensors are not both batches of matrices of the same length.

    Example:
        >>> gt.bmm(gt.ones(10, 3, 4), gt.ones(10, 4, 5)).shape
        gt.Size([10, 3, 5])
    """
    check_rank("bmm", input=(input, 3), mat2=(mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm: expected batches of the same length, but got {input.shape[0]} and {mat2.shape[0]}")
    return input @ mat2


def _scaled_sum(input: Tensor, product: Tensor, beta: float, alpha: float, exact: bool = False) -> Tensor:
    """`beta * input + alpha * product`. With integers, fractional factors are truncated, or refused if `exact`."""
    factors = {"beta": beta, "alpha": alpha}
    if not product.is_floating_point():
        for word, factor in factors.items():
            if exact and isinstance(factor, float):
                raise RuntimeError(f"For integral input tensors, argument {word} must not be a floating point number.")
        convert = bool if product.dtype == _gt.bool else int
        beta, alpha = (convert(factor) for factor in factors.values())
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (input if beta == 1 else input * beta) + scaled


@_autocast.lower
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`.

    Args:
        input: The tensor to add, which broadcasts; ignored where `beta` is 0.
        mat1: The first matrix.
        mat2: The second matrix.
        beta: The factor of `input`.
        alpha: The factor of the product.

    Example:
        >>> gt.addmm(gt.ones(2), gt.eye(2), gt.full((2, 2), 3.0))
        tensor([[4., 4.],
                [4., 4.]])
    """
    return _scaled_sum(input, mm(mat1, mat2), beta, alpha, exact=True)


@_autocast.lower
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for batches of matrices; `input` is ignored where `beta` is 0.

    Example:
        >>> gt.baddbmm(gt.zeros(1), gt.ones(2, 3, 4), gt.ones(2, 4, 5)).shape
        gt.Size([2, 3, 5])
    """
    return _scaled_sum(input, bmm(batch1, batch2), beta, alpha)


@_autocast.lower
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2).sum(0)`; `input` is ignored where `beta` is 0."""
    return _scaled_sum(input, bmm(batch1, batch2).sum(0), beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat @ vec)` for a matrix and a vector; `input` is ignored where `beta` is 0."""
    return _scaled_sum(input, mv(mat, vec), beta, alpha)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * outer(vec1, vec2)` for two vectors; `input` is ignored where `beta` is 0."""
    return _scaled_sum(input, outer(vec1, vec2), beta, alpha, exact=True)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices: `linalg.multi_dot` under its older name.

    Example:
        >>> gt.chain_matmul(gt.ones(2, 3), gt.ones(3, 4), gt.ones(4, 1)).shape
        gt.Size([2, 1])
    """
    return multi_dot(list(matrices))


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order of the fewest multiplications (matrix chain ordering).

    Args:
        tensors: At least two matrices. The first and the last may be vectors: a row and a column.

    Example:
        >>> gt.linalg.multi_dot([gt.ones(2, 3), gt.ones(3, 4), gt.ones(4, 5)]).shape
        gt.Size([2, 5])
    """
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    chain = list(tensors)
    row, column = chain[0].ndim == 1, chain[-1].ndim == 1
    chain[0] = chain[0].unsqueeze(0) if row else chain[0]
    chain[-1] = chain[-1].unsqueeze(1) if column else chain[-1]
    for i, t in enumerate(chain):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t.ndim}D")
    sizes = [chain[0].shape[0], *(t.shape[1] for t in chain)]
    # The least cost of the product of matrices i to j, and where to split it: dynamic programming (Godbole 1973).
    best = {(i, i): (0, i) for i in range(len(chain))}
    for length in range(1, len(chain)):
        for i in range(len(chain) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        cut = best[i, j][1]
        return chain[i] if i == j else product(i, cut) @ product(cut + 1, j)

    result = product(0, len(chain) - 1)
    result = result.squeeze(0) if row else result
    return result.squeeze(-1) if column else result


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product of two vectors, of which the first is conjugated: `dot`, since there are no complex dtypes."""
    return dot(input, other)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The dot products of vectors along an axis.

    Args:
        x: A tensor.
        y: A tensor that broadcasts with `x`.
        dim: The axis of the vectors.

    Example:
        >>> gt.linalg.vecdot(gt.ones(2, 3), gt.tensor([1.0, 2.0, 3.0]))
        tensor([6., 6.])
    """
    return (x * y).sum(dim)


@_autocast.untouched
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The dot products of vectors along the last axes, of each vector of one tensor with each of the other.

    Example:
        >>> gt.inner(gt.tensor([[1.0, 2.0], [3.0, 4.0]]), gt.tensor([1.0, 1.0]))
        tensor([3., 7.])
    """
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return tensordot(input, other, ([-1], [-1]))


def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """The contraction of two tensors over several axes.

    Args:
        a: The first tensor.
        b: The second tensor.
        dims: The number of axes to sum over, the last of `a` with the first of `b`; or two lists of axes.

    Returns:
        A tensor with the other axes of `a`, then those of `b`.

    Example:
        >>> a, b = gt.ones(3, 4, 5), gt.ones(4, 3, 2)
        >>> gt.tensordot(a, b, dims=([1, 0], [0, 1])).shape
        gt.Size([5, 2])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(
                f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} of tensors with {a.ndim} and {b.ndim}"
            )
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = axes_of(a, dims[0]), axes_of(b, dims[1])
        if len(left) != len(right):
            raise RuntimeError("both dimension lists should have same length")
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j] and 1 in (a.shape[i], b.shape[j]):
            # An axis of size 1 broadcasts, so the other operand is summed over it first.
            a, b = (a.sum(i, keepdim=True), b) if b.shape[j] == 1 else (a, b.sum(j, keepdim=True))
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} "
                f"and second has size {b.shape[j]} in dim {j}"
            )
    rows = [axis for axis in range(a.ndim) if axis not in left]
    columns = [axis for axis in range(b.ndim) if axis not in right]
    summed = math.prod(a.shape[axis] for axis in left)
    shape = [*(a.shape[axis] for axis in rows), *(b.shape[axis] for axis in columns)]
    first = a.permute([*rows, *left]).reshape([math.prod(a.shape[axis] for axis in rows), summed])
    second = b.permute([*right, *columns]).reshape([summed, math.prod(b.shape[axis] for axis in columns)])
    return (first @ second).reshape(shape)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of one tensor times the other tensor, as blocks.

    Raises:
        NotImplementedError: A tensor has more than 4 axes.

    Example:
        >>> gt.kron(gt.eye(2), gt.tensor([[1.0, 2.0]]))
        tensor([[1., 2., 0., 0.],
                [0., 0., 1., 2.]])
    """
    rank = max(input.ndim, other.ndim)
    a = [1] * (rank - input.ndim) + list(input.shape)
    b = [1] * (rank - other.ndim) + list(other.shape)
    if rank > 4:
        # The product needs two axes for each, and a tensor has at most 8.
        raise NotImplementedError(f"kron is there for up to 4 dimensions, but got {rank}")
    apart = input.reshape([size for own in a for size in (own, 1)]) * other.reshape(
        [size for own in b for size in (1, own)]
    )
    return apart.reshape([m * n for m, n in zip(a, b, strict=True)])


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross products of vectors of 3 elements.

    Args:
        input: The first vectors.
        other: The second vectors, which broadcast.
        dim: The axis of the vectors; the first of size 3 if not given.

    Example:
        >>> gt.cross(gt.tensor([1.0, 0.0, 0.0]), gt.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
    """
    if dim is None:
        found = [axis for axis, size in enumerate(input.shape) if size == 3]
        if not found:
            raise RuntimeError("no dimension of size 3 in input")
        dim = found[0]
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if input.shape[axis_of(input, dim)] != 3 or other.shape[axis_of(other, dim)] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. "
            f"Got {input.shape[axis_of(input, dim)]} and {other.shape[axis_of(other, dim)]}"
        )
    return input.roll(-1, dim) * other.roll(-2, dim) - input.roll(-2, dim) * other.roll(-1, dim)


METHODS = (
    outer,
    dot,
    mv,
    mm,
    bmm,
    addmm,
    addbmm,
    addmv,
    addr,
    baddbmm,
    vdot,
    inner,
    kron,
    cross,
)
IN_PLACE = (addmm, addbmm, addmv, addr, baddbmm)
FUNCTIONS = (tensordot, chain_matmul)
