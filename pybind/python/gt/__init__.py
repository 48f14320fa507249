"""GT: tensors from the daemon that owns the machine's devices.

`import gt` starts nothing: the first tensor connects to the machine's `gtd`, or starts a private one that ends with
this process.
"""

from __future__ import annotations

import atexit as _atexit
import sysconfig as _sysconfig

from gt import _absent, _gt, _ops, _pickle, _repr
from gt._autograd import enable_grad, no_grad, set_grad_enabled
from gt._gt import (
    DisconnectedError,
    OutOfMemoryError,
    Tensor,
    __version__,
    arange,
    as_tensor,
    bfloat16,
    bool,
    cat,
    disconnect,
    double,
    dtype,
    empty,
    empty_like,
    eye,
    float,
    float16,
    float32,
    float64,
    from_numpy,
    full,
    full_like,
    half,
    initial_seed,
    int,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    linspace,
    long,
    manual_seed,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    short,
    stack,
    synchronize,
    tensor,
    uint8,
    zeros,
    zeros_like,
)
from gt._save import load, save
from gt._types import Size

_gt.set_scripts_folder(_sysconfig.get_path("scripts"))
_functions = _ops.install(globals())
# What was issued runs, even if nobody waited for it.
_atexit.register(_gt.flush)

Tensor.__repr__ = _repr.tensor_repr
Tensor.__str__ = _repr.tensor_repr
Tensor.__format__ = _repr.tensor_format
Tensor.__deepcopy__ = _pickle.deepcopy
Tensor.__reduce__ = _pickle.reduce

concat = concatenate = cat

__getattr__ = _absent.getter(__name__)

# The modules that PyTorch's users find under the package. They come last: they use what is above.
from gt import accelerator, autograd, backends, cuda, debug, linalg, nn, optim, utils  # noqa: E402

__all__ = [
    "DisconnectedError",
    "OutOfMemoryError",
    "Size",
    "Tensor",
    "__version__",
    "accelerator",
    "arange",
    "as_tensor",
    "autograd",
    "backends",
    "bfloat16",
    "bool",
    "cat",
    "concat",
    "concatenate",
    "cuda",
    "debug",
    "disconnect",
    "double",
    "dtype",
    "empty",
    "empty_like",
    "enable_grad",
    "eye",
    "float",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "full_like",
    "half",
    "initial_seed",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "linalg",
    "linspace",
    "load",
    "long",
    "manual_seed",
    "nn",
    "no_grad",
    "ones",
    "ones_like",
    "optim",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "save",
    "set_grad_enabled",
    "short",
    "stack",
    "synchronize",
    "tensor",
    "uint8",
    "utils",
    "zeros",
    "zeros_like",
    *_functions,
]
