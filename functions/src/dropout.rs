//! Dropout: of elements, of whole channels, and for SELU networks.

use crate::declaration::functions;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, Shape};

/// The limit of SELU for large negative inputs: -alpha * scale.
const ALPHA_LEAST: f64 = -1.7580993408473766;

/// The input with parts dropped by a function, if dropout leaves anything to it.
fn dropped<'g>(input: Expr<'g>, p: f64, training: bool, drop: impl FnOnce() -> Result<Expr<'g>>) -> Result<Expr<'g>> {
    match p {
        _ if !(0.0..=1.0).contains(&p) => {
            Err(OpError::value(format!("dropout probability has to be between 0 and 1, but got {p}")))
        }
        _ if !training || p == 0.0 => Ok(input),
        1.0 => Ok(input * 0.0),
        _ => drop(),
    }
}

/// Whether each part of the input is dropped: a mask of which one element stands for all of the last `axes` axes.
fn mask<'g>(g: &'g Builder<'g>, input: Expr<'g>, axes: usize, p: f64) -> Result<Expr<'g>> {
    let mut sizes = input.shape()?.dims().to_vec();
    let lead = sizes.len() - axes;
    sizes[lead..].fill(1);
    Ok(g.rand(&Shape::new(&sizes)?, DType::default_float()).lt(p))
}

/// Dropout of the parts that the last `axes` axes form.
fn drop_channels<'g>(g: &'g Builder<'g>, input: Expr<'g>, axes: usize, p: f64, training: bool) -> Result<Expr<'g>> {
    dropped(input, p, training, || Ok(mask(g, input, axes, p)?.where_(0.0, input * (1.0 / (1.0 - p)))))
}

/// Alpha dropout of the parts that the last `axes` axes form.
fn drop_to_least<'g>(g: &'g Builder<'g>, input: Expr<'g>, axes: usize, p: f64, training: bool) -> Result<Expr<'g>> {
    dropped(input, p, training, || {
        let scale = 1.0 / ((ALPHA_LEAST * ALPHA_LEAST * p + 1.0) * (1.0 - p)).sqrt();
        Ok(mask(g, input, axes, p)?.where_(ALPHA_LEAST, input) * scale - ALPHA_LEAST * p * scale)
    })
}

functions! {
    /// Dropout (Srivastava et al. 2014): zeroes each element with probability `p`, scales the others by `1 / (1 - p)`.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     p: The probability of zeroing an element.
    ///     training: Whether to drop; if false, the result is `input`.
    ///     inplace: Whether the result overwrites the input.
    ///
    /// Example:
    ///     >>> gt.nn.functional.dropout(gt.ones(3), training=False)
    ///     tensor([1., 1., 1.])
    [module("nn.functional")]
    fn dropout(g, input: Expr<'g>, p: f64 = 0.5, training: bool = true, inplace: bool = false) -> Result<Expr<'g>> {
        dropped(input, p, training, || Ok(g.rand_like(input).lt(p).where_(0.0, input * (1.0 / (1.0 - p)))))
    }

    /// Dropout of whole channels of `(N, C, L)` or `(C, L)`, each with probability `p` (Tompson et al. 2015).
    [module("nn.functional")]
    fn dropout1d(g, input: Expr<'g>, p: f64 = 0.5, training: bool = true, inplace: bool = false) -> Result<Expr<'g>> {
        match input.rank()? {
            2 | 3 => drop_channels(g, input, 1, p, training),
            rank => Err(OpError::runtime(format!("dropout1d: Expected 2D or 3D input, but received a {rank}D input."))),
        }
    }

    /// Dropout of whole channels of `(N, C, H, W)`, each with probability `p` (Tompson et al. 2015).
    [module("nn.functional")]
    fn dropout2d(g, input: Expr<'g>, p: f64 = 0.5, training: bool = true, inplace: bool = false) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        match rank {
            0 | 1 => return Err(OpError::runtime("Feature dropout requires at least 2 dimensions in the input")),
            3 => g.warn(
                "dropout2d: a 3-D input is taken as (N, C, L), a batch of sequences, rather than as one image \
                 (C, H, W): dropout1d says so.",
            ),
            4 => {}
            _ => g.warn(format!(
                "dropout2d: a {rank}-D input has no images whose channels could be dropped: use dropout, or a 4-D input."
            )),
        }
        drop_channels(g, input, rank - 2, p, training)
    }

    /// Dropout of whole channels of `(N, C, D, H, W)` or `(C, D, H, W)`, each with probability `p` (Tompson et
    /// al. 2015).
    [module("nn.functional")]
    fn dropout3d(g, input: Expr<'g>, p: f64 = 0.5, training: bool = true, inplace: bool = false) -> Result<Expr<'g>> {
        let axes = match input.rank()? {
            0 => return Err(OpError::runtime("Feature dropout requires at least 2 dimensions in the input")),
            4 | 5 => 3,
            rank => {
                g.warn(format!(
                    "dropout3d: a {rank}-D input is taken as (C, *), one volume, rather than as (N, C, D, H, W): use \
                     dropout, or a 5-D input."
                ));
                rank - 1
            }
        };
        drop_channels(g, input, axes, p, training)
    }

    /// Alpha dropout (Klambauer et al. 2017): dropped elements take SELU's lower limit; mean 0 and variance 1 are kept.
    [module("nn.functional")]
    fn alpha_dropout(g, input: Expr<'g>, p: f64 = 0.5, training: bool = false, inplace: bool = false)
        -> Result<Expr<'g>> {
        drop_to_least(g, input, 0, p, training)
    }

    /// Alpha dropout of whole channels of `(N, C, *)`.
    [module("nn.functional")]
    fn feature_alpha_dropout(g, input: Expr<'g>, p: f64 = 0.5, training: bool = false, inplace: bool = false)
        -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank < 2 && training && p > 0.0 && p < 1.0 {
            return Err(OpError::runtime("Feature dropout requires at least 2 dimensions in the input"));
        }
        drop_to_least(g, input, rank.saturating_sub(2), p, training)
    }
}
