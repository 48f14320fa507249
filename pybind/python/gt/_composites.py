"""Functions and methods that are a few lines of other operations, under PyTorch's names; their gradients follow.

`METHODS` are functions and methods alike, `FUNCTIONS` functions alone. `_ops.install` hands them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import gt
from gt import _gt
from gt._gt import Tensor


def _axis(input: Tensor, dim: int) -> int:
    """`dim` counted from the front."""
    rank = max(input.ndim, 1)
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank


def _axes(input: Tensor, dims: int | Sequence[int]) -> list[int]:
    return [_axis(input, dim) for dim in ([dims] if isinstance(dims, int) else dims)]


def _of_rank(name: str, **tensors: tuple[Tensor, int]) -> None:
    for operand, (t, rank) in tensors.items():
        if t.ndim != rank:
            raise RuntimeError(f"{name}: expected {operand} to be {rank}D, but got {t.ndim}D, of size {list(t.shape)}")


def _floating(name: str, t: Tensor) -> None:
    if not t.is_floating_point():
        raise NotImplementedError(f"{name} is not there for {t.dtype}: use floating-point tensors")


# Masks ----------------------------------------------------------------------------------------------------------


def _below(input: Tensor, diagonal: int) -> Tensor:
    """Where a matrix is on or below a diagonal."""
    if input.ndim < 2:
        raise RuntimeError("tril, triu: input tensor must have at least 2 dimensions")
    return _gt.arange(input.shape[-2]).unsqueeze(1) + diagonal >= _gt.arange(input.shape[-1])


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices, the last two axes, with zeros above a diagonal; 1 is the one above the main one."""
    return _gt.where(_below(input, diagonal), input, _gt.zeros((), dtype=input.dtype))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices, the last two axes, with zeros below a diagonal; 1 is the one above the main one."""
    return _gt.where(_below(input, diagonal - 1), _gt.zeros((), dtype=input.dtype), input)


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | complex) -> Tensor:
    """`value` where the bool `mask` is true, `input` elsewhere, in the dtype of `input`."""
    if mask.dtype != gt.bool:
        raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        filling = value.to(input.dtype)
    else:
        if isinstance(value, float) and not input.is_floating_point():
            if not math.isfinite(value):
                raise RuntimeError(f"value cannot be converted to type {input.dtype} without overflow")
            value = int(value)
        filling = _gt.full((), value, dtype=input.dtype)
    return _gt.where(mask, filling, input)


# Places ---------------------------------------------------------------------------------------------------------


def repeat(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """The whole, so many times along each axis; axes that are missing come in front."""
    times = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if len(times) < self.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    shape = [1] * (len(times) - self.ndim) + list(self.shape)
    apart = self.reshape([size for own in shape for size in (1, own)])
    spread = apart.expand([size for pair in zip(times, shape, strict=True) for size in pair])
    # A copy, as PyTorch gives, even where nothing is repeated.
    return spread.clone().reshape([count * own for count, own in zip(times, shape, strict=True)])


def tile(input: Tensor, dims: Sequence[int]) -> Tensor:
    """`repeat`, where counts that are missing are ones in front."""
    return repeat(input, [1] * (input.ndim - len(dims)) + list(dims))


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved on along axes, what falls off the end coming in at the start; without axes, flattened."""
    if dims is None:
        if not isinstance(shifts, int):
            raise RuntimeError("roll: several shifts need as many dims")
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    moves, axes = [shifts] if isinstance(shifts, int) else list(shifts), _axes(input, dims)
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    for shift, axis in zip(moves, axes, strict=True):
        size = input.shape[axis]
        start = -shift % size if size else 0
        input = _gt.cat([input.narrow(axis, start, size - start), input.narrow(axis, 0, start)], axis)
    return input


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, without it."""
    axis = _axis(input, dim)
    return tuple(input.narrow(axis, i, 1).squeeze(axis) for i in range(input.shape[axis]))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The parts along an axis at the indices of a vector.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.
    """
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    axis = _axis(input, dim)
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    wide = [*input.shape[:axis], index.numel(), *input.shape[axis + 1 :]]
    return input.gather(axis, index.long().reshape(shape).expand(wide))


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes at other places, the others in their order."""
    old, new = _axes(input, source), _axes(input, destination)
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise RuntimeError(f"movedim: source {old} and destination {new} are as many axes, each once")
    rest = iter(axis for axis in range(input.ndim) if axis not in old)
    place = dict(zip(new, old, strict=True))
    return input.permute([place[axis] if axis in place else next(rest) for axis in range(input.ndim)])


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """`expand`, as a function."""
    return input.expand(size)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """One after the other along the columns: axis 1, or 0 of vectors."""
    parts = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    return _gt.cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One below the other: along axis 0, vectors being rows."""
    return _gt.cat([t.reshape(1, -1) if t.ndim < 2 else t for t in tensors], 0)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: one tensor for each vector, of the sizes of all; `"xy"` swaps the first two axes."""
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swaps = indexing == "xy" and len(tensors) > 1
    order = list(range(len(tensors)))
    if swaps:
        order[:2] = [1, 0]
    sizes = [tensors[i].numel() for i in order]
    grids = []
    for i, t in enumerate(tensors):
        shape = [1] * len(tensors)
        shape[order.index(i)] = t.numel()
        grids.append(t.reshape(shape).expand(sizes))
    return tuple(grids)


# Arithmetic -----------------------------------------------------------------------------------------------------


def lerp(input: Tensor, end: Tensor, weight: Tensor | complex) -> Tensor:
    """From `input` at weight 0 to `end` at weight 1."""
    _floating("lerp", input)
    return input + (end - input) * weight


def hypot(input: Tensor, other: Tensor) -> Tensor:
    """The root of the sum of both squares, without overflow."""
    _floating("hypot", input)
    a, b = input.abs(), other.abs()
    large, small = _gt.where(a > b, a, b), _gt.where(a > b, b, a)
    ratio = small / _gt.where(large == 0, 1.0, large)
    return _gt.where(large == math.inf, large, large * (ratio * ratio + 1).sqrt())


def float_power(input: Tensor, exponent: Tensor | complex) -> Tensor:
    """`pow` in float64."""
    return input.double() ** (exponent.double() if isinstance(exponent, Tensor) else exponent)


def rsub(input: Tensor, other: Tensor | complex, *, alpha: float = 1) -> Tensor:
    """`other - alpha * input`."""
    return other - (input if alpha == 1 else input * alpha)


def clamp_min(input: Tensor, min: Tensor | complex) -> Tensor:
    """`clamp` from below."""
    return input.clamp(min=min)


def clamp_max(input: Tensor, max: Tensor | complex) -> Tensor:
    """`clamp` from above."""
    return input.clamp(max=max)


# Reductions -----------------------------------------------------------------------------------------------------


def logsumexp(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials along axes, without overflow."""
    wide = input if input.is_floating_point() else input.float()
    largest = wide.detach().amax(dim, keepdim=True)
    largest = _gt.where(largest.isfinite(), largest, 0.0)
    total = (wide - largest).exp().sum(dim, keepdim=True).log() + largest
    return total if keepdim else total.squeeze(tuple(_axes(input, dim)))


def norm(
    input: Tensor, p: float | str = "fro", dim: int | Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:
    """The norm of order `p` of all elements, or along axes: a number, `inf`, `-inf`, or `"fro"`, which is 2."""
    if not input.is_floating_point():
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point tensor as input. Got {input.dtype}")
    if p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise RuntimeError(f"norm: order {p!r} is not there: use a number, inf, -inf or 'fro'")
    if p == math.inf:
        return input.abs().amax(dim, keepdim=keepdim)
    if p == -math.inf:
        return input.abs().amin(dim, keepdim=keepdim)
    if p == 0:
        return (input != 0).to(input.dtype).sum(dim, keepdim=keepdim)
    if p == 1:
        return input.abs().sum(dim, keepdim=keepdim)
    total = (input * input if p == 2 else input.abs() ** p).sum(dim, keepdim=keepdim)
    # A norm of 0 has no slope: PyTorch takes 0 for it.
    zero = total == 0
    filled = _gt.where(zero, 1.0, total)
    return _gt.where(zero, 0.0, filled.sqrt() if p == 2 else filled ** (1 / p))


def count_nonzero(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """How many elements are not 0, as int64: of all, or along axes."""
    return (input != 0).sum(dim)


def var_mean(
    input: Tensor, dim: int | Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """`var` and `mean`."""
    return input.var(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim=keepdim)


def std_mean(
    input: Tensor, dim: int | Sequence[int] | None = None, *, correction: float = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """`std` and `mean`."""
    return input.std(dim, correction=correction, keepdim=keepdim), input.mean(dim, keepdim=keepdim)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; lengths below `eps` count as `eps`."""
    lengths = norm(x1, 2.0, dim).clamp(min=eps) * norm(x2, 2.0, dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / lengths


# Products -------------------------------------------------------------------------------------------------------


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of each element of one vector with each of another."""
    _of_rank("outer", input=(input, 1), vec2=(vec2, 1))
    return input.unsqueeze(1) * vec2


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The product of two vectors."""
    _of_rank("dot", input=(input, 1), tensor=(tensor, 1))
    return input @ tensor


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    _of_rank("mv", input=(input, 2), vec=(vec, 1))
    return input @ vec


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _of_rank("mm", input=(input, 2), mat2=(mat2, 2))
    return input @ mat2


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices, of the same length."""
    _of_rank("bmm", input=(input, 3), mat2=(mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"bmm: expected batches of the same length, but got {input.shape[0]} and {mat2.shape[0]}")
    return input @ mat2


def _plus(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    for word, factor in {"beta": beta, "alpha": alpha}.items():
        if isinstance(factor, float) and not product.is_floating_point():
            raise RuntimeError(f"For integral input tensors, argument {word} must not be a floating point number.")
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (input if beta == 1 else input * beta) + scaled


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)`; `input` is not looked at where `beta` is 0."""
    return _plus(input, mm(mat1, mat2), beta, alpha)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)`; `input` is not looked at where `beta` is 0."""
    return _plus(input, bmm(batch1, batch2), beta, alpha)


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """Products summed over the letters that the output lacks: `einsum("bij,bjk->bik", x, y)`.

    Operands are taken from left to right, each pair by one matrix product.

    Raises:
        NotImplementedError: `...`, or a letter twice in one operand.
        RuntimeError: The letters do not fit the operands.
    """
    text = equation.replace(" ", "")
    if "." in text:
        raise NotImplementedError("einsum: '...' is not there: name every axis with a letter")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(f"einsum(): {len(terms)} operands in {equation!r}, but {len(operands)} were given")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != operand.ndim:
            raise RuntimeError(f"einsum(): {term!r} names {len(term)} axes of an operand with {operand.ndim}")
        if len(set(term)) != len(term):
            raise NotImplementedError(f"einsum: a letter twice in one operand, {term!r}, is not there")
        for letter, size in zip(term, operand.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise RuntimeError(f"einsum(): axis {letter!r} has sizes {sizes[letter]} and {size}")
    if not arrow:
        right = "".join(sorted(letter for letter in sizes if left.count(letter) == 1))
    if len(set(right)) != len(right) or not set(right) <= set(sizes):
        raise RuntimeError(f"einsum(): the output {right!r} names letters of the operands, each once")

    def keep(t: Tensor, term: str, wanted: set[str]) -> tuple[Tensor, str]:
        """What nobody else wants, summed."""
        axes = tuple(i for i, letter in enumerate(term) if letter not in wanted)
        return (t.sum(axes) if axes else t), "".join(letter for letter in term if letter in wanted)

    def arranged(t: Tensor, term: str, *groups: list[str]) -> Tensor:
        """The axes in groups, each as one."""
        order = [term.index(letter) for group in groups for letter in group]
        return t.permute(order).reshape([math.prod(sizes[letter] for letter in group) for group in groups])

    result, labels = keep(operands[0], terms[0], {*right, *"".join(terms[1:])})
    for i in range(1, len(operands)):
        later = {*right, *"".join(terms[i + 1 :])}
        other, term = keep(operands[i], terms[i], {*later, *labels})
        result, labels = keep(result, labels, {*later, *term})
        shared = [letter for letter in labels if letter in term]
        batch, summed = [c for c in shared if c in later], [c for c in shared if c not in later]
        rows, columns = [c for c in labels if c not in term], [c for c in term if c not in labels]
        product = arranged(result, labels, batch, rows, summed) @ arranged(other, term, batch, summed, columns)
        labels = "".join([*batch, *rows, *columns])
        result = product.reshape([sizes[letter] for letter in labels])
    return result.permute([labels.index(letter) for letter in right]) if right else result


def is_tensor(obj: object) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


METHODS = (
    *(tril, triu, masked_fill, tile, roll, unbind, index_select, movedim, broadcast_to),
    *(lerp, hypot, float_power, clamp_min, clamp_max, logsumexp, norm, count_nonzero),
    *(outer, dot, mv, mm, bmm, addmm, baddbmm),
)
IN_PLACE = (tril, triu, masked_fill, lerp, hypot, clamp_min, clamp_max)
FUNCTIONS = (rsub, hstack, vstack, meshgrid, var_mean, std_mean, cosine_similarity, einsum, is_tensor)
