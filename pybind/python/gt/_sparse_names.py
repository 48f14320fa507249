"""Functions and methods that make sparse tensors.

Each imports `gt.sparse` when it is called: a process without sparse tensors need not ask of every operation whether a
class overrides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _layouts, _sparse_indices
from gt._gt import Tensor


def sparse_coo_tensor(indices: Any, values: Any = None, size: Sequence[int] | None = None, **options: Any) -> Tensor:
    """A tensor whose elements at some indices are given, and 0 elsewhere; values of equal indices are added.

    Args:
        indices: The index of each value along each sparse axis, of shape (axes, count).
        values: The elements, of shape (count, *).
        size: The shape; by default the least that contains all indices.
        options: `dtype`, `requires_grad`, and `is_coalesced`, whether the indices are unique and sorted.

    Raises:
        RuntimeError: An index is outside of the shape, or the numbers of indices and values differ.

    Example:
        >>> x = gt.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
        >>> x.to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    from gt import sparse

    return sparse._coo(indices, values, size, **options)


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Sequence[int] | None = None, **options: Any
) -> Tensor:
    """A matrix in compressed rows: the values of each row in turn, their columns, and where each row begins.

    Raises:
        RuntimeError: An index is outside of the shape, or the numbers of indices and values differ.

    Example:
        >>> gt.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3)).to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    from gt import sparse

    return sparse._compressed_matrix(_layouts.sparse_csr, crow_indices, col_indices, values, size, **options)


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Sequence[int] | None = None, **options: Any
) -> Tensor:
    """A matrix in compressed columns: the values of each column in turn, their rows, and where each column begins.

    Raises:
        RuntimeError: An index is outside of the shape, or the numbers of indices and values differ.

    Example:
        >>> gt.sparse_csc_tensor([0, 1, 1, 2], [1, 0], [4.0, 3.0], (2, 3)).to_dense()
        tensor([[0., 0., 3.],
                [4., 0., 0.]])
    """
    from gt import sparse

    return sparse._compressed_matrix(_layouts.sparse_csc, ccol_indices, row_indices, values, size, **options)


def to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Any = None, **options: Any) -> Tensor:
    """The elements that are not 0, as a sparse tensor, by default in COO layout.

    Example:
        >>> gt.eye(3).to_sparse().values()
        tensor([1., 1., 1.])
    """
    from gt import sparse

    return sparse._of_dense(self, sparse_dim, layout, **options)


def to_sparse_coo(self: Tensor) -> Tensor:
    """`to_sparse()`, in COO layout."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:  # noqa: ARG001 (there are no batches)
    """The elements of a matrix that are not 0, in CSR layout."""
    return to_sparse(self, layout=_layouts.sparse_csr)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:  # noqa: ARG001 (there are no batches)
    """The elements of a matrix that are not 0, in CSC layout."""
    return to_sparse(self, layout=_layouts.sparse_csc)


FUNCTIONS = (*_sparse_indices.FUNCTIONS, sparse_coo_tensor, sparse_csr_tensor, sparse_csc_tensor)
METHODS = (to_sparse, to_sparse_coo, to_sparse_csr, to_sparse_csc)
