"""The function of PyTorch's top level that differs from that of `nn.functional` and is written in Python."""

from __future__ import annotations

from collections.abc import Sequence

from gt._gt import Tensor
from gt.nn import functional

# ATen's enumeration, in order.
_REDUCTIONS = ("none", "mean", "sum")


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification loss: see `gt.nn.functional.ctc_loss`."""
    lengths = (input_lengths, target_lengths)
    return functional.ctc_loss(log_probs, targets, *lengths, blank, _REDUCTIONS[reduction], zero_infinity)
