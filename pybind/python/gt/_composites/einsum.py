"""`einsum`: sums of products in Einstein's notation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt._gt import Tensor


def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """Sums of products in Einstein's notation: letters name axes, and those missing from the output are summed over.

    `"ik,kj->ij"`, for example, is `output[i, j] = sum over k of a[i, k] * b[k, j]`: a matrix product. A letter that
    occurs twice in one operand takes its diagonal, and `...` stands for any number of axes, which broadcast. Operands
    are contracted from left to right, each pair by one matrix product.

    Args:
        equation: A letter for each axis of each operand, with commas between operands, then `->` and the letters of the
            output. Without `->`, the output has the letters that occur once, in alphabetical order.
        operands: The tensors, as arguments or as one sequence.

    Returns:
        A tensor with an axis for each letter of the output.

    Raises:
        RuntimeError: An operand has another number of axes than its letters, or a letter stands for axes of different
            sizes.

    Example:
        >>> a, b = gt.ones(2, 3), gt.ones(3, 4)
        >>> gt.einsum("ik,kj->ij", a, b).shape
        gt.Size([2, 4])
        >>> gt.einsum("bik,bkj->bij", gt.ones(5, 2, 3), gt.ones(5, 3, 4)).shape  # a batch of products
        gt.Size([5, 2, 4])
        >>> gt.einsum("ii", gt.eye(3))  # the trace
        tensor(3.)
    """
    if not isinstance(equation, str):
        raise NotImplementedError("einsum: lists of axes are not there: write the equation with letters")
    tensors = list(operands[0]) if len(operands) == 1 and not isinstance(operands[0], Tensor) else list(operands)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        more = "more" if len(terms) < len(tensors) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    terms, dots = _expand_ellipsis(terms, tensors)
    once = sorted(c for c in {*"".join(terms)} - {*dots} if "".join(terms).count(c) == 1)
    for i, term in enumerate(terms):
        tensors[i], terms[i] = _take_diagonals(i, tensors[i], term)
    sizes: dict[str, int] = {}
    for i, (term, operand) in enumerate(zip(terms, tensors, strict=True)):
        for letter, size in zip(term, operand.shape, strict=True):
            seen = sizes.get(letter, 1)
            if 1 not in (seen, size) and seen != size:
                raise RuntimeError(
                    f"einsum(): subscript {letter} has size {size} for operand {i} which does not broadcast with "
                    f"previously seen size {seen}"
                )
            sizes[letter] = max(seen, size) if size else 0
    right = right.replace("...", dots) if arrow else dots + "".join(once)
    for letter in right:
        if letter not in sizes:
            raise RuntimeError(
                f"einsum(): output subscript {letter} does not appear in the equation for any input operand"
            )
        if right.count(letter) > 1:
            raise RuntimeError(f"einsum(): output subscript {letter} appears more than once in the output")
    for i, term in enumerate(terms):
        # An axis of size 1 that is larger in another operand broadcasts: it is left out.
        narrow = [axis for axis, letter in enumerate(term) if tensors[i].shape[axis] != sizes[letter]]
        tensors[i] = tensors[i].squeeze(tuple(narrow)) if narrow else tensors[i]
        terms[i] = "".join(letter for axis, letter in enumerate(term) if axis not in narrow)

    def sum_unwanted(t: Tensor, term: str, wanted: set[str]) -> tuple[Tensor, str]:
        """The operand summed over the axes whose letters are not wanted."""
        axes = tuple(i for i, letter in enumerate(term) if letter not in wanted)
        return (t.sum(axes) if axes else t), "".join(letter for letter in term if letter in wanted)

    def merged(t: Tensor, term: str, *groups: list[str]) -> Tensor:
        """The operand with each group of axes merged into one."""
        order = [term.index(letter) for group in groups for letter in group]
        return t.permute(order).reshape([math.prod(sizes[letter] for letter in group) for group in groups])

    result, labels = sum_unwanted(tensors[0], terms[0], {*right, *"".join(terms[1:])})
    for i in range(1, len(tensors)):
        later = {*right, *"".join(terms[i + 1 :])}
        other, term = sum_unwanted(tensors[i], terms[i], {*later, *labels})
        result, labels = sum_unwanted(result, labels, {*later, *term})
        shared = [letter for letter in labels if letter in term]
        batch, summed = [c for c in shared if c in later], [c for c in shared if c not in later]
        rows, columns = [c for c in labels if c not in term], [c for c in term if c not in labels]
        product = merged(result, labels, batch, rows, summed) @ merged(other, term, batch, summed, columns)
        labels = "".join([*batch, *rows, *columns])
        result = product.reshape([sizes[letter] for letter in labels])
    return result.permute([labels.index(letter) for letter in right]) if right else result


def _expand_ellipsis(terms: list[str], tensors: list[Tensor]) -> tuple[list[str], str]:
    """The terms with unused letters for the axes of `...`, and these letters."""
    free = [chr(code) for code in range(0x3B1, 0x3B1 + 8)]
    named, longest = [], ""
    for i, (term, operand) in enumerate(zip(terms, tensors, strict=True)):
        letters = term.replace("...", "", 1)
        if any(not ("a" <= letter.lower() <= "z") for letter in letters):
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]"
            )
        extra = operand.ndim - len(letters)
        if extra < 0 or (extra > 0 and "..." not in term):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(letters)}) does not match the number of "
                f"dimensions ({operand.ndim}) for operand {i} and no ellipsis was given"
                if "..." not in term
                else f"einsum(): the number of subscripts in the equation ({len(letters)}) is more than the number of "
                f"dimensions ({operand.ndim}) for operand {i}"
            )
        dots = "".join(free[8 - extra :]) if extra else ""
        longest = max(longest, dots, key=len)
        named.append(term.replace("...", dots))
    return named, longest


def _take_diagonals(i: int, t: Tensor, term: str) -> tuple[Tensor, str]:
    """The diagonal of an operand along the axes of a letter that it has twice."""
    for letter in term:
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if t.shape[first] != t.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {letter} is repeated for operand {i} but the sizes don't match, "
                    f"{t.shape[second]} != {t.shape[first]}"
                )
            t = t.diagonal(0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return t, term


METHODS = ()
IN_PLACE = ()
FUNCTIONS = (einsum,)
