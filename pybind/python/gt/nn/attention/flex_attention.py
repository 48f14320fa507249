"""`flex_attention`: attention with a function that changes the scores, composed of tensor operations.

The function is called once with tensors of indices that broadcast against all scores, not once for each score; so is
the mask's function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._gt import Tensor

__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]

__getattr__ = _absent.getter(__name__)

# The side of the blocks that PyTorch skips; GT skips none.
_DEFAULT_SPARSE_BLOCK_SIZE = 128

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _indices(batch: int, heads: int, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Indices of a score of shape (batch, heads, queries, keys): each along its own axis, of length 1 elsewhere."""
    return (
        gt.arange(batch).view(-1, 1, 1, 1),
        gt.arange(heads).view(1, -1, 1, 1),
        gt.arange(queries).view(1, 1, -1, 1),
        gt.arange(keys).view(1, 1, 1, -1),
    )


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:  # noqa: ARG001
    """A mask that lets every query attend to every key."""
    return gt.ones_like(batch, dtype=gt.bool)


class BlockMask:
    """Which queries attend to which keys, as `create_block_mask` returns it.

    Args:
        mask: True where a query attends to a key: shape (batch or 1, heads or 1, queries, keys).
        mask_mod: The function that it was made with.
    """

    def __init__(self, mask: Tensor, mask_mod: MaskFunction) -> None:
        self.mask = mask
        self.mask_mod = mask_mod

    @property
    def shape(self) -> Any:
        """The shape of the mask: (batch, heads, queries, keys)."""
        return self.mask.shape

    def to_dense(self) -> Tensor:
        """The mask as a tensor of bool."""
        return self.mask

    def to(self, device: Any) -> BlockMask:  # noqa: ARG002 (the daemon decides)
        """Returns the mask itself."""
        return self


def create_mask(
    mod_fn: MaskFunction,
    B: int | None,  # noqa: N803 (PyTorch's names)
    H: int | None,  # noqa: N803
    Q_LEN: int,  # noqa: N803
    KV_LEN: int,  # noqa: N803
    device: Any = None,  # noqa: ARG001
) -> Tensor:
    """The mask of a function as a tensor of bool: shape (B or 1, H or 1, Q_LEN, KV_LEN).

    Args:
        mod_fn: Takes indices of batch, head, query and key; returns whether the query attends to the key.
        B: The number of batches; None for one mask for all.
        H: The number of heads; None for one mask for all.
        Q_LEN: The number of queries.
        KV_LEN: The number of keys.
        device: Ignored: the daemon decides.
    """
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    return mod_fn(*_indices(*shape)).expand(shape)


def create_block_mask(
    mask_mod: MaskFunction,
    B: int | None,  # noqa: N803
    H: int | None,  # noqa: N803
    Q_LEN: int,  # noqa: N803
    KV_LEN: int,  # noqa: N803
    device: Any = None,
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,  # noqa: ARG001, N803 (no block is skipped)
    _compile: bool = False,
    **options: Any,  # noqa: ARG001
) -> BlockMask:
    """The mask of a function, for `flex_attention`: see `create_mask` for the arguments."""
    return BlockMask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod)


def and_masks(*mask_mods: MaskFunction) -> MaskFunction:
    """A mask function that is true where all of the given ones are."""

    def both(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        result = noop_mask(b, h, q, k)
        for mask_mod in mask_mods:
            result = result & mask_mod(b, h, q, k)
        return result

    return both


def or_masks(*mask_mods: MaskFunction) -> MaskFunction:
    """A mask function that is true where any of the given ones is."""

    def either(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        result = ~noop_mask(b, h, q, k)
        for mask_mod in mask_mods:
            result = result | mask_mod(b, h, q, k)
        return result

    return either


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,  # noqa: ARG001 (there is one implementation)
) -> Any:
    """softmax(score_mod(query keyᵀ · scale)) value, where a mask may leave out keys.

    Args:
        query: Shape (batch, heads, queries, size).
        key: Shape (batch, heads, keys, size); with `enable_gqa`, fewer heads, each for a group of the query's.
        value: Shape (batch, heads of the keys, keys, size of the values).
        score_mod: Takes scores and indices of batch, head, query and key; returns the scores to use. It is called
            once, with tensors that broadcast against each other.
        block_mask: Which queries attend to which keys; to all if not given.
        scale: The factor of the scores; 1 / sqrt(size) if not given.
        enable_gqa: Whether `key` and `value` may have fewer heads.
        return_lse: Whether to return the logarithms of the softmax's sums as well: shape (batch, heads, queries).
        kernel_options: Ignored.

    Returns:
        Shape (batch, heads, queries, size of the values); zeros for a query that attends to no key.

    Raises:
        ValueError: The numbers of heads do not fit.
    """
    heads = query.shape[1]
    if enable_gqa and heads % key.shape[1] == 0:
        key = key.repeat_interleave(heads // key.shape[1], 1)
        value = value.repeat_interleave(heads // value.shape[1], 1)
    if key.shape[1] != heads:
        raise ValueError(
            f"flex_attention: expected as many heads of keys as of queries, but got {key.shape[1]} and {heads}"
            + ("" if enable_gqa else ": enable_gqa=True allows groups")
        )
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *_indices(*scores.shape)).to(scores.dtype)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask, -math.inf)
    sums = scores.logsumexp(-1, keepdim=True)
    weights = (scores - sums.masked_fill(sums == -math.inf, 0)).exp()
    result = weights.to(value.dtype) @ value
    return (result, sums.squeeze(-1)) if return_lse else result
