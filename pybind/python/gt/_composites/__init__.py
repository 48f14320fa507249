"""Functions and methods that are a few lines of other operations, under PyTorch's names; their gradients follow.

A module is about one theme. Of its functions, `METHODS` are functions and methods alike, `TENSOR_METHODS` methods
alone, `FUNCTIONS` functions alone, and those `IN_PLACE` have an in-place method too. `_ops.install` hands them out.
"""

from __future__ import annotations

from gt._composites import (
    arithmetic,
    copies,
    counting,
    creation,
    distances,
    each,
    kinds,
    masks,
    matrices,
    parts,
    places,
    products,
    random,
    reductions,
    scans,
    scattering,
    selection,
    sorting,
    special,
    sums,
    windows,
)

_MODULES = (
    masks,
    parts,
    places,
    arithmetic,
    kinds,
    copies,
    reductions,
    distances,
    products,
    matrices,
    sums,
    creation,
    selection,
    scattering,
    scans,
    sorting,
    counting,
    special,
    random,
    windows,
    each,
)
METHODS = tuple(function for module in _MODULES for function in module.METHODS)
TENSOR_METHODS = tuple(function for module in _MODULES for function in getattr(module, "TENSOR_METHODS", ()))
PROPERTIES = copies.PROPERTIES
IN_PLACE = tuple(function for module in _MODULES for function in module.IN_PLACE)
FUNCTIONS = tuple(function for module in _MODULES for function in module.FUNCTIONS)
