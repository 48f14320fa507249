"""GT: tensors from the daemon that owns the machine's devices.

`import gt` starts nothing: the first tensor connects to the machine's `gtd`, or starts a private one that ends with
this process.
"""

# ruff: noqa: F401 (what is imported here is the package)
from __future__ import annotations

import atexit as _atexit
import math as _math
import sysconfig as _sysconfig

from gt import _absent, _gt, _ops, _pickle, _placement, _repr, _sharding
from gt._autograd import enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled
from gt._connection import connect, disconnect, session
from gt._dtypes import can_cast, finfo, iinfo
from gt._gt import (
    DisconnectedError,
    Generator,
    OutOfMemoryError,
    Tensor,
    __version__,
    arange,
    as_tensor,
    bfloat16,
    bool,
    cat,
    default_generator,
    device,
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
    get_default_dtype,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    linspace,
    long,
    ones,
    ones_like,
    promote_types,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    result_type,
    set_default_dtype,
    short,
    stack,
    synchronize,
    tensor,
    uint8,
    zeros,
    zeros_like,
)
from gt._layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from gt._repr import set_printoptions
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
from gt._types import OutOfRangeError, Size

_gt.set_scripts_folder(_sysconfig.get_path("scripts"))
_functions = _ops.install(globals())
globals().update(_placement.TYPED)
# What was issued runs, even if nobody waited for it.
_atexit.register(_gt.flush)

Tensor.__repr__ = _repr.tensor_repr
Tensor.__str__ = _repr.tensor_repr
Tensor.__format__ = _repr.tensor_format
Tensor.__deepcopy__ = _pickle.deepcopy
Tensor.__reduce__ = _pickle.reduce

concat = concatenate = cat
e, inf, nan, pi = _math.e, _math.inf, _math.nan, _math.pi
newaxis = None

__getattr__ = _absent.getter(__name__)

# The modules that PyTorch's users find under the package. They come last: they use what is above.
from gt import (  # noqa: E402
    accelerator,
    amp,
    autograd,
    backends,
    compiler,
    cuda,
    debug,
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
from gt.amp import GradScaler, autocast  # noqa: E402
from gt.compiler import compile  # noqa: E402
from gt.func import vmap  # noqa: E402
from gt.nn._aten import (  # noqa: E402 (which PyTorch has here in other forms)
    adaptive_max_pool1d,
    affine_grid_generator,
    alpha_dropout,
    batch_norm,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    ctc_loss,
    dropout,
    embedding,
    feature_alpha_dropout,
    feature_dropout,
    grid_sampler,
    hinge_embedding_loss,
    instance_norm,
    kl_div,
    margin_ranking_loss,
    max_pool1d_with_indices,
    poisson_nll_loss,
    rms_norm,
    rrelu,
    triplet_margin_loss,
)
from gt.nn.functional import (  # noqa: E402 (which PyTorch has here, too)
    adaptive_avg_pool1d,
    avg_pool1d,
    bilinear,
    celu,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
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
    selu,
    threshold,
)
from gt.optim import swa_utils as _swa_utils  # noqa: E402 (it knows nn, which knows optim)
from gt.random import (  # noqa: E402
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

_sharding.load_named_config()

# Everything here that does not start with an underscore is the package's.
__all__ = ["__version__", *sorted(name for name in globals() if not name.startswith("_") and name != "annotations")]
