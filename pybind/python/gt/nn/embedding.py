"""`Embedding`: a vector for each of a number of things."""

from __future__ import annotations

from typing import Any

import gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class Embedding(Module):
    """Row `i` of the weight, `(num_embeddings, embedding_dim)`, for each index `i`.

    The weight starts with normal numbers; the row `padding_idx` starts with zeros and is not trained.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError("Padding_idx must be within num_embeddings")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = Parameter(gt.empty(num_embeddings, embedding_dim, dtype=dtype))
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """An embedding of these rows, `(num_embeddings, embedding_dim)`; frozen, they are not trained."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        made = cls(*embeddings.shape, padding_idx=padding_idx, dtype=embeddings.dtype)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def reset_parameters(self) -> None:
        """Draws the weight anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        """`(…)` to `(…, embedding_dim)`."""
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
