"""Elements replaced by an index of any kind."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _indexing
from gt._gt import Tensor


def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy after `copy[indices] = values`.

    Args:
        input: A tensor.
        indices: An index tensor for each axis; `None` keeps an axis.
        values: A tensor that broadcasts to the indexed elements.
        accumulate: Whether values are added to the elements instead, repeated indices each time.

    Example:
        >>> gt.zeros(3).index_put((gt.tensor([0, 0, 2]),), gt.tensor(1.0), accumulate=True)
        tensor([2., 0., 1.])
    """
    return _indexing.index_put(input, indices, values, accumulate)


METHODS = (index_put,)
TENSOR_METHODS = ()
IN_PLACE = (index_put,)
FUNCTIONS = ()
