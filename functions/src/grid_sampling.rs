//! Sampling images at the points of a grid, and affine grids.

use crate::common::{along_axis, filled};
use crate::declaration::functions;
use crate::sliding_windows::tuple;
use gt_ops::build;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::{DType, OpError};

/// A tap of an interpolation along one axis: its index, and its weight, a tensor or 1.
type Tap<'g> = (Expr<'g>, Expr<'g>);

/// The value of `align_corners`; a user who does not give it is warned.
fn corners(g: &Builder<'_>, name: &str, align_corners: Option<bool>) -> bool {
    if align_corners.is_none() {
        g.warn(format!(
            "Default {name} behavior is align_corners=False: please specify align_corners=True if the corners should be \
             those of the outer pixels' centres."
        ));
    }
    align_corners.unwrap_or(false)
}

/// How coordinates outside the image are treated.
#[derive(Clone, Copy)]
struct Outside<'a> {
    padding_mode: &'a str,
    corners: bool,
}

impl Outside<'_> {
    /// Coordinates along an axis, clamped or reflected into the image; the gradient is 0 where they are clamped.
    fn wrap<'g>(self, at: Expr<'g>, size: i64) -> Result<Expr<'g>> {
        let size = size as f64;
        let at = match self.padding_mode {
            "zeros" => return Ok(at),
            "reflection" => {
                let (least, span) = if self.corners { (0.0, size - 1.0) } else { (-0.5, size) };
                if span == 0.0 {
                    return Ok(at * span);
                }
                let away = at.lt(least).where_(least - at, at - least);
                let turns = (away.detach() / span).floor();
                let rest = away - turns * span;
                turns.remainder(2i64).eq(0i64).where_(rest, span - rest) + least
            }
            _ => at,
        };
        Ok(at.gt(0i64).where_(at.lt(size - 1.0).where_(at, size - 1.0), 0.0))
    }
}

fn linear_taps(at: Expr<'_>) -> Vec<Tap<'_>> {
    let low = at.detach().floor();
    let share = at - low;
    vec![(low, 1i64 - share), (low + 1i64, share)]
}

/// The four taps of cubic convolution (Keys 1981) with a = -0.75.
fn cubic_taps(at: Expr<'_>) -> Vec<Tap<'_>> {
    const A: f64 = -0.75;
    fn near(x: Expr<'_>) -> Expr<'_> {
        (x * (A + 2.0) - (A + 3.0)) * x * x + 1i64
    }
    fn far(x: Expr<'_>) -> Expr<'_> {
        ((x * A - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    }
    let low = at.detach().floor();
    let t = at - low;
    let weights = [far(t + 1i64), near(t), near(1i64 - t), far(2i64 - t)];
    (-1i64..).zip(weights).map(|(i, weight)| (low + i, weight)).collect()
}

/// The weighted sum over all combinations of the axes' taps; taps outside the image count as zeros.
fn interpolate<'g>(input: Expr<'g>, grid: Expr<'g>, axes: &[Vec<Tap<'g>>]) -> Result<Expr<'g>> {
    let (shape, points) = (input.sizes()?, grid.sizes()?);
    let (samples, channels, sizes) = (shape[0], shape[1], &shape[2..]);
    let seen = &points[1..points.len() - 1];
    let count: i64 = seen.iter().product();
    let flat = input.flatten(2, -1);
    let mut combinations: Vec<Vec<Tap<'g>>> = vec![vec![]];
    for taps in axes {
        combinations =
            combinations.iter().flat_map(|before| taps.iter().map(|tap| [&before[..], &[*tap]].concat())).collect();
    }
    let mut total: Option<Expr<'g>> = None;
    for taps in combinations {
        let (mut index, mut weight, mut there): (Option<Expr<'g>>, Option<Expr<'g>>, Option<Expr<'g>>) =
            (None, None, None);
        for ((place, share), size) in taps.into_iter().zip(sizes) {
            let within = place.ge(0i64) & place.le(size - 1);
            let inside = within.where_(place, 0.0).to(DType::I64);
            index = Some(index.map_or(inside, |index| index * *size + inside));
            there = Some(there.map_or(within, |there| there & within));
            if share.as_number().is_none() {
                weight = Some(weight.map_or(share, |weight| weight * share));
            }
        }
        let (Some(index), Some(there)) = (index, there) else { continue };
        let index = index.reshape(&[samples, 1, count]).expand(&[samples, channels, count]);
        let found = flat.gather(2, index).reshape(&[&[samples, channels], seen].concat());
        let found = there.unsqueeze(1).where_(found, 0.0);
        let part = weight.map_or(found, |weight| found * weight.unsqueeze(1));
        total = Some(total.map_or(part, |total| total + part));
    }
    total.ok_or_else(|| OpError::runtime("grid_sampler(): no taps"))
}

functions! {
    /// Samples images at the points of a grid (Jaderberg et al. 2015).
    ///
    /// Args:
    ///     input: `(N, C, H, W)` or `(N, C, D, H, W)`.
    ///     grid: `(N, H', W', 2)` or `(N, D', H', W', 3)`: for each output pixel the point (x, y) or (x, y, z), where
    ///         -1 and 1 are the edges of the image.
    ///     mode: `"bilinear"`, `"nearest"` or `"bicubic"` interpolation.
    ///     padding_mode: The values outside the image: `"zeros"`, the nearest `"border"` pixel, or its `"reflection"`.
    ///     align_corners: Whether -1 and 1 are the centres of the corner pixels rather than their outer edges.
    ///
    /// Returns:
    ///     `(N, C, H', W')` or `(N, C, D', H', W')`.
    ///
    /// Example:
    ///     >>> corners = gt.tensor([[[[-1.0, -1.0], [1.0, 1.0]]]])
    ///     >>> gt.nn.functional.grid_sample(gt.arange(4.0).reshape(1, 1, 2, 2), corners, align_corners=True)
    ///     tensor([[[[0., 3.]]]])
    [module("nn.functional").wide()]
    fn grid_sample(g, input: Expr<'g>, grid: Expr<'g>, mode: &'g str = "bilinear", padding_mode: &'g str = "zeros",
        align_corners: Option<bool> = None) -> Result<Expr<'g>> {
        if !matches!(mode, "bilinear" | "nearest" | "bicubic") {
            return Err(OpError::value(format!(
                "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
            )));
        }
        if !matches!(padding_mode, "zeros" | "border" | "reflection") {
            return Err(OpError::value(format!(
                "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: \
                 '{padding_mode}'"
            )));
        }
        let (shape, points) = (input.sizes()?, grid.sizes()?);
        let rank = shape.len().saturating_sub(2);
        if !(2..=3).contains(&rank) || points.len() != shape.len() || points[0] != shape[0] {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions and same batch size, \
                 but got input with sizes {shape:?} and grid with sizes {points:?}"
            )));
        }
        if points[rank + 1] != rank as i64 {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected grid to have size {rank} in last dimension, but got grid with sizes {points:?}"
            )));
        }
        let (dtype, other) = (input.dtype()?, grid.dtype()?);
        if dtype != other {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected input and grid to have same dtype, but input has gt.{} and grid has gt.{}",
                dtype.name(),
                other.name()
            )));
        }
        if let Some(empty) = shape[2..].iter().position(|size| *size == 0) {
            return Err(OpError::runtime(format!(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {shape:?} \
                 with dimension {} being empty",
                empty + 2
            )));
        }
        let outside = Outside { padding_mode, corners: corners(g, "grid_sample", align_corners) };
        // As in PyTorch, cubic interpolation of volumes computes in float32.
        let wide = mode == "bicubic" && rank == 3;
        let (input, grid) = if wide { (input.upcast(), grid.upcast()) } else { (input, grid) };
        let mut axes = Vec::new();
        for (i, size) in shape[2..].iter().enumerate() {
            let at = (grid.select(-1, (rank - 1 - i) as i64) + 1i64) / 2i64;
            let at = if outside.corners { at * (size - 1) } else { at * *size - 0.5 };
            axes.push(match mode {
                "bicubic" => cubic_taps(at)
                    .into_iter()
                    .map(|(place, share)| Ok((outside.wrap(place, *size)?, share)))
                    .collect::<Result<Vec<_>>>()?,
                "nearest" => vec![(outside.wrap(at, *size)?.detach().round(), g.number(1.0))],
                _ => linear_taps(outside.wrap(at, *size)?),
            });
        }
        Ok(interpolate(input, grid, &axes)?.to(dtype))
    }

    /// The sampling grid of affine transforms, for `grid_sample`.
    ///
    /// Args:
    ///     theta: Matrices `(N, 2, 3)` or `(N, 3, 4)` from output coordinates to input coordinates.
    ///     size: The shape of the output images, `(N, C, H, W)` or `(N, C, D, H, W)`.
    ///     align_corners: As in `grid_sample`.
    ///
    /// Returns:
    ///     `(N, H, W, 2)` or `(N, D, H, W, 3)`.
    ///
    /// Example:
    ///     >>> identity = gt.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    ///     >>> gt.nn.functional.affine_grid(identity, (1, 1, 1, 2), align_corners=True)
    ///     tensor([[[[-1.,  0.],
    ///               [ 1.,  0.]]]])
    [module("nn.functional").wide()]
    fn affine_grid(g, theta: Expr<'g>, size: &'g [i64], align_corners: Option<bool> = None) -> Result<Expr<'g>> {
        let dtype = theta.dtype()?;
        if !dtype.is_float() {
            return Err(OpError::value(format!("Expected theta to have floating point type, but got gt.{}", dtype.name())));
        }
        let rank = size.len().saturating_sub(2);
        if !(2..=3).contains(&rank) {
            return Err(OpError::not_implemented(format!(
                "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {}.",
                tuple(size)
            )));
        }
        let shape = theta.sizes()?;
        if shape.len() != 3 || shape[1..] != [rank as i64, rank as i64 + 1] {
            return Err(OpError::value(format!(
                "Expected a batch of {rank}D affine matrices of shape Nx{rank}x{} for size {}. Got gt.Size({shape:?}).",
                rank + 1,
                tuple(size)
            )));
        }
        if size.iter().any(|n| *n <= 0) {
            return Err(OpError::value(format!("Expected non-zero, positive output size. Got {}", tuple(size))));
        }
        let corners = corners(g, "affine_grid", align_corners);
        let spatial = &size[2..];
        let mut coordinates = Vec::new();
        for (axis, n) in spatial.iter().enumerate() {
            let steps = match n {
                1 => g.floats(&[0.0], &[1], dtype),
                _ => g.run(|g| build::linspace(g, -1.0, 1.0, *n, dtype)),
            };
            let steps = if corners { steps } else { steps * ((n - 1) as f64 / *n as f64) };
            coordinates.push(steps.reshape(&along_axis(rank, axis)).expand(spatial));
        }
        coordinates.reverse();
        coordinates.push(filled(g, spatial, 1i64, dtype));
        let places = g.stack(&coordinates, -1).reshape(&[-1, rank as i64 + 1]);
        let seen = [&size[..1], spatial, &[rank as i64]].concat();
        Ok(places.matmul(theta.transposed()).reshape(&seen))
    }

    /// Sampling at grid points, with modes by number: see `gt.nn.functional.grid_sample`.
    [function().wide()]
    fn grid_sampler(g, input: Expr<'g>, grid: Expr<'g>, interpolation_mode: i64, padding_mode: i64,
        align_corners: bool) -> Result<Expr<'g>> {
        let choose = |names: [&'static str; 3], number: i64| {
            let name = usize::try_from(number).ok().and_then(|place| names.get(place).copied());
            name.ok_or_else(|| OpError::index(format!("grid_sampler(): there is no mode {number}")))
        };
        let mode = choose(["bilinear", "nearest", "bicubic"], interpolation_mode)?;
        let padding_mode = choose(["zeros", "border", "reflection"], padding_mode)?;
        grid_sample(g, input, grid, mode, padding_mode, Some(align_corners))
    }

    /// Affine sampling grid: see `gt.nn.functional.affine_grid`.
    [function().wide()]
    fn affine_grid_generator(g, theta: Expr<'g>, size: &'g [i64], align_corners: bool) -> Result<Expr<'g>> {
        affine_grid(g, theta, size, Some(align_corners))
    }
}
