"""The elementwise ops of the op table as functions: `ROWS["exp"](x)` issues one instruction.

`_ops` makes the public functions of these, with PyTorch's keyword arguments and names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _forms, _table
from gt._gt import Tensor
from gt._gt import elementwise as _elementwise

Function = Callable[..., Any]


def _row_function(row: dict[str, Any]) -> Function:
    """A function that issues the instruction of an elementwise row, with one, two or three operands."""
    op = row["wire_id"]
    if row["operands"] == 1:

        def function(input: Tensor) -> Tensor:
            return _elementwise(op, input)

    elif row["tensors_only"]:

        def function(input: Tensor, other: Tensor) -> Tensor:
            _forms.check_tensor(row["name"], "other", 2, other)
            return _elementwise(op, input, other)

    elif row["operands"] == 2:

        def function(input: Tensor, other: Tensor | complex) -> Tensor:
            return _elementwise(op, input, other)

    else:

        def function(input: Tensor, first: Tensor | complex, second: Tensor | complex) -> Tensor:
            return _elementwise(op, input, first, second)

    return function


ROWS: dict[str, Function] = {row["name"]: _row_function(row) for row in _table.TABLE if row["class"] == "elementwise"}
