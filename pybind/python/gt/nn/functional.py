"""The functions behind the layers of `gt.nn`, under PyTorch's names: import as `import gt.nn.functional as F`.

Most are declared in the crate `functions`. Each is composed of tensor operations, so autograd differentiates it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from gt import _absent, _functions, _gt
from gt import _core as gt
from gt._composites.distances import cosine_similarity, pdist
from gt._composites.padding import pad
from gt._gt import Tensor
from gt.nn._activations import (
    bilinear,
    celu,
    celu_,
    elu,
    elu_,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    linear,
    logsigmoid,
    mish,
    normalize,
    pairwise_distance,
    prelu,
    relu6,
    rrelu,
    rrelu_,
    selu,
    selu_,
    silu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    threshold_,
)
from gt.nn._attention import multi_head_attention_forward, scaled_dot_product_attention
from gt.nn._ctc import ctc_loss
from gt.nn._dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from gt.nn._embeddings import embedding, embedding_bag, one_hot
from gt.nn._losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    cross_entropy_loss,
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    mse_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from gt.nn._margin_losses import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from gt.nn._normalization import batch_norm, group_norm, instance_norm, local_response_norm

_DECLARED = _functions.MODULES["nn.functional"]
globals().update(_DECLARED)

__all__ = [
    *_DECLARED,
    "alpha_dropout",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "cross_entropy_loss",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

__getattr__ = _absent.getter(__name__)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Rectified linear unit: `max(x, 0)`, element by element.

    Args:
        input: Any tensor.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.functional.relu(gt.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return input.relu_() if inplace else input.relu()


def relu_(input: Tensor) -> Tensor:
    """In-place variant of `relu`: the result overwrites the input."""
    return input.relu_()


def sigmoid(input: Tensor) -> Tensor:
    """Logistic sigmoid: `1 / (1 + exp(-x))`, element by element."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent, element by element."""
    return input.tanh()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: `x * Phi(x)`, where Phi is the standard normal CDF (Hendrycks and Gimpel 2016).

    Args:
        input: Any tensor.
        approximate: `"none"`, or `"tanh"` for `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.

    Example:
        >>> gt.nn.functional.gelu(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """
    return input.gelu(approximate=approximate)


def _implicit_dim(name: str, rank: int) -> int:
    """PyTorch's default for a softmax whose axis is not given."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if rank in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """Softmax along an axis: `exp(x_i) / sum_j exp(x_j)`, probabilities that sum to 1.

    Args:
        input: Any tensor.
        dim: The axis.
        _stacklevel: Ignored.
        dtype: The dtype to convert the input to first.

    Example:
        >>> gt.nn.functional.softmax(gt.tensor([0.0, 0.0]), dim=0)
        tensor([0.5000, 0.5000])
    """
    return input.softmax(_implicit_dim("softmax", input.ndim) if dim is None else dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """Softmax of the negated input along an axis: `exp(-x_i) / sum_j exp(-x_j)`."""
    return (-input).softmax(_implicit_dim("softmin", input.ndim) if dim is None else dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """Logarithm of the softmax along an axis, `x_i - log sum_j exp(x_j)`, computed without overflow.

    Args:
        input: Any tensor.
        dim: The axis.
        _stacklevel: Ignored.
        dtype: The dtype to convert the input to first.

    Example:
        >>> gt.nn.functional.log_softmax(gt.tensor([0.0, 0.0]), dim=0)
        tensor([-0.6931, -0.6931])
    """
    return input.log_softmax(_implicit_dim("log_softmax", input.ndim) if dim is None else dim, dtype=dtype)


# Normalization --------------------------------------------------------------------------------------------------


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer normalization over the last axes: `(x - mean) / sqrt(var + eps) * weight + bias` (Ba et al. 2016).

    Args:
        input: `(*, *normalized_shape)`.
        normalized_shape: The sizes of the axes over which the mean and variance are taken.
        weight: The scale, of shape `normalized_shape`.
        bias: The shift, of shape `normalized_shape`.
        eps: Added to the variance.

    Example:
        >>> gt.nn.functional.layer_norm(gt.tensor([[1.0, 3.0]]), (2,))
        tensor([[-1.0000,  1.0000]])
    """
    return _gt.norm(input, normalized_shape, weight, bias, eps, True)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """RMS normalization over the last axes: `x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich 2019).

    Args:
        input: `(*, *normalized_shape)`.
        normalized_shape: The sizes of the axes over which the mean is taken.
        weight: The scale, of shape `normalized_shape`.
        eps: Added to the mean square; by default the machine epsilon of float64 for float64, else that of float32.

    Example:
        >>> gt.nn.functional.rms_norm(gt.tensor([[3.0, 3.0]]), (2,))
        tensor([[1., 1.]])
    """
    if eps is None:
        eps = 2.0**-52 if input.dtype == gt.float64 else 2.0**-23
    return _gt.norm(input, normalized_shape, weight, None, eps, False)
