//! Pixel shuffle, its inverse, and channel shuffle.

use crate::declaration::functions;
use gt_ops::OpError;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::module;

/// The sizes before the last three axes, and those three: channels, height and width.
fn image(name: &str, input: Expr<'_>) -> Result<(Vec<i64>, [i64; 3])> {
    let sizes = input.sizes()?;
    match sizes.split_last_chunk() {
        Some((lead, image)) => Ok((lead.to_vec(), *image)),
        None => Err(OpError::runtime(format!(
            "{name} expects input to have at least 3 dimensions, but got input with {} dimension(s)",
            sizes.len()
        ))),
    }
}

/// The last axes in another order, given by their positions among them.
fn permute_last<'g>(x: Expr<'g>, lead: usize, order: &[i64]) -> Expr<'g> {
    let lead = lead as i64;
    let axes: Vec<i64> = (0..lead).chain(order.iter().map(|axis| lead + axis)).collect();
    x.permute(&axes)
}

functions! {
    /// Moves channels to pixels: `(*, C r^2, H, W)` to `(*, C, H r, W r)` (Shi et al. 2016).
    ///
    /// Example:
    ///     >>> gt.nn.functional.pixel_shuffle(gt.tensor([1.0, 2.0, 3.0, 4.0]).reshape(4, 1, 1), 2)
    ///     tensor([[[1., 2.],
    ///              [3., 4.]]])
    [module("nn.functional")]
    fn pixel_shuffle(g, input: Expr<'g>, upscale_factor: i64) -> Result<Expr<'g>> {
        let (lead, [channels, height, width]) = image("pixel_shuffle", input)?;
        let r = upscale_factor;
        if r <= 0 {
            return Err(OpError::runtime(format!("pixel_shuffle expects a positive upscale_factor, but got {r}")));
        }
        let square = r.saturating_mul(r);
        if channels % square != 0 {
            return Err(OpError::runtime(format!(
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, \
                 but input.size(-3)={channels} is not divisible by {square}"
            )));
        }
        let split = input.reshape(&[&lead[..], &[channels / square, r, r, height, width]].concat());
        let mixed = permute_last(split, lead.len(), &[0, 3, 1, 4, 2]);
        Ok(mixed.reshape(&[&lead[..], &[channels / square, height * r, width * r]].concat()))
    }

    /// Moves pixels to channels: `(*, C, H r, W r)` to `(*, C r^2, H, W)`; the inverse of `pixel_shuffle`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.pixel_unshuffle(gt.ones(1, 3, 8, 8), downscale_factor=2).shape
    ///     gt.Size([1, 12, 4, 4])
    [module("nn.functional")]
    fn pixel_unshuffle(g, input: Expr<'g>, downscale_factor: i64) -> Result<Expr<'g>> {
        let (lead, [channels, height, width]) = image("pixel_unshuffle", input)?;
        let r = downscale_factor;
        if r <= 0 {
            return Err(OpError::runtime(format!("pixel_unshuffle expects a positive downscale_factor, but got {r}")));
        }
        if height % r != 0 || width % r != 0 {
            return Err(OpError::runtime(format!(
                "pixel_unshuffle expects height and width to be divisible by downscale_factor, but ({height}, {width}) \
                 are not divisible by {r}"
            )));
        }
        let split = input.reshape(&[&lead[..], &[channels, height / r, r, width / r, r]].concat());
        let mixed = permute_last(split, lead.len(), &[0, 2, 4, 1, 3]);
        let more = channels.saturating_mul(r).saturating_mul(r);
        Ok(mixed.reshape(&[&lead[..], &[more, height / r, width / r]].concat()))
    }

    /// Interleaves the channels (axis 1) of `groups` groups: the first of each group, then the second of each, ….
    ///
    /// See Zhang et al. 2018 (ShuffleNet).
    ///
    /// Example:
    ///     >>> gt.nn.functional.channel_shuffle(gt.arange(4.0).reshape(1, 4, 1, 1), groups=2).flatten()
    ///     tensor([0., 2., 1., 3.])
    [module("nn.functional")]
    fn channel_shuffle(g, input: Expr<'g>, groups: i64) -> Result<Expr<'g>> {
        let sizes = input.sizes()?;
        let Some((samples, [channels, rest @ ..])) = sizes.split_first() else {
            return Err(OpError::runtime(format!(
                "channel_shuffle expects input with at least 2 dimensions, but got {}",
                sizes.len()
            )));
        };
        if groups <= 0 || channels % groups != 0 {
            return Err(OpError::runtime(format!(
                "Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
            )));
        }
        let split = input.reshape(&[&[*samples, groups, channels / groups], rest].concat());
        Ok(split.transpose(1, 2).reshape(&sizes))
    }
}
