"""Ops along the last axis: softmax, losses over classes, normalizations, attention and Fourier transforms.

Gradients that PyTorch has no function for are PyTorch's own, by its autograd.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from gt_torch.checks import index_in_range
from gt_torch.elementwise import HALF, wide

Number = torch.Tensor | float
REDUCTIONS = ("none", "mean", "sum")
aten = torch.ops.aten


def along(rows: torch.Tensor, x: Number) -> torch.Tensor:
    """Returns a tensor with an element for each column."""
    if isinstance(x, torch.Tensor):
        return x
    return torch.full(rows.shape[-1:], x, dtype=rows.dtype, device=rows.device)


def gradient(function: Callable[..., torch.Tensor], grad: torch.Tensor, *operands: torch.Tensor) -> list[torch.Tensor]:
    """Returns the gradients of a function for its operands."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in operands]
        return list(torch.autograd.grad(function(*leaves), leaves, grad))


def widened(a: torch.Tensor) -> torch.Tensor:
    """Returns half precisions in float32."""
    return a.float() if a.dtype in HALF else a


@wide
def softmax_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of softmax, from its result."""
    return aten._softmax_backward_data(grad, output, -1, output.dtype)


@wide
def log_softmax_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of log_softmax, from its result."""
    return aten._log_softmax_backward_data(grad, output, -1, output.dtype)


@wide
def lstm_cell(gates: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
    """Returns the hidden state and the cell state after a step of a long short-term memory, side by side."""
    opening, forget, candidate, output = gates.chunk(4, -1)
    after = forget.sigmoid() * cell + opening.sigmoid() * candidate.tanh()
    return torch.cat([output.sigmoid() * after.tanh(), after], -1)


@wide
def lstm_cell_backward(
    hidden_grad: torch.Tensor, cell_grad: torch.Tensor, gates: torch.Tensor, cell: torch.Tensor, after: torch.Tensor
) -> torch.Tensor:
    """Returns the gradients of `lstm_cell` for the sums of the gates and for the cell state, side by side."""
    opening, forget, candidate, output = gates.chunk(4, -1)
    opening, forget, output = opening.sigmoid(), forget.sigmoid(), output.sigmoid()
    candidate, squashed = candidate.tanh(), after.tanh()
    through = cell_grad + hidden_grad * output * (1 - squashed.square())
    parts = [
        through * candidate * opening * (1 - opening),
        through * cell * forget * (1 - forget),
        through * opening * (1 - candidate.square()),
        hidden_grad * squashed * output * (1 - output),
        through * forget,
    ]
    return torch.cat(parts, -1)


def class_loss(scores: bool):
    """Returns the function of a loss over classes: from scores, or from log-probabilities."""

    def loss(
        rows: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, reduction: int, ignored: int, smoothing: float
    ) -> torch.Tensor:
        if scores:
            return F.cross_entropy(
                rows, target, weight, ignore_index=ignored, reduction=REDUCTIONS[reduction], label_smoothing=smoothing
            )
        return F.nll_loss(rows, target, weight, ignore_index=ignored, reduction=REDUCTIONS[reduction])

    return loss


def checked_target(target: torch.Tensor, ignored: int, classes: int) -> torch.Tensor:
    """Returns the classes, which must be in range where they are not ignored."""
    kept = torch.where(target == ignored, 0, target) if not 0 <= ignored < classes else target
    kept = index_in_range(kept, 0, classes, 1) if classes else kept
    return torch.where(target == ignored, ignored, kept)


def loss(scores: bool):
    """Returns the op of a loss over classes."""
    function = class_loss(scores)

    def op(
        rows: torch.Tensor, target: torch.Tensor, weight: Number, reduction: int, ignored: int, smoothing: float
    ) -> torch.Tensor:
        target = checked_target(target, ignored, rows.shape[1])
        a = widened(rows)
        return function(a, target, along(rows, weight).to(a.dtype), reduction, ignored, smoothing).to(rows.dtype)

    return op


def loss_backward(scores: bool):
    """Returns the op of a loss's gradient."""
    function = class_loss(scores)

    def op(
        grad: torch.Tensor,
        rows: torch.Tensor,
        target: torch.Tensor,
        weight: Number,
        reduction: int,
        ignored: int,
        smoothing: float,
    ) -> torch.Tensor:
        target = checked_target(target, ignored, rows.shape[1])
        a = widened(rows)
        weight = along(rows, weight).to(a.dtype)
        (result,) = gradient(lambda a: function(a, target, weight, reduction, ignored, smoothing), grad.to(a.dtype), a)
        return result.to(rows.dtype)

    return op


def normalized(centred: bool, rows: torch.Tensor, weight: torch.Tensor, *bias_and_epsilon: Number) -> torch.Tensor:
    """Returns the normalized rows times a weight: of layer_norm, or of rms_norm."""
    *bias, epsilon = bias_and_epsilon
    if centred:
        return F.layer_norm(rows, rows.shape[-1:], weight, bias[0] if bias else None, epsilon)
    return F.rms_norm(rows, rows.shape[-1:], weight, epsilon)


def norm(centred: bool):
    """Returns the op of a normalization."""

    def op(rows: torch.Tensor, *numbers: Number) -> torch.Tensor:
        a = widened(rows)
        *weights, epsilon = numbers
        return normalized(centred, a, *(along(rows, x).to(a.dtype) for x in weights), epsilon).to(rows.dtype)

    return op


def norm_backward(centred: bool):
    """Returns the op of a normalization's gradient for its input."""

    def op(grad: torch.Tensor, rows: torch.Tensor, weight: Number, epsilon: float) -> torch.Tensor:
        if rows.numel() == 0:
            return torch.empty_like(rows)
        a = widened(rows)
        weight = along(rows, weight).to(a.dtype)
        (result,) = gradient(lambda a: normalized(centred, a, weight, epsilon), widened(grad), a)
        return result.to(rows.dtype)

    return op


def norm_weight_backward(centred: bool):
    """Returns the op of a normalization's gradients for its weight and, if it has one, its bias: a row each."""

    def op(grad: torch.Tensor, rows: torch.Tensor, epsilon: float) -> torch.Tensor:
        a, g = widened(rows), widened(grad)
        scaled = normalized(centred, a, along(a, 1.0), epsilon) if rows.numel() else a
        axes = tuple(range(rows.dim() - 1))
        results = [g * scaled, g] if centred else [g * scaled]
        columns = [(x.sum(axes) if axes else x) for x in results]
        return torch.stack(columns).to(rows.dtype)

    return op


def attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
) -> torch.Tensor:
    """Returns attention, with a mask that is added to the scores, or a causal one, or both."""
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    if causal:
        later = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
        mask = mask.masked_fill(later, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest) -> torch.Tensor:
    """Returns scaled dot-product attention."""
    *mask, causal, scale = rest
    return attended(query, key, value, mask[0] if mask else None, causal, scale)


def attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *rest,
) -> torch.Tensor:
    """Returns the gradients for query, key and value, flattened side by side, a row for each batch."""
    *mask, causal, scale = rest
    added = mask[0] if mask else None

    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attended(query, key, value, added, causal, scale)

    results = gradient(function, grad, query, key, value)
    return torch.cat([x.flatten(-2) for x in results], -1)


def transform(run: Callable[..., torch.Tensor], norm: str):
    """Returns the op of a Fourier transform of rows of pairs, which is not normalized."""

    def op(rows: torch.Tensor) -> torch.Tensor:
        if rows.numel() == 0:
            return rows.clone()
        pairs = rows.contiguous().view(*rows.shape[:-1], -1, 2)
        return torch.view_as_real(run(torch.view_as_complex(pairs), norm=norm)).reshape(rows.shape)

    return op


def on_complex(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
    """Returns the op of a function of complex numbers, each a last axis of its two parts."""

    def numbers(pairs: torch.Tensor) -> torch.Tensor:
        dense = pairs.contiguous()
        # PyTorch reads complex numbers only where their memory begins at an even element.
        return torch.view_as_complex(dense.clone() if dense.storage_offset() % 2 else dense)

    def op(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(function(numbers(a), numbers(b)))

    return op


def real_transform(rows: torch.Tensor) -> torch.Tensor:
    """Returns the frequencies of rows of real numbers, as pairs."""
    if rows.numel() == 0:
        return rows.new_empty((*rows.shape[:-1], rows.shape[-1] + 2))
    return torch.view_as_real(torch.fft.rfft(rows)).flatten(-2)


def inverse_real_transform(rows: torch.Tensor) -> torch.Tensor:
    """Returns the rows of real numbers that have these frequencies, times their number."""
    if rows.numel() == 0:
        return rows.new_empty((*rows.shape[:-1], rows.shape[-1] - 2))
    pairs = rows.contiguous().view(*rows.shape[:-1], -1, 2)
    return torch.fft.irfft(torch.view_as_complex(pairs), norm="forward")


OPS = {
    "softmax": lambda a: torch.softmax(a, -1),
    "softmax_backward": softmax_backward,
    "log_softmax": lambda a: torch.log_softmax(a, -1),
    "log_softmax_backward": log_softmax_backward,
    "cross_entropy": loss(True),
    "cross_entropy_backward": loss_backward(True),
    "nll_loss": loss(False),
    "nll_loss_backward": loss_backward(False),
    "layer_norm": norm(True),
    "layer_norm_backward": norm_backward(True),
    "layer_norm_weight_backward": norm_weight_backward(True),
    "rms_norm": norm(False),
    "rms_norm_backward": norm_backward(False),
    "rms_norm_weight_backward": norm_weight_backward(False),
    "attention": attention,
    "attention_backward": attention_backward,
    # PyTorch computes the result again, which follows the first four operands.
    "attention_gradients": lambda *operands: attention_backward(*operands[:4], *operands[5:]),
    "lstm_cell": lstm_cell,
    "lstm_cell_backward": lstm_cell_backward,
    "complex_mul": on_complex(torch.mul),
    "complex_div": on_complex(torch.div),
    "fourier": transform(torch.fft.fft, "backward"),
    "inverse_fourier": transform(torch.fft.ifft, "forward"),
    "real_fourier": real_transform,
    "inverse_real_fourier": inverse_real_transform,
}
