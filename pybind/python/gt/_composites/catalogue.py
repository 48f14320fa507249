"""The lists of all composites, from which `_ops.install` gives the package its functions and `Tensor` its methods.

Of a module's functions, `METHODS` are functions and methods alike, `TENSOR_METHODS` methods alone, `FUNCTIONS`
functions alone, and those `IN_PLACE` have an in-place method too.
"""

from __future__ import annotations

from gt._composites import (
    apply_ops,
    creation,
    indexing_ops,
    selection,
    shape_ops,
    view_copies,
)

_MODULES = (
    shape_ops,
    indexing_ops,
    view_copies,
    creation,
    selection,
    apply_ops,
)
METHODS = tuple(function for module in _MODULES for function in module.METHODS)
TENSOR_METHODS = tuple(function for module in _MODULES for function in getattr(module, "TENSOR_METHODS", ()))
PROPERTIES = view_copies.PROPERTIES
IN_PLACE = tuple(function for module in _MODULES for function in module.IN_PLACE)
FUNCTIONS = tuple(function for module in _MODULES for function in module.FUNCTIONS)
