"""GT: tensors from the daemon that owns the machine's devices.

`import gt` starts nothing: the first tensor connects to the machine's `gtd`, or starts a private one that ends with
this process.
"""

# ruff: noqa: F401, F403, F405 (the imports are names that the package exports; `_core.__all__` lists more of them)
from __future__ import annotations

import atexit as _atexit
import sysconfig as _sysconfig

from gt import (
    _absent,
    _gt,
    _sharding,
    accelerator,
    amp,
    autograd,
    backends,
    compiler,
    cuda,
    debug,
    distributed,
    distributions,
    fft,
    func,
    jit,
    linalg,
    masked,
    nn,
    optim,
    random,
    signal,
    special,
    testing,
    torch_version,
    utils,
    version,
)
from gt._array_namespace import __array_namespace__ as _array_namespace
from gt._connection import connect, disconnect, session
from gt._core import *
from gt._lobpcg import lobpcg
from gt._save import load, save
from gt._sharding import (
    ShardConfig,
    SignalConfig,
    clear_config,
    get_config,
    gpu_workers,
    load_config,
    register_config,
)
from gt._VF import (
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn_relu,
    rnn_relu_cell,
    rnn_tanh,
    rnn_tanh_cell,
)
from gt.amp import GradScaler, autocast
from gt.compiler import compile
from gt.func import vmap
from gt.nn.functional import (
    adaptive_avg_pool1d,
    avg_pool1d,
    bilinear,
    celu,
    celu_,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    group_norm,
    hardshrink,
    layer_norm,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    prelu,
    rrelu_,
    selu,
    selu_,
    threshold,
    threshold_,
)
from gt.nn.functional import grouped_mm as _grouped_mm
from gt.optim import swa_utils as _swa_utils
from gt.storage import TypedStorage, UntypedStorage

_gt.set_scripts_folder(_sysconfig.get_path("scripts"))
# At exit, the last issued instructions are handed to the daemon, which executes them even if nobody waits for them.
_atexit.register(_gt.flush)
_gt.Tensor.__array_namespace__ = _array_namespace

__getattr__ = _absent.getter(__name__)

_sharding.load_named_config()

# Every name here that does not start with an underscore is public.
__all__ = ["__version__", *sorted(name for name in globals() if not name.startswith("_") and name != "annotations")]
