"""Embedding layers: `Embedding` and `EmbeddingBag`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gt import _core as gt
from gt._autograd import no_grad
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class Embedding(Module):
    """Look-up table of vectors: maps each index to a row of the weight.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The size of each row.
        padding_idx: A row that starts with zeros and is not trained.
        max_norm: Looked-up rows of a larger norm are rescaled to it, in place.
        norm_type: The order of that norm.
        scale_grad_by_freq: Whether a row's gradient is divided by the row's number of occurrences in the input.
        sparse: Whether the weight's gradient is a sparse COO tensor of the rows that were looked up, for the optimizers
            `SGD`, `Adagrad` and `SparseAdam`.
        _weight: The initial weight.
        _freeze: Whether the weight is not trained.
        device: Where the weight is.
        dtype: Its dtype.

    Attributes:
        weight: `(num_embeddings, embedding_dim)`, initialized from N(0, 1).

    Shape:
        Indices `(*)` to `(*, embedding_dim)`.

    Example:
        >>> embedding = gt.nn.Embedding(10, 3)
        >>> embedding(gt.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])).shape
        gt.Size([2, 4, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if sparse:
            # Hooks that the program registers from now on are called with sparse gradients.
            import_module("gt.sparse")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        made = gt.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(made, requires_grad=not _freeze)
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding layer with the given weight.

        Args:
            embeddings: `(num_embeddings, embedding_dim)`.
            freeze: Whether the weight is not trained.
            padding_idx: See `Embedding`.
            max_norm: See `Embedding`.
            norm_type: See `Embedding`.
            scale_grad_by_freq: See `Embedding`.
            sparse: See `Embedding`.

        Example:
            >>> embedding = gt.nn.Embedding.from_pretrained(gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
            >>> embedding(gt.tensor([1]))
            tensor([[3., 4.]])
        """
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(*embeddings.shape, *options, _weight=embeddings, _freeze=freeze)

    def reset_parameters(self) -> None:
        """Initializes the weight from N(0, 1), and the row `padding_idx` with zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return functional.embedding(input, self.weight, self.padding_idx, *options)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Embedding):
    """Sum, mean or maximum of embedding vectors over bags of indices.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The size of each row.
        max_norm: See `Embedding`.
        norm_type: See `Embedding`.
        scale_grad_by_freq: See `Embedding`.
        mode: `"sum"`, `"mean"` or `"max"`.
        sparse: See `Embedding`; not for `"max"`.
        _weight: The initial weight.
        include_last_offset: Whether the last offset is the end of the last bag.
        padding_idx: An index that is skipped, and whose row is not trained.
        device: Where the weight is.
        dtype: Its dtype.

    Example:
        >>> bag = gt.nn.EmbeddingBag(10, 3, mode="sum")
        >>> bag(gt.tensor([1, 2, 4, 5, 4]), offsets=gt.tensor([0, 3])).shape
        gt.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight)
        super().__init__(num_embeddings, embedding_dim, *options, device=device, dtype=dtype)
        self.mode = mode
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, embeddings: Tensor, freeze: bool = True, **options: Any
    ) -> EmbeddingBag:
        """An embedding bag layer with the given weight; `freeze` keeps it from being trained."""
        made = cls(*embeddings.shape, _weight=embeddings, **options)
        made.weight.requires_grad_(not freeze)
        return made

    def forward(  # type: ignore[override]
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Reduces the vectors of each bag.

        Args:
            input: `(bags, indices)`, or the indices of all bags one after the other.
            offsets: Where each bag starts, if `input` has one axis.
            per_sample_weights: The factor of each vector, for `"sum"`.

        Returns:
            `(bags, embedding_dim)`.
        """
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse)
        more = (per_sample_weights, self.include_last_offset, self.padding_idx)
        return functional.embedding_bag(input, self.weight, offsets, *options, *more)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
