"""The ops of a transformer's step other than matrix products, in f32: forward only, and with the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
import gt.nn
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

ELEMENTS = (10_000, 1_000_000, 10_000_000)
# Each measurement makes as many passes as process this many elements, and waits for the last one.
PASS_ELEMENTS = 20_000_000
PASSES_MAX = 200
COLUMNS = 1000
HEADS, FEATURES = 4, 32

# Given a framework, its `nn.functional`, a generator and a size: the operands that require gradients, and the op.
Case = Callable[[Any, Any, np.random.Generator, int], tuple[list[Any], Callable[..., Any]]]


def _rows(framework: Any, numbers: np.random.Generator, elements: int) -> Any:
    array = numbers.standard_normal((elements // COLUMNS, COLUMNS), dtype=np.float32)
    return framework.from_numpy(array).requires_grad_()


def _softmax(framework: Any, functions: Any, numbers: np.random.Generator, elements: int) -> Any:
    return [_rows(framework, numbers, elements)], lambda x: functions.softmax(x, -1)


def _layer_norm(framework: Any, functions: Any, numbers: np.random.Generator, elements: int) -> Any:
    weight, bias = (framework.ones(COLUMNS).requires_grad_() for _ in range(2))
    operands = [_rows(framework, numbers, elements), weight, bias]
    return operands, lambda x, w, b: functions.layer_norm(x, (COLUMNS,), w, b)


def _gelu(framework: Any, functions: Any, numbers: np.random.Generator, elements: int) -> Any:
    return [_rows(framework, numbers, elements)], functions.gelu


def _cross_entropy(framework: Any, functions: Any, numbers: np.random.Generator, elements: int) -> Any:
    target = framework.from_numpy(numbers.integers(0, COLUMNS, elements // COLUMNS))
    return [_rows(framework, numbers, elements)], lambda x: functions.cross_entropy(x, target)


def _attention(framework: Any, functions: Any, numbers: np.random.Generator, elements: int) -> Any:
    """Causal attention with as many queries as give `elements` scores."""
    length = max(math.isqrt(elements // HEADS) // 10 * 10, 10)
    operands = [
        framework.from_numpy(numbers.standard_normal((1, HEADS, length, FEATURES), dtype=np.float32)).requires_grad_()
        for _ in range(3)
    ]
    return operands, lambda q, k, v: functions.scaled_dot_product_attention(q, k, v, is_causal=True)


CASES: dict[str, Case] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "cross_entropy": _cross_entropy,
    "causal attention": _attention,
}


def _contender(framework: Any, functions: Any, case: Case, elements: int, backward: bool) -> Callable[[], float]:
    operands, function = case(framework, functions, np.random.default_rng(1), elements)
    passes = max(min(PASS_ELEMENTS // elements, PASSES_MAX), 2)
    last: list[Any] = [None]
    upstream = framework.ones_like(function(*operands).detach())

    def forward() -> None:
        with framework.no_grad():
            last[0] = function(*operands)

    def both() -> None:
        for operand in operands:
            operand.grad = None
        function(*operands).backward(upstream)
        last[0] = operands[0].grad

    work = both if backward else forward
    return lambda: seconds_per_pass(work, passes, lambda: last[0].reshape(-1)[0].item())


def rows() -> Iterator[Row]:
    """Yields a row for each op, size and direction."""
    for name, case in CASES.items():
        for elements in ELEMENTS:
            for backward in (False, True):
                contenders = {"GT": _contender(gt, gt.nn.functional, case, elements, backward)}
                if torch:
                    functions = torch.nn.functional
                    contenders |= with_torch(_contender(torch, functions, case, elements, backward))
                what = f"{name}{' and gradient' if backward else ''}, {elements:.0e} elements".replace("e+0", "e")
                yield Row(what, contenders, (Target(1.0, "PyTorch"),))
