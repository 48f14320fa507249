"""Inputs at the ends of each dtype's range: extremes, denormals, infinities, NaN, large offsets, numbers beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

# The number of samples of each dtype that are repeated with such elements.
SAMPLES_MAX = 3
# Far from 0, where a result that is computed from differences loses digits.
OFFSET = 1000.0

# Composites, beside the elementwise operations and the reductions.
COMPOSITES = set(
    """
    addcdiv addcmul clamp cummax cummin cumprod cumsum diff dist lerp log_softmax logcumsumexp logsumexp softmax
    std_mean trapezoid var_mean linalg.vector_norm
    nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.binary_cross_entropy_with_logits
    nn.functional.celu nn.functional.cosine_similarity nn.functional.elu nn.functional.gelu nn.functional.glu
    nn.functional.group_norm nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
    nn.functional.huber_loss nn.functional.l1_loss nn.functional.layer_norm nn.functional.leaky_relu
    nn.functional.logsigmoid nn.functional.mish nn.functional.mse_loss nn.functional.pairwise_distance
    nn.functional.rms_norm nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss
    nn.functional.softplus nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold
    """.split()
)
# Polynomials whose recurrence PyTorch runs to any degree: to the ends of the integers, that takes hours.
RECURRENCES = {"special.laguerre_polynomial_l", "special.legendre_polynomial_p"}
DEGREE_MAX = 65536
# The least integer divided by -1 ends PyTorch's process by a signal.
DIVISIONS = {"div", "floor_divide", "fmod", "remainder", "true_divide", "__rmod__", "__rdiv__"}


def of_dtype(name: str, dtype: torch.dtype) -> list[float]:
    """Returns the numbers at the ends of a dtype's range, and ordinary ones between them."""
    if dtype == torch.bool:
        return [True, False]
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        return [
            *(0.0, -0.0, info.smallest_normal / 4, info.smallest_normal, info.max, info.min, 1.0),
            *(float("inf"), float("-inf"), float("nan"), -1.5, 0.1, 250.0, -3.0),
        ]
    info = torch.iinfo(dtype)
    # The least common multiple of the least integer, too.
    least = [] if name == "lcm" else [info.min]
    numbers = [0, 1, info.max, *least, 5, info.max - 1, *([] if name in DIVISIONS else [-1 % (info.max + 1)])]
    return [number for number in numbers if name not in RECURRENCES or number <= DEGREE_MAX]


def beyond(name: str, dtype: torch.dtype) -> list[float]:
    """Returns numbers that a tensor of the dtype does not have, or only rounded."""
    if dtype == torch.bool:
        return [2, 0.5]
    if dtype.is_floating_point:
        return [0.1, 65536.0, 1e-6, 1e39]
    # 2**40 alone would wrap to 0, and a division by it would end PyTorch's process.
    return [-1, 300, 0.5, *([] if name in RECURRENCES else [2**40 + 1])]


def _filled(value: Any, numbers: Iterator[float], dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype != dtype:
            return value
        elements = [next(numbers) for _ in range(value.numel())]
        return torch.tensor(elements, dtype=dtype).reshape(value.shape)
    if type(value) in (list, tuple):
        return type(value)(_filled(part, numbers, dtype) for part in value)
    return value


def _moved(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.detach() * 0.25 + OFFSET).to(dtype) if value.dtype == dtype else value
    if type(value) in (list, tuple):
        return type(value)(_moved(part, dtype) for part in value)
    return value


def variants(op: Any, dtype: torch.dtype, samples: list[Any]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yields kinds of checks with the arguments of an operation; none for those that are neither of the kinds above."""
    reduces = isinstance(op, ReductionOpInfo) or op.name in COMPOSITES
    if not (reduces or isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))):
        return
    for sample in samples[:SAMPLES_MAX]:
        arguments = (sample.input, *sample.args)
        if not isinstance(sample.input, torch.Tensor):
            continue
        yield "edge", _filled(arguments, itertools.cycle(of_dtype(op.name, dtype)), dtype), sample.kwargs
        if reduces and dtype.is_floating_point:
            yield "offset", _moved(arguments, dtype), sample.kwargs
    if isinstance(op, BinaryUfuncInfo) and op.supports_rhs_python_scalar:
        ordinary = torch.tensor([1, 0, 3, 1] if dtype != torch.bool else [True, False], dtype=dtype)
        for number in beyond(op.name, dtype):
            yield "number", (ordinary, number), {}
