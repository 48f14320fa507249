"""GT: tensors from the daemon that owns the machine's devices.

The declared functions are in `gt._functions.top`, whose stub the build writes.
"""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Sequence
from typing import Any

from gt import accelerator as accelerator
from gt import amp as amp
from gt import array_api as array_api
from gt import autograd as autograd
from gt import backends as backends
from gt import client as client
from gt import compiler as compiler
from gt import cpu as cpu
from gt import cuda as cuda
from gt import debug as debug
from gt import distributed as distributed
from gt import distributions as distributions
from gt import fft as fft
from gt import func as func
from gt import functional as functional
from gt import futures as futures
from gt import fx as fx
from gt import hub as hub
from gt import jit as jit
from gt import launch as launch
from gt import library as library
from gt import linalg as linalg
from gt import llm as llm
from gt import masked as masked
from gt import mps as mps
from gt import mtia as mtia
from gt import multiprocessing as multiprocessing
from gt import nn as nn
from gt import onnx as onnx
from gt import ops as ops
from gt import optim as optim
from gt import overrides as overrides
from gt import profiler as profiler
from gt import random as random
from gt import return_types as return_types
from gt import serialization as serialization
from gt import server as server
from gt import signal as signal
from gt import sparse as sparse
from gt import special as special
from gt import storage as storage
from gt import testing as testing
from gt import torch_version as torch_version
from gt import types as types
from gt import utils as utils
from gt import version as version
from gt import wasi_nn as wasi_nn
from gt import worker as worker
from gt import xpu as xpu
from gt._autograd import enable_grad as enable_grad
from gt._autograd import inference_mode as inference_mode
from gt._autograd import is_inference_mode_enabled as is_inference_mode_enabled
from gt._autograd import no_grad as no_grad
from gt._autograd import set_grad_enabled as set_grad_enabled
from gt._connection import connect as connect
from gt._connection import disconnect as disconnect
from gt._connection import session as session
from gt._dtypes import can_cast as can_cast
from gt._dtypes import finfo as finfo
from gt._dtypes import iinfo as iinfo
from gt._functions.top import *  # noqa: F403 (a stub that the build writes)
from gt._gt import DisconnectedError as DisconnectedError
from gt._gt import DType
from gt._gt import Generator as Generator
from gt._gt import OutOfMemoryError as OutOfMemoryError
from gt._gt import Tensor as Tensor
from gt._gt import __version__ as __version__
from gt._gt import as_tensor as as_tensor
from gt._gt import bfloat16 as bfloat16
from gt._gt import bool as bool
from gt._gt import cdouble as cdouble
from gt._gt import cfloat as cfloat
from gt._gt import complex64 as complex64
from gt._gt import complex128 as complex128
from gt._gt import default_generator as default_generator
from gt._gt import device as device
from gt._gt import double as double
from gt._gt import dtype as dtype
from gt._gt import float as float
from gt._gt import float16 as float16
from gt._gt import float32 as float32
from gt._gt import float64 as float64
from gt._gt import from_numpy as from_numpy
from gt._gt import get_default_dtype as get_default_dtype
from gt._gt import half as half
from gt._gt import int as int
from gt._gt import int8 as int8
from gt._gt import int16 as int16
from gt._gt import int32 as int32
from gt._gt import int64 as int64
from gt._gt import is_grad_enabled as is_grad_enabled
from gt._gt import long as long
from gt._gt import promote_types as promote_types
from gt._gt import result_type as result_type
from gt._gt import set_default_dtype as set_default_dtype
from gt._gt import short as short
from gt._gt import synchronize as synchronize
from gt._gt import tensor as tensor
from gt._gt import uint8 as uint8
from gt._gt import uint16 as uint16
from gt._gt import uint32 as uint32
from gt._gt import uint64 as uint64
from gt._layouts import channels_last as channels_last
from gt._layouts import channels_last_3d as channels_last_3d
from gt._layouts import contiguous_format as contiguous_format
from gt._layouts import layout as layout
from gt._layouts import legacy_contiguous_format as legacy_contiguous_format
from gt._layouts import memory_format as _MemoryFormat  # noqa: N812
from gt._layouts import memory_format as memory_format
from gt._layouts import preserve_format as preserve_format
from gt._layouts import sparse_coo as sparse_coo
from gt._layouts import sparse_csc as sparse_csc
from gt._layouts import sparse_csr as sparse_csr
from gt._layouts import strided as strided
from gt._lobpcg import lobpcg as lobpcg
from gt._repr import set_printoptions as set_printoptions
from gt._save import load as load
from gt._save import save as save
from gt._sharding import ShardConfig as ShardConfig
from gt._sharding import SignalConfig as SignalConfig
from gt._sharding import clear_config as clear_config
from gt._sharding import get_config as get_config
from gt._sharding import gpu_workers as gpu_workers
from gt._sharding import load_config as load_config
from gt._sharding import register_config as register_config
from gt._types import OutOfRangeError as OutOfRangeError
from gt._types import Size as Size
from gt._VF import gru as gru
from gt._VF import gru_cell as gru_cell
from gt._VF import lstm as lstm
from gt._VF import lstm_cell as lstm_cell
from gt._VF import rnn_relu as rnn_relu
from gt._VF import rnn_relu_cell as rnn_relu_cell
from gt._VF import rnn_tanh as rnn_tanh
from gt._VF import rnn_tanh_cell as rnn_tanh_cell
from gt.amp import GradScaler as GradScaler
from gt.amp import autocast as autocast
from gt.compiler import compile as compile
from gt.func import vmap as vmap
from gt.nn.functional import adaptive_avg_pool1d as adaptive_avg_pool1d
from gt.nn.functional import avg_pool1d as avg_pool1d
from gt.nn.functional import bilinear as bilinear
from gt.nn.functional import celu as celu
from gt.nn.functional import celu_ as celu_
from gt.nn.functional import channel_shuffle as channel_shuffle
from gt.nn.functional import conv1d as conv1d
from gt.nn.functional import conv2d as conv2d
from gt.nn.functional import conv3d as conv3d
from gt.nn.functional import conv_tbc as conv_tbc
from gt.nn.functional import conv_transpose1d as conv_transpose1d
from gt.nn.functional import conv_transpose2d as conv_transpose2d
from gt.nn.functional import conv_transpose3d as conv_transpose3d
from gt.nn.functional import group_norm as group_norm
from gt.nn.functional import hardshrink as hardshrink
from gt.nn.functional import layer_norm as layer_norm
from gt.nn.functional import max_pool1d as max_pool1d
from gt.nn.functional import max_pool2d as max_pool2d
from gt.nn.functional import max_pool3d as max_pool3d
from gt.nn.functional import pairwise_distance as pairwise_distance
from gt.nn.functional import pixel_shuffle as pixel_shuffle
from gt.nn.functional import pixel_unshuffle as pixel_unshuffle
from gt.nn.functional import prelu as prelu
from gt.nn.functional import rrelu_ as rrelu_
from gt.nn.functional import selu as selu
from gt.nn.functional import selu_ as selu_
from gt.nn.functional import threshold as threshold
from gt.nn.functional import threshold_ as threshold_
from gt.random import fork_rng as fork_rng
from gt.random import get_rng_state as get_rng_state
from gt.random import initial_seed as initial_seed
from gt.random import manual_seed as manual_seed
from gt.random import seed as seed
from gt.random import set_rng_state as set_rng_state
from gt.storage import TypedStorage as TypedStorage
from gt.storage import UntypedStorage as UntypedStorage

e: _float
inf: _float
nan: _float
pi: _float
newaxis: None

BoolTensor: type[Tensor]
ByteTensor: type[Tensor]
CharTensor: type[Tensor]
ShortTensor: type[Tensor]
IntTensor: type[Tensor]
LongTensor: type[Tensor]
HalfTensor: type[Tensor]
BFloat16Tensor: type[Tensor]
ComplexDoubleTensor: type[Tensor]
ComplexFloatTensor: type[Tensor]
FloatTensor: type[Tensor]
DoubleTensor: type[Tensor]

def are_deterministic_algorithms_enabled() -> _bool: ...
def asarray(
    obj: Any, *, dtype: DType | None = None, device: Any = None, copy: _bool | None = None, requires_grad: _bool = False
) -> Tensor: ...
def broadcast_shapes(*shapes: tuple[_int, ...] | _int) -> Size: ...
def clear_autocast_cache() -> None: ...
def clone(input: Tensor, *, memory_format: _MemoryFormat | None = None) -> Tensor: ...
def detach(input: Tensor) -> Tensor: ...
def empty_permuted(size: Sequence[_int], physical_layout: Sequence[_int], **options: Any) -> Tensor: ...
def empty_strided(size: Sequence[_int], stride: Sequence[_int], **options: Any) -> Tensor: ...
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: _bool | None = None) -> Tensor: ...
def frombuffer(
    buffer: Any, *, dtype: DType, count: _int = -1, offset: _int = 0, requires_grad: _bool = False
) -> Tensor: ...
def get_autocast_cpu_dtype() -> DType: ...
def get_autocast_dtype(device_type: str) -> DType: ...
def get_autocast_gpu_dtype() -> DType: ...
def get_device_module(device: object = None) -> Any: ...
def get_default_device() -> device: ...
def get_deterministic_debug_mode() -> _int: ...
def get_device(self: Tensor) -> _int: ...
def get_float32_matmul_precision() -> str: ...
def get_num_interop_threads() -> _int: ...
def get_num_threads() -> _int: ...
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: _bool = False) -> Tensor: ...
def is_anomaly_check_nan_enabled() -> _bool: ...
def is_anomaly_enabled() -> _bool: ...
def is_autocast_cpu_enabled() -> _bool: ...
def is_autocast_enabled(device_type: str = "cuda") -> _bool: ...
def is_complex(input: Tensor) -> _bool: ...
def is_conj(input: Tensor) -> _bool: ...
def is_deterministic_algorithms_warn_only_enabled() -> _bool: ...
def is_distributed(input: Tensor) -> _bool: ...
def is_floating_point(input: Tensor) -> _bool: ...
def is_inference(input: Tensor) -> _bool: ...
def is_neg(input: Tensor) -> _bool: ...
def is_nonzero(input: Tensor) -> _bool: ...
def is_same_size(input: Tensor, other: Tensor) -> _bool: ...
def is_signed(input: Tensor) -> _bool: ...
def is_storage(obj: object) -> _bool: ...
def is_tensor(obj: object) -> _bool: ...
def is_warn_always_enabled() -> _bool: ...
def numel(input: Tensor) -> _int: ...
def scalar_tensor(s: Any, **options: Any) -> Tensor: ...
def set_anomaly_enabled(mode: _bool, check_nan: _bool = True) -> None: ...
def set_default_device(device: object) -> None: ...
def set_default_tensor_type(t: Any) -> None: ...
def set_deterministic_debug_mode(debug_mode: _int | str) -> None: ...
def set_float32_matmul_precision(precision: str) -> None: ...
def set_flush_denormal(mode: _bool) -> _bool: ...
def set_num_interop_threads(num: _int) -> None: ...
def set_num_threads(num: _int) -> None: ...
def set_warn_always(b: _bool) -> None: ...
def sparse_coo_tensor(
    indices: Any, values: Any = None, size: Sequence[_int] | None = None, **options: Any
) -> Tensor: ...
def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Sequence[_int] | None = None, **options: Any
) -> Tensor: ...
def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Sequence[_int] | None = None, **options: Any
) -> Tensor: ...
def typename(obj: object) -> str: ...
def use_deterministic_algorithms(mode: _bool, *, warn_only: _bool = False) -> None: ...

detach_ = Tensor.detach_
fill_ = Tensor.fill_
index_put_ = Tensor.index_put_
resize_as_ = Tensor.resize_as_
zero_ = Tensor.zero_
