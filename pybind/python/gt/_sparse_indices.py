"""Conversion of sorted indices between COO and the compressed layouts, CSR and CSC."""

from __future__ import annotations

from gt import _gt
from gt._functions import top
from gt._gt import Tensor


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """For each index below `size`, the number of sorted indices before it; and their number."""
    starts = top.searchsorted(input, top.arange(size + 1, dtype=input.dtype))
    return starts.to(_gt.int32) if out_int32 else starts


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row and column of each element, from where the rows begin and the columns; or the column and row."""
    counts = crow_indices.diff()
    rows = top.arange(len(counts), dtype=crow_indices.dtype).repeat_interleave(counts)
    both = top.stack([col_indices, rows] if transpose else [rows, col_indices])
    return both.to(_gt.int32 if out_int32 else _gt.int64)


FUNCTIONS = (_convert_indices_from_coo_to_csr, _convert_indices_from_csr_to_coo)
