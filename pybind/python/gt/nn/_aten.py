"""Functions of PyTorch's top level (`torch.dropout`, `torch.batch_norm`) that differ from those of `nn.functional`.

They have ATen's signatures: another order of arguments, and reductions and modes as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from gt._gt import Tensor
from gt.nn import functional

# ATen's enumeration, in order.
_REDUCTIONS = ("none", "mean", "sum")


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout: see `gt.nn.functional.dropout`."""
    return functional.dropout(input, p, train)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels of `(N, C, *)`, with any number of spatial axes."""
    if not train or p == 0:
        return input
    kept = functional.dropout(input.new_ones((*input.shape[:2], *[1] * (input.ndim - 2))), p, True)
    return input * kept


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Alpha dropout: see `gt.nn.functional.alpha_dropout`."""
    return functional.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Alpha dropout of whole channels: see `gt.nn.functional.feature_alpha_dropout`."""
    return functional.feature_alpha_dropout(input, p, train)


def rrelu(input: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Randomized leaky ReLU: see `gt.nn.functional.rrelu`."""
    return functional.rrelu(input, lower, upper, training)


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Embedding look-up with the weight first: see `gt.nn.functional.embedding`. A `padding_idx` of -1 means none."""
    padding = None if padding_idx < 0 else padding_idx
    return functional.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,  # noqa: ARG001 (there is one way)
) -> Tensor:
    """Batch normalization: see `gt.nn.functional.batch_norm`."""
    return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,  # noqa: ARG001 (there is one way)
) -> Tensor:
    """Instance normalization: see `gt.nn.functional.instance_norm`."""
    return functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """RMS normalization: see `gt.nn.functional.rms_norm`."""
    return functional.rms_norm(input, normalized_shape, weight, eps)






def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """Binary cross entropy with logits: see `gt.nn.functional.binary_cross_entropy_with_logits`."""
    return functional.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_REDUCTIONS[reduction], pos_weight=pos_weight
    )


def kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence: see `gt.nn.functional.kl_div`."""
    return functional.kl_div(input, target, reduction=_REDUCTIONS[reduction], log_target=log_target)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """Cosine embedding loss: see `gt.nn.functional.cosine_embedding_loss`."""
    return functional.cosine_embedding_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """Hinge embedding loss: see `gt.nn.functional.hinge_embedding_loss`."""
    return functional.hinge_embedding_loss(input, target, margin, reduction=_REDUCTIONS[reduction])


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """Margin ranking loss: see `gt.nn.functional.margin_ranking_loss`."""
    return functional.margin_ranking_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """Poisson negative log-likelihood: see `gt.nn.functional.poisson_nll_loss`."""
    return functional.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction])


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Tensor:
    """Triplet loss: see `gt.nn.functional.triplet_margin_loss`."""
    words = {"margin": margin, "p": p, "eps": eps, "swap": swap, "reduction": _REDUCTIONS[reduction]}
    return functional.triplet_margin_loss(anchor, positive, negative, **words)


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
