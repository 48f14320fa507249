"""Products of vectors and matrices."""

from __future__ import annotations

import math

from gt._composites.common import check_rank
from gt._gt import Tensor


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """The products of each element of one vector with each of another."""
    check_rank("outer", input=(input, 1), vec2=(vec2, 1))
    return input.unsqueeze(1) * vec2


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The product of two vectors."""
    check_rank("dot", input=(input, 1), tensor=(tensor, 1))
    return input @ tensor


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    check_rank("mv", input=(input, 2), vec=(vec, 1))
    return input @ vec


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    check_rank("mm", input=(input, 2), mat2=(mat2, 2))
    return input @ mat2


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices, of the same length."""
    check_rank("bmm", input=(input, 3), mat2=(mat2, 3))
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


METHODS = (
    outer,
    dot,
    mv,
    mm,
    bmm,
    addmm,
    baddbmm,
)
IN_PLACE = ()
FUNCTIONS = (einsum,)
