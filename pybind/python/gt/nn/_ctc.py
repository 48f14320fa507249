"""`ctc_loss`: connectionist temporal classification (Graves et al. 2006), by the forward-backward algorithm.

A target of L labels is extended by blanks before, between and after the labels: 2 L + 1 states. An alignment (path)
moves through the states, one time step each: it stays, advances by one state, or skips a blank between different
labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gt import _core as gt
from gt._gt import Tensor
from gt.autograd.function import Function, FunctionCtx, once_differentiable
from gt.nn._losses import reduced, reduction_of


def _lengths(name: str, given: Tensor | Sequence[int], samples: int, most: int | None) -> np.ndarray:
    if isinstance(given, Tensor) and given.dtype.is_floating_point:
        raise RuntimeError(f"{name} must be integral")
    lengths = np.atleast_1d(np.asarray(given.tolist() if isinstance(given, Tensor) else given, np.int64))
    if lengths.shape != (samples,):
        raise RuntimeError(f"{name} must be of size batch_size")
    for length in lengths:
        if length < 0:
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value {length}")
        if most is not None and length > most:
            raise RuntimeError(f"Expected {name} to have value at most {most}, but got value {length}")
    return lengths


def _padded_targets(targets: Tensor, lengths: np.ndarray, blank: int) -> Tensor:
    """The targets as `(batch, longest)`, padded with blanks."""
    longest = int(lengths.max())
    within = np.arange(longest) < lengths[:, None]
    if targets.ndim == 2:
        if targets.shape[0] != len(lengths):
            raise RuntimeError(
                f"Expected tensor to have size {len(lengths)} at dimension 0, but got size {targets.shape[0]} for "
                "argument #2 'targets'"
            )
        if targets.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size {targets.shape[1]} for "
                "argument #2 'targets'"
            )
        labels = targets[:, :longest]
    else:
        if targets.ndim != 1 or targets.shape[0] != lengths.sum():
            raise RuntimeError(
                f"Expected tensor to have size {lengths.sum()} at dimension 0, but got size {list(targets.shape)} for "
                "argument #2 'targets'"
            )
        places = np.where(within, (lengths.cumsum() - lengths)[:, None] + np.arange(longest), 0)
        labels = targets[gt.from_numpy(places)] if targets.numel() else targets.reshape(len(lengths), 0)
    return gt.where(gt.from_numpy(within), labels.long(), blank)


def _forward_variables(emitted: Tensor, extended: Tensor) -> Tensor:
    """Forward variables: log probability of all paths that are in a state at a time, `(time + 1, batch, 2 + states)`.

    Two virtual states precede the first: a path starts in the second of them, before the first time step.
    """
    samples, count = extended.shape
    odd = gt.arange(max(count - 2, 0)) % 2 == 1
    skips = gt.where(odd & (extended[:, 2:] != extended[:, :-2]), 0.0, -math.inf).to(emitted.dtype)
    skips = gt.cat([gt.tensor([[-math.inf, 0.0][:count]], dtype=emitted.dtype).expand(samples, -1), skips], 1)
    edge = gt.full((samples, 2), -math.inf, dtype=emitted.dtype)
    start = gt.tensor([-math.inf, 0.0] + [-math.inf] * count, dtype=emitted.dtype)
    states = [start.expand(samples, count + 2)]
    for step in emitted.unbind(0):
        last = states[-1]
        incoming = gt.logaddexp(gt.logaddexp(last[:, 2:], last[:, 1:-1]), last[:, :-2] + skips)
        states.append(gt.cat([edge, incoming + step], 1))
    return gt.stack(states)


class _Alignment(Function):
    """The loss of each sample; the gradient is that of the logits whose `log_softmax` the input is."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        log_probs: Tensor,
        labels: Tensor,
        steps: np.ndarray,
        lengths: np.ndarray,
        blank: int,
        zero_infinity: bool,
    ) -> Tensor:
        time, samples = int(steps.max()), len(steps)
        log_probs, full = log_probs[:time], log_probs
        blanks = gt.full((samples, labels.shape[1] + 1), blank, dtype=gt.int64)
        extended = gt.stack([blanks[:, 1:], labels], 2).flatten(1)
        extended = gt.cat([extended, blanks[:, :1]], 1)
        count = extended.shape[1]
        index = extended.expand(time, samples, count)
        there = gt.from_numpy(np.arange(count) <= 2 * lengths[:, None])
        emitted = gt.where(there, log_probs.gather(2, index), -math.inf)

        # Indices that reverse each sample's time steps and states, for the backward variables.
        t, s, last = np.arange(time)[:, None], np.arange(count), 2 * lengths[:, None]
        mirror = (
            gt.from_numpy(np.where(t < steps, steps - 1 - t, t)[:, :, None]),
            gt.arange(samples).reshape(-1, 1),
            gt.from_numpy(np.where(s <= last, last - s, s)),
        )
        needed = ctx.needs_input_grad[0]
        if needed:
            both = _forward_variables(
                gt.cat([emitted, emitted[mirror]], 1), gt.cat([extended, extended.gather(1, mirror[2])])
            )
            states, back = both[:, :samples], both[1:, samples:, 2:][mirror]
        else:
            states = _forward_variables(emitted, extended)
        at = gt.from_numpy(steps), gt.arange(samples)
        losses = -gt.logaddexp(
            states[(*at, gt.from_numpy(2 * lengths + 2))], states[(*at, gt.from_numpy(2 * lengths + 1))]
        )
        impossible = losses == math.inf
        if needed:
            # The forward and backward variables both contain the emission of their state, so one is taken off.
            through = states[1:, :, 2:] + back
            posteriors = gt.where(through == -math.inf, 0.0, (through - emitted + losses.unsqueeze(1)).exp())
            expected = gt.zeros_like(log_probs).scatter_add(2, index, posteriors)
            gradient = gt.where(impossible.unsqueeze(1), 0.0 if zero_infinity else math.nan, log_probs.exp() - expected)
            gradient = gt.where(gt.from_numpy(t < steps).unsqueeze(2), gradient, 0.0)
            ctx.save_for_backward(gt.cat([gradient, gt.zeros_like(full[time:])]))
        return gt.where(impossible, 0.0, losses) if zero_infinity else losses

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Any, ...]:
        (by_log_probs,) = ctx.saved_tensors
        return by_log_probs * gradient.unsqueeze(1), None, None, None, None, None


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification: negative log-likelihood of label sequences, summed over their alignments.

    See Graves et al. 2006. As in PyTorch, the gradient is with respect to the logits whose `log_softmax` is
    `log_probs`.

    Args:
        log_probs: `(T, N, C)`, or `(T, C)` without a batch.
        targets: The labels, `(N, S)`, or those of all samples one after the other.
        input_lengths: The number of time steps of each sample, `(N)`.
        target_lengths: The number of labels of each sample, `(N)`.
        blank: The class index of the blank.
        reduction: `"mean"` (each loss divided by the length of its target first), `"sum"` or `"none"`.
        zero_infinity: Whether infinite losses, of inputs that are too short for their targets, count as 0.

    Example:
        >>> log_probs = gt.zeros(3, 1, 2).log_softmax(2)
        >>> gt.nn.functional.ctc_loss(log_probs, gt.tensor([[1]]), [3], [1])
        tensor(0.2877)
    """
    reduction = reduction_of(None, None, reduction)
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional tensor for log_probs")
    if not log_probs.numel():
        raise RuntimeError("log_probs tensor must not be empty")
    if not 0 <= blank < log_probs.shape[-1]:
        raise RuntimeError("blank must be in label range")
    batch = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    steps = _lengths("input_lengths", input_lengths, batch.shape[1], batch.shape[0])
    lengths = _lengths("target_lengths", target_lengths, batch.shape[1], None)
    labels = _padded_targets(targets, lengths, blank)
    losses = _Alignment.apply(batch, labels, steps, lengths, blank, zero_infinity)
    if reduction == "mean":
        return (losses / gt.from_numpy(lengths.clip(1)).to(losses.dtype)).mean()
    return reduced(losses if log_probs.ndim == 3 else losses.squeeze(0), reduction)
