"""Rows of a table looked up, and put together bag by bag, as functions; `gt.nn.functional` has them."""

from __future__ import annotations

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 `(…, num_classes)` with a 1 at each class index of `input`; -1 counts up to the largest, which waits."""
    if num_classes < 0:
        if input.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(input.max()) + 1
    return (input.unsqueeze(-1) == gt.arange(num_classes)).long()


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Row `i` of `weight`, `(rows, features)`, for each index `i` of `input`: `(…)` gives `(…, features)`.

    Args:
        input: Integers of any shape, from 0 to `rows - 1`.
        weight: The rows.
        padding_idx: A row that gets no gradient.
        max_norm: Rows that are looked up are first scaled down to this norm, in place.
        norm_type: Which norm.
        scale_grad_by_freq: Whether a row's gradient is the mean over its appearances in `input`, not their sum.
        sparse: Not there: gradients are dense.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.
    """
    if sparse:
        raise NotImplementedError("embedding: sparse=True is not there: gradients are dense")
    if max_norm is not None:
        with no_grad():
            found = gt.zeros(weight.shape[0], 1, dtype=gt.bool)
            found = found.index_fill(0, input.reshape(-1).long(), True)
            norms = gt.norm(weight, norm_type, 1, keepdim=True)
            small = weight * (max_norm / (norms + 1e-7))
            weight.copy_(gt.where(found & (norms > max_norm), small, weight))
    if input.dtype.is_floating_point or input.dtype == gt.bool:
        raise RuntimeError(f"embedding: expected indices of dtype int32 or int64, but got {input.dtype}")
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but got shape {tuple(weight.shape)}")
    features = weight.shape[1]
    index = input.long()
    rows = weight.gather(0, index.reshape(-1, 1).expand(input.numel(), features))
    rows = rows.reshape(*input.shape, features)
    if scale_grad_by_freq and rows.requires_grad:
        often = gt.bincount(index.reshape(-1), minlength=weight.shape[0])[index].unsqueeze(-1)
        rows.register_hook(lambda gradient: gradient / often)
    if padding_idx is None:
        return rows
    if not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return gt.where((index == padding_idx % weight.shape[0]).unsqueeze(-1), rows.detach(), rows)


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
    rows = embedding(index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
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
