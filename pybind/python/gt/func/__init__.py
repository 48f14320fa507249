"""Function transforms: derivatives, `vmap`, and modules as functions of their parameters.

Start at `derivatives.py`. Arguments and results may be trees: nested tuples, lists and dicts of tensors (`trees.py`).
"""

from __future__ import annotations

from gt import _absent
from gt.func.batching import vmap
from gt.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from gt.func.modules import functional_call, stack_module_state

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip

__getattr__ = _absent.getter(__name__)
