//! Functions of PyTorch's top level (`torch.dropout`, `torch.batch_norm`) that differ from those of `nn.functional`.
//!
//! They have ATen's signatures: another order of arguments, and reductions as numbers.

use crate::common::filled;
use crate::declaration::{TensorOrNumber, functions};
use crate::losses::reduction_at;
use crate::{activations, dropout as drop, embeddings, losses, margin_losses, normalization};
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{Autocast, function};

functions! {
    /// Dropout: see `gt.nn.functional.dropout`.
    [function().named("dropout")]
    fn aten_dropout(g, input: Expr<'g>, p: f64, train: bool) -> Result<Expr<'g>> {
        drop::dropout(g, input, p, train, false)
    }

    /// Dropout of whole channels of `(N, C, *)`, with any number of spatial axes.
    [function()]
    fn feature_dropout(g, input: Expr<'g>, p: f64, train: bool) -> Result<Expr<'g>> {
        if !train || p == 0.0 {
            return Ok(input);
        }
        let mut sizes = input.sizes()?;
        sizes.iter_mut().skip(2).for_each(|size| *size = 1);
        let kept = filled(g, &sizes, 1.0, input.dtype()?);
        Ok(input * drop::dropout(g, kept, p, true, false)?)
    }

    /// Alpha dropout: see `gt.nn.functional.alpha_dropout`.
    [function().named("alpha_dropout")]
    fn aten_alpha_dropout(g, input: Expr<'g>, p: f64, train: bool) -> Result<Expr<'g>> {
        drop::alpha_dropout(g, input, p, train, false)
    }

    /// Alpha dropout of whole channels: see `gt.nn.functional.feature_alpha_dropout`.
    [function().named("feature_alpha_dropout")]
    fn aten_feature_alpha_dropout(g, input: Expr<'g>, p: f64, train: bool) -> Result<Expr<'g>> {
        drop::feature_alpha_dropout(g, input, p, train, false)
    }

    /// Randomized leaky ReLU: see `gt.nn.functional.rrelu`.
    [function().named("rrelu")]
    fn aten_rrelu(g, input: Expr<'g>, lower: f64 = 0.125, upper: f64 = 1.0 / 3.0, training: bool = false)
        -> Result<Expr<'g>> {
        activations::rrelu(g, input, lower, upper, training, false)
    }

    /// Embedding look-up with the weight first: see `gt.nn.functional.embedding`. A `padding_idx` of -1 means none.
    [function().named("embedding")]
    fn aten_embedding(g, weight: Expr<'g>, indices: Expr<'g>, padding_idx: i64 = -1, scale_grad_by_freq: bool = false,
        sparse: bool = false) -> Result<Expr<'g>> {
        let padding = (padding_idx >= 0).then_some(padding_idx);
        let [rows, _] = embeddings::embedding(g, indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)?;
        Ok(rows)
    }

    /// Batch normalization: see `gt.nn.functional.batch_norm`.
    [function().named("batch_norm").updates(&["running_mean", "running_var"])]
    fn aten_batch_norm(g, input: Expr<'g>, weight: Option<Expr<'g>>, bias: Option<Expr<'g>>,
        running_mean: Option<Expr<'g>>, running_var: Option<Expr<'g>>, training: bool, momentum: f64, eps: f64,
        cudnn_enabled: bool) -> Result<[Expr<'g>; 3]> {
        let momentum = TensorOrNumber(g.number(momentum));
        normalization::batch_norm(g, input, running_mean, running_var, weight, bias, training, momentum, eps)
    }

    /// Instance normalization: see `gt.nn.functional.instance_norm`.
    [function().named("instance_norm").updates(&["running_mean", "running_var"])]
    fn aten_instance_norm(g, input: Expr<'g>, weight: Option<Expr<'g>>, bias: Option<Expr<'g>>,
        running_mean: Option<Expr<'g>>, running_var: Option<Expr<'g>>, use_input_stats: bool, momentum: f64, eps: f64,
        cudnn_enabled: bool) -> Result<[Expr<'g>; 3]> {
        let momentum = TensorOrNumber(g.number(momentum));
        normalization::instance_norm(
            g, input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps,
        )
    }

    /// RMS normalization: see `gt.nn.functional.rms_norm`.
    [function().named("rms_norm")]
    fn aten_rms_norm(g, input: Expr<'g>, normalized_shape: &'g [i64], weight: Option<Expr<'g>> = None,
        eps: Option<f64> = None) -> Result<Expr<'g>> {
        normalization::rms_norm(g, input, normalized_shape, weight, eps)
    }

    /// Binary cross entropy with logits: see `gt.nn.functional.binary_cross_entropy_with_logits`.
    [function().named("binary_cross_entropy_with_logits").autocast(Autocast::Float32)]
    fn aten_binary_cross_entropy_with_logits(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        pos_weight: Option<Expr<'g>> = None, reduction: i64 = 1) -> Result<Expr<'g>> {
        let reduction = reduction_at(reduction)?;
        losses::binary_cross_entropy_with_logits(g, input, target, weight, None, None, reduction, pos_weight)
    }

    /// Kullback-Leibler divergence: see `gt.nn.functional.kl_div`.
    [function().named("kl_div").autocast(Autocast::Float32)]
    fn aten_kl_div(g, input: Expr<'g>, target: Expr<'g>, reduction: i64 = 1; log_target: bool = false) -> Result<Expr<'g>> {
        losses::kl_div(g, input, target, None, None, reduction_at(reduction)?, log_target)
    }

    /// Cosine embedding loss: see `gt.nn.functional.cosine_embedding_loss`.
    [function().named("cosine_embedding_loss")]
    fn aten_cosine_embedding_loss(g, input1: Expr<'g>, input2: Expr<'g>, target: Expr<'g>, margin: f64 = 0.0,
        reduction: i64 = 1) -> Result<Expr<'g>> {
        margin_losses::cosine_embedding_loss(g, input1, input2, target, margin, None, None, reduction_at(reduction)?)
    }

    /// Hinge embedding loss: see `gt.nn.functional.hinge_embedding_loss`.
    [function().named("hinge_embedding_loss")]
    fn aten_hinge_embedding_loss(g, input: Expr<'g>, target: Expr<'g>, margin: f64 = 1.0, reduction: i64 = 1)
        -> Result<Expr<'g>> {
        margin_losses::hinge_embedding_loss(g, input, target, margin, None, None, reduction_at(reduction)?)
    }

    /// Margin ranking loss: see `gt.nn.functional.margin_ranking_loss`.
    [function().named("margin_ranking_loss")]
    fn aten_margin_ranking_loss(g, input1: Expr<'g>, input2: Expr<'g>, target: Expr<'g>, margin: f64 = 0.0,
        reduction: i64 = 1) -> Result<Expr<'g>> {
        margin_losses::margin_ranking_loss(g, input1, input2, target, margin, None, None, reduction_at(reduction)?)
    }

    /// Poisson negative log-likelihood: see `gt.nn.functional.poisson_nll_loss`.
    [function().named("poisson_nll_loss")]
    fn aten_poisson_nll_loss(g, input: Expr<'g>, target: Expr<'g>, log_input: bool, full: bool, eps: f64, reduction: i64)
        -> Result<Expr<'g>> {
        losses::poisson_nll_loss(g, input, target, log_input, full, None, eps, None, reduction_at(reduction)?)
    }

    /// Triplet loss: see `gt.nn.functional.triplet_margin_loss`.
    [function().named("triplet_margin_loss")]
    fn aten_triplet_margin_loss(g, anchor: Expr<'g>, positive: Expr<'g>, negative: Expr<'g>, margin: f64 = 1.0, p: f64 = 2.0,
        eps: f64 = 1e-6, swap: bool = false, reduction: i64 = 1) -> Result<Expr<'g>> {
        let reduction = reduction_at(reduction)?;
        margin_losses::triplet_margin_loss(g, anchor, positive, negative, margin, p, eps, swap, None, None, reduction)
    }
}
