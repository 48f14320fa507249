"""Embedding look-up, embedding bags and one-hot encoding as functions; `gt.nn.functional` has them."""

from __future__ import annotations

from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """One-hot encoding of class indices: int64 `(*, num_classes)` with a 1 at each index.

    Args:
        input: Class indices of any shape, at least 0.
        num_classes: The number of classes; -1 for the largest index plus 1, which waits for the input's values.

    Example:
        >>> gt.nn.functional.one_hot(gt.tensor([0, 2]), 3)
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
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
    """Looks up rows of an embedding matrix: `weight[input]`.

    Args:
        input: Indices of any shape `(*)`, from 0 to `num_embeddings - 1`.
        weight: `(num_embeddings, embedding_dim)`.
        padding_idx: The row whose gradient is zero.
        max_norm: Looked-up rows of a larger norm are first rescaled to it, in place.
        norm_type: The order of that norm.
        scale_grad_by_freq: Whether a row's gradient is divided by the row's number of occurrences in `input`.
        sparse: Not supported: gradients are dense.

    Returns:
        `(*, embedding_dim)`.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.

    Example:
        >>> weight = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> gt.nn.functional.embedding(gt.tensor([1, 0, 1]), weight)
        tensor([[3., 4.],
                [1., 2.],
                [3., 4.]])
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
        occurrences = gt.bincount(index.reshape(-1), minlength=weight.shape[0])[index].unsqueeze(-1)
        rows.register_hook(lambda gradient: gradient / occurrences)
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
    """Sum, mean or maximum of embedding vectors over each bag of indices; an empty bag gives zeros.

    Args:
        input: `(bags, indices)`, or the indices of all bags one after the other.
        weight: `(num_embeddings, embedding_dim)`.
        offsets: Where each bag starts, if `input` has one axis.
        max_norm: See `embedding`.
        norm_type: See `embedding`.
        scale_grad_by_freq: See `embedding`.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: Not supported: gradients are dense.
        per_sample_weights: The factor of each vector, for `"sum"`.
        include_last_offset: Whether the last offset is the end of the last bag.
        padding_idx: An index that is skipped.

    Returns:
        `(bags, embedding_dim)`.

    Example:
        >>> weight = gt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> gt.nn.functional.embedding_bag(gt.tensor([[0, 1], [2, 2]]), weight, mode="sum")
        tensor([[ 4.,  6.],
                [10., 12.]])
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
        # The bag of an index is the number of bags that start at or before it, minus 1.
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
