"""`embedding_bag`: rows of a table looked up and put together, bag by bag."""

from __future__ import annotations

import gt
from gt._gt import Tensor
from gt.nn import functional


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of each bag of indices; an empty bag gives zeros.

    Args:
        input: `(bags, indices)`, or all indices one after the other.
        weight: The rows, `(rows, features)`.
        offsets: Where each bag starts, if the indices are one after the other.
        max_norm: As in `embedding`.
        norm_type: As in `embedding`.
        scale_grad_by_freq: As in `embedding`.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: Not there.
        per_sample_weights: What each row is multiplied by, in a sum.
        include_last_offset: Whether the last offset is the end, not a start.
        padding_idx: An index that counts as none.

    Returns:
        `(bags, features)`.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}')."
        )
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed "
                "length sequences."
            )
        bags, length = input.shape
        index, bag = input.reshape(-1), gt.arange(bags).repeat_interleave(length)
        shares = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    elif input.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        starts = offsets[:-1] if include_last_offset else offsets
        index, shares, bags = input, per_sample_weights, starts.numel()
        # The bag of an index: how many bags have started by then.
        bag = (gt.arange(index.numel()).unsqueeze(1) >= starts).long().sum(1) - 1
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    rows = functional.embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    counts = gt.ones(index.numel(), dtype=weight.dtype)
    if padding_idx is not None:
        counts = (index != padding_idx % weight.shape[0]).to(weight.dtype)
    if shares is not None:
        rows = rows * shares.unsqueeze(1)
    zeros = gt.zeros(bags, weight.shape[1], dtype=weight.dtype)
    if mode == "max":
        hidden = rows.masked_fill((counts == 0).unsqueeze(1), -float("inf"))
        into = bag.unsqueeze(1).expand(rows.shape)
        largest = (zeros - float("inf")).scatter_reduce(0, into, hidden, "amax")
        return gt.where(largest == -float("inf"), 0.0, largest)
    total = zeros.index_add(0, bag, rows * counts.unsqueeze(1))
    if mode == "sum":
        return total
    sizes = gt.zeros(bags, dtype=weight.dtype).index_add(0, bag, counts)
    return total / sizes.clamp(min=1).unsqueeze(1)
