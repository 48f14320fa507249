"""The package's top level without its submodules: `Tensor`, the dtypes and the functions.

`nn`, `optim` and other submodules build on this module. They import it as `gt` (`from gt import _core as gt`), so that
their code reads like a user's program. `gt/__init__.py` imports all of them, and exports their names and those here.
"""

# ruff: noqa: F401 (the imports are names that the package exports)
from __future__ import annotations

import math as _math

from gt import _gt, _ops, _pickle, _placement, _repr, _subclass
from gt._autograd import enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled
from gt._dtypes import can_cast, finfo, iinfo
from gt._gt import (
    DisconnectedError,
    Generator,
    OutOfMemoryError,
    Tensor,
    __version__,
    as_tensor,
    bfloat16,
    bool,
    cdouble,
    cfloat,
    complex64,
    complex128,
    default_generator,
    device,
    double,
    dtype,
    float,
    float16,
    float32,
    float64,
    from_numpy,
    get_default_dtype,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    long,
    promote_types,
    result_type,
    set_default_dtype,
    short,
    synchronize,
    tensor,
    uint8,
    uint16,
    uint32,
    uint64,
)
from gt._layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    legacy_contiguous_format,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from gt._repr import set_printoptions
from gt._types import OutOfRangeError, Size
from gt.random import (
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

_functions = _ops.install(globals())
globals().update(_placement.TYPED)

Tensor.__repr__ = _repr.tensor_repr
Tensor.__str__ = _repr.tensor_str
Tensor.__format__ = _repr.tensor_format
Tensor.__copy__ = _pickle.copy
Tensor.__deepcopy__ = _pickle.deepcopy
Tensor.__reduce__ = _pickle.reduce
Tensor.as_subclass = _subclass.as_subclass
Tensor._make_subclass = staticmethod(_subclass.make_subclass)

e, inf, nan, pi = _math.e, _math.inf, _math.nan, _math.pi
newaxis = None

# `gt` exports the names that do not start with an underscore, and all functions: PyTorch has some that do start with
# one, such as `_standard_gamma`.
__all__ = [
    "__version__",
    *_functions,
    *(name for name in globals() if not name.startswith("_") and name != "annotations"),
]
